"""Faults of the machine: a full disk, a read-only disk, no connections left, writers that are stopped for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltasql
from tests.processes import spawn
from tests.servers import wait_until


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """Mount a small file system, or skip the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the tests may not mount file systems: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def numbers(table: deltasql.Table) -> list[int]:
    """Return the rows that other engines see."""
    return sorted(DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def lake(embedded_lake: deltasql.Lake) -> Iterator[deltasql.Lake]:
    config = {"postgres.schema": f"s{uuid.uuid4().hex}", "mirror.retry_backoff_base": "100ms"}
    with deltasql.connect(embedded_lake.dsn, config=config) as lake:
        yield lake


def test_a_full_disk(lake: deltasql.Lake, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m"):
        table = lake.create_table("t", "id BIGINT, text STRING", location=str(tmp_path / "disk" / "t"))
        table.append(pa.table({"id": [1], "text": ["a"]}))
        filler = tmp_path / "disk" / "filler"
        space = os.statvfs(tmp_path / "disk")
        filler.write_bytes(bytes(space.f_bavail * space.f_frsize - 8192))
        text = [uuid.uuid4().hex for _ in range(20_000)]
        with pytest.raises(deltasql.DeltaSqlError, match=r"No space left|os error 28"):
            table.append(pa.table({"id": range(20_000), "text": text}))
        assert table.version == 1
        left = {path.name for path in Path(table.location).glob("*.parquet")}
        assert len(left) == 1, "the failed write deletes its files"
        with filler.open("ab") as file:
            rest = os.statvfs(tmp_path / "disk")
            file.write(bytes(rest.f_bavail * rest.f_frsize))
        with pytest.raises(deltasql.DeltaSqlError, match=r"No space left|os error 28"):
            table.append(pa.table({"id": [2], "text": ["b"]}))
        lake.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('mine' = 'x')")  # lands, and cannot be published
        assert (table.version, lake.mirror.status()[0].published) == (2, 1)
        filler.unlink()
        wait_until(lambda: lake.mirror.status()[0].published == 2, 30)
        table.append(pa.table({"id": [3], "text": ["c"]}))
        assert numbers(table) == [1, 3]
        assert lake.mirror.validate(table.name) == []


def test_a_read_only_disk(lake: deltasql.Lake, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=4m"):
        table = lake.create_table("t", "id BIGINT", location=str(tmp_path / "disk" / "t"))
        table.append(pa.table({"id": [1]}))
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "disk"], check=True)
        with pytest.raises(deltasql.DeltaSqlError, match=r"Read-only file system|os error 30"):
            table.append(pa.table({"id": [2]}))
        with pytest.raises(deltasql.DeltaSqlError, match=r"Read-only file system|os error 30"):
            lake.create_table("u", as_=pa.table({"id": [1]}), location=str(tmp_path / "disk" / "u"))
        assert (table.version, numbers(table), [one.name for one in lake.tables()]) == (1, [1], [table.name])
        subprocess.run(["mount", "-o", "remount,rw", tmp_path / "disk"], check=True)
        table.append(pa.table({"id": [3]}))
        assert numbers(table) == [1, 3]


def test_no_connections_left(debian_server: object, tmp_path: Path) -> None:
    url = debian_server.url  # type: ignore[attr-defined]
    config = {"postgres.schema": f"s{uuid.uuid4().hex}", "pool.timeout": "2s"}
    with deltasql.connect(url, config=config) as lake, ExitStack() as held:
        table = lake.create_table("t", "id BIGINT", location=str(tmp_path / "t"))
        while True:
            try:
                held.enter_context(psycopg.connect(url))
            except psycopg.OperationalError:
                break
        with pytest.raises(deltasql.DatabaseUnavailable, match=r"too many clients|connection"):
            deltasql.connect(url, config=config)
        result = table.append(pa.table({"id": [1]}))
        assert (result.version, numbers(table)) == (1, [1]), "connections that exist still work"
        held.close()
        deltasql.connect(url, config=config).close()


def append_for_ever(dsn: str, config: dict[str, str], table_id: str) -> None:
    """Append rows one by one until the process is killed."""
    with deltasql.connect(dsn, config=config) as lake:
        table = lake.table(table_id)
        while True:
            table.append(pa.table({"id": [os.getpid()]}))


def test_stopped_writers_hold_nobody_up(embedded_lake: deltasql.Lake, tmp_path: Path) -> None:
    """A writer that is stopped inside of its commit loses its transaction after the timeout."""
    config = {"postgres.schema": f"s{uuid.uuid4().hex}", "transaction.timeout": "2s", "transaction.lock_timeout": "20s"}
    with deltasql.connect(embedded_lake.dsn, config=config | {"transaction.timeout": "30s"}) as lake:
        table = lake.create_table("t", "id BIGINT", location=str(tmp_path / "t"))
        writers = [spawn(append_for_ever, lake.dsn, config, table.id) for _ in range(3)]
        try:
            wait_until(lambda: table.version > 5, 60)
            for turn in range(6):
                stopped = writers[turn % 3]
                os.kill(stopped.pid, signal.SIGSTOP)
                begin = time.monotonic()
                for _ in range(3):
                    table.append(pa.table({"id": [0]}))
                assert time.monotonic() - begin < 30
                os.kill(stopped.pid, signal.SIGCONT)
        finally:
            for writer in writers:
                os.kill(writer.pid, signal.SIGKILL)
                writer.join()
        lake.mirror.run()
        rows = table.arrow()["id"].to_pylist()
        assert (len(rows), rows.count(0)) == (table.version, 18), "each version has the row of its writer"
        assert numbers(table) == sorted(rows)
        assert lake.mirror.validate(table.name) == []
