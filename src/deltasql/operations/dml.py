"""Apply row changes: write files through an engine and stage the actions that commit them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.engines.arrow.write.constraint_checks import exact_filter
from deltasql.engines.arrow.write.deletion_vector_write import live_row_counts
from deltasql.engines.arrow.write.replace_where import files_in_partitions
from deltasql.engines.row_change import DELETE, MERGE, WRITE, ChangedFiles, RowChange, TableFields
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.operation_metrics import metrics_of
from deltasql.operations.overwrite import metadata_of, removes_of
from deltasql.operations.write import TableWriter, reject_stored_code
from deltasql.progress import show_progress
from deltasql.protocol.actions import CommitInfo
from deltasql.protocol.schema_fit import parse_struct
from deltasql.protocol.table_changes import Reads, TableState
from deltasql.store import Snapshot
from deltasql.store.read.log_reader import parse_where

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Change:
    """A row change, with what pruning, conflict detection and the history need."""

    operation: str
    rows: RowChange
    pruning: str | None = None
    """The part of the condition that reads only columns of the table; files are pruned by it."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The operation parameters in the history."""
    reads_itself: bool = False
    """Whether the table is also read in a subquery or as a source."""
    pruning_is_exact: bool = False
    """Whether `pruning` is the whole condition."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change that is staged and not committed yet."""

    metrics: Mapping[str, str]
    returned: DataFrame | None = None
    changed: bool = True


def history_parameters(operation: str, condition: str | None) -> dict[str, str]:
    """Return the operation parameters of an UPDATE or DELETE; Delta Lake shows a DELETE without condition as `true`."""
    shown = "true" if condition is None and operation == DELETE else condition
    return {"predicate": json.dumps([] if shown is None else [shown], ensure_ascii=False)}


class RowChanger:
    """Applies row changes to the tables of a store."""

    def __init__(self, writer: TableWriter, options: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self._writer = writer
        self._options = options
        self._spark = spark

    def change(
        self, txn: MultiTableTransaction, state: TableState, change: Change, *, translate_errors: bool = True
    ) -> Outcome:
        """Write the files of a change and stage the actions that commit them.

        Spark's errors are translated by the expressions of the change; SQL translates them by the statement's text.
        """
        began = time.monotonic()
        state = txn.state_of(state)
        reject_stored_code(metadata_of(state), state)
        snapshot = self._candidates(txn, state, change)
        changed = self._without_reading(snapshot, change)
        if changed is None:
            changed = self._by_spark(txn, state, snapshot, change, translate_errors=translate_errors)
        metrics = metrics_of(change.operation, changed, (time.monotonic() - began) * 1000)
        reads = self._reads(change, changed)
        if not changed.removed.num_rows and not changed.added and not txn.has_app:
            txn.note_read(state, reads)
            return Outcome(metrics, changed.returned, changed=False)
        removes = removes_of(changed.removed)
        info = CommitInfo(change.operation, dict(change.parameters), metrics)
        files = [*changed.added, *changed.rewritten]
        feed = self._writer.complete_feed(txn, state, changed.added, removes, changed.change_files)
        txn.stage_on(state, [*files, *changed.marked, *removes, *feed, info], reads=reads)
        return Outcome(metrics, changed.returned)

    def explain(self, txn: MultiTableTransaction, state: TableState, change: Change) -> str:
        """Return one line about the files that a change would read."""
        state = txn.state_of(state)
        snapshot = self._candidates(txn, state, change)
        count, size = snapshot.files.num_rows, sum(snapshot.files["size"].to_pylist())
        if (changed := self._without_reading(snapshot, change)) is not None:
            return f"removes {changed.removed.num_rows} whole files and reads none"
        return f"reads {count} of {txn.files(state).num_rows} files, {size:,} bytes"

    def _candidates(self, txn: MultiTableTransaction, state: TableState, change: Change) -> Snapshot:
        """Return the snapshot with only the files that may hold rows of the change."""
        predicate = parse_where(change.pruning, state)
        files = txn.files(state, None if change.rows.reads_unmatched_rows else predicate)
        if change.operation == WRITE:
            files = files.slice(0, 0)
        return Snapshot.of(state, files, predicate)

    def _without_reading(self, snapshot: Snapshot, change: Change) -> ChangedFiles | None:
        """Return the result of a DELETE that removes whole files: of the table, or of partitions; else None."""
        rows = change.rows
        if change.operation != DELETE or rows.source is not None or rows.returning is not None:
            return None
        if rows.condition is None:
            return ChangedFiles(snapshot.files, counts=_deleted_rows(snapshot.files))
        predicate = snapshot.predicate
        if predicate is None or not predicate.partition_only or not change.pruning_is_exact or change.pruning is None:
            return None
        partition_filter = exact_filter(change.pruning, snapshot.metadata.schema_string, snapshot.name)
        if partition_filter is None:
            return None
        removed = files_in_partitions(snapshot, partition_filter)
        return ChangedFiles(removed, counts=_deleted_rows(removed))

    def _by_spark(
        self,
        txn: MultiTableTransaction,
        state: TableState,
        snapshot: Snapshot,
        change: Change,
        *,
        translate_errors: bool,
    ) -> ChangedFiles:
        spark = self._spark()
        from deltasql.engines.spark.dml.dml_target import TargetTable
        from deltasql.engines.spark.dml.execution import Execution
        from deltasql.engines.spark.dml.statement_errors import translated_errors

        config = self._writer.config_of(snapshot.metadata)
        properties = snapshot.metadata.table_properties
        struct = parse_struct(snapshot.metadata.schema_string)
        fields = TableFields(struct["fields"], snapshot.metadata.partition_columns)
        most_marked = config["dml.copy_on_write_threshold"] if properties.deletion_vectors else Fraction(0)
        target = TargetTable(spark, snapshot, config["spark.fast_scan"], self._options, most_marked)
        translation = translated_errors(change.operation, change.rows, snapshot.name, fields.names)
        with (
            show_progress(config["progress"], f"{change.operation.lower()} {snapshot.name}") as report,
            translation if translate_errors else nullcontext(),
        ):
            begin = partial(self._writer.begin, txn, state, snapshot.metadata)
            execution = Execution(target, fields, begin, report, properties.change_data_feed)
            return execution.run(change.operation, change.rows)

    def _reads(self, change: Change, changed: ChangedFiles) -> Reads:
        """Return the reads to validate: the files with matching rows, and the predicate for rows added meanwhile."""
        files = frozenset(changed.removed["path"].to_pylist())
        if change.operation == WRITE and not change.reads_itself:
            return Reads()
        if change.reads_itself or change.operation == MERGE or change.pruning is None:
            return Reads(files=files, whole_table=True)
        return Reads((change.pruning,), files)


def _deleted_rows(files: pa.Table) -> dict[str, int]:
    """Return the count of a DELETE of whole files; nothing if statistics lack the number of rows."""
    counts = live_row_counts(files)
    return {DELETE: sum(n for n in counts if n is not None)} if None not in counts else {}
