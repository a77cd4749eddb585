"""Execute a row change: find the rows, write the files.

A change without source first finds the matching rows by the columns of its condition, and then reads only the files
that hold such rows. A change with a source is computed in one pass and checkpointed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltasql.engines.arrow.write.deletion_vector_write import RewriteResult
from deltasql.engines.arrow.write.file_writer import FilePlan
from deltasql.engines.row_change import FILE, MERGE, ROW, ChangedFiles, RowChange, Source, TableFields
from deltasql.engines.spark.dml.apply_changes import NEW, RowChanges
from deltasql.engines.spark.dml.change_frames import change_frame, matching_row_ids
from deltasql.engines.spark.dml.dml_target import TargetTable
from deltasql.engines.spark.dml.merge_pairs import MergeSource
from deltasql.engines.spark.dml.rewrite_files import RemovedRows, Rewriting
from deltasql.engines.spark.frame_write import explain_missing_packages
from deltasql.engines.spark.held_rows import hold
from deltasql.engines.spark.job_progress import report_jobs
from deltasql.engines.spark.row_shape import rules
from deltasql.progress import Report
from deltasql.protocol.schema import struct_type
from deltasql.protocol.schema_fit import fit

_NEW_NUMBER = "__deltasql_new_number"
"""The column that tells rows to insert apart, which have no row id."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Executes one row change on one table."""

    target: TargetTable
    fields: TableFields
    begin: Callable[[], FilePlan]
    """Registers that files are about to be written, and returns how to write them."""
    report: Report | None = None
    feed: bool = False
    """Whether the table has a change data feed."""

    def run(self, operation: str, change: RowChange) -> ChangedFiles:
        """Execute the change and return the files that it removed and wrote."""
        with _registered(change.relations):
            if operation == MERGE and change.source is not None:
                return self._merge(change, change.source)
            return self._change(change)

    def _merge(self, change: RowChange, source: Source) -> ChangedFiles:
        began = time.monotonic()
        with report_jobs(self.target.spark, self.report), explain_missing_packages():
            held = MergeSource.of(source.rows)
            spent = (time.monotonic() - began) * 1000
            frame = self._frame(change, self.target.rows(), held)
        if change.deletes_all_matched:  # several source rows may match the same row
            new = F.when(F.col(FILE).isNull(), F.monotonically_increasing_id())
            frame = frame.withColumn(_NEW_NUMBER, new).dropDuplicates([FILE, ROW, _NEW_NUMBER]).drop(_NEW_NUMBER)
        changed = self._writing(frame).make(frame, once=False)
        return replace(changed, source_rows=held.count, source_ms=spent)

    def _change(self, change: RowChange) -> ChangedFiles:
        rows = self.target.rows()
        without_source = change.source is None
        needs_rows = change.returning is not None or self.feed
        if without_source and change.condition is not None and (change.updates or needs_rows):
            return self._change_found_rows(change, rows)
        frame = self._frame(change, rows)
        only_deletes = not change.updates and not change.inserts
        if only_deletes and not without_source:  # several source rows may match the same row
            frame = frame.dropDuplicates([FILE, ROW])
        writing = self._writing(frame)
        if without_source and change.condition is None and not needs_rows and writing.knows_row_counts:
            return writing.replace_all(frame)
        return writing.make(frame, once=only_deletes)

    def _change_found_rows(self, change: RowChange, rows: DataFrame) -> ChangedFiles:
        """Find the row ids first, then extract these rows from their files and change them."""
        began = time.monotonic()
        writing = self._writing(self._frame(change, rows, matched=True))  # fails early if an expression is wrong
        with report_jobs(self.target.spark, self.report), explain_missing_packages():
            row_ids = hold(matching_row_ids(change, rows))
            counts = self.target.tally(row_ids, F.count("*").alias("rows"))
            removals = [RemovedRows(row[FILE], index, row["rows"]) for index, row in counts if index is not None]
            spent = (time.monotonic() - began) * 1000
            rewriting = Rewriting(self.target, writing.plan)
            taken, result = rewriting.extract(row_ids, removals) if removals else (rows.limit(0), RewriteResult())
        frame = self._frame(change, taken, matched=True)
        if change.returning is not None or self.feed:
            changed = writing.make(frame, once=False, result=result)
        else:
            changed = writing.replace(frame, removals, result)
        return replace(changed, scan_ms=spent)

    def _frame(
        self, change: RowChange, rows: DataFrame, source: MergeSource | None = None, *, matched: bool = False
    ) -> DataFrame:
        name = self.target.snapshot.name
        return change_frame(change, rows, self.fields, name, source, matched=matched, keep_old=self.feed)

    def _writing(self, frame: DataFrame) -> RowChanges:
        snapshot = self.target.snapshot
        struct = struct_type(list(self.fields.all))
        given = frame.schema[NEW].dataType.jsonValue() if NEW in frame.columns else struct
        fitted = fit(given, struct, name=snapshot.name)
        constraints = rules(fitted, snapshot.metadata.table_properties.constraints, None)
        return RowChanges(self.target, self.begin(), fitted, constraints, self.report)


@contextmanager
def _registered(relations: Mapping[str, DataFrame]) -> Iterator[None]:
    """Register frames as temporary views; Spark Connect resolves their names as late as plans are executed."""
    try:
        for name, frame in relations.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name, frame in relations.items():
            frame.sparkSession.catalog.dropTempView(name)
