"""Write rows to a table: check them, write their files, and stage the actions."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from deltasql.config import Config
from deltasql.engines.arrow.write.align import aligned
from deltasql.engines.arrow.write.change_feed_write import ChangeFeedWriter
from deltasql.engines.arrow.write.constraint_checks import RowChecks, row_checks
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles, count_rows
from deltasql.engines.arrow.write.input_rows import ArrowRows, arrow_rows, is_spark_frame
from deltasql.errors import UnsupportedFeature, UsageError
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.overwrite import Replacement, ReplaceWhere, metadata_of, replace_all, replace_partitions
from deltasql.progress import Report, count_files, show_progress
from deltasql.protocol.actions import (
    DELETED,
    INSERTED,
    Add,
    Cdc,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
)
from deltasql.protocol.constraints import StoredExpression, stored_expressions
from deltasql.protocol.features import grown, needed_features
from deltasql.protocol.schema import Json, arrow_schema, loose_schema, schema_string
from deltasql.protocol.schema_fit import DEFAULT, Fit, fit, nullable, parse_struct
from deltasql.protocol.schema_rules import validate_schema
from deltasql.protocol.table_changes import TableState
from deltasql.store import Store
from deltasql.store.read.log_reader import parse_where

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession

_log = logging.getLogger(__name__)

APPEND, OVERWRITE = "append", "overwrite"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write."""

    mode: str = APPEND
    where: str | None = None
    """Overwrite only the rows for which this is true."""
    dynamic: bool = False
    """Overwrite only the partitions that the new rows are in."""
    merge_schema: bool = False
    overwrite_schema: bool = False
    assign: bool = False
    """Cast values to the column types as SQL assignment does; only for Spark DataFrames."""
    info: CommitInfo | None = None
    """The operation that history shows, by default WRITE."""

    def check(self, state: TableState) -> None:
        """Raise `UsageError` for options that exclude each other."""
        problem = None
        if self.mode not in (APPEND, OVERWRITE):
            problem = f"mode must be {APPEND!r} or {OVERWRITE!r}, got {self.mode!r}"
        elif self.mode == APPEND and (self.where is not None or self.dynamic or self.overwrite_schema):
            problem = "where, dynamic and overwrite_schema need mode='overwrite'"
        elif self.overwrite_schema and (self.where is not None or self.dynamic):
            problem = "overwrite_schema replaces all rows, so it cannot be combined with where or dynamic"
        elif self.where is not None and self.dynamic:
            problem = "where and dynamic cannot be combined: each selects the rows to replace"
        elif self.dynamic and state.metadata is not None and not state.metadata.partition_columns:
            problem = "dynamic needs a partitioned table: use where, or overwrite the whole table"
        if problem:
            raise UsageError(f"table {state.name}: {problem}", table=state.name)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A write whose schema and options were checked. It can be pickled, because Spark tasks write files as well."""

    state: TableState
    shape: Shape
    files: FilePlan
    options: WriteOptions
    by_spark: bool = False
    """The rows come from Spark, so Spark also rewrites replaced files."""

    def checks(self) -> RowChecks | None:
        """Return the checks of rows in Arrow form, or None if only Spark can evaluate them."""
        fit, metadata = self.shape.fit, self.shape.metadata
        if any(DEFAULT in (field.get("metadata") or {}) for field in fit.absent):
            return None
        return row_checks(
            metadata.schema_string, metadata.table_properties.constraints, self.options.where, self.state.name
        )


class TableWriter:
    """Writes rows to tables in three steps: `plan`, write the files, `stage`."""

    def __init__(self, store: Store, options: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self._store = store
        self._options = options
        self._spark = spark

    def write(
        self,
        txn: MultiTableTransaction,
        state: TableState,
        data: Any,
        options: WriteOptions,
        *,
        translate_errors: bool = True,
    ) -> dict[str, str]:
        """Write rows to files, stage the files, and return the metrics of the operation.

        Spark's errors about the rows are translated; SQL translates them by the statement's text.
        """
        rows = data if is_spark_frame(data) or isinstance(data, ArrowRows) else arrow_rows(data, state.name)
        plan = replace(self.plan(txn, state, struct_of(rows), options), by_spark=is_spark_frame(rows))
        with show_progress(self._store.config["progress"], f"writing {state.name}") as report:
            return self.stage(txn, plan, self._write(plan, rows, report, translate_errors=translate_errors), report)

    def plan(
        self, txn: MultiTableTransaction, state: TableState, given: dict[str, Any], options: WriteOptions
    ) -> WritePlan:
        """Check that rows of a schema fit the table, and register that files are about to be written."""
        state = txn.state_of(state)
        options.check(state)
        shape = _shape(state, metadata_of(state), given, options)
        parse_where(options.where, state)  # before anything is written
        files = self.begin(txn, state, shape.metadata)
        return WritePlan(state, shape, files, options)

    def begin(self, txn: MultiTableTransaction, state: TableState, metadata: Metadata) -> FilePlan:
        """Register that files of a table are about to be written, and return how to write them.

        Raises:
            UnsupportedFeature: The table stores an expression that must not run here.
        """
        reject_stored_code(metadata, state)
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
        """Return the configuration with the table's `deltasql.*` properties applied."""
        return self._store.config.override(metadata.configuration)

    def stage(
        self, txn: MultiTableTransaction, plan: WritePlan, adds: Sequence[Add], report: Report | None = None
    ) -> dict[str, str]:
        """Stage the files of a plan and the removal of the files that they replace; return the metrics."""
        state, shape, options = plan.state, plan.shape, plan.options
        replaced = self._replacement(txn, plan, adds, report)
        metrics = _metrics(adds, replaced.retained, replaced.removes)
        info = options.info or CommitInfo("WRITE", _parameters(options, shape.metadata))
        info = msgspec.structs.replace(info, operation_metrics={**(info.operation_metrics or {}), **metrics})
        if shape.is_new:
            txn.stage_metadata(state, shape.metadata, shape.protocol)
        changes = self.complete_feed(txn, state, adds, replaced.removes, replaced.changes)
        actions = [*adds, *replaced.retained, *replaced.removes, *changes, info]
        txn.stage_on(state, actions, reads=replaced.reads, isolation=replaced.isolation)
        return metrics

    def remove_all(self, txn: MultiTableTransaction, state: TableState) -> int:
        """Stage the removal of all files of a table, and return their number."""
        replaced = replace_all(txn, state)
        changes = self.complete_feed(txn, state, [], replaced.removes, [])
        actions = [*replaced.removes, *changes]
        txn.stage_on(state, actions, reads=replaced.reads, isolation=replaced.isolation)
        return len(replaced.removes)

    def complete_feed(
        self,
        txn: MultiTableTransaction,
        state: TableState,
        adds: Sequence[Add],
        removes: Sequence[Remove],
        changes: Sequence[Cdc],
    ) -> list[Cdc]:
        """Return all change files that a statement needs for the change data feed.

        Readers of the feed use a version's change files if it has any, and its added and removed files otherwise. So
        once a transaction has a change file for a table, change files must cover all its changes to that table.
        """
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

    def _write(self, plan: WritePlan, rows: Any, report: Report | None, *, translate_errors: bool) -> list[Add]:
        checks = plan.checks() if isinstance(rows, ArrowRows) else None
        if checks is not None:
            return write_arrow(plan, checks, rows.batches(), report)
        from deltasql.engines.spark.analysis_errors import computed_rows
        from deltasql.engines.spark.frame_write import FrameWrite
        from deltasql.engines.spark.row_shape import rules

        frame: DataFrame = self._frame(rows) if isinstance(rows, ArrowRows) else rows
        constraints = rules(plan.shape.fit, plan.shape.metadata.table_properties.constraints, plan.options.where)
        with computed_rows(plan.state.name) if translate_errors else nullcontext():
            return FrameWrite(plan.state.name, plan.files, plan.shape.fit, constraints, report).run(frame)

    def _frame(self, rows: ArrowRows) -> DataFrame:
        return self._spark().createDataFrame(rows.reader.read_all())

    def _replacement(
        self, txn: MultiTableTransaction, plan: WritePlan, adds: Sequence[Add], report: Report | None
    ) -> Replacement:
        state, options, metadata = plan.state, plan.options, plan.shape.metadata
        if options.mode != OVERWRITE:
            return Replacement()
        if options.dynamic:
            return replace_partitions(txn, state, adds)
        if options.where is None:
            return replace_all(txn, state)
        files = plan.files
        if files.written is None:  # the plan was pickled
            files = replace(files, written=txn.begin_files(state, self._options))
        fast = self.config_of(metadata)["spark.fast_scan"]
        work = ReplaceWhere(options.where, state, metadata, files, self._spark, plan.by_spark, fast, report)
        return work.run(txn, adds)


@dataclass(frozen=True, slots=True)
class Shape:
    """The table's schema after the write, and how the rows fit into it."""

    fit: Fit
    metadata: Metadata
    protocol: Protocol | None
    """The new protocol, if the schema needs features that the table lacks."""
    is_new: bool


def struct_of(rows: Any) -> Any:
    """Return the schema of rows as Delta's JSON struct."""
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
    """Return the protocol that a schema needs, or None if the table's is enough."""
    needed = needed_features(metadata.table_properties, metadata.schema_string)
    return grown(state.protocol, needed, state.name)


@lru_cache(maxsize=256)
def _forbidden(schema_string: str, checks: tuple[tuple[str, str], ...]) -> StoredExpression | None:
    found = stored_expressions(parse_struct(schema_string), dict(checks))
    return next((one for one in found if one.problem is not None), None)


def reject_stored_code(metadata: Metadata, state: TableState) -> None:
    """Raise before a table is written whose stored expressions may run anything in this process."""
    checks = tuple(metadata.table_properties.constraints.items())
    found = _forbidden(metadata.schema_string, checks)
    if found is not None:
        raise UnsupportedFeature(
            f"table {state.name} can be read and not written: its {found.name} would run here, and {found.problem}: "
            f"{found.sql}",
            table=state.name,
            table_id=state.table_id,
        )


def fields_of(state: TableState) -> list[Json]:
    """Return the columns of a table as Delta's JSON fields."""
    fields: list[Json] = parse_struct(metadata_of(state).schema_string)["fields"]
    return fields


def write_arrow(
    plan: WritePlan, checks: RowChecks, batches: Iterable[pa.RecordBatch], report: Report | None = None
) -> list[Add]:
    """Check and write rows in Arrow form, in this process or in a Spark task."""
    schema = loose_schema(arrow_schema(plan.files.schema_string))
    written = 0
    with TableFiles(plan.files) as files:
        for batch in batches:
            shaped = aligned(batch, plan.shape.fit, schema, plan.state.name)
            checks.check(shaped)
            files.write(shaped)
            if report is not None:
                written += batch.num_rows
                report(f"{written:,} rows, {count_files(files.count)}", written, None)
    return files.adds


def _metrics(adds: Sequence[Add], retained: Sequence[Add], removes: Sequence[Remove]) -> dict[str, str]:
    metrics = {
        "numFiles": len(adds) + len(retained),
        "numOutputRows": count_rows(adds),
        "numOutputBytes": sum(add.size for add in (*adds, *retained)),
    }
    if retained:
        metrics["numCopiedRows"] = count_rows(retained)
    if removes:
        metrics["numRemovedFiles"] = len(removes)
    return {name: str(value) for name, value in metrics.items()}


def _parameters(options: WriteOptions, metadata: Metadata) -> dict[str, Any]:
    """Return the parameters for history; as in delta-spark, each value is JSON text."""
    parameters = {"mode": options.mode.title(), "partitionBy": json.dumps(list(metadata.partition_columns))}
    if options.where is not None:
        parameters["predicate"] = options.where
    if options.dynamic:
        parameters["partitionOverwriteMode"] = "dynamic"
    return parameters
