"""Measure many writers on one table, and small commits during large ones."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import deltasql
from benchmarks.data import DDL, adds
from benchmarks.measure import Result, at_least
from deltasql import SqlTxnLogWriter
from deltasql.store.write import log_writer

SUITE = "contention"
SECONDS = 4.0
WRITERS = 32

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["deltasql", "benchmarks.data"])


def run(lake: deltasql.Lake) -> list[Result]:
    """Run all measurements of this suite, each pair alternately."""
    rates: dict[str, list[float]] = {}
    failures = 0
    for _ in range(3):
        for name, writer in (("rebase", rebase), ("retry", retry)):
            table = lake.create_table(f"bench.{name}{time.monotonic_ns()}", DDL, partition_by=["day"])
            counts = run_all(WRITERS, writer, lake.dsn, table.id)
            rates.setdefault(name, []).append(sum(c for c, _ in counts) / SECONDS)
            failures += sum(f for _, f in counts) if name == "rebase" else 0
        for name in ("before", "under"):
            table = lake.create_table(f"bench.{name}{time.monotonic_ns()}", DDL, partition_by=["day"])
            rates.setdefault(name, []).append(_during_bulk(lake, table, under_lock=name == "under"))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return [
        at_least(
            SUITE, f"{WRITERS} processes append to one table vs a retry loop", medians["rebase"],
            medians["retry"], 4, "commits/s", f"{failures} errors",
        ),
        at_least(
            SUITE, "small commits during 10,000-file commits, COPY before the lock vs under it",
            medians["before"], medians["under"], 3, "commits/s",
        ),
    ]  # fmt: skip


def run_all(count: int, target: Callable[..., Any], *args: Any) -> list[Any]:
    """Start processes at the same moment, each with its number, and return their results."""
    start, queue = _context.Event(), _context.Queue()
    processes = [_context.Process(target=target, args=(start, queue, number, *args)) for number in range(count)]
    for process in processes:
        process.start()
    for _ in processes:
        queue.get()  # each says when it is ready
    start.set()
    results = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    return results


def rebase(start: Any, queue: Any, _number: int, dsn: str, table_id: str) -> None:
    """Commit blind appends."""
    with deltasql.connect(dsn, config={"pool.size": 1, "mirror.mode": "off"}) as lake:
        table = lake.table(table_id)
        queue.put("ready")
        start.wait()
        queue.put(_count(lambda: _append(lake, table, 1), failures=()))


def retry(start: Any, queue: Any, _number: int, dsn: str, table_id: str) -> None:
    """Read the head, commit the next version, and retry after a conflict."""
    with deltasql.connect(dsn, config={"pool.size": 1, "mirror.mode": "off"}) as lake:
        writer = SqlTxnLogWriter(lake.store)

        def attempt() -> None:
            writer.commit(table_id, lake.store.state(table_id).version + 1, adds(1))

        queue.put("ready")
        start.wait()
        queue.put(_count(attempt, failures=(deltasql.VersionConflict,)))


def _count(action: Callable[[], None], failures: Any) -> tuple[int, int]:
    done = failed = 0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            action()
            done += 1
        except failures:
            failed += 1
    return done, failed


def _append(lake: deltasql.Lake, table: deltasql.Table, count: int) -> None:
    with lake.begin() as tx:
        tx.stage(table, adds(count, token=tx.token))


def _during_bulk(lake: deltasql.Lake, table: deltasql.Table, *, under_lock: bool) -> float:
    """Return the small commits per second of four writers that pause 5 ms, while one writer commits 10,000 files."""
    start, queue = _context.Event(), _context.Queue()
    bulk = _context.Process(target=bulk_writer, args=(start, queue, lake.dsn, table.id, under_lock))
    small = [_context.Process(target=small_writer, args=(start, queue, lake.dsn, table.id)) for _ in range(4)]
    for process in (bulk, *small):
        process.start()
    for _ in range(5):
        queue.get()
    start.set()
    done = sum(queue.get() for _ in small)
    for process in (bulk, *small):
        process.join()
    return done / SECONDS


def small_writer(start: Any, queue: Any, dsn: str, table_id: str) -> None:
    with deltasql.connect(dsn, config={"pool.size": 1, "mirror.mode": "off"}) as lake:
        table = lake.table(table_id)
        queue.put("ready")
        start.wait()

        def pause_and_append() -> None:
            time.sleep(0.005)
            _append(lake, table, 1)

        queue.put(_count(pause_and_append, failures=())[0])


def bulk_writer(start: Any, queue: Any, dsn: str, table_id: str, under_lock: bool) -> None:
    if under_lock:
        _copy_under_the_lock()
    with deltasql.connect(dsn, config={"pool.size": 1, "mirror.mode": "off"}) as lake:
        table = lake.table(table_id)
        ready = [_prepared(lake) for _ in range(50)]
        gc.freeze()
        queue.put("ready")
        start.wait()
        deadline = time.monotonic() + SECONDS
        while ready and time.monotonic() < deadline:
            tx, files = ready.pop()
            tx.stage(table, files)
            tx.commit()


def _prepared(lake: deltasql.Lake) -> tuple[deltasql.Transaction, list[deltasql.Add]]:
    """Build the commits in advance, so that the bulk writer commits without a pause."""
    tx = lake.begin()
    return tx, adds(10_000, token=tx.token)


def _copy_under_the_lock() -> None:
    """Lock the table first, then copy the files, which deltasql does not do."""
    begin = log_writer.begin

    def begin_and_lock(connection: Any, database: Any, txn: Any) -> None:
        begin(connection, database, txn)
        connection.execute("select from dl_tables where namespace = 'bench' and name like 'under%' for update")

    log_writer.begin = begin_and_lock
