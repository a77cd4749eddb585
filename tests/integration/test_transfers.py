"""Several processes transfer random amounts between tables; every snapshot has the same total."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession

import deltasql
from tests.effort import rounds
from tests.processes import run_all

SECONDS = float(os.environ.get("TEST_TRANSFER_SECONDS", rounds(2, 60)))
TABLES, ACCOUNTS, EACH = 5, 4, 1000
TOTAL = TABLES * ACCOUNTS * EACH


def test_the_total_is_constant(lake: deltasql.Lake, namespace: str, spark_session: SparkSession) -> None:
    names = [f"{namespace}.t{n}" for n in range(TABLES)]
    for name in names:
        rows = pa.table({"id": range(ACCOUNTS), "amount": pa.array([EACH] * ACCOUNTS, pa.int64())})
        properties = {"deltasql.mirror.mode": "off"}
        lake.create_table(name, "id BIGINT, amount BIGINT", as_=rows, partition_by=["id"], properties=properties)
    before = _deadlocks(lake.dsn)
    jobs: list[tuple[Any, ...]] = [(_transfer_by_arrow, lake.dsn, names, SECONDS, seed) for seed in range(7)]
    jobs += [(_read_totals, lake.dsn, names, SECONDS, 0), (_transfer_by_spark, lake.dsn, names, SECONDS, 0)]
    results = run_all(_run, [(*job,) for job in jobs], seconds=SECONDS + 600)
    *by_arrow, read, by_spark = results
    assert all(count > 0 for count in by_arrow)
    assert by_spark > 0
    totals, reads = read
    assert totals == {TOTAL}
    assert reads > 5
    found = lake.snapshot()
    assert sum(sum(found.arrow(name)["amount"].to_pylist()) for name in names) == TOTAL
    committed = sum(lake.table(name).version for name in names)
    assert committed == 2 * (sum(by_arrow) + by_spark), "each transfer commits one version in each of two tables"
    assert _deadlocks(lake.dsn) == before


def _run(job: Any, *arguments: Any) -> Any:
    return job(*arguments)


def _transfer_by_arrow(dsn: str, names: list[str], seconds: float, seed: int) -> int:
    """Transfer amounts without Spark, and return the number of commits."""
    chance, count = random.Random(seed), 0
    with deltasql.connect(dsn) as lake:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            source, target = chance.sample(names, 2)
            account, amount = chance.randrange(ACCOUNTS), chance.randrange(1, 50)

            def work(
                tx: deltasql.Transaction, parts: Any = ((source, -amount), (target, amount)), account: int = account
            ) -> None:
                for name, change in parts:
                    [held] = tx.arrow(name, where=f"id = {account}")["amount"].to_pylist()
                    row = pa.table({"id": [account], "amount": pa.array([held + change], pa.int64())})
                    tx.write(name, row, mode="overwrite", where=f"id = {account}")

            lake.run(work, retries=100)
            count += 1
    return count


def _read_totals(dsn: str, names: list[str], seconds: float, _: int) -> tuple[set[int], int]:
    """Return the totals of all snapshots, and the number of snapshots."""
    totals: set[int] = set()
    count = 0
    with deltasql.connect(dsn) as lake:
        end = time.monotonic() + seconds
        while count < 6 or time.monotonic() < end:
            found = lake.snapshot()
            totals.add(sum(sum(found.arrow(name, columns=["amount"])["amount"].to_pylist()) for name in names))
            count += 1
    return totals, count


def _transfer_by_spark(dsn: str, names: list[str], seconds: float, _: int) -> int:
    """Transfer amounts with Spark until the time is over, at least once, and return the number of commits."""
    from tests.local_spark import process_environment

    os.environ.update(process_environment())
    count = 0
    with deltasql.connect(dsn, config={"progress": "off"}) as lake:
        end = time.monotonic() + seconds
        while count == 0 or time.monotonic() < end:
            source, target = random.Random(count).sample(names, 2)

            def work(tx: deltasql.Transaction, source: str = source, target: str = target) -> None:
                tx.update(source, {"amount": "amount - 1"}, where="id = 0")
                tx.sql(f"UPDATE {target} SET amount = amount + 1 WHERE id = 0")

            lake.run(work, retries=100)
            count += 1
    return count


def _deadlocks(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
    return int(row[0]) if row else 0
