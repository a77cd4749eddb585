"""Measure deletion vectors: small changes against delta-spark, scans of marked rows, and compaction."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests import jars

import deltasql
from benchmarks.dml import ROWS, rows_in, session, statements
from benchmarks.measure import Result, at_most, in_turns

SUITE = "vectors"
ON = {"delta.enableDeletionVectors": "true"}
FILES = 40
SMALL_FILES = 2000


def run(lake: deltasql.Lake) -> list[Result]:
    """Run all measurements of this suite."""
    jars.fetch(jars.directory())
    with tempfile.TemporaryDirectory() as folder, session(Path(folder)) as spark:
        with deltasql.connect(lake.dsn, spark=spark) as ours:
            results = statements(ours, Path(folder), FILES, marked=True)
            return [*results, _scan(ours), _compaction(ours, Path(folder))]


def _scan(lake: deltasql.Lake) -> Result:
    frame = rows_in(lake.spark, ROWS, FILES)
    clean = lake.create_table("vectors.clean", as_=frame)
    marked = lake.create_table("vectors.marked", as_=frame, properties=ON)
    marked.delete(where="k % 100 = 7")
    assert all(marked.files()["deletion_vector"].is_valid().to_pylist())

    def read(table: deltasql.Table) -> None:
        table.df().selectExpr("count(*)", "sum(k)", "max(digest)").collect()

    spent = in_turns(9, ours=lambda: read(marked), theirs=lambda: read(clean))
    for table in (clean, marked):
        lake.drop_table(table.name, purge=True)
    text = "scan of 10M rows, 1 % deleted by vectors, vs a scan without vectors"
    return at_most(SUITE, text, spent["ours"], spent["theirs"], 1.15, note="row numbers, and one bit per row")


def _compaction(lake: deltasql.Lake, folder: Path) -> Result:
    spark: Any = lake.spark
    frame = rows_in(spark, 100 * SMALL_FILES, SMALL_FILES)
    tables, paths = [], []
    for turn in range(3):  # one to warm up
        tables.append(lake.create_table(f"vectors.small{turn}", as_=frame))
        paths.append(str(folder / f"small{turn}"))
        frame.write.format("delta").save(paths[-1])
    left, others = iter(tables), iter(paths)
    spent = in_turns(
        2, ours=lambda: next(left).optimize(), theirs=lambda: spark.sql(f"OPTIMIZE delta.`{next(others)}`").collect()
    )
    for table, path in zip(tables, paths, strict=True):
        assert table.files().num_rows == 1
        lake.drop_table(table.name, purge=True)
        shutil.rmtree(path)
    text = f"compaction of {SMALL_FILES:,} small files vs delta-spark"
    return at_most(SUITE, text, spent["ours"], spent["theirs"], 0.5, note="read and written by Arrow in this process")
