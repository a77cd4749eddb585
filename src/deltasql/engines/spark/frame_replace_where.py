"""Remove the rows that match a condition with Spark, for `overwrite(where=...)`."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltasql.engines.arrow.write.file_writer import FilePlan, as_cdc
from deltasql.engines.arrow.write.replace_where import ReplaceWhereResult
from deltasql.engines.spark.frame_write import FrameWrite
from deltasql.engines.spark.job_progress import report_jobs
from deltasql.engines.spark.scan.hadoop_paths import hadoop_paths, hadoop_uri
from deltasql.engines.spark.scan.snapshot_frame import read_snapshot
from deltasql.engines.spark.sql_text import verbatim
from deltasql.progress import Report
from deltasql.protocol.actions import CHANGE_TYPE, DELETED, Cdc
from deltasql.protocol.schema_fit import Fit, parse_struct
from deltasql.protocol.table_changes import Snapshot


def remove_matching_rows_by_spark(
    spark: SparkSession, snapshot: Snapshot, where: str, plan: FilePlan, *, fast: bool, report: Report | None = None
) -> ReplaceWhereResult:
    """Rewrite the files that hold matching rows without these rows."""
    with report_jobs(spark, report):
        files = _files_with_matches(spark, snapshot, where, plan, fast=fast)
    if not files.num_rows:
        return ReplaceWhereResult(files, [])
    rows = read_snapshot(spark, replace(snapshot, files=files), fast=fast, options=plan.options)
    retained = rows.where(verbatim(f"NOT coalesce(({where}), false)"))
    return ReplaceWhereResult(files, _write_of(snapshot, plan, report).run(retained))


def write_deleted_rows(
    spark: SparkSession, snapshot: Snapshot, where: str, plan: FilePlan, *, fast: bool, report: Report | None = None
) -> list[Cdc]:
    """Write the matching rows to files of the change data feed, as deleted."""
    changes = plan.for_change_feed()
    rows = read_snapshot(spark, snapshot, where, fast=fast, options=plan.options)
    return as_cdc(_write_of(snapshot, changes, report).run(rows.withColumn(CHANGE_TYPE, F.lit(DELETED))))


def _write_of(snapshot: Snapshot, plan: FilePlan, report: Report | None) -> FrameWrite:
    """Return the write of rows whose columns are already those of the files."""
    struct = parse_struct(plan.schema_string)
    fit = Fit(struct, {field["name"]: field["name"] for field in struct["fields"]})
    return FrameWrite(snapshot.name, plan, fit, (), report)


def _files_with_matches(spark: SparkSession, snapshot: Snapshot, where: str, plan: FilePlan, *, fast: bool) -> pa.Table:
    """Return the files that hold matching rows; all files if the scan does not report a row's file."""
    rows = read_snapshot(spark, snapshot, where, fast=fast, options=plan.options)
    uris = {row["file"] for row in rows.select(F.input_file_name().alias("file")).distinct().collect()}
    if "" in uris:
        return snapshot.files
    paths = hadoop_paths(snapshot.location, snapshot.files["path"].to_pylist())
    return snapshot.files.filter(pa.array([hadoop_uri(path) in uris for path in paths], pa.bool_()))
