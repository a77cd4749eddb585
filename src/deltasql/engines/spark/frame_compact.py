"""Compaction by Arrow in Spark's Python workers, each group of files by one task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from deltasql.engines.arrow.write.file_writer import FilePlan, from_text
from deltasql.engines.spark.frame_write import explained
from deltasql.engines.spark.job_progress import watched
from deltasql.engines.spark.worker.compact_task import compact_groups
from deltasql.progress import Report
from deltasql.protocol.actions import Add
from deltasql.store import Snapshot


def rewrite_by_spark(
    spark: SparkSession, parts: Sequence[Snapshot], plan: FilePlan, report: Report | None
) -> list[list[Add]]:
    """The new files of each group of files."""
    numbers = spark.range(0, len(parts), 1, len(parts))
    with watched(spark, report), explained():
        rows = numbers.mapInArrow(partial(compact_groups, parts, plan), "part int, add string").collect()
    found: list[list[Add]] = [[] for _ in parts]
    for row in rows:
        found[row["part"]].append(from_text(row["add"]))
    return found
