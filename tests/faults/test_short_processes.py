"""Processes that append once and end: checkpoints that are due are written before the process ends, or by the next."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import deltasql
from tests.effort import rounds

SCRIPT = """
import os, signal, sys
import pyarrow as pa
import deltasql

dsn, schema, timeout, then = sys.argv[1:]
lake = deltasql.connect(dsn, config={"postgres.schema": schema, "mirror.exit_timeout": timeout})
lake.table("t").append(pa.table({"id": [1]}))
if then == "die":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def table(embedded_lake: deltasql.Lake) -> Iterator[deltasql.Table]:
    config = {"postgres.schema": f"s{uuid.uuid4().hex}"}  # a separate schema, so that no other lake publishes the table
    with deltasql.connect(embedded_lake.dsn, config=config) as lake:
        yield lake.create_table("t", "id BIGINT", properties={"delta.checkpointInterval": "3"})


def append(table: deltasql.Table, then: str = "end", timeout: str = "30s") -> subprocess.CompletedProcess[str]:
    """Append a row in a new process, which ends without `lake.close()`."""
    schema = str(table.lake.config_values()["postgres.schema"])
    command = [sys.executable, "-c", SCRIPT, table.lake.dsn, schema, timeout, then]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def checkpoints(table: deltasql.Table) -> list[int]:
    return sorted(int(path.name[:20]) for path in Path(table.location).glob("_delta_log/*.checkpoint.parquet"))


def test_processes_that_append_once_write_checkpoints(table: deltasql.Table) -> None:
    for number in range(1, rounds(4, 24) + 1):
        ended = append(table)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert checkpoints(table) == list(range(3, number + 1, 3))


def test_the_next_process_writes_the_checkpoint_of_a_killed_one(table: deltasql.Table) -> None:
    for _ in range(2):
        table.append(pa.table({"id": [1]}))
    assert append(table, "die").returncode < 0
    ended = append(table)
    assert (table.version, ended.returncode, ended.stderr) == (4, 0, "")
    assert checkpoints(table) == [3]


def test_a_process_does_not_wait_for_ever(table: deltasql.Table) -> None:
    for _ in range(2):
        table.append(pa.table({"id": [1]}))
    outbox = table.lake.store.outbox
    [mirrored] = outbox.tables()
    with outbox.checkpointing(mirrored, wait=True):
        began = time.monotonic()
        ended = append(table, timeout="1s")
        assert time.monotonic() - began < 30
    assert (table.version, ended.returncode, checkpoints(table)) == (3, 0, [])
    assert "the next process that commits to these tables publishes them" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [(report.checkpoint, report.error) for report in table.lake.mirror.run()] == [(3, None)]


def test_a_pass_waits_for_a_checkpoint_that_is_being_written(table: deltasql.Table) -> None:
    for _ in range(2):
        table.append(pa.table({"id": [1]}))
    outbox = table.lake.store.outbox
    [mirrored] = outbox.tables()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with outbox.checkpointing(mirrored, wait=True):
            held.set()
            release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    append(table, "die")
    threading.Timer(1, release.set).start()
    table.lake.mirror.run()
    assert checkpoints(table) == [3]
    holder.join()
