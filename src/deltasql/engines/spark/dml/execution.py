"""From a statement to the files that it leaves.

Rows that match by their own values are found first, by the columns that tell, and only the files that hold some are
read whole. Whatever takes other tables to tell is computed in one pass, and held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltasql.engines.arrow.write.deletion_vector_write import RewriteResult
from deltasql.engines.arrow.write.file_writer import FilePlan
from deltasql.engines.row_change import FILE, ROW, Changed, Fields, Statement
from deltasql.engines.spark.dml.apply_changes import NEW, RowChanges
from deltasql.engines.spark.dml.change_frames import changes_of, places_of
from deltasql.engines.spark.dml.dml_target import TargetTable
from deltasql.engines.spark.dml.merge_pairs import MergeSource
from deltasql.engines.spark.dml.rewrite_files import RemovedRows, Rewriting
from deltasql.engines.spark.frame_write import explain_missing_packages
from deltasql.engines.spark.job_progress import report_jobs
from deltasql.engines.spark.row_shape import rules
from deltasql.progress import Report
from deltasql.protocol.schema import struct_type
from deltasql.protocol.schema_fit import fit


@dataclass(frozen=True, slots=True)
class Execution:
    """One statement on one table."""

    target: TargetTable
    fields: Fields
    begin: Callable[[], FilePlan]
    """Says that files are about to be written, and how."""
    report: Report | None = None
    feed: bool = False
    """Is it told what happened to rows?"""

    def merge(self, statement: Statement) -> Changed:
        """A statement whose rows match those of a source, or none."""
        began = time.monotonic()
        with report_jobs(self.target.spark, self.report), explain_missing_packages():
            source = MergeSource.of(statement.source)
            spent = (time.monotonic() - began) * 1000
            frame = self._changes(statement, self.target.rows(), source)
        changed = self._making(frame).make(frame, once=False)
        return replace(changed, source_rows=source.count, source_ms=spent)

    def run(self, statement: Statement) -> Changed:
        """Any other."""
        rows = self.target.rows()
        is_alone = statement.source is None and not statement.inserts
        if is_alone and statement.condition is not None and (statement.updates or statement.returns or self.feed):
            return self._found(statement, rows)
        frame = self._changes(statement, rows)
        deletes = not statement.updates and not statement.inserts
        if deletes and statement.source is not None:  # a row goes once, however many rows match it
            frame = frame.dropDuplicates([FILE, ROW])
        making = self._making(frame)
        is_seen = statement.returns or self.feed
        if is_alone and statement.condition is None and not is_seen and making.knows_all:
            return making.replace_all(frame)
        return making.make(frame, once=deletes)

    def _found(self, statement: Statement, rows: DataFrame) -> Changed:
        """First where the rows lie; then they are taken out of their files, and changed."""
        began = time.monotonic()
        making = self._making(self._changes(statement, rows, found=True))  # whatever is wrong with it shows here
        with report_jobs(self.target.spark, self.report), explain_missing_packages():
            places = places_of(statement, rows).localCheckpoint()
            found = self.target.tally(places, F.count("*").alias("rows"))
            removals = [RemovedRows(row[FILE], place, row["rows"]) for place, row in found if place is not None]
            spent = (time.monotonic() - began) * 1000
            rewriting = Rewriting(self.target, making.plan)
            taken, result = rewriting.take_out(places, removals) if removals else (rows.limit(0), RewriteResult())
        frame = self._changes(statement, taken, found=True)
        is_seen = statement.returns or self.feed
        changed = making.make(frame, once=False, result=result) if is_seen else making.replace(frame, removals, result)
        return replace(changed, scan_ms=spent)

    def _changes(
        self, statement: Statement, rows: DataFrame, source: MergeSource | None = None, *, found: bool = False
    ) -> DataFrame:
        name = self.target.snapshot.name
        return changes_of(statement, rows, self.fields, name, source, found=found, old=self.feed)

    def _making(self, frame: DataFrame) -> RowChanges:
        snapshot = self.target.snapshot
        struct = struct_type(list(self.fields.all))
        given = frame.schema[NEW].dataType.jsonValue() if NEW in frame.columns else struct
        fitted = fit(given, struct, name=snapshot.name)
        asked = rules(fitted, snapshot.metadata.table_properties.constraints, None)
        return RowChanges(self.target, self.begin(), fitted, asked, self.report)
