"""Concurrent writer processes: versions have no gaps, transactions are atomic, and blind appends never fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

import deltasql
from deltasql import SqlTxnLogWriter
from tests.effort import rounds
from tests.factories import add, paths, remove
from tests.processes import run_all

WRITERS, COMMITS = 32, rounds(6, 200)


def blind_appends(dsn: str, table_id: str, commits: int) -> list[int]:
    with deltasql.connect(dsn, config={"pool.size": 1}) as lake:
        versions = []
        for _ in range(commits):
            with lake.begin() as tx:
                tx.stage(lake.table(table_id), [add()])
            versions += tx.versions.values()
        return versions


def strict_appends(dsn: str, table_id: str, commits: int) -> list[int]:
    """Commit with an expected version, and read the head again after each conflict."""
    with deltasql.connect(dsn, config={"pool.size": 1}) as lake:
        writer, won = SqlTxnLogWriter(lake.store), []
        while len(won) < commits:
            expected = lake.store.state(table_id).version + 1
            try:
                won.append(writer.commit(table_id, expected, [add(f"v{expected}-{random.random()}.parquet")]))
            except deltasql.VersionConflict:
                continue
        return won


def overlapping_transactions(dsn: str, table_ids: list[str], rounds: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    with deltasql.connect(dsn, config={"pool.size": 1}) as lake:
        ids = []
        for _ in range(rounds):
            chosen = chance.sample(table_ids, chance.randint(2, 10))
            with lake.begin() as tx:
                for table_id in chosen:
                    tx.stage(lake.table(table_id), [add(f"{tx.id}-{i}.parquet") for i in range(3)])
            ids.append(tx.id)
        return ids


def test_blind_appends_of_32_processes_never_fail(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
) -> None:
    table = make_table()
    results = run_all(blind_appends, [(lake.dsn, table.id, COMMITS)] * WRITERS)
    versions = sorted(v for result in results for v in result)
    assert versions == list(range(1, WRITERS * COMMITS + 1))
    assert table.version == WRITERS * COMMITS
    assert table.files().num_rows == WRITERS * COMMITS
    assert [h.version for h in table.history()] == list(range(WRITERS * COMMITS, -1, -1))


def test_expected_versions_have_exactly_one_winner_each(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
) -> None:
    table = make_table()
    writers, commits = 32, rounds(2, 10)
    results = run_all(strict_appends, [(lake.dsn, table.id, commits)] * writers)
    won = Counter(v for result in results for v in result)
    assert sorted(won) == list(range(1, writers * commits + 1))
    assert set(won.values()) == {1}
    assert table.files().num_rows == writers * commits


def test_overlapping_multi_table_transactions(lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
    tables = [make_table(f"t{i}") for i in range(15)]
    ids = [t.id for t in tables]
    deadlocks = _deadlocks(lake)
    results = run_all(overlapping_transactions, [(lake.dsn, ids, 10, seed) for seed in range(12)])
    done = {txn for result in results for txn in result}
    assert len(done) == 120
    seen: Counter[str] = Counter()
    for table in tables:
        history = [h for h in table.history() if h.operation != "CREATE TABLE"]
        assert [h.version for h in history] == list(range(len(history), 0, -1)), "versions without gaps"
        assert table.files().num_rows == 3 * len(history)
        seen.update(h.txn_id for h in history)
    assert set(seen) == done
    _assert_not_torn(lake, seen)
    assert _deadlocks(lake) == deadlocks


def _assert_not_torn(lake: deltasql.Lake, seen: Counter[str]) -> None:
    """Assert that each transaction is in as many tables as its row in dl_transactions counts."""
    with psycopg.connect(lake.dsn, options="-c search_path=deltasql") as connection:
        rows = connection.execute(
            "select txn_id::text, num_tables from dl_transactions where txn_id::text = any(%s)", [list(seen)]
        ).fetchall()
    assert dict(rows) == dict(seen)


def _deadlocks(lake: deltasql.Lake) -> int:
    with psycopg.connect(lake.dsn) as connection:
        connection.execute("select pg_stat_clear_snapshot()")
        row = connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.parametrize("files", [1, 100], ids=["one call", "copy"])
def test_disjoint_transactions_do_not_wait_for_each_other(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], files: int
) -> None:
    a, b, c, d = (make_table(name) for name in "abcd")
    with psycopg.connect(lake.dsn, options="-c search_path=deltasql") as other:
        other.execute("select from dl_tables where table_id = any(%s::uuid[]) for update", [[a.id, b.id]])
        with lake.begin(timeout="30s") as tx:
            tx.stage(c, [add() for _ in range(files)])
            tx.stage(d, [add() for _ in range(files)])
        waits = lake.begin(timeout="500ms")
        waits.stage(a, [add() for _ in range(files)])
        waits.stage(c, [add() for _ in range(files)])
        with pytest.raises(deltasql.CommitTimeout):
            waits.commit()
        other.rollback()
    assert (a.version, b.version, c.version, d.version) == (0, 0, 1, 1)


def delete_races(dsn: str, table_id: str, seed: int) -> int:
    """Remove three files per commit until three or fewer are left, and return the number of commits."""
    chance, won = random.Random(seed), 0
    with deltasql.connect(dsn, config={"pool.size": 1}) as lake:
        table = lake.table(table_id)
        while len(live := paths(table.files())) > 3:
            chosen = chance.sample(live, 3)
            try:
                with lake.begin() as tx:
                    tx.stage(table, [remove(path) for path in chosen])
                won += 1
            except (deltasql.ConcurrentDeleteDelete, deltasql.ValidationError):
                continue
        return won


def test_files_are_removed_exactly_once(lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
    table = make_table()
    with lake.begin() as tx:
        tx.stage(table, [add(f"{i}.parquet") for i in range(90)])
    deadlocks = _deadlocks(lake)
    won = run_all(delete_races, [(lake.dsn, table.id, seed) for seed in range(8)])
    removed = sum(h.num_removed_files for h in table.history())
    assert removed == 3 * sum(won)
    assert table.files().num_rows == 90 - removed
    assert _deadlocks(lake) == deadlocks
