"""Spark retries failed tasks; only the files of successful attempts become part of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltasql
from tests.local_spark import process_environment

PROGRAM = """
import sys
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
import deltasql
from deltasql.engines.spark.frame_write import FrameWrite

url, table, writer = sys.argv[1:]
if writer == "arrow":
    FrameWrite._is_native = lambda self, frame: False  # as for an object store


def failing(batches):
    for number, batch in enumerate(batches):
        if number == 3 and TaskContext.get().attemptNumber() < 2:
            raise RuntimeError("broken on purpose")
        yield batch


settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.execution.arrow.maxRecordsPerBatch": "20000"}
spark = SparkSession.builder.master("local[2,3]").config(map=settings).getOrCreate()
frame = spark.range(0, 200_000, 1, 2).selectExpr("id", "CAST(id % 2 AS STRING) AS part")
with deltasql.connect(url, spark=spark) as lake:
    lake.table(table).append(frame.mapInArrow(failing, frame.schema))
"""


@pytest.mark.parametrize("writer", ["native", "arrow"])
def test_failed_attempts_leave_no_files(
    lake: deltasql.Lake, namespace: str, spark_session: SparkSession, writer: str
) -> None:
    properties = {"deltasql.writer.target_file_size": "100kb"}
    table = lake.create_table(f"{namespace}.t", "id BIGINT, part STRING", properties=properties)
    environment = process_environment()
    command = [sys.executable, "-c", PROGRAM, lake.dsn, table.name, writer]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert sorted(table.arrow()["id"].to_pylist()) == list(range(200_000))
    written = {p.relative_to(table.location).as_posix() for p in Path(table.location).rglob("part-*.parquet")}
    known = set(table.files()["path"].to_pylist())
    assert known == written if writer == "native" else known < written
