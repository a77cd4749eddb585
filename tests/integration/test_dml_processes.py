"""Two processes, each with its own Spark, change one table at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import deltasql
from tests.local_spark import java_obstacle, process_environment

PROGRAM = """
import json, sys, time
from pathlib import Path
import deltasql
from deltasql.store.store import Store

dsn, me, meeting, *statements = sys.argv[1:]
committing, commits = Store.commit, []

def commit(self, *args, **kwargs):
    # Both have read the table and written their files before either commits; only the first time.
    commits.append(args)
    if len(commits) == 1:
        mine = Path(meeting) / f"{len(seen)}-{me}"
        mine.touch()
        while len(list(Path(meeting).glob(f"{len(seen)}-*"))) < 2:
            time.sleep(0.01)
    return committing(self, *args, **kwargs)

Store.commit = commit
seen = []
with deltasql.connect(dsn) as lake:
    for statement in statements:
        commits.clear()
        found = lake.sql(statement)
        seen.append(len(commits))
print(json.dumps(seen))
"""


def test_updates_of_two_processes(lake: deltasql.Lake, namespace: str, spark_session: object, tmp_path: Path) -> None:
    """Statements on different files both commit; of two statements on one file, one is retried on the other's result."""
    if obstacle := java_obstacle():
        pytest.skip(obstacle)
    table = lake.create_table(f"{namespace}.t", "id BIGINT, n INT")
    for start in (0, 10):
        table.append(pa.table({"id": [start, start + 1], "n": pa.array([0, 0], pa.int32())}))
    first = [f"UPDATE {table.name} SET n = n + 1 WHERE id {where}" for where in ("= 0", "IN (10, 11)")]
    second = [f"UPDATE {table.name} SET n = n + 10 WHERE id {where}" for where in ("= 10", "= 11")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, lake.dsn, str(me), str(tmp_path), first[me], second[me]],
            env=process_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for me in range(2)
    ]
    outputs = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    commits = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
    assert [one for one, _ in commits] == [1, 1], "different files: no retry"
    assert sorted(two for _, two in commits) == [1, 2], "the same file: one retry"
    found = dict(zip(*(table.arrow()[name].to_pylist() for name in ("id", "n")), strict=True))
    assert found == {0: 1, 1: 0, 10: 11, 11: 11}
    assert table.version == 6
