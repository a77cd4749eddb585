"""Paths and URIs of files in Spark."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.engines.spark.scan.hadoop_paths import escaped, hadoop_paths, hadoop_root, hadoop_uri
from tests.spark.conftest import ODD_NAMES, ON_CONNECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("/data/t", "file:/data/t"),
        ("/data/a %41 b", "file:/data/a %41 b"),
        ("file:///data/a%20b", "file:/data/a b"),
        ("s3://bucket/a%20b/t", "s3a://bucket/a b/t"),
        ("s3a://bucket", "s3a://bucket"),
        ("abfss://box@account.dfs.core.windows.net/t/", "abfss://box@account.dfs.core.windows.net/t"),
        ("gs://bucket/größe", "gs://bucket/größe"),
    ],
)
def test_roots(location: str, root: str) -> None:
    assert hadoop_root(location) == root
    assert hadoop_paths(location, ["p=a%2520b/x%20y.parquet"]) == [f"{root}/p=a%20b/x y.parquet"]


def test_no_path_is_a_pattern() -> None:
    assert escaped("file:/a*b?[c]{d,e}.parquet") == r"file:/a\*b\?\[c\]\{d,e\}.parquet"


def test_uris_equal_those_of_spark(session: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(ODD_NAMES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [number]}), tmp_path / name)
    everything = session.read.option("recursiveFileLookup", "true").schema("id BIGINT").parquet(f"file:{tmp_path}")
    shown = {row.id: row.uri for row in everything.selectExpr("id", "_metadata.file_path AS uri").collect()}
    assert shown == {number: hadoop_uri(f"file:{tmp_path}/{name}") for number, name in enumerate(ODD_NAMES)}


@pytest.mark.skipif(ON_CONNECT, reason="needs the JVM")
def test_every_character_is_encoded_as_java_does(spark_session: SparkSession) -> None:
    """Characters that are not allowed in paths of the log, or not assigned in both versions of Unicode, are left out."""
    characters = [
        chr(code)
        for code in range(0x20, sys.maxunicode + 1)
        if code != 0x7F and chr(code) != "\\" and unicodedata.category(chr(code)) not in ("Cs", "Cn")
    ]
    path = "file:/x" + "".join(characters)
    java = spark_session._jvm.org.apache.hadoop.fs.Path(path).toUri().toString()
    assert hadoop_uri(path.replace("//", "/")) == java
