"""Taking rows out of files by Spark: any condition that it evaluates, on any number of files."""

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
from deltasql.progress import Report
from deltasql.protocol.actions import Cdc
from deltasql.protocol.change_feed import CHANGE_TYPE, DELETED
from deltasql.protocol.schema_fit import Fit, parse_struct
from deltasql.store import Snapshot


def remove_matching_rows_by_spark(
    spark: SparkSession, snapshot: Snapshot, where: str, plan: FilePlan, *, fast: bool, report: Report | None = None
) -> ReplaceWhereResult:
    """Files with rows that a condition is true for go; their other rows are written again."""
    with report_jobs(spark, report):
        files = _touched(spark, snapshot, where, plan, fast=fast)
    if not files.num_rows:
        return ReplaceWhereResult(files, [])
    stays = read_snapshot(spark, replace(snapshot, files=files), fast=fast, options=plan.options).where(
        f"NOT coalesce(({where}), false)"
    )
    return ReplaceWhereResult(files, _same(snapshot, plan, report).run(stays))


def write_deleted_rows(
    spark: SparkSession, snapshot: Snapshot, where: str, plan: FilePlan, *, fast: bool, report: Report | None = None
) -> list[Cdc]:
    """The rows that a condition is true for, for the change data feed: they were deleted."""
    changes = plan.for_change_feed()
    rows = read_snapshot(spark, snapshot, where, fast=fast, options=plan.options)
    return as_cdc(_same(snapshot, changes, report).run(rows.withColumn(CHANGE_TYPE, F.lit(DELETED))))


def _same(snapshot: Snapshot, plan: FilePlan, report: Report | None) -> FrameWrite:
    """Writes rows that have the columns of their files."""
    struct = parse_struct(plan.schema_string)
    fit = Fit(struct, {field["name"]: field["name"] for field in struct["fields"]})
    return FrameWrite(snapshot.name, plan, fit, (), report)


def _touched(spark: SparkSession, snapshot: Snapshot, where: str, plan: FilePlan, *, fast: bool) -> pa.Table:
    """The files that hold such rows; all of them where Spark does not tell a row's file."""
    rows = read_snapshot(spark, snapshot, where, fast=fast, options=plan.options)
    uris = {row["file"] for row in rows.select(F.input_file_name().alias("file")).distinct().collect()}
    if "" in uris:
        return snapshot.files
    paths = hadoop_paths(snapshot.location, snapshot.files["path"].to_pylist())
    return snapshot.files.filter(pa.array([hadoop_uri(path) in uris for path in paths], pa.bool_()))
