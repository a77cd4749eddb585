"""`kill -9` of a writer before and after each step of its commit: the commit succeeds completely or not at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psycopg
import pytest

import deltasql
from deltasql.store.write import log_writer
from tests.factories import add, remove
from tests.processes import spawn
from tests.servers import wait_until

ONCE = ["begin", "precheck", "lock_heads", "finish", "end"]
PER_TABLE = ["look_up_removes", "stage", "check_winners"]
STEPS = [(step, 1) for step in ONCE] + [(step, which) for step in PER_TABLE for which in (1, 2)]


def commit_and_die(dsn: str, ids: list[str], files: int, step: str, after: bool, which: int) -> None:
    """Commit to two tables and die at call number `which` of a step; some steps run once per table."""
    original = getattr(log_writer, step)
    calls = 0

    def dying(*args: object, **kw: object) -> object:
        nonlocal calls
        calls += 1
        if calls == which and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kw)
        if calls == which and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    with deltasql.connect(dsn) as lake:
        setattr(log_writer, step, dying)
        with lake.begin() as tx:
            for table_id in ids:
                tx.stage(lake.table(table_id), [*(add() for _ in range(files)), remove("old.parquet")])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("step", "which"), STEPS)
def test_killed_at_each_step(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], step: str, after: bool, which: int
) -> None:
    tables = [make_table(name) for name in "ab"]
    with lake.begin() as tx:
        for table in tables:
            tx.stage(table, [add("old.parquet")])
    process = spawn(commit_and_die, lake.dsn, [t.id for t in tables], 50, step, after, which)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    wait_until(lambda: not _in_flight(lake))
    committed = step == "end" and after
    for table in tables:
        assert table.version == (2 if committed else 1)
        assert table.files().num_rows == (50 if committed else 1)
    with lake.begin() as tx:
        for table in tables:
            tx.stage(table, [add("next.parquet")])
    assert set(tx.versions.values()) == {3 if committed else 2}, "no lock is left"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_around_a_commit_of_one_call(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], after: bool
) -> None:
    tables = [make_table(name) for name in "ab"]
    with lake.begin() as tx:
        for table in tables:
            tx.stage(table, [add("old.parquet")])
    process = spawn(commit_and_die, lake.dsn, [t.id for t in tables], 1, "finish", after, 1)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    wait_until(lambda: not _in_flight(lake))
    assert {t.version for t in tables} == {2 if after else 1}


def _in_flight(lake: deltasql.Lake) -> bool:
    """Return whether a session of the killed process still has an open transaction."""
    with psycopg.connect(lake.dsn) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where application_name = 'deltasql' "
            "and xact_start is not null and state like 'idle in transaction%'"
        ).fetchone()
        assert row is not None
        return bool(row[0])
