"""`kill -9` of a process between writing the files of a statement and its commit: the table is unchanged and usable."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql
from tests.local_spark import java_obstacle, process_environment
from tests.readers import assert_same_rows

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


VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
CASES = {
    "update": ("UPDATE {t} SET n = n + 1 WHERE id > 2", {}, {".parquet"}),
    "insert": ("INSERT INTO {t} VALUES (-1, -1)", {}, {".parquet"}),
    "delete with vectors": ("DELETE FROM {t} WHERE n % 7 = 1", VECTORS, {".bin"}),
    "merge with vectors and feed": (
        "MERGE INTO {t} t USING (VALUES (3, 7), (-2, 8)) AS s(id, n) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)",
        VECTORS | FEED,
        {".parquet", "_change_data"},
    ),
}


LONG_ONLY = {"update", "insert", "delete with vectors"}


def files(table: deltasql.Table) -> set[Path]:
    found = Path(table.location).rglob("*")
    return {path for path in found if path.suffix in (".parquet", ".bin") and "_delta_log" not in path.parts}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.long if case in LONG_ONLY else ()) for case in CASES]
)
def test_killed_before_its_commit(lake: deltasql.Lake, namespace: str, spark_session: SparkSession, case: str) -> None:
    if obstacle := java_obstacle():
        pytest.skip(obstacle)
    statement, properties, written = CASES[case]
    table = lake.create_table(f"{namespace}.t", "id BIGINT, n INT", properties=properties)
    numbers = list(range(5000))
    table.append(pa.table({"id": numbers, "n": pa.array(numbers, pa.int32())}))
    before = table.arrow().sort_by("id")
    known = files(table)
    text = statement.format(t=table.name)
    environment = process_environment()
    command = [sys.executable, "-c", PROGRAM, lake.dsn, text]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]
    left = files(table) - known
    kinds = {path.suffix for path in left} | {part for path in left for part in path.parts}
    assert written <= kinds, "the files of the statement were written"
    assert table.version == 1
    assert table.arrow().sort_by("id") == before
    assert_same_rows(Path(table.location), before, spark=spark_session)
    lake.sql(text)
    assert table.version == 2
    after = table.arrow()
    assert after.sort_by("id") != before
    assert not {Path(table.location) / path for path in table.files()["path"].to_pylist()} & left
    assert_same_rows(Path(table.location), after, spark=spark_session)
    if FEED.items() <= properties.items():
        changes = sorted(tuple(row)[:3] for row in table.changes(2).collect())
        assert changes == [(-2, 8, "insert"), (3, 3, "update_preimage"), (3, 7, "update_postimage")]
