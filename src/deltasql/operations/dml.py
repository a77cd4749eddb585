"""Changes of rows: what a statement updates, deletes and inserts becomes files, and the actions that commit them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.engines.arrow.write.constraint_checks import exact_filter
from deltasql.engines.arrow.write.deletion_vector_write import live_row_counts
from deltasql.engines.arrow.write.replace_where import files_in_partitions
from deltasql.engines.row_change import DELETE, MERGE, WRITE, Changed, Fields, Statement
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.operation_metrics import metrics_of
from deltasql.operations.write import TableWriter, removal_of
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
    """A statement, and what the log should know about it."""

    operation: str
    statement: Statement
    own: str | None = None
    """The part of its condition that speaks of the table alone."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reads_itself: bool = False
    """Does it read the table in other ways than by its rows that match?"""
    own_is_all: bool = False
    """Does the whole condition speak of the table alone?"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement did, not committed yet."""

    metrics: Mapping[str, str]
    returned: DataFrame | None = None
    changed: bool = True


def history_parameters(operation: str, condition: str | None) -> dict[str, str]:
    """Return the operation parameters of an UPDATE or DELETE; Delta Lake shows a DELETE without condition as `true`."""
    shown = "true" if condition is None and operation == DELETE else condition
    return {"predicate": json.dumps([] if shown is None else [shown], ensure_ascii=False)}


class RowChanger:
    """Changes the rows of a store's tables."""

    def __init__(self, writer: TableWriter, options: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self._writer = writer
        self._options = options
        self._spark = spark

    def change(self, txn: MultiTableTransaction, state: TableState, change: Change) -> Outcome:
        """Write the files of a change, and stage what commits them."""
        began = time.monotonic()
        state = txn.state_of(state)
        snapshot = self._candidates(txn, state, change)
        changed = self._without_reading(snapshot, change) or self._by_spark(txn, state, snapshot, change)
        metrics = metrics_of(change.operation, changed, (time.monotonic() - began) * 1000)
        if not changed.gone.num_rows and not changed.added and not txn.has_app:
            txn.note_read(state, self._reads(change, changed))
            return Outcome(metrics, changed.returned, changed=False)
        gone = removal_of(changed.gone)
        info = CommitInfo(change.operation, dict(change.parameters), metrics)
        reads = self._reads(change, changed)
        files = [*changed.added, *changed.kept]
        changes = self._writer.complete_feed(txn, state, changed.added, gone, changed.changes)
        txn.stage_on(state, [*files, *changed.marked, *gone, *changes, info], reads=reads)
        return Outcome(metrics, changed.returned)

    def explain(self, txn: MultiTableTransaction, state: TableState, change: Change) -> str:
        """Which files a change would look into, in a line."""
        state = txn.state_of(state)
        snapshot = self._candidates(txn, state, change)
        count, size = snapshot.files.num_rows, sum(snapshot.files["size"].to_pylist())
        if (gone := self._without_reading(snapshot, change)) is not None:
            return f"removes {gone.gone.num_rows} whole files and reads none"
        return f"reads {count} of {txn.files(state).num_rows} files, {size:,} bytes"

    def _candidates(self, txn: MultiTableTransaction, state: TableState, change: Change) -> Snapshot:
        """The files that may hold rows which the statement changes."""
        predicate = parse_where(change.own, state)
        files = txn.files(state, None if change.statement.takes_whole else predicate)
        if change.operation == WRITE:
            files = files.slice(0, 0)
        return Snapshot.of(state, files, predicate)

    def _without_reading(self, snapshot: Snapshot, change: Change) -> Changed | None:
        """Rows that go with their files: all of the table's, or those of whole partitions."""
        statement = change.statement
        if change.operation != DELETE or statement.source is not None or statement.returns:
            return None
        if statement.condition is None:
            return Changed(snapshot.files, counts=_counted(snapshot.files))
        predicate = snapshot.predicate
        if predicate is None or not predicate.partition_only or not change.own_is_all or change.own is None:
            return None
        goes = exact_filter(change.own, snapshot.metadata.schema_string, snapshot.name)
        if goes is None:
            return None
        gone = files_in_partitions(snapshot, goes)
        return Changed(gone, counts=_counted(gone))

    def _by_spark(self, txn: MultiTableTransaction, state: TableState, snapshot: Snapshot, change: Change) -> Changed:
        spark = self._spark()
        from deltasql.engines.spark.dml.dml_target import TargetTable
        from deltasql.engines.spark.dml.execution import Execution
        from deltasql.engines.spark.dml.statement_errors import blamed

        config = self._writer.config_of(snapshot.metadata)
        struct = parse_struct(snapshot.metadata.schema_string)
        fields = Fields(struct["fields"], snapshot.metadata.partition_columns)
        marks = snapshot.metadata.table_properties.deletion_vectors
        most = config["dml.copy_on_write_threshold"] if marks else Fraction(0)
        target = TargetTable(spark, snapshot, config["spark.fast_scan"], self._options, most)
        names = [field["name"] for field in fields.all]
        with (
            show_progress(config["progress"], f"{change.operation.lower()} {snapshot.name}") as report,
            blamed(change.operation, change.statement, snapshot.name, names),
        ):
            feed = snapshot.metadata.table_properties.change_data_feed
            begin = partial(self._writer.begin, txn, state, snapshot.metadata)
            execution = Execution(target, fields, begin, report, feed)
            run = execution.merge if change.operation == MERGE else execution.run
            return run(change.statement)

    def _reads(self, change: Change, changed: Changed) -> Reads:
        """Rows that match are in the files that were changed; those that others add are told by the predicate."""
        files = frozenset(changed.gone["path"].to_pylist())
        if change.operation == WRITE and not change.reads_itself:
            return Reads()
        if change.reads_itself or change.operation == MERGE or change.own is None:
            return Reads(files=files, whole_table=True)
        return Reads((change.own,), files)


def _counted(files: pa.Table) -> dict[str, int]:
    known = live_row_counts(files)
    return {DELETE: sum(n for n in known if n is not None)} if None not in known else {}
