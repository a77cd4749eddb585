"""`spark.read.format("deltasql")`, `df.write.format("deltasql")` and their streams, as a Python data source.

This is a convenience, not the scan engine: rows pass through Python workers, and Spark pushes down neither columns nor
filters. `Table.df` and `Table.append` are faster, and evaluate constraints that need Spark.

Spark plans, reads, writes and commits in separate processes. Each opens the lake by itself, and shared values are
pickled. Tasks read and write files without the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from deltasql.datasource.read_options import reads_changes, reject_timestamps
from deltasql.datasource.source_writer import BatchWriter, StreamWriter
from deltasql.datasource.stream_reader import StreamReader
from deltasql.datasource.tasks import FilesPartition, LakeAddress, read_files, tasks_of
from deltasql.engines.arrow.read.change_feed_scan import changes_between, feed_columns
from deltasql.errors import UsageError
from deltasql.store import Snapshot

FORMAT = "deltasql"


class TableSource(DataSource):
    """One table, named by `load("shop.orders")`."""

    address: LakeAddress

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _table(self) -> str:
        table = self.options.get("path") or self.options.get("table")
        if not table:
            raise UsageError('the table is missing: name it as in spark.read.format("deltasql").load("shop.orders")')
        return str(table)

    def _version(self) -> dict[str, Any]:
        version = self._whole_number("endingVersion" if self._reads_changes() else "versionAsOf")
        return {"version": version, "timestamp": self.options.get("timestampAsOf")}

    def _whole_number(self, option: str) -> int | None:
        given = self.options.get(option)
        if given is not None and not given.isdigit():
            raise UsageError(f"{option} must be an integer from 0, got {given!r}", value=given)
        return None if given is None else int(given)

    def _snapshot(self) -> Snapshot:
        with self.address.open() as lake:
            snapshot: Snapshot = lake.table(self._table()).snapshot(**self._version())
            return snapshot

    def _given(self) -> dict[str, str]:
        return {key.lower(): value for key, value in self.options.items()}

    def _reads_changes(self) -> bool:
        return reads_changes(self._given())

    def _check_batch(self) -> None:
        """Reject options that have no effect on this kind of read."""
        given, changes = self._given(), self._reads_changes()
        reject_timestamps(self._table(), given)
        for option in ("versionAsOf", "timestampAsOf") if changes else ("startingVersion", "endingVersion"):
            if option.lower() in given:
                why = "does not apply to the change data feed" if changes else "needs readChangeFeed=true"
                raise UsageError(f"table {self._table()}: option {option} {why}", value=given[option.lower()])

    def _changes(self) -> list[Snapshot]:
        first = self._whole_number("startingVersion")
        if first is None:
            raise UsageError("option startingVersion is missing: the first version to read changes of")
        with self.address.open() as lake:
            state = lake.table(self._table()).state()
            last = self._whole_number("endingVersion")
            return changes_between(lake.store, state, first, last, self.address.storage_options)

    def schema(self) -> StructType:
        text = self._snapshot().metadata.schema_string
        return spark_schema(feed_columns(text) if self._reads_changes() else text)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        self._check_batch()
        snapshots = self._changes() if self._reads_changes() else [self._snapshot()]
        return _Reader(snapshots, self.address.storage_options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter.of(self.address, self._table(), schema, dict(self.options), overwrite=overwrite)

    def streamReader(self, schema: StructType) -> Any:  # noqa: ARG002
        return StreamReader(self.address, self._table(), dict(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return StreamWriter.of(self.address, self._table(), schema, dict(self.options), overwrite=overwrite)


def spark_schema(schema_string: str) -> StructType:
    """Return the columns of a table as a Spark type."""
    return StructType.fromJson(json.loads(schema_string))


class _Reader(DataSourceReader):
    def __init__(self, snapshots: Sequence[Snapshot], options: Mapping[str, str]) -> None:
        self._snapshots = snapshots
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        tasks = [task for snapshot in self._snapshots for task in tasks_of(snapshot)]
        return tasks or [FilesPartition(self._snapshots[0])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_files(partition, self._options)
