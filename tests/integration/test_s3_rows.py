"""Rows on S3 with nothing but Python packages: Arrow writes and reads them, in this process and in Spark's workers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql
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


def test_a_session_that_reads_natively_is_found_out(spark_session: SparkSession) -> None:
    from deltasql.spark.remote import reads_natively

    assert reads_natively(spark_session, "/tmp", {})
    assert not reads_natively(spark_session, "s3://lake/t", {})
