"""Compaction by Arrow in Spark's Python workers, each group of files by one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from deltasql.engines.arrow.write.compact import rewrite
from deltasql.engines.arrow.write.file_writer import FilePlan, as_texts, from_text
from deltasql.engines.spark.frame_write import explained
from deltasql.engines.spark.job_progress import watched
from deltasql.progress import Report
from deltasql.protocol.actions import Add
from deltasql.store import Snapshot


def rewrite_by_spark(
    spark: SparkSession, parts: Sequence[Snapshot], plan: FilePlan, report: Report | None
) -> list[list[Add]]:
    """The new files of each group of files."""
    numbers = spark.range(0, len(parts), 1, len(parts))
    with watched(spark, report), explained():
        rows = numbers.mapInArrow(partial(_in_tasks, parts, plan), "part int, add string").collect()
    found: list[list[Add]] = [[] for _ in parts]
    for row in rows:
        found[row["part"]].append(from_text(row["add"]))
    return found


def _in_tasks(parts: Sequence[Snapshot], plan: FilePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker of Spark's."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            texts = as_texts(rewrite(parts[number], plan.options, plan))
            columns = [pa.array([number] * len(texts), pa.int32()), pa.array(texts, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, names=["part", "add"])
