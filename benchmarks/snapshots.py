"""Measure reads of a table with a million live files: 1.2 million added, 0.2 million removed, a thousand versions."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from adbc_driver_postgresql import dbapi
from rich.progress import Progress

import deltasql
from benchmarks.data import DDL, adds
from benchmarks.measure import Result, at_most, below, faster, in_turns, milliseconds
from deltasql.store.read.arrow_queries import FILE_COLUMNS

SUITE = "snapshot"
VERSIONS, ADDS, REMOVES = 1000, 1200, 200
DAYS = 350
PARTITION = "day = '2026-03-04'"
COLUMN = "code BETWEEN 500000 AND 500300"


def build(lake: deltasql.Lake, versions: int = VERSIONS) -> deltasql.Table:
    """Create the table, version by version."""
    table = lake.create_table("bench.million", DDL, partition_by=["day"])
    before: list[deltasql.Add] = []
    with Progress(transient=True) as progress:
        task = progress.add_task("committing a million files", total=versions)
        for _ in range(versions):
            with lake.begin() as tx:
                files = adds(ADDS, days=DAYS, token=tx.token)
                gone = [deltasql.Remove(path=a.path, deletion_timestamp=0) for a in before[:REMOVES]]
                tx.stage(table, [*files, *gone])
            before = files
            progress.advance(task)
    with lake.store._database.connection() as connection:
        connection.execute("vacuum analyze")
    return table


def run(lake: deltasql.Lake, table: deltasql.Table, rounds: int = 5) -> list[Result]:
    """Run all measurements of this suite."""
    database = lake.store._database
    columns = ", ".join(FILE_COLUMNS)
    adds_ever = f"SELECT {columns} FROM dl_add_files WHERE table_key = {table.state().table_key}"
    connection = dbapi.connect(database.conninfo)

    def all_rows() -> None:
        with connection.cursor() as cursor:
            cursor.execute(adds_ever)
            cursor.fetch_arrow_table()
        connection.rollback()

    full = in_turns(
        rounds,
        settle=lambda: forget(lake),
        rows=all_rows,
        snapshot=table.files,
        travel=lambda: table.files(version=VERSIONS // 2),
    )
    connection.close()
    cold = {
        where: statistics.median(in_a_new_process(lake.dsn, table.id, where) for _ in range(rounds))
        for where in ("", PARTITION, COLUMN)
    }
    table.files()
    table.files(where=COLUMN)
    warm = in_turns(10, column=lambda: table.files(where=COLUMN), partition=lambda: table.files(where=PARTITION))
    opened = in_turns(50, state=table.state)
    return [
        at_most(SUITE, "1M live files as Arrow vs all add rows", full["snapshot"], full["rows"], 1.2),
        faster(SUITE, "pruned by partition, new process vs full snapshot in a new process", cold[PARTITION], cold[""], 15),
        faster(SUITE, "pruned by column, new process vs full snapshot in a new process", cold[COLUMN], cold[""], 2),
        faster(SUITE, "pruned by column, warm process vs the full snapshot", warm["column"], full["snapshot"], 15),
        faster(SUITE, "pruned by partition, warm process vs the full snapshot", warm["partition"], full["snapshot"], 15),
        at_most(SUITE, "time travel to the middle vs the full snapshot", full["travel"], full["snapshot"], 1.0),
        below(SUITE, "head and metadata of the table", opened["state"], 5),
        below(SUITE, "refresh of a cached snapshot by one version", _refresh(lake, table), 10),
    ]  # fmt: skip


def forget(lake: deltasql.Lake) -> None:
    """Clear the caches."""
    lake.store._file_lists._cache.clear()
    lake.store._file_lists._read_before.clear()


def _refresh(lake: deltasql.Lake, table: deltasql.Table) -> float:
    """Return the time to refresh a cached snapshot after another writer commits one file."""
    table.files(where=COLUMN)
    snapshots = lake.store._file_lists
    spent = []
    for _ in range(11):
        with lake.begin() as tx:
            tx.stage(table, adds(1))
        state = table.state()
        cached = snapshots._cache[state.table_key]

        def refresh() -> None:
            bounds = snapshots._bounds_of(state)
            assert snapshots._session(state).read(lambda s: cached.refresh(s, state, state.version, bounds))

        spent.append(milliseconds(refresh))
    return statistics.median(spent)


def in_a_new_process(dsn: str, table_id: str, where: str) -> float:
    """Return the milliseconds of the first query of a process, without imports and the connection."""
    command = [sys.executable, "-m", "benchmarks.snapshots", dsn, table_id, where]
    root = Path(__file__).parents[1]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout)


if __name__ == "__main__":
    import adbc_driver_postgresql.dbapi  # noqa: F401 - imports are not what is measured

    import deltasql.expressions.predicates

    with deltasql.connect(sys.argv[1]) as opened:
        handle = opened.table(sys.argv[2])
        handle.lake.store._file_lists._arrow_session.read(lambda s: s.table("arrow_head", table_key=0))
        began = time.perf_counter()
        handle.files(where=sys.argv[3] or None)
        print((time.perf_counter() - began) * 1000)
