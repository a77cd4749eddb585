"""Measure commits against a plain COPY of the same rows."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import repeat

import psycopg

import deltasql
from benchmarks.data import DDL, adds
from benchmarks.measure import Result, at_most, in_turns
from deltasql.protocol.table_changes import Changes
from deltasql.store import action_rows

SUITE = "commit"
_SLICE = 1 << 18
_COLUMNS = (("table_key", "int4"), ("commit_id", "int8"), *action_rows.ADD_COLUMNS)


def run(lake: deltasql.Lake, large: deltasql.Table, rounds: int = 9) -> list[Result]:
    """Run all measurements of this suite; `large` has a million files."""
    small = lake.create_table("bench.commits", DDL, partition_by=["day"])
    flat = lake.create_table("bench.flat", DDL.replace(" day DATE,", ""))
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        floor = Floor(connection)
        ten = in_turns(
            rounds,
            settle=lake.store.settle,
            floor=floor.prepared(10_000),
            commit=committer(lake, small, 10_000),
            large=committer(lake, large, 10_000),
            flat=committer(lake, flat, 10_000, partitioned=False),
            foreign=committer(lake, small, 10_000, foreign=True),
        )
        one = in_turns(
            200,
            floor=floor.one_row(),
            alone=floor.one_row(autocommit=True),
            commit=committer(lake, small, 1),
            large=committer(lake, large, 1),
        )
        hundred = in_turns(
            3, settle=lake.store.settle, floor=floor.prepared(100_000), commit=committer(lake, small, 100_000)
        )
    return [
        at_most(SUITE, "10,000 adds, partitioned vs raw COPY", ten["commit"], ten["floor"], 2.2),
        at_most(SUITE, "10,000 adds, unpartitioned vs raw COPY", ten["flat"], ten["floor"], 2.2),
        at_most(SUITE, "10,000 adds with paths that are looked up vs raw COPY", ten["foreign"], ten["floor"], 3.5),
        at_most(
            SUITE,
            "1 add vs BEGIN, a one-row INSERT, COMMIT",
            one["commit"],
            one["floor"],
            2.0,
            note=f"{one['commit'] / one['alone']:.1f} × an autocommitted INSERT of {one['alone']:.2f} ms",
        ),
        at_most(
            SUITE,
            "100,000 adds vs ten times 10,000",
            hundred["commit"],
            10 * ten["commit"],
            1.2,
            note=f"raw COPY: {hundred['floor'] / ten['floor'] / 10:.2f} ×",
        ),
        at_most(SUITE, "10,000 adds to a table of 1M files vs an empty one", ten["large"], ten["commit"], 1.2),
        at_most(SUITE, "1 add to a table of 1M files vs an empty one", one["large"], one["commit"], 1.2),
    ]


def committer(
    lake: deltasql.Lake, table: deltasql.Table, count: int, *, partitioned: bool = True, foreign: bool = False
) -> Callable[[], None]:
    """Commit new files each time. Actions are built in advance, so only the commit is measured."""

    def make() -> tuple[deltasql.Transaction, list[deltasql.Add]]:
        tx = lake.begin()
        batch = adds(count, token="" if foreign else tx.token)
        return tx, batch if partitioned else [_flat(a) for a in batch]

    made = [make() for _ in range({1: 220, 100_000: 4}.get(count, 12))]

    gc.collect()
    gc.freeze()  # the files made ahead are the benchmark's: the collector should not walk them while it measures

    def commit() -> None:
        tx, batch = made.pop()
        tx.stage(table, batch)
        tx.commit()

    return commit


def _flat(a: deltasql.Add) -> deltasql.Add:
    return deltasql.Add(path=a.path, size=a.size, modification_time=a.modification_time, stats=a.stats)


def _rows(count: int) -> list[tuple[object, ...]]:
    changes = Changes(adds=tuple(adds(count)))
    return [(1, 1, *row) for row in action_rows.add_rows(changes, repeat(None), action_rows.CommitPartitions())]


class Floor:
    """Copy the same bytes into a heap without an index."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self._connection = connection
        names = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)
        connection.execute("drop table if exists public.bench_floor")
        connection.execute(f"create table public.bench_floor ({names})")

    def prepared(self, count: int) -> Callable[[], None]:
        """Copy a buffer that was encoded in advance."""
        buffer = memoryview(self._encoded(count))

        def copy() -> None:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                with cursor.copy("copy public.bench_floor from stdin (format binary)") as stream:
                    for start in range(0, len(buffer), _SLICE):
                        stream.write(buffer[start : start + _SLICE])

        return copy

    def _encoded(self, count: int) -> bytes:
        self.row_wise(count)()
        with self._connection.cursor() as cursor:
            with cursor.copy("copy public.bench_floor to stdout (format binary)") as stream:
                buffer = b"".join(bytes(chunk) for chunk in stream)
        self._connection.execute("truncate public.bench_floor")
        return buffer

    def row_wise(self, count: int) -> Callable[[], None]:
        values = _rows(count)

        def copy() -> None:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                with cursor.copy("copy public.bench_floor from stdin (format binary)") as stream:
                    stream.set_types([kind for _, kind in _COLUMNS])
                    for row in values:
                        stream.write_row(row)

        return copy

    def one_row(self, *, autocommit: bool = False) -> Callable[[], None]:
        """Insert one row in one transaction."""
        [row] = _rows(1)
        statement = f"insert into public.bench_floor values ({', '.join(['%s'] * len(row))})"

        def insert() -> None:
            if autocommit:
                self._connection.execute(statement, row, prepare=True)
                return
            with self._connection.transaction():
                self._connection.execute(statement, row, prepare=True)

        return insert
