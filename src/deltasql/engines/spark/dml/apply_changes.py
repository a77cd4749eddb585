"""Write the files of a change frame.

Files that lose rows are rewritten or get deletion vectors; new rows go to new files.

`change_frames` describes the frame. It is computed once and checkpointed: files, counts and returned rows all come from
the checkpoint.
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
from deltasql.engines.spark.held_rows import hold
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

# The minimum that a task writes: every task writes its own files.
_TASK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Writes the changes of one statement."""

    target: TargetTable
    plan: FilePlan
    fit: Fit
    rules: Sequence[Constraint]
    report: Report | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The table before the change."""
        return self.target.snapshot

    def make(self, changes: DataFrame, *, once: bool, result: RewriteResult | None = None) -> ChangedFiles:
        """Write the files of the changes and return them.

        With `once` no row id occurs twice; otherwise duplicates are rejected. `result` are the rewritten files if these
        are written already.
        """
        began = time.monotonic()
        with report_jobs(self.target.spark, self.report), explain_missing_packages():
            held = hold(changes)
            removals, counts = self._count(held, once=once)
            spent = (time.monotonic() - began) * 1000
            left = Rewriting(self.target, self.plan).remove(held, removals) if result is None else result
        added = self._add(held, counts) if NEW in held.columns else []
        returned = held.select(f"{OUT}.*") if OUT in held.columns else None
        feed = self._feed(held, removals, counts) if OLD in held.columns else []
        return replace(self._changed(removals, left, added, counts, returned), change_files=feed, scan_ms=spent)

    def replace(self, changes: DataFrame, removals: Sequence[RemovedRows], result: RewriteResult) -> ChangedFiles:
        """Write one new row for each extracted row. The changes are read once, so they need no checkpoint."""
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
        removed = self.snapshot.files.take(pa.array(sorted(lost.file_index for lost in removals), pa.int64()))
        return ChangedFiles(removed, result.rewritten, result.marked, added=added, counts=counts, returned=returned)

    def _feed(self, held: DataFrame, removals: Sequence[RemovedRows], counts: Mapping[str, int]) -> list[Cdc]:
        """Write the change data feed. Readers derive changes of whole files from the files themselves."""
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
        """Write one new row for each row of the table."""
        count = sum(rows or 0 for rows in live_row_counts(self.snapshot.files))
        return ChangedFiles(self.snapshot.files, added=self._replaced(changes, count), counts={UPDATE: count})

    def _replaced(self, changes: DataFrame, count: int) -> list[Add]:
        """Write `count` new rows, and fail if there are more or fewer."""
        observation = Observation()
        problem = [F.min(PROBLEM).alias(PROBLEM)] if PROBLEM in changes.columns else []
        rows = changes.observe(observation, F.count(F.lit(1)).alias("rows"), *problem)
        added = self._write(rows.select(f"{NEW}.*"), count) if count else []
        observed = observation.get if count else {}
        self._reject_problem(observed.get(PROBLEM))
        if observed.get("rows", 0) != count:
            raise self._ambiguous(f"a value returns more or fewer than one row for each of {count} rows")
        return added

    def _count(self, held: DataFrame, *, once: bool) -> tuple[list[RemovedRows], dict[str, int]]:
        """Return the number of rows that each file loses, and the number of rows of each action."""
        actions = [F.count_if(F.col(ACTION) == action).alias(action) for action in (UPDATE, DELETE, INSERT)]
        distinct = [] if once else [F.count_distinct(F.col(ROW)).alias("rows")]
        problem = [F.min(PROBLEM).alias(PROBLEM)] if PROBLEM in held.columns else []
        if BY_SOURCE in held.columns:
            actions += [F.count_if((F.col(ACTION) == a) & F.col(BY_SOURCE)).alias(b) for a, b in UNMATCHED.items()]
        rows = self.target.tally(held, *actions, *distinct, *problem)
        for _, row in rows if problem else ():
            self._reject_problem(row[PROBLEM])
        of_files = [(index, row) for index, row in rows if index is not None]
        if not once and any(row["rows"] < row[UPDATE] + row[DELETE] for _, row in of_files):
            self._reject_duplicates(held)
        removals = [RemovedRows(row[FILE], index, row[UPDATE] + row[DELETE]) for index, row in of_files]
        counted = [UPDATE, DELETE, INSERT, *(UNMATCHED.values() if BY_SOURCE in held.columns else ())]
        return removals, {action: sum(row[action] for _, row in rows) for action in counted}

    def _reject_problem(self, problem: str | None) -> None:
        if problem is not None:
            raise ValidationError(
                f"table {self.snapshot.name}: {problem}; nothing was changed",
                table=self.snapshot.name,
            )

    def _reject_duplicates(self, held: DataFrame) -> None:
        count = held.where(F.col(FILE).isNotNull()).groupBy(FILE, ROW).count().where("count > 1").count()
        raise self._ambiguous(f"ambiguous: several source rows match one target row ({count} target rows)")

    def _ambiguous(self, why: str) -> UsageError:
        return UsageError(
            f"table {self.snapshot.name}: {why}; nothing was changed: make the source unique by the columns of the "
            f"condition, and each value a single value",
            table=self.snapshot.name,
        )

    # --- New rows

    def _add(self, held: DataFrame, counts: Mapping[str, int]) -> list[Add]:
        count = counts[UPDATE] + counts[INSERT]
        if not count:
            return []
        return self._write(held.where(F.col(NEW).isNotNull()).select(f"{NEW}.*"), count)

    def _write(self, rows: DataFrame, count: int) -> list[Add]:
        writing = FrameWrite(self.snapshot.name, self.plan, self.fit, self.rules, self.report)
        return writing.run(rows.coalesce(self._tasks(count)))

    def _tasks(self, count: int) -> int:
        return int(count * estimated_row_bytes(self.fit.schema) / _TASK_BYTES) + 1
