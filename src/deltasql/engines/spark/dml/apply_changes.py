"""Changing rows by Spark: files that lose rows are written anew without them, or get deletion vectors; new rows go to
new files.

A statement is a frame of changes. Each row tells the place of a row of the table that goes (`FILE`, `ROW`), the row
that comes (`NEW`), or both, and what a user wants to see of it (`OUT`). The frame is computed once, whatever is in it,
and kept: files, counts and returned rows all come from what was kept.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from deltasql.engines.arrow.write.deletion_vector_write import RewriteResult, live_row_counts
from deltasql.engines.arrow.write.file_writer import FilePlan, as_cdc
from deltasql.engines.row_change import ACTION, DELETE, INSERT, UNMATCHED, UPDATE, ChangedFiles
from deltasql.engines.spark.dml.dml_target import TargetTable
from deltasql.engines.spark.dml.rewrite_files import RemovedRows, Rewriting
from deltasql.engines.spark.frame_write import FrameWrite, estimated_row_bytes, explain_missing_packages
from deltasql.engines.spark.job_progress import report_jobs
from deltasql.engines.spark.row_shape import aligned
from deltasql.engines.spark.scan.row_ids import FILE, ROW
from deltasql.errors import UsageError, ValidationError
from deltasql.progress import Report
from deltasql.protocol.actions import AFTER, BEFORE, CHANGE_TYPE, DELETED, INSERTED, Add, Cdc
from deltasql.protocol.constraints import Constraint
from deltasql.protocol.schema_fit import Fit, parse_struct
from deltasql.protocol.table_changes import Snapshot

OLD, NEW, OUT = "__deltasql_before", "__deltasql_new", "__deltasql_out"
PROBLEM = "__deltasql_problem"
"""The column with the reason why a new row cannot be written, or null."""
BY_SOURCE = "__deltasql_by_source"
"""The column that tells whether a row matches no source row, where such rows may change."""

# A task that writes new rows should have this much to write, or there would be a small file from each.
_TASK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class RowChanges:
    """How the changes of one statement are made."""

    target: TargetTable
    plan: FilePlan
    fit: Fit
    rules: Sequence[Constraint]
    report: Report | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The table before."""
        return self.target.snapshot

    def make(self, changes: DataFrame, *, once: bool, result: RewriteResult | None = None) -> ChangedFiles:
        """Write the files. `once` says that no row can be in there twice, which otherwise is refused; `result` is what
        is left of files that lost rows, if that was written already."""
        began = time.monotonic()
        with report_jobs(self.target.spark, self.report), explain_missing_packages():
            held = changes.localCheckpoint()
            removals, counts = self._count(held, once=once)
            spent = (time.monotonic() - began) * 1000
            left = Rewriting(self.target, self.plan).remove(held, removals) if result is None else result
        added = self._add(held, counts) if NEW in held.columns else []
        returned = held.select(f"{OUT}.*") if OUT in held.columns else None
        told = self._feed(held, removals, counts) if OLD in held.columns else []
        return replace(self._changed(removals, left, added, counts, returned), change_files=told, scan_ms=spent)

    def replace(self, changes: DataFrame, removals: Sequence[RemovedRows], result: RewriteResult) -> ChangedFiles:
        """Write the files of changes that give each row of those that were taken out another. They are computed once
        without being held: nobody sees them but the files."""
        count = sum(lost.count for lost in removals)
        return self._changed(removals, result, self._replaced(changes, count), {UPDATE: count})

    def _changed(
        self,
        removals: Sequence[RemovedRows],
        result: RewriteResult,
        added: list[Add],
        counts: Mapping[str, int],
        returned: DataFrame | None = None,
    ) -> ChangedFiles:
        gone = self.snapshot.files.take(pa.array(sorted(lost.file_index for lost in removals), pa.int64()))
        return ChangedFiles(
            gone, result.rewritten, result.marked, result.vector_files, added=added, counts=counts, returned=returned
        )

    def _feed(self, held: DataFrame, removals: Sequence[RemovedRows], counts: Mapping[str, int]) -> list[Cdc]:
        """What happened to the rows, for the change data feed. Rows that come or go with whole files are told by
        these."""
        live = live_row_counts(self.snapshot.files)
        if not counts[UPDATE] and all(lost.count == live[lost.file_index] for lost in removals):
            return []
        plan = self.plan.for_change_feed()
        struct = parse_struct(plan.schema_string)
        same = {field["name"]: field["name"] for field in struct["fields"]}
        kind = F.when(F.col(ACTION) == DELETE, DELETED).otherwise(BEFORE).alias(CHANGE_TYPE)
        rows = held.where(F.col(FILE).isNotNull()).select(f"{OLD}.*", kind)
        if NEW in held.columns:
            kind = F.when(F.col(ACTION) == INSERT, INSERTED).otherwise(AFTER).alias(CHANGE_TYPE)
            new = held.where(F.col(NEW).isNotNull()).select(f"{NEW}.*", kind)
            sources = {**self.fit.sources, CHANGE_TYPE: CHANGE_TYPE}
            rows = rows.union(aligned(new, replace(self.fit, schema=struct, sources=sources)))
        count = counts[DELETE] + counts[INSERT] + 2 * counts[UPDATE]
        writing = FrameWrite(self.snapshot.name, plan, Fit(struct, same), (), self.report)
        return as_cdc(writing.run(rows.coalesce(self._tasks(count))))

    @property
    def knows_row_counts(self) -> bool:
        """Whether the log has the number of rows of every file."""
        return None not in live_row_counts(self.snapshot.files)

    def replace_all(self, changes: DataFrame) -> ChangedFiles:
        """Write the files of changes that give each row of the table another."""
        count = sum(rows or 0 for rows in live_row_counts(self.snapshot.files))
        return ChangedFiles(self.snapshot.files, added=self._replaced(changes, count), counts={UPDATE: count})

    def _replaced(self, changes: DataFrame, count: int) -> list[Add]:
        """Write one new row for each of so many."""
        seen = Observation()
        problem = [F.min(PROBLEM).alias(PROBLEM)] if PROBLEM in changes.columns else []
        rows = changes.observe(seen, F.count(F.lit(1)).alias("rows"), *problem)
        added = self._write(rows.select(f"{NEW}.*"), count) if count else []
        told = seen.get if count else {}
        self._refuse_problem(told.get(PROBLEM))
        if told.get("rows", 0) != count:
            raise self._several(f"a value gives other than one row for each of {count} rows")
        return added

    def _count(self, held: DataFrame, *, once: bool) -> tuple[list[RemovedRows], dict[str, int]]:
        """How many rows each file loses, and how many rows there are of each action."""
        actions = [F.count_if(F.col(ACTION) == action).alias(action) for action in (UPDATE, DELETE, INSERT)]
        distinct = [] if once else [F.count_distinct(F.col(ROW)).alias("rows")]
        problem = [F.min(PROBLEM).alias(PROBLEM)] if PROBLEM in held.columns else []
        if BY_SOURCE in held.columns:
            actions += [F.count_if((F.col(ACTION) == a) & F.col(BY_SOURCE)).alias(b) for a, b in UNMATCHED.items()]
        rows = self.target.tally(held, *actions, *distinct, *problem)
        for _, row in rows if problem else ():
            self._refuse_problem(row[PROBLEM])
        told = [(place, row) for place, row in rows if place is not None]
        if not once and any(row["rows"] < row[UPDATE] + row[DELETE] for _, row in told):
            self._refuse_twice(held)
        removals = [RemovedRows(row[FILE], place, row[UPDATE] + row[DELETE]) for place, row in told]
        counted = [UPDATE, DELETE, INSERT, *(UNMATCHED.values() if BY_SOURCE in held.columns else ())]
        return removals, {action: sum(row[action] for _, row in rows) for action in counted}

    def _refuse_problem(self, problem: str | None) -> None:
        if problem is not None:
            raise ValidationError(
                f"table {self.snapshot.name}: {problem}, so nothing was changed: give a value that fits",
                table=self.snapshot.name,
            )

    def _refuse_twice(self, held: DataFrame) -> None:
        twice = held.where(F.col(FILE).isNotNull()).groupBy(FILE, ROW).count().where("count > 1").count()
        raise self._several(
            f"{twice} rows match several rows of the source, and which of them counts would be chance (an UPDATE of "
            f"PostgreSQL's takes any one of them)"
        )

    def _several(self, why: str) -> UsageError:
        return UsageError(
            f"table {self.snapshot.name}: {why}, so nothing was changed: make the source unique by what it is joined "
            f"on, and values single ones",
            table=self.snapshot.name,
        )

    # --- Rows that come

    def _add(self, held: DataFrame, counts: Mapping[str, int]) -> list[Add]:
        coming = counts[UPDATE] + counts[INSERT]
        if not coming:
            return []
        return self._write(held.where(F.col(NEW).isNotNull()).select(f"{NEW}.*"), coming)

    def _write(self, rows: DataFrame, count: int) -> list[Add]:
        writing = FrameWrite(self.snapshot.name, self.plan, self.fit, self.rules, self.report)
        return writing.run(rows.coalesce(self._tasks(count)))

    def _tasks(self, count: int) -> int:
        return int(count * estimated_row_bytes(self.fit.schema) / _TASK_BYTES) + 1
