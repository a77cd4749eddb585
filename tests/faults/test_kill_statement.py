"""`kill -9` of a process between the files of a statement and its commit: the table is what it was, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import deltasql
from tests.local_spark import java, java_obstacle

PROGRAM = """
import os, signal, sys
import deltasql
from deltasql.store.store import Store

dsn, statement = sys.argv[1:]
with deltasql.connect(dsn) as lake:
    jvm = lake.spark.sparkContext._gateway.proc.pid

    def commit(self, *_):
        os.kill(jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    Store.commit = commit
    lake.sql(statement)
"""


STATEMENT = "UPDATE {t} SET n = n + 1 WHERE id > 2"


def test_killed_before_its_commit(lake: deltasql.Lake, namespace: str, spark_session: object) -> None:
    if obstacle := java_obstacle():
        pytest.skip(obstacle)
    table = lake.create_table(f"{namespace}.t", "id BIGINT, n INT")
    table.append(pa.table({"id": [1, 2, 3, 4], "n": pa.array([1, 2, 3, 4], pa.int32())}))
    before = table.arrow().sort_by("id")
    known = set(Path(table.location).rglob("*.parquet"))
    text = STATEMENT.format(t=table.name)
    environment = {**os.environ, **java(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", PROGRAM, lake.dsn, text]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]
    left = set(Path(table.location).rglob("*.parquet")) - known
    assert left, "the files of the statement were written"
    assert table.version == 1
    assert table.arrow().sort_by("id") == before
    lake.sql(text)
    assert table.version == 2
    assert table.arrow().sort_by("id") != before
    assert not {Path(table.location) / path for path in table.files()["path"].to_pylist()} & left
