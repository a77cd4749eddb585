"""Compact files in Spark's Python workers, one task per group of files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from deltasql.engines.arrow.write.file_writer import FilePlan, decode_add
from deltasql.engines.spark.frame_write import collected_files, explain_missing_packages
from deltasql.engines.spark.job_progress import report_jobs
from deltasql.engines.spark.worker.compact_task import compact_groups
from deltasql.progress import Report
from deltasql.protocol.actions import Add
from deltasql.protocol.table_changes import Snapshot


def rewrite_by_spark(
    spark: SparkSession, parts: Sequence[Snapshot], plan: FilePlan, report: Report | None
) -> list[list[Add]]:
    """Rewrite groups of files, and return the new files of each group."""
    numbers = spark.range(0, len(parts), 1, len(parts))
    new_files: list[list[Add]] = [[] for _ in parts]
    with report_jobs(spark, report), explain_missing_packages(), collected_files(plan) as adds:
        for row in numbers.mapInArrow(partial(compact_groups, parts, plan), "part int, add string").collect():
            new_files[row["part"]].append(decode_add(row["add"]))
        adds += [add for part in new_files for add in part]
    return new_files
