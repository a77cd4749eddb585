"""Serializable transactions of real processes: the graph of their reads and writes has no cycle."""

from __future__ import annotations

import random
from collections.abc import Callable
from graphlib import TopologicalSorter
from typing import Any

import pyarrow as pa

import deltasql
from tests.effort import rounds
from tests.processes import run_all

Make = Callable[..., deltasql.Table]
TABLES = 4


def work(dsn: str, names: list[str], count: int, seed: int) -> list[tuple[str, dict[str, int], dict[str, int]]]:
    """Run transactions that read some tables and write others; return the versions that each read and wrote."""
    choose, done = random.Random(seed), []
    with deltasql.connect(dsn) as lake:
        while len(done) < count:
            read, written = choose.sample(names, 2), choose.sample(names, choose.randint(1, 2))
            try:
                with lake.begin(isolation="serializable") as tx:
                    seen = {name: tx.arrow(name).num_rows for name in read}
                    for name in written:
                        tx.write(name, pa.table({"id": [sum(seen.values())]}))
            except deltasql.CommitConflict:
                continue
            done.append((str(tx.id), seen, dict(tx.versions)))
    return done


def test_the_history_has_no_cycle(lake: deltasql.Lake, make_table: Make) -> None:
    names = [make_table(f"t{number}", schema="id BIGINT").name for number in range(TABLES)]
    jobs: list[tuple[Any, ...]] = [(lake.dsn, names, rounds(6, 40), seed) for seed in range(4)]
    history = [entry for one in run_all(work, jobs) for entry in one]
    writers = {(name, version): txn for txn, _, written in history for name, version in written.items()}
    before: dict[str, set[str]] = {txn: set() for txn, _, _ in history}
    for txn, seen, written in history:
        for name, version in written.items():
            if (name, version - 1) in writers:  # write after write
                before[txn].add(writers[name, version - 1])
        for name, version in seen.items():  # each version adds one row, so the rows are the version that was read
            if (name, version) in writers:  # read after write
                before[txn].add(writers[name, version])
            later = writers.get((name, version + 1))
            if later is not None and later != txn:  # write after read
                before[later].add(txn)
    order = list(TopologicalSorter(before).static_order())  # raises CycleError
    assert len(order) == len(history)
    assert sorted(writers) == [(name, v) for name in sorted(names) for v in range(1, lake.table(name).version + 1)]
