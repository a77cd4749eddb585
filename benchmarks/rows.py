"""Measure scans and writes against Spark's Parquet source, planning, and small appends against delta-rs."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltasql
from benchmarks import data
from benchmarks.measure import Result, at_least, at_most, below, faster, in_turns
from benchmarks.snapshots import forget

SUITE = "rows"
ROWS, FILES, DAYS = 10_000_000, 40, 50
CLUSTERED = 2_000
MANY_FILES, MOST_FILES = 10_000, 100_000
_PUSH_DOWN = "spark.sql.parquet.filterPushdown"
APPENDS = 1000
_COLUMNS = (
    "id",
    "id % 1000 AS code",
    "CAST(id % 7919 AS INT) AS small",
    "id / 7D AS amount",
    "CAST(id AS DECIMAL(18,2)) AS price",
    "timestamp_micros(1767225600000000 + id * 1000) AS at",
    "date_add(date'2026-01-01', CAST(id % {days} AS INT)) AS day",
    "concat('name ', id % 100000) AS name",
    "sha1(CAST(id AS STRING)) AS digest",
    "id % 2 = 0 AS flag",
)


def run(lake: deltasql.Lake) -> list[Result]:
    """Run all measurements of this suite."""
    spark = lake.spark
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = str(place / "source")
        columns = [column.format(days=DAYS) for column in _COLUMNS]
        spark.range(0, ROWS, 1, FILES).selectExpr(*columns).write.parquet(source)
        frame = spark.read.parquet(source)
        return [*_scans(lake, frame), *_planning(lake), *_appends(lake, frame, place), *_small(lake, place)]


def _drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _scans(lake: deltasql.Lake, frame: Any) -> list[Result]:
    table = lake.create_table("rows.scanned", as_=frame.sortWithinPartitions("id"))
    spark = lake.spark
    files = [f"{table.location}/{path}" for path in table.files()["path"].to_pylist()]

    def both(rounds: int, use: Callable[[Any], None]) -> dict[str, float]:
        return in_turns(rounds, ours=lambda: use(table.df()), theirs=lambda: use(spark.read.parquet(*files)))

    full = both(3, _drain)
    filtered = both(3, lambda f: _drain(f.where("code = 5").select("id", "amount", "name")))
    return [
        at_most(SUITE, "full scan of 10M rows vs spark.read.parquet", full["ours"], full["theirs"], 1.1),
        at_most(SUITE, "filtered scan of 10M rows vs spark.read.parquet", filtered["ours"], filtered["theirs"], 1.1),
        *_pruning(lake, table, frame),
    ]


def _pruning(lake: deltasql.Lake, few: deltasql.Table, frame: Any) -> list[Result]:
    """Compare pruning by the log with Parquet push-down, which opens every file."""
    many = lake.create_table("rows.clustered", as_=frame.repartitionByRange(CLUSTERED, "id"))
    narrow = f"id BETWEEN {ROWS // 2} AND {ROWS // 2 + 1000}"
    found = in_turns(
        5,
        few=lambda: _drain(few.df(where=narrow)),
        few_whole=lambda: _without_push_down(lake.spark, lambda: _drain(few.df().where(narrow))),
        few_pushed=lambda: _drain(few.df().where(narrow)),
        many=lambda: _drain(many.df(where=narrow)),
        many_pushed=lambda: _drain(many.df().where(narrow)),
    )
    what = f"a selective filter on 10M rows in {FILES} files: pruned by the log vs"
    return [
        faster(SUITE, f"{what} no pruning", found["few"], found["few_whole"], 5.0),
        at_most(SUITE, f"{what} Parquet push-down in each file", found["few"], found["few_pushed"], 1.5),
        faster(
            SUITE,
            f"the same filter in {CLUSTERED:,} files, vs Parquet push-down in each file",
            found["many"],
            found["many_pushed"],
            5.0,
        ),
    ]


def _without_push_down(spark: Any, action: Callable[[], None]) -> None:
    spark.conf.set(_PUSH_DOWN, "false")
    try:
        action()
    finally:
        spark.conf.unset(_PUSH_DOWN)


def _planning(lake: deltasql.Lake) -> list[Result]:
    """Measure planning from the log alone; no file is opened."""
    results = []
    for count, limit in ((MANY_FILES, 3000), (MOST_FILES, 30_000)):
        table = lake.create_table(f"rows.many_{count}", data.DDL, partition_by=["day"])
        with lake.begin() as tx:
            tx.stage(table, data.adds(count))
        table.df().schema  # noqa: B018 - the index is compiled once per session
        spent = in_turns(3, settle=lambda: forget(lake), cold=lambda table=table: _plan(table))
        again = in_turns(3, cached=lambda table=table: _plan(table))
        text = f"planning {count:,} files ({again['cached']:,.0f} ms with a cached snapshot)"
        results.append(below(SUITE, text, spent["cold"], limit))
    return results


def _plan(table: deltasql.Table) -> None:
    table.df()._jdf.queryExecution().executedPlan()


def _appends(lake: deltasql.Lake, frame: Any, place: Path) -> list[Result]:
    numbers = iter(range(1000))
    results = []
    for name, columns, limit in (("append", [], 1.25), ("partitioned append", ["day"], 1.1)):
        table = lake.create_table(f"rows.{name.replace(' ', '_')}", frame.schema, partition_by=columns)

        def theirs(columns: list[str] = columns) -> None:
            target = str(place / f"plain{next(numbers)}")
            frame.write.partitionBy(*columns).parquet(target)
            shutil.rmtree(target)

        measured = in_turns(3, ours=lambda table=table: table.append(frame), theirs=theirs)
        text = f"{name} of 10M rows with commit and mirror vs df.write.parquet"
        results.append(at_most(SUITE, text, measured["ours"], measured["theirs"], limit))
        lake.drop_table(table.name, purge=True)
    return results


def _small(lake: deltasql.Lake, place: Path) -> list[Result]:
    from deltalake import write_deltalake

    one = pa.table({"id": [1], "name": ["x"]})
    table = lake.create_table("rows.small", one.schema)
    spent = {"ours": 0.0, "theirs": 0.0}
    for _ in range(10):
        for who, append in (
            ("ours", lambda: table.append(one)),
            ("theirs", lambda: write_deltalake(str(place / "small"), one, mode="append")),
        ):
            began = time.perf_counter()
            for _ in range(APPENDS // 10):
                append()
            spent[who] += time.perf_counter() - began
    rates = {who: APPENDS / seconds for who, seconds in spent.items()}
    return [
        at_least(SUITE, f"{APPENDS:,} appends of one row vs delta-rs", rates["ours"], rates["theirs"], 5, "commits/s")
    ]
