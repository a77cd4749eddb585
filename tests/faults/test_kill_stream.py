"""`kill -9` of a stream before and after the commit of a batch: after a restart, each row is in the table once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import deltasql
from tests.effort import LONG
from tests.local_spark import process_environment

PROGRAM = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
import deltasql
from deltasql.datasource import source, source_writer

url, table, sink, checkpoint, dies_at, after = sys.argv[1:]


class Dying(source_writer.StreamWriter):
    def commit(self, messages, batchId):
        if str(batchId) == dies_at and after == "before":
            kill()
        super().commit(messages, batchId)
        if str(batchId) == dies_at:
            kill()


def kill():
    for pid in Path(checkpoint).with_name("pids").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Source(source.TableSource):
    address = source.LakeAddress(url, {}, {})

    def streamWriter(self, schema, overwrite):
        return Dying.of(self.address, self._table(), schema, dict(self.options), overwrite=overwrite)


settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
Path(checkpoint).with_name("pids").write_text(f"{os.getpid()} {spark.sparkContext._gateway.proc.pid}")
spark.dataSource.register(Source)
frame = spark.readStream.format("deltasql").option("maxFilesPerTrigger", 1).option("startingVersion", 1).load(table)
query = frame.writeStream.format("deltasql").option("checkpointLocation", checkpoint).trigger(availableNow=True)
query.start(sink).awaitTermination()
"""


KILLS = [("before", 0), ("after", 1)] if LONG else [("after", 1)]
"""When the process is killed, relative to the commit of batch 0, and the number of rows that are committed then."""


def test_killed_around_its_commit(
    lake: deltasql.Lake, namespace: str, tmp_path: Path, spark_session: SparkSession
) -> None:
    source = lake.create_table(f"{namespace}.source", "id BIGINT")
    sink = lake.create_table(f"{namespace}.sink", "id BIGINT")
    for n in range(2):
        source.append(pa.table({"id": [n]}))
    checkpoint = tmp_path / "checkpoint"
    for moment, committed in KILLS:
        killed = run(lake.dsn, source.name, sink.name, checkpoint, 0, moment)
        assert killed == -signal.SIGKILL
        assert sorted(sink.arrow()["id"].to_pylist()) == list(range(committed)), moment
        assert not (checkpoint / "commits" / "0").exists()

    deltasql.register(spark_session, lake.dsn)
    reader = spark_session.readStream.format("deltasql").option("maxFilesPerTrigger", 1).option("startingVersion", 1)
    writer = reader.load(source.name).writeStream.format("deltasql").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(sink.name).awaitTermination()
    assert sorted(sink.arrow()["id"].to_pylist()) == list(range(2))
    assert sink.version == 2


def run(*arguments: object) -> int:
    """Run the stream in a process with its own Spark, which kills itself, and return the exit code."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(
        command, env=process_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=800
    ).returncode
