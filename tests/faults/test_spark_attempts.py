"""Spark retries failed tasks; only the files of successful attempts become part of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import deltasql
from tests.local_spark import process_environment

PROGRAM = """
import sys
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
import deltasql
from deltasql.engines.spark.frame_write import FrameWrite

url, *tables = sys.argv[1:]


def failing(batches):
    for number, batch in enumerate(batches):
        if number == 3 and TaskContext.get().attemptNumber() < 2:
            raise RuntimeError("broken on purpose")
        yield batch


settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.execution.arrow.maxRecordsPerBatch": "20000"}
spark = SparkSession.builder.master("local[2,3]").config(map=settings).getOrCreate()
frame = spark.range(0, 200_000, 1, 2).selectExpr("id", "CAST(id % 2 AS STRING) AS part")
with deltasql.connect(url, spark=spark) as lake:
    for table in tables:
        if table.endswith("arrow"):
            FrameWrite._is_native = lambda self, frame: False  # as for an object store
        lake.table(table).append(frame.mapInArrow(failing, frame.schema))
"""


@pytest.mark.usefixtures("spark_session")
def test_files_of_failed_attempts_are_not_in_the_table(lake: deltasql.Lake, namespace: str) -> None:
    properties = {"deltasql.writer.target_file_size": "100kb"}
    schema = "id BIGINT, part STRING"
    tables = [lake.create_table(f"{namespace}.{name}", schema, properties=properties) for name in ("native", "arrow")]
    command = [sys.executable, "-c", PROGRAM, lake.dsn, *(table.name for table in tables)]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    for table in tables:
        assert sorted(table.arrow()["id"].to_pylist()) == list(range(200_000))
        written = {p.relative_to(table.location).as_posix() for p in Path(table.location).rglob("part-*.parquet")}
        known = set(table.files()["path"].to_pylist())
        assert known == written if table.name.endswith("native") else known < written
