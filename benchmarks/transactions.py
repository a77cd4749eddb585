"""Measure transactions over several tables against commits to one, and concurrent transactions."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import deltasql
from benchmarks.measure import Result, at_least, at_most, below, in_turns, milliseconds

SUITE = "transactions"
_ROUNDS = 60
_SECONDS = 4.0


def run(lake: deltasql.Lake) -> list[Result]:
    """Run all measurements of this suite."""
    tables = [lake.create_table(f"tx.t{n}", "id BIGINT") for n in range(10)]
    return [*_small(lake, tables), _large(lake, tables), _overhead(lake), *_side_by_side(lake), *_published(lake)]


def _file(tx: deltasql.Transaction, number: int) -> deltasql.Add:
    return deltasql.Add(f"part-{number}-{time.time_ns()}{tx.token}.parquet", 1000, 0, {}, stats='{"numRecords":1}')


def _commit(lake: deltasql.Lake, tables: list[deltasql.Table], files: int = 1) -> None:
    with lake.begin() as tx:
        for table in tables:
            tx.stage(table, [_file(tx, n) for n in range(files)])


def _small(lake: deltasql.Lake, tables: list[deltasql.Table]) -> list[Result]:
    limits = {2: 1.5, 5: 2.5, 10: 4.0}
    actions: dict[str, Any] = {f"n{count}": lambda c=count: _commit(lake, tables[:c]) for count in (1, *limits)}
    spent = in_turns(_ROUNDS, **actions)
    return [
        at_most(
            SUITE,
            f"commit of 1 file to each of {count} tables vs one table",
            spent[f"n{count}"],
            spent["n1"],
            limit,
        )
        for count, limit in limits.items()
    ]


def _large(lake: deltasql.Lake, tables: list[deltasql.Table]) -> Result:
    spent = [milliseconds(lambda: _commit(lake, tables, 1000)) for _ in range(5)]
    return below(SUITE, "commit of 1,000 files to each of 10 tables, median", sorted(spent)[2], 1000)


def _overhead(lake: deltasql.Lake) -> Result:
    alone, inside = (lake.create_table(f"tx.{name}", "id BIGINT, x DOUBLE") for name in ("alone", "inside"))
    rows = pa.table({"id": range(100_000), "x": pa.array([0.5] * 100_000)})

    def transaction() -> None:
        with lake.begin() as tx:
            tx.write(inside, rows)

    spent = in_turns(40, ours=transaction, theirs=lambda: alone.append(rows))
    return at_most(SUITE, "append of 100,000 rows in a transaction vs t.append", spent["ours"], spent["theirs"], 1.05)


def _side_by_side(lake: deltasql.Lake) -> list[Result]:
    """Compare two processes on different tables, and two on the same tables, with one process."""
    names = [lake.create_table(f"tx.p{n}", "id BIGINT").name for n in range(4)]
    [alone] = _together(lake.dsn, [names[:2]])
    apart = sum(_together(lake.dsn, [names[:2], names[2:]]))
    same = sum(_together(lake.dsn, [names[:2], names[:2]]))
    return [
        at_least(SUITE, "transactions of 2 processes on different tables vs one process", apart, alone, 1.3),
        at_least(
            SUITE,
            "transactions of 2 processes on the same tables vs one process",
            same,
            alone,
            0.5,
            note="the processes take turns",
        ),
    ]


def _together(dsn: str, work: list[list[str]]) -> list[float]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(work)) as pool:
        return pool.starmap(_rate, [(dsn, names) for names in work])


def _rate(dsn: str, names: list[str]) -> float:
    """Return the commits per second of one process."""
    with deltasql.connect(dsn, config={"mirror.mode": "off"}) as lake:
        tables = [lake.table(name) for name in names]
        _commit(lake, tables)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < _SECONDS:
            _commit(lake, tables)
            count += 1
        return count / (time.perf_counter() - began)


def _published(lake: deltasql.Lake) -> list[Result]:
    """Measure writes of rows to 10 tables, committed and published."""
    with TemporaryDirectory() as folder, deltasql.connect(lake.dsn, config={"mirror.mode": "sync"}) as own:
        tables = [own.create_table(f"tx.m{n}", "id BIGINT", location=str(Path(folder) / f"m{n}")) for n in range(10)]
        rows = pa.table({"id": range(10_000)})
        spent, lags = [], []
        for _ in range(20):
            began = time.perf_counter()
            with own.begin() as tx:
                for table in tables:
                    tx.write(table, rows)
            spent.append((time.perf_counter() - began) * 1000)
            lags += [status.lag_seconds * 1000 for status in own.mirror.status() if status.table in tx.versions]
        return [
            below(SUITE, "rows to 10 tables, committed and published, p95", sorted(spent)[18], 10_000),
            below(SUITE, "mirror lag of each table after that commit, p95", sorted(lags)[int(len(lags) * 0.95)], 5_000),
        ]
