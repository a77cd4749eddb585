"""Measure statements on 10M rows against delta-spark, with the same data, jars, session and settings, both copy-on-write."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import Progress
from tests import jars

import deltasql
from benchmarks.measure import Result, at_most, below, in_turns, milliseconds

SUITE = "dml"
ROWS = 10_000_000
LAYOUTS = (40, 400)
KEYS = 1_000_000
_COLUMNS = (
    "id",
    "pmod(xxhash64(id), {keys}) AS k",
    "CAST(id % 7919 AS INT) AS small",
    "id / 7D AS amount",
    "CAST(id AS DECIMAL(18,2)) AS price",
    "timestamp_micros(1767225600000000 + id * 1000) AS at",
    "date_add(date'2026-01-01', CAST(id % 50 AS INT)) AS day",
    "concat('name ', id % 100000) AS name",
    "sha1(CAST(id AS STRING)) AS digest",
    "id % 2 = 0 AS flag",
)


def run(lake: deltasql.Lake) -> list[Result]:
    """Run all measurements of this suite."""
    jars.fetch(jars.directory())
    with tempfile.TemporaryDirectory() as folder, session(Path(folder)) as spark:
        with deltasql.connect(lake.dsn, spark=spark) as ours:
            results = [_partition(ours)]
            for files in LAYOUTS:
                results += statements(ours, Path(folder), files)
        return results


@contextmanager
def session(folder: Path) -> Iterator[Any]:
    """Return a session with Delta's jars, for both engines."""
    import os

    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.jars": jars.paths(jars.DELTA),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.driver.memory": "6g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.log.level": "ERROR",
    }
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield spark
    spark.stop()


def rows_in(spark: Any, rows: int, files: int) -> Any:
    """Return a number of rows, partitioned for a number of files."""
    return spark.range(0, rows, 1, files).selectExpr(*(column.format(keys=KEYS) for column in _COLUMNS))


def statements(lake: deltasql.Lake, folder: Path, files: int, *, marked: bool = False) -> list[Result]:
    """Change the same rows with both engines: by rewriting files, or with `marked` by deletion vectors."""
    spark: Any = lake.spark
    frame = rows_in(spark, ROWS, files)
    vectors = {"delta.enableDeletionVectors": str(marked).lower()}
    suite, bar, what = ("vectors", 0.7, ", both with vectors") if marked else (SUITE, 0.8, "")
    table = lake.create_table(f"{suite}.rows{files}", as_=frame, properties=vectors if marked else None)
    path = str(folder / f"{suite}{files}")
    frame.write.format("delta").options(**vectors).save(path)
    theirs = f"delta.`{path}`"
    results = []
    operations = _OPERATIONS[:3] if marked else _OPERATIONS
    with Progress(transient=True) as progress:
        task = progress.add_task(f"statements on {files} files", total=len(operations))
        for name, rounds, statement, prepare, bound in operations:
            numbers = {"ours": 0, "theirs": 0}

            def once(who: str, target: str, execute: Callable[[str], Any]) -> None:
                number = numbers[who]
                numbers[who] += 1
                prepare(spark, number)
                execute(statement.format(t=target, n=number))

            spent = in_turns(
                rounds,
                ours=lambda: once("ours", table.name, lake.sql),
                theirs=lambda: once("theirs", theirs, spark.sql),
            )
            text = f"{name} of 10M rows in {files} files vs delta-spark{what}"
            note = "no file is rewritten" if marked else bound
            results.append(at_most(suite, text, spent["ours"], spent["theirs"], bar, note=note))
            progress.advance(task)
    sums = ("count(*)", "sum(id)", "sum(k)", "sum(small)", "sum(price)", "sum(hash(name))")
    same = [tuple(frame.selectExpr(*sums).first()) for frame in (table.df(), spark.table(theirs))]
    assert same[0] == same[1], same
    lake.drop_table(table.name, purge=True)
    shutil.rmtree(path)
    return results


def _nothing(spark: Any, number: int) -> None:
    pass


def _source(existing: int, new: int) -> Callable[[Any, int], None]:
    """Create a view of source rows; some of their ids exist in the table, spread over all files."""

    def prepare(spark: Any, number: int) -> None:
        step = ROWS // existing
        old = spark.range(number, number + existing * step, step).selectExpr("id")
        more = spark.range(ROWS * (number + 2), ROWS * (number + 2) + new).selectExpr("id")
        names = [column.format(keys=KEYS) for column in _COLUMNS]
        old.union(more).selectExpr(*names).selectExpr("*").createOrReplaceTempView("bench_source")

    return prepare


_UPSERT = (
    "MERGE INTO {t} AS t USING bench_source AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET small = s.small + 1, name = s.name WHEN NOT MATCHED THEN INSERT *"
)
_OPERATIONS: tuple[tuple[str, int, str, Callable[[Any, int], None], str], ...] = (
    (
        "DELETE of 10 rows",
        3,
        "DELETE FROM {t} WHERE k = {n}",
        _nothing,
        "a scan of one column, then the rewrite of ten files",
    ),
    (
        "UPDATE of 10 rows",
        3,
        "UPDATE {t} SET small = small + 1 WHERE k = 1000 + {n}",
        _nothing,
        "a scan of one column, then the rewrite of ten files",
    ),
    (
        "MERGE of 4,000 rows",
        2,
        _UPSERT,
        _source(2000, 2000),
        "a scan of all columns; more than half is the rewrite of every file",
    ),
    (
        "UPDATE of 5 %",
        2,
        "UPDATE {t} SET small = small + 1 WHERE k % 20 = {n}",
        _nothing,
        "about two thirds is the rewrite of every file by Arrow",
    ),
    (
        "MERGE upsert of 10 %",
        2,
        _UPSERT,
        _source(500_000, 500_000),
        "half for the join, half for the rewrite of every file",
    ),
)


def _partition(lake: deltasql.Lake) -> Result:
    spark: Any = lake.spark
    frame = spark.range(0, 1_000_000, 1, 4).selectExpr("id", "CAST(id % 20 AS INT) AS part")
    table = lake.create_table("dml.partitioned", as_=frame, partition_by=["part"])
    spent = [milliseconds(lambda n=n: lake.sql(f"DELETE FROM {table.name} WHERE part = {n}")) for n in range(6)]
    return below(SUITE, "DELETE of a whole partition, median", sorted(spent)[3], 200, "no file is read: one commit")
