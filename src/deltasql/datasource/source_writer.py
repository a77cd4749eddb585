"""Write with `format("deltasql")`: tasks write files, one process commits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from deltasql.datasource.tasks import LakeAddress
from deltasql.errors import StorageError, UnsupportedFeature, UsageError, ValidationError
from deltasql.lake import Lake
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.write import WriteOptions, WritePlan, write_arrow
from deltasql.protocol.actions import Add
from deltasql.storage import Directory


@dataclass
class TaskFiles(WriterCommitMessage):
    """The files of one task."""

    adds: tuple[Add, ...]


@dataclass(frozen=True, slots=True)
class _Write:
    """A planned write, shared by its tasks and its commit."""

    address: LakeAddress
    plan: WritePlan
    txn_id: str

    @classmethod
    def of(
        cls, address: LakeAddress, table: str, schema: StructType, options: Mapping[str, str], *, overwrite: bool
    ) -> _Write:
        write_options = _options(options, overwrite=overwrite)
        with address.open() as lake:
            txn = MultiTableTransaction(lake.store)
            plan = lake.writer.plan(txn, lake.table(table).state(), schema.jsonValue(), write_options)
            if plan.checks() is None:
                txn.rollback()
                raise UnsupportedFeature(
                    f"table {plan.state.name} has constraints, defaults or generated columns that only Spark can "
                    f'evaluate, which format("deltasql") does not support: use '
                    f"lake.table({plan.state.name!r}).append(df)",
                    table=plan.state.name,
                )
            return cls(address, plan, txn.id)

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskFiles:
        checks = self.plan.checks()
        if checks is None:
            raise AssertionError("a plan without checks is rejected earlier")
        return TaskFiles(tuple(write_arrow(self.plan, checks, batches)))


def _options(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    given = {key.lower(): value for key, value in options.items()}

    def is_set(name: str) -> bool:
        return given.get(name, "false").lower() == "true"

    if not overwrite:
        return WriteOptions(merge_schema=is_set("mergeschema"))
    return WriteOptions(
        "overwrite",
        where=given.get("replacewhere"),
        dynamic=given.get("partitionoverwritemode", "static").lower() == "dynamic",
        merge_schema=is_set("mergeschema"),
        overwrite_schema=is_set("overwriteschema"),
    )


def _adds(messages: list[WriterCommitMessage | None]) -> list[Add]:
    return [add for message in messages if isinstance(message, TaskFiles) for add in message.adds]


class BatchWriter(DataSourceArrowWriter):
    """One write, one commit."""

    def __init__(self, write: _Write) -> None:
        self._write = write

    @classmethod
    def of(cls, *given: Any, **options: Any) -> BatchWriter:
        return cls(_Write.of(*given, **options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with self._write.address.open() as lake:
            txn = MultiTableTransaction(lake.store, txn_id=self._write.txn_id)
            _commit(lake, txn, self._write.plan, _adds(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with self._write.address.open() as lake:
            if not lake.store.committed(self._write.txn_id):
                _discard(lake, self._write, _adds(messages))


def _commit(lake: Lake, txn: MultiTableTransaction, plan: WritePlan, adds: list[Add]) -> None:
    """Commit the files of all tasks."""
    with txn:
        txn.begin_files(plan.state, plan.files.options).add(*(unquote(add.path) for add in adds))
        lake.writer.stage(txn, plan, adds)
        txn.commit()


def _discard(lake: Lake, write: _Write, adds: list[Add]) -> None:
    """Delete the files of a write that Spark aborted. The caller knows that it did not land: Spark also aborts a write
    whose commit failed with an unknown outcome."""
    lake.store.end_write(write.txn_id)
    plan = write.plan.files
    Directory(plan.location, plan.options).delete([unquote(add.path) for add in adds])


class StreamWriter(DataSourceStreamArrowWriter):
    """Commits each batch under its number, so that a batch is committed once."""

    def __init__(self, write: _Write, app_id: str) -> None:
        self._write = write
        self._app_id = app_id

    @classmethod
    def of(
        cls, address: LakeAddress, table: str, schema: StructType, options: Mapping[str, str], *, overwrite: bool
    ) -> StreamWriter:
        if overwrite:
            raise UsageError(
                f"table {table}: output mode complete is not supported: use foreachBatch with Table.overwrite",
                table=table,
            )
        return cls(_Write.of(address, table, schema, options, overwrite=False), _app_id(options, table))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        write = self._write
        with write.address.open() as lake:
            state = lake.store.state(write.plan.state.table_id)
            if state.metadata != write.plan.shape.metadata and not write.plan.shape.is_new:
                raise ValidationError(
                    f"table {state.name}: the schema or properties changed while the stream ran: restart the stream",
                    table=state.name,
                )
            lake.store.begin_write(write.txn_id, state)  # keeps the registration of a long stream fresh
            txn = MultiTableTransaction(lake.store, app=(self._app_id, batchId))
            _commit(lake, txn, replace(write.plan, state=state), _adds(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with self._write.address.open() as lake:
            landed = lake.store.txn_version(self._write.plan.state, self._app_id)
            if landed is None or landed < batchId:
                _discard(lake, self._write, _adds(messages))


def _app_id(options: Mapping[str, str], table: str) -> str:
    """Return the id of the stream: the option txnAppId, or the query id that the checkpoint stores."""
    lower = {key.lower(): value for key, value in options.items()}
    if lower.get("txnappid"):
        return lower["txnappid"]
    checkpoint = lower.get("checkpointlocation")
    found = None
    if checkpoint:
        try:
            found = Directory(checkpoint, {}).get("metadata")
        except StorageError:
            found = None
    if found:
        return str(msgspec.json.decode(found)["id"])
    raise UsageError(
        f"table {table}: writing exactly once needs the option txnAppId, or a checkpointLocation that this "
        f"process can read",
        table=table,
    )
