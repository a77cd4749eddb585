"""Writes: rows that a user gives become files, and the actions that a transaction stages for them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from deltasql.config import Config
from deltasql.engines.arrow.write.align import aligned
from deltasql.engines.arrow.write.change_feed_write import ChangeFeedWriter
from deltasql.engines.arrow.write.constraint_checks import RowChecks, exact_filter, row_checks
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles, count_rows
from deltasql.engines.arrow.write.input_rows import ArrowRows, arrow_rows, is_spark_frame
from deltasql.engines.arrow.write.replace_where import ReplaceWhereResult, files_in_partitions, remove_matching_rows
from deltasql.errors import UsageError, ValidationError
from deltasql.operations.commit import MultiTableTransaction
from deltasql.progress import Report, count_files, show_progress
from deltasql.protocol.actions import (
    DELETED,
    INSERTED,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    Metadata,
    Protocol,
    Remove,
    from_dict,
)
from deltasql.protocol.features import grown, needed_features
from deltasql.protocol.schema import Json, arrow_schema, loose_schema, schema_string
from deltasql.protocol.schema_fit import DEFAULT, Fit, fit, nullable, parse_struct
from deltasql.protocol.schema_rules import validate_schema
from deltasql.protocol.table_changes import SERIALIZABLE, Reads, TableState
from deltasql.store import Snapshot, Store
from deltasql.store.read.log_reader import parse_where

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession

_log = logging.getLogger(__name__)

APPEND, OVERWRITE = "append", "overwrite"
_MOST_PARTITIONS = 200


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write does beside adding rows."""

    mode: str = APPEND
    where: str | None = None
    """Overwrite the rows for which this is true, and no others."""
    dynamic: bool = False
    """Overwrite the partitions that the new rows are in, and no others."""
    merge_schema: bool = False
    overwrite_schema: bool = False
    assign: bool = False
    """Cast values as SQL does when a column takes them; only for Spark's rows."""

    def check(self, state: TableState) -> None:
        """Refuse what does not go together."""
        problem = None
        if self.mode not in (APPEND, OVERWRITE):
            problem = f"the mode of a write is {APPEND!r} or {OVERWRITE!r}, got {self.mode!r}"
        elif self.mode == APPEND and (self.where is not None or self.dynamic or self.overwrite_schema):
            problem = "where, dynamic and overwrite_schema are for overwriting: use overwrite(…)"
        elif self.overwrite_schema and (self.where is not None or self.dynamic):
            problem = "a new schema replaces all rows: overwrite_schema goes without where and dynamic"
        elif self.where is not None and self.dynamic:
            problem = "where and dynamic both say which rows are replaced: give one of them"
        elif self.dynamic and state.metadata is not None and not state.metadata.partition_columns:
            problem = "dynamic overwrites partitions, and the table has none: use where, or overwrite all of it"
        if problem:
            raise UsageError(f"table {state.name}: {problem}", table=state.name)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A write that was checked, before its rows are looked at. It pickles: files may be written in other processes."""

    state: TableState
    shape: Shape
    files: FilePlan
    options: WriteOptions
    by_spark: bool = False
    """Do the rows come from Spark? Then files are large, and what is to be rewritten is Spark's work too."""

    def checks(self) -> RowChecks | None:
        """What rows in Arrow form are checked by; None if there is anything that Spark has to evaluate."""
        fit, metadata = self.shape.fit, self.shape.metadata
        if any(DEFAULT in (field.get("metadata") or {}) for field in fit.absent):
            return None
        return row_checks(
            metadata.schema_string, metadata.table_properties.constraints, self.options.where, self.state.name
        )


class TableWriter:
    """Writes rows to the tables of a store: `plan`, then files, then `stage`."""

    def __init__(self, store: Store, options: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self._store = store
        self._options = options
        self._spark = spark

    def write(self, txn: MultiTableTransaction, state: TableState, data: Any, options: WriteOptions) -> dict[str, str]:
        """Write the files of some rows, and stage what commits them; the metrics of the operation."""
        rows = data if is_spark_frame(data) or isinstance(data, ArrowRows) else arrow_rows(data, state.name)
        plan = replace(self.plan(txn, state, struct_of(rows), options), by_spark=is_spark_frame(rows))
        with show_progress(self._store.config["progress"], f"writing {state.name}") as report:
            return self.stage(txn, plan, self._write(plan, rows, report), report)

    def plan(
        self, txn: MultiTableTransaction, state: TableState, given: dict[str, Any], options: WriteOptions
    ) -> WritePlan:
        """Do the rows of a schema fit the table? If so, how are they written; from here on their files are known to be
        on their way."""
        state = txn.state_of(state)
        options.check(state)
        shape = _shape(state, metadata_of(state), given, options)
        parse_where(options.where, state)  # before anything is written
        files = self.begin(txn, state, shape.metadata)
        return WritePlan(state, shape, files, options)

    def begin(self, txn: MultiTableTransaction, state: TableState, metadata: Metadata) -> FilePlan:
        """How files of a table are written; from here on they are known to be on their way."""
        written = txn.begin_files(state, self._options)
        return FilePlan(
            state.location,
            dict(self._options),
            metadata.schema_string,
            metadata.partition_columns,
            metadata.table_properties,
            txn.token,
            self.config_of(metadata)["writer.target_file_size"],
            written=written,
        )

    def config_of(self, metadata: Metadata) -> Config:
        """The configuration under a table's own properties."""
        return self._store.config.override(metadata.configuration)

    def stage(
        self, txn: MultiTableTransaction, plan: WritePlan, adds: Sequence[Add], report: Report | None = None
    ) -> dict[str, str]:
        """Stage the files of a plan, and what they replace."""
        state, shape, options = plan.state, plan.shape, plan.options
        replaced = self._replaced(txn, plan, adds, report) if options.mode == OVERWRITE else _Replaced()
        removes, kept, reads, isolation = replaced.removes, replaced.kept, replaced.reads, replaced.isolation
        metrics = _metrics(adds, kept, removes)
        info = CommitInfo("WRITE", _parameters(options, shape.metadata), metrics)
        if shape.is_new:
            txn.stage_metadata(state, shape.metadata, shape.protocol)
        files = [*adds, *kept]
        changes = self.complete_feed(txn, state, adds, removes, replaced.changes)
        txn.stage_on(state, [*files, *removes, *changes, info], reads=reads, isolation=isolation)
        return metrics

    def complete_feed(
        self,
        txn: MultiTableTransaction,
        state: TableState,
        adds: Sequence[Add],
        removes: Sequence[Remove],
        changes: Sequence[Cdc],
    ) -> list[Cdc]:
        """All files of changes that a statement needs for the change data feed.

        Readers of the feed look at these if a version has any, and at the files that it adds and removes otherwise. So
        once a transaction has some for a table, they have to tell of everything that it does there."""
        state = txn.state_of(state)
        metadata, staged = metadata_of(state), txn.staged(state)
        if not metadata.table_properties.change_data_feed or not (changes or staged.cdc):
            return []
        feed = ChangeFeedWriter(state, self._options, self.begin(txn, state, metadata))
        found = list(changes)
        if not staged.cdc:
            found += feed.write_files([add for add in staged.adds if add.data_change], INSERTED)
            found += feed.write_files([remove for remove in staged.removes if remove.data_change], DELETED)
        if not changes:
            found += feed.write_files(adds, INSERTED)
            found += feed.write_files(removes, DELETED)
        return found

    # --- Files

    def _write(self, plan: WritePlan, rows: Any, report: Report | None) -> list[Add]:
        own = plan.checks() if isinstance(rows, ArrowRows) else None
        if own is not None:
            return write_arrow(plan, own, rows.batches(), report)
        from deltasql.engines.spark.frame_write import FrameWrite
        from deltasql.engines.spark.row_shape import rules

        frame: DataFrame = self._frame(rows) if isinstance(rows, ArrowRows) else rows
        asked = rules(plan.shape.fit, plan.shape.metadata.table_properties.constraints, plan.options.where)
        return FrameWrite(plan.state.name, plan.files, plan.shape.fit, asked, report).run(frame)

    def _frame(self, rows: ArrowRows) -> DataFrame:
        return self._spark().createDataFrame(rows.reader.read_all())

    # --- What is overwritten

    def _replaced(
        self, txn: MultiTableTransaction, plan: WritePlan, adds: Sequence[Add], report: Report | None
    ) -> _Replaced:
        """What a write takes the place of."""
        state, options = plan.state, plan.options
        if options.where is None and not options.dynamic:
            txn.unstage_files(state)
            return _Replaced(removal_of(txn.files(state)), reads=Reads(whole_table=True), isolation=SERIALIZABLE)
        if options.where is not None:
            return self._carved(txn, plan, options.where, adds, report)
        return _in_partitions(removal_of(txn.files(state)), adds, state)

    def _carved(
        self, txn: MultiTableTransaction, plan: WritePlan, where: str, adds: Sequence[Add], report: Report | None
    ) -> _Replaced:
        """Files with rows for which a condition is true go; their other rows are written again."""
        state, metadata = plan.state, plan.shape.metadata
        predicate = parse_where(where, state)
        files = txn.files(state, predicate)
        snapshot = Snapshot.of(replace(state, metadata=metadata), files)
        goes = exact_filter(where, metadata.schema_string, state.name)
        if goes is not None and predicate is not None and predicate.partition_only:
            replaced = ReplaceWhereResult(files_in_partitions(snapshot, goes), [])
        elif goes is None or plan.by_spark:
            replaced = self._remove_by_spark(plan, snapshot, where, report)
        else:
            replaced = remove_matching_rows(replace(snapshot, predicate=predicate), self._options, goes, plan.files)
        reads = Reads((where,), frozenset(files["path"].to_pylist()))
        changes: list[Cdc] = []
        if replaced.rewritten and metadata.table_properties.change_data_feed:
            feed = ChangeFeedWriter(replace(state, metadata=metadata), self._options, plan.files)
            touched = replace(snapshot, files=replaced.removed, predicate=predicate)
            by_arrow = goes is not None and not plan.by_spark
            changes = (
                feed.write_rows(touched, DELETED) if by_arrow else self._gone_by_spark(plan, touched, where, report)
            )
            changes += feed.write_files(adds, INSERTED)
        return _Replaced(removal_of(replaced.removed), replaced.rewritten, reads, changes=changes)

    def _remove_by_spark(
        self, plan: WritePlan, snapshot: Snapshot, where: str, report: Report | None
    ) -> ReplaceWhereResult:
        spark = self._spark()
        from deltasql.engines.spark.frame_replace_where import remove_matching_rows_by_spark

        fast = self.config_of(plan.shape.metadata)["spark.fast_scan"]
        return remove_matching_rows_by_spark(spark, snapshot, where, plan.files, fast=fast, report=report)

    def _gone_by_spark(self, plan: WritePlan, snapshot: Snapshot, where: str, report: Report | None) -> list[Cdc]:
        spark = self._spark()
        from deltasql.engines.spark.frame_replace_where import write_deleted_rows

        fast = self.config_of(plan.shape.metadata)["spark.fast_scan"]
        return write_deleted_rows(spark, replace(snapshot, predicate=None), where, plan.files, fast=fast, report=report)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What an overwrite takes away, and what was read to know it."""

    removes: list[Remove] = field(default_factory=list)
    kept: list[Add] = field(default_factory=list)
    """Files with the rows that stay of those that are removed."""
    reads: Reads = field(default_factory=Reads)
    isolation: str | None = None
    changes: list[Cdc] = field(default_factory=list)
    """What happened to rows, if the files do not tell."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The table's schema once the rows are written, and how they get into it."""

    fit: Fit
    metadata: Metadata
    protocol: Protocol | None
    """A new one, if the schema needs features that the table does not have."""
    is_new: bool


def struct_of(rows: Any) -> Any:
    """The columns of rows in Delta's words."""
    return rows.struct if isinstance(rows, ArrowRows) else rows.schema.jsonValue()


def _shape(state: TableState, metadata: Metadata, given: dict[str, Any], options: WriteOptions) -> Shape:
    if options.overwrite_schema:
        text = schema_string(json.dumps(nullable(given)), table=state.name)
        found = fit(given, parse_struct(text), name=state.name)
    else:
        found = fit(
            given,
            parse_struct(metadata.schema_string),
            name=state.name,
            merge=options.merge_schema,
            assign=options.assign,
        )
        text = metadata.schema_string
        if found.added:
            text = schema_string(json.dumps(found.schema), table=state.name)
    if text == metadata.schema_string:
        return Shape(found, metadata, None, is_new=False)
    validate_schema(text, metadata.partition_columns, state.name)
    after = msgspec.structs.replace(metadata, schema_string=text)
    return Shape(found, after, _grown(state, after), is_new=True)


def _grown(state: TableState, metadata: Metadata) -> Protocol | None:
    """The protocol that a schema needs, if the table's is not enough."""
    needed = needed_features(metadata.table_properties, metadata.schema_string)
    return grown(state.protocol, needed, state.name)


def metadata_of(state: TableState) -> Metadata:
    """The metadata of a table that has some."""
    if state.metadata is None:
        raise ValidationError(f"table {state.name} has no metadata yet", table=state.name, table_id=state.table_id)
    return state.metadata


def fields_of(state: TableState) -> list[Json]:
    """The columns of a table, in Delta's words."""
    fields: list[Json] = parse_struct(metadata_of(state).schema_string)["fields"]
    return fields


def write_arrow(
    plan: WritePlan, checked: RowChecks, batches: Iterable[pa.RecordBatch], report: Report | None = None
) -> list[Add]:
    """Write rows that need nothing but Arrow, here or in a worker of Spark's."""
    schema = loose_schema(arrow_schema(plan.files.schema_string))
    written = 0
    with TableFiles(plan.files) as files:
        for batch in batches:
            shaped = aligned(batch, plan.shape.fit, schema, plan.state.name)
            checked.check(shaped)
            files.write(shaped)
            if report is not None:
                written += batch.num_rows
                report(f"{written:,} rows, {count_files(files.count)}", written, None)
    return files.adds


# --- Actions


def removal_of(files: pa.Table) -> list[Remove]:
    """What takes files out of a table."""
    now = time.time_ns() // 1_000_000
    columns = ("path", "partition_values", "size", "deletion_vector")
    return [
        Remove(
            path=path,
            deletion_timestamp=now,
            extended_file_metadata=True,
            partition_values=values or {},
            size=size,
            deletion_vector=None if vector is None else from_dict(DeletionVector, json.loads(vector)),
        )
        for path, values, size, vector in zip(*(files[c].to_pylist() for c in columns), strict=True)
    ]


def _in_partitions(removes: Sequence[Remove], adds: Sequence[Add], state: TableState) -> _Replaced:
    """Those of the files that lie where new ones do."""
    columns = metadata_of(state).partition_columns
    replaced = {tuple(add.partition_values[c] for c in columns): add.partition_values for add in adds}
    gone = [r for r in removes if tuple((r.partition_values or {}).get(c) for c in columns) in replaced]
    files = frozenset(r.path for r in gone)
    if len(replaced) > _MOST_PARTITIONS:
        return _Replaced(gone, reads=Reads(files=files, whole_table=True))
    types = {f.name: f.type for f in arrow_schema(metadata_of(state).schema_string)}
    where = " OR ".join(f"({_condition(values, types)})" for values in replaced.values())
    return _Replaced(gone, reads=Reads((where,) if where else (), files))


def _condition(values: Mapping[str, str | None], types: Mapping[str, pa.DataType]) -> str:
    from deltasql.protocol.constraints import quoted
    from deltasql.protocol.schema import primitive_name

    parts = []
    for name, value in values.items():
        if value is None:
            parts.append(f"{quoted(name)} IS NULL")
        else:
            literal = value.replace("\\", "\\\\").replace("'", "\\'")
            kind = primitive_name(types[name]) or "string"
            parts.append(f"{quoted(name)} = CAST('{literal}' AS {_SQL.get(kind, kind)})")
    return " AND ".join(parts)


_SQL = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def _metrics(adds: Sequence[Add], kept: Sequence[Add], removes: Sequence[Remove]) -> dict[str, str]:
    metrics = {
        "numFiles": len(adds) + len(kept),
        "numOutputRows": count_rows(adds),
        "numOutputBytes": sum(add.size for add in (*adds, *kept)),
    }
    if kept:
        metrics["numCopiedRows"] = count_rows(kept)
    if removes:
        metrics["numRemovedFiles"] = len(removes)
    return {name: str(value) for name, value in metrics.items()}


def _parameters(options: WriteOptions, metadata: Metadata) -> dict[str, Any]:
    """As Spark writes them: each value is the text of a JSON value."""
    parameters = {"mode": options.mode.title(), "partitionBy": json.dumps(list(metadata.partition_columns))}
    if options.where is not None:
        parameters["predicate"] = options.where
    if options.dynamic:
        parameters["partitionOverwriteMode"] = "dynamic"
    return parameters
