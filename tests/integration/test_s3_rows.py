"""Rows on S3.

Without jars, Arrow reads and writes them in this process and in Spark's workers; with Hadoop's S3A jars, Spark reads
them itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql
from tests import jars
from tests.local_spark import PLAIN, java_obstacle, process_environment
from tests.s3 import S3Server


@pytest.fixture
def s3_lake(embedded_lake: deltasql.Lake, s3: S3Server, spark_session: SparkSession) -> Iterator[deltasql.Lake]:
    settings = {"postgres.schema": f"s{uuid.uuid4().hex}"}
    options = s3.options()
    with deltasql.connect(embedded_lake.dsn, config=settings, storage_options=options, spark=spark_session) as lake:
        yield lake


@pytest.fixture
def table(s3_lake: deltasql.Lake) -> deltasql.Table:
    schema = "id BIGINT NOT NULL, at TIMESTAMP, s STRUCT<x: DOUBLE>, part STRING"
    return s3_lake.create_table("t", schema, location=f"s3://lake/{uuid.uuid4()}/a b", partition_by=["part"])


def ids(table: deltasql.Table, **options: str) -> list[int]:
    return sorted(table.arrow(**options)["id"].to_pylist())


def test_without_spark(table: deltasql.Table) -> None:
    rows = pa.table({"id": range(10), "part": ["ä/b", None] * 5})
    table.append(rows)
    assert ids(table) == list(range(10))
    assert ids(table, where="id > 7 AND part IS NULL") == [9]
    table.overwrite(pa.table({"id": [100], "part": ["ä/b"]}), where="part = 'ä/b' AND id >= 0")
    assert ids(table) == [1, 3, 5, 7, 9, 100]


def test_with_spark(table: deltasql.Table, spark_session: SparkSession) -> None:
    columns = ("id", "timestamp_micros(id) AS at", "named_struct('x', id / 2D) AS s", "concat('p', id % 2) AS part")
    frame = spark_session.range(10).selectExpr(*columns)
    table.append(frame)
    assert sorted(table.df().collect()) == sorted(frame.collect())
    assert table.df(where="part = 'p1' AND id < 4").count() == 2
    table.overwrite(frame.where("id = 1"), where="id % 2 = 1")
    assert ids(table) == [0, 1, 2, 4, 6, 8]
    assert table.df(version=1).count() == 10
    table.update({"s": "named_struct('x', 0.5D)"}, where="id IN (4, 6)")
    table.delete(where="id = 8")
    assert ids(table, where="s.x = 0.5") == [1, 4, 6]
    assert ids(table) == [0, 1, 2, 4, 6]


def test_without_jars_spark_has_no_file_system(spark_session: SparkSession) -> None:
    from deltasql.engines.spark.scan.worker_scan import has_file_system

    assert has_file_system(spark_session, "/tmp", {})
    assert not has_file_system(spark_session, "s3://lake/t", {})


S3A = """
import json, sys
from pyspark.sql import SparkSession
import deltasql

dsn, schema, location, jars, options = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
before = spark.conf.getAll
found = {}
for fast in ("on", "off"):
    config = {"postgres.schema": schema, "spark.fast_scan": fast}
    with deltasql.connect(dsn, config=config, storage_options=json.loads(options), spark=spark) as lake:
        t = lake.create_table(fast, "id BIGINT, part STRING", location=f"{location}/{fast}", partition_by=["part"])
        t.append(spark.range(10).selectExpr("id", "concat('ä/', id % 2) AS part"))
        t.overwrite(spark.range(101, 102).selectExpr("id", "'ä/1' AS part"), where="id % 4 = 1")
        rows = sorted(map(tuple, t.df(where="part = 'ä/1'").collect()))
        found[fast] = [rows, t.df().inputFiles(), t.df()._jdf.queryExecution().toString()]
print(json.dumps([found, before == spark.conf.getAll]))
"""


@pytest.mark.long
@pytest.mark.skipif(PLAIN, reason="the jars are for the release of Hadoop that the locked Spark ships")
def test_through_s3a(embedded_lake: deltasql.Lake, s3: S3Server, tmp_path: Path) -> None:
    """With the S3A jars, Spark reads the files natively, with the lake's storage options."""
    if obstacle := jars.obstacle(jars.S3A) or java_obstacle():
        assert not jars.required(), obstacle
        pytest.skip(obstacle)
    place = f"s3://lake/{uuid.uuid4()}/a b"
    arguments = (embedded_lake.dsn, f"s{uuid.uuid4().hex}", place, jars.paths(jars.S3A), json.dumps(s3.options()))
    command = [sys.executable, "-c", S3A, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=process_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found, same_settings = json.loads(done.stdout.splitlines()[-1])
    assert same_settings
    for rows, files, plan in found.values():
        assert rows == [[3, "ä/1"], [7, "ä/1"], [101, "ä/1"]]
        assert all(file.startswith("s3a://lake/") for file in files)
        assert "FileScan parquet" in plan
        assert s3.secret not in plan + done.stderr
