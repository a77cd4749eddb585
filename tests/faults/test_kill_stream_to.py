"""`kill -9` of a stream into two tables at each step of a batch: both tables have the same batches, each once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltasql
from tests.effort import LONG
from tests.local_spark import process_environment

PROGRAM = """
import os, signal, sys
from pyspark.sql import SparkSession
import pytest

import deltasql
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.write import TableWriter

dsn, namespace, source, checkpoint, batch, step = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
jvm = spark.sparkContext._gateway.proc.pid
committing, writing, written = MultiTableTransaction.commit, TableWriter.write, []


def kill():
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def is_time(txn):
    return str(txn._app.version) == batch


def commit(self):
    if is_time(self) and step == "before the commit":
        kill()
    landed = committing(self)
    if is_time(self) and step == "after the commit":
        kill()
    return landed


def write(self, txn, *args):
    if is_time(txn) and step == "between the tables" and written == [txn.id]:
        kill()
    metrics = writing(self, txn, *args)
    written[:] = [txn.id]
    return metrics


MultiTableTransaction.commit, TableWriter.write = commit, write
with deltasql.connect(dsn, spark=spark) as lake:
    tables = {f"{namespace}.all": None, f"{namespace}.tens": lambda rows: rows.selectExpr("id * 10 AS id")}
    frame = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).json(source)
    query = frame.writeStream.foreachBatch(deltasql.stream_to(lake, "feed", tables))
    query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.long
def test_killed_at_each_step(lake: deltasql.Lake, namespace: str, tmp_path: Path, spark_session: SparkSession) -> None:
    whole = lake.create_table(f"{namespace}.all", "id BIGINT")
    tens = lake.create_table(f"{namespace}.tens", "id BIGINT")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for n in range(5):
        (source / f"{n}.json").write_text(f'{{"id": {n}}}')
        os.utime(source / f"{n}.json", (1_700_000_000 + n, 1_700_000_000 + n))
    steps = [(1, "between the tables", 1), (3, "after the commit", 4)]
    if LONG:
        steps.insert(1, (2, "before the commit", 2))
    for batch, step, batches in steps:
        code = run(lake.dsn, namespace, source, checkpoint, batch, step)
        assert code == -signal.SIGKILL
        assert sorted(whole.arrow()["id"].to_pylist()) == list(range(batches)), step
        assert sorted(tens.arrow()["id"].to_pylist()) == [10 * n for n in range(batches)], step
        assert whole.version == tens.version == batches
    feed = deltasql.stream_to(
        lake, "feed", {whole.name: None, tens.name: lambda rows: rows.selectExpr("id * 10 AS id")}
    )
    frame = spark_session.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).json(str(source))
    query = frame.writeStream.foreachBatch(feed).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(whole.arrow()["id"].to_pylist()) == list(range(5))
    assert sorted(tens.arrow()["id"].to_pylist()) == [10 * n for n in range(5)]
    assert whole.version == tens.version == 5, "no batch was committed twice"
    assert len({entry.txn_id for entry in whole.history()} & {entry.txn_id for entry in tens.history()}) == 5


def run(*arguments: object) -> int:
    """Run the stream in a process with its own Spark, which kills itself, and return the exit code."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(
        command, env=process_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=800
    ).returncode
