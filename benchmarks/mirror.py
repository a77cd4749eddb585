"""Measure the mirror: lag, commit files, and checkpoints against delta-rs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

import deltasql
from benchmarks.contention import run_all
from benchmarks.data import DDL, adds
from benchmarks.measure import Result, at_least, at_most, below, faster, in_turns
from deltasql.delta_log.commit_file import commit_bytes
from deltasql.delta_log.layout import LAST_CHECKPOINT, checkpoint_path
from deltasql.protocol.table_changes import LoggedCommit
from deltasql.storage import Directory
from deltasql.store import Landed

SUITE = "mirror"
TABLES, RATE, SECONDS, WRITERS = 10, 200, 30.0, 4
PACE = 1.1 * RATE
"""The rate that writers aim for, a little above the target, so that one late commit does not miss it."""


def run(lake: deltasql.Lake, large: deltasql.Table) -> list[Result]:
    """Run all measurements of this suite; `large` has a million files."""
    with deltasql.connect(lake.dsn) as publishing:
        single = publishing.create_table("bench.published", DDL, partition_by=["day"])
        for _ in range(300):
            _append(publishing, single)
        alone = _p95(_lags(single))
        rate, sustained = _sustained(publishing)
    files = _commit_file(lake)
    checkpoints = _checkpoints(lake, large)
    return [
        below(SUITE, "lag of 1-add commits to local disk, p95", alone, 100),
        at_least(
            SUITE, f"commits over {TABLES} tables for {SECONDS:.0f} s, vs {RATE} per second", rate, RATE, 1.0,
            "commits/s",
        ),
        below(SUITE, "lag of these commits, p95", sustained, 1000),
        at_most(
            SUITE, "10,000-add commit file vs orjson and a synced write", files["ours"],
            files["theirs"], 2.0,
        ),
        faster(
            SUITE, "full checkpoint of 1M files vs DeltaTable(…).create_checkpoint()", checkpoints["ours"].milliseconds,
            checkpoints["theirs"].milliseconds, 2.0,
        ),
        at_most(
            SUITE, "peak memory of that checkpoint vs delta-rs", checkpoints["ours"].megabytes,
            checkpoints["theirs"].megabytes, 1.0, unit="MB",
        ),
    ]  # fmt: skip


def _append(lake: deltasql.Lake, table: deltasql.Table) -> None:
    with lake.begin() as tx:
        tx.stage(table, adds(1, token=tx.token))


def _lags(table: deltasql.Table) -> list[float]:
    """Return the milliseconds from a commit in the database to its file."""
    log = Path(table.location) / "_delta_log"
    return [
        (log / f"{entry.version:020d}.json").stat().st_mtime * 1000 - entry.timestamp.timestamp() * 1000
        for entry in table.history()
    ]


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _sustained(lake: deltasql.Lake) -> tuple[float, float]:
    """Return the commits per second of several writer processes, and the 95th percentile of the lag."""
    tables = [lake.create_table(f"bench.sustained{n}", DDL, partition_by=["day"]) for n in range(TABLES)]
    times = run_all(WRITERS, write_steadily, lake.dsn, [table.id for table in tables])
    return PACE * SECONDS / max(times), _p95([lag for table in tables for lag in _lags(table)])


def write_steadily(start: Any, queue: Any, number: int, dsn: str, table_ids: list[str]) -> None:
    """Commit at a fixed interval, to one table after the other."""
    with deltasql.connect(dsn) as lake:
        tables = [lake.table(table_id) for table_id in table_ids]
        queue.put("ready")
        start.wait()
        began = time.monotonic()
        for turn in range(number, int(PACE * SECONDS), WRITERS):
            time.sleep(max(0.0, began + turn / PACE - time.monotonic()))
            _append(lake, tables[turn % TABLES])
        queue.put(time.monotonic() - began)


def _commit_file(lake: deltasql.Lake) -> dict[str, float]:
    """Write a commit file from actions with deltasql, and with orjson and fsync."""
    commit = _landed(lake)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Directory(scratch, {})
        actions = [{a.kind: a.to_dict()} for a in commit.adds]
        numbers = iter(range(1000))

        def ours() -> None:
            assert directory.put_if_absent(f"ours-{next(numbers)}", commit_bytes(commit))

        def theirs() -> None:
            with (Path(scratch) / f"theirs-{next(numbers)}").open("wb") as file:
                file.write(b"".join([orjson.dumps(action) + b"\n" for action in actions]))
                file.flush()
                os.fsync(file.fileno())

        return in_turns(9, ours=ours, theirs=theirs)


def _landed(lake: deltasql.Lake) -> LoggedCommit:
    table = lake.create_table("bench.file", DDL, partition_by=["day"])
    landed: list[Landed] = []
    before, lake.store.publish = lake.store.publish, landed.extend
    with lake.begin() as tx:
        tx.stage(table, adds(10_000, token=tx.token))
    lake.store.publish = before
    return landed[0].logged()


class Cost:
    """The time and memory that a separate process needed."""

    def __init__(self, text: str) -> None:
        found = json.loads(text)
        self.milliseconds, self.megabytes = found["milliseconds"], found["megabytes"]


def _checkpoints(lake: deltasql.Lake, large: deltasql.Table) -> dict[str, Cost]:
    """Write a checkpoint of a large table with deltasql; after one more commit, with delta-rs."""
    log = Path(large.location) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = large.version
    mirrored = next(t for t in lake.store.outbox.tables() if t.id == large.id)
    for number in (version, version + 1):
        if number > version:
            _append(lake, large)
        with lake.store.outbox.publishing(mirrored, wait=True) as session:
            assert session is not None
            (log / f"{number:020d}.json").write_bytes(commit_bytes(session.commits([number])[number]))
        if number == version:
            ours = [_alone("ours", lake.dsn, large.name, str(version)) for _ in range(3)]
    hint = (Path(large.location) / LAST_CHECKPOINT).read_bytes()
    theirs = []
    for _ in range(3):
        theirs.append(_alone("theirs", large.location))
        (Path(large.location) / checkpoint_path(version + 1)).unlink()
        (Path(large.location) / LAST_CHECKPOINT).write_bytes(hint)
    return {"ours": _middle(ours), "theirs": _middle(theirs)}


def _middle(costs: list[Cost]) -> Cost:
    return sorted(costs, key=lambda cost: cost.milliseconds)[len(costs) // 2]


def _alone(*arguments: str) -> Cost:
    command = [sys.executable, "-m", "benchmarks.mirror", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Cost(done.stdout.splitlines()[-1])


def _status() -> list[str]:
    return Path("/proc/self/status").read_text().splitlines()


def _measured(action: Callable[[], object]) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the process that this one was forked from
    began = time.perf_counter()
    action()
    spent = (time.perf_counter() - began) * 1000
    peak = next(int(line.split()[1]) / 1024 for line in _status() if line.startswith("VmHWM"))
    print(json.dumps({"milliseconds": spent, "megabytes": peak}))


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        with deltasql.connect(sys.argv[2], config={"mirror.mode": "off"}) as opened:
            found = opened.mirror._find(sys.argv[3])
            (Path(found.location) / checkpoint_path(int(sys.argv[4]))).unlink(missing_ok=True)
            _measured(lambda: opened.mirror._checkpoints.write(found, int(sys.argv[4])))
    else:
        from deltalake import DeltaTable

        _measured(lambda: DeltaTable(sys.argv[2]).create_checkpoint())
