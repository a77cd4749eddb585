"""The connection breaks during a commit, and the library looks up whether the commit succeeded."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import deltasql
from deltasql.config import Config
from deltasql.store.sqlstate import is_rejection
from deltasql.store.write import outcome
from tests.factories import add
from tests.servers import PostgresServer, debian_binaries, wait_until


class Proxy:
    """A proxy between client and server that closes the client's connection at a given message.

    `cut` is a part of the client's message to wait for. With `deliver` the message reaches the server and only the
    reply is lost; otherwise both are lost.
    """

    def __init__(self, directory: Path, server: str) -> None:
        self._server = server
        self.directory = directory
        self.cut: bytes | None = None
        self.deliver = True
        self.refuse = False
        self.cuts = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.5432"))
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuse:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                threading.Thread(target=self._pump, args=(client, server), daemon=True).start()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    if ready is client and self.cut is not None and self.cut in data:
                        self._close(client, server, data)
                        return
                    (server if ready is client else client).sendall(data)

    def _close(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        self.cut = None
        self.cuts += 1
        if self.deliver:
            server.sendall(data)
            server.recv(1 << 16)
        client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def proxied(lake: deltasql.Lake, directory: Path, patience: str = "30s") -> Iterator[tuple[Proxy, deltasql.Lake]]:
    info = conninfo_to_dict(lake.dsn)
    proxy = Proxy(directory, f"{info['host']}/.s.PGSQL.{info.get('port', 5432)}")
    through = make_conninfo(lake.dsn, host=str(directory))
    try:
        with deltasql.connect(through, config={"pool.timeout": patience, "pool.size": 1}) as other:
            yield proxy, other
    finally:
        proxy.close()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory with a short path: the path of a Unix socket is limited to 107 bytes."""
    path = Path(f"/tmp/deltasql-proxy-{os.getpid()}-{threading.get_ident()}")
    path.mkdir(mode=0o700)
    yield path
    for entry in path.iterdir():
        entry.unlink()
    path.rmdir()


@pytest.mark.parametrize("deliver", [True, False], ids=["reply lost", "request lost"])
@pytest.mark.parametrize("files", [1, 100], ids=["one call", "copy"])
def test_lost_during_commit(
    lake: deltasql.Lake,
    make_table: Callable[..., deltasql.Table],
    short_directory: Path,
    files: int,
    deliver: bool,
) -> None:
    tables = [make_table(name) for name in "ab"]
    with proxied(lake, short_directory) as (proxy, other):
        tx = other.begin()
        for table in tables:
            tx.stage(table.name, [add() for _ in range(files)])
        proxy.deliver, proxy.cut = deliver, _last_message(tx, files)
        if deliver:
            assert set(tx.commit().values()) == {1}
        else:
            with pytest.raises(deltasql.DatabaseUnavailable, match="nothing was written"):
                tx.commit()
        assert proxy.cuts == 1
    assert {t.version for t in tables} == {1 if deliver else 0}
    assert {t.files().num_rows for t in tables} == {files if deliver else 0}


def _last_message(tx: deltasql.Transaction, files: int) -> bytes:
    """Return bytes that only the last message of the commit has: the transaction id in the call, or COMMIT."""
    return b"commit\x00" if files > 1 else str(tx.id).encode()


def test_outcome_is_unknown_when_the_server_is_unreachable(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], short_directory: Path
) -> None:
    table = make_table()
    with proxied(lake, short_directory, patience="3s") as (proxy, other):
        tx = other.begin()
        tx.stage(table.name, [add()])
        proxy.cut, proxy.refuse = _last_message(tx, 1), True
        with pytest.raises(deltasql.CommitOutcomeUnknown) as caught:
            tx.commit()
        proxy.refuse = False
    assert caught.value.txn_id == tx.id
    assert lake.store.committed(tx.id) == {table.id: 1}


def test_lost_before_commit_writes_nothing(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], short_directory: Path
) -> None:
    table = make_table()
    with proxied(lake, short_directory) as (proxy, other):
        tx = other.begin()
        tx.stage(table.name, [add() for _ in range(100)])
        proxy.deliver, proxy.cut = False, b"dl_lock_heads"
        with pytest.raises(deltasql.DatabaseUnavailable):
            tx.commit()
    assert table.version == 0


def test_a_session_that_the_server_ended_is_replaced(
    lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], namespace: str
) -> None:
    """An idle pool connection that the server closed is replaced before it is used."""
    table = make_table()
    with deltasql.connect(lake.dsn, config={"pool.size": 1}) as other:
        handle = other.table(table.name)
        assert handle.files().num_rows == 0
        with psycopg.connect(lake.dsn, autocommit=True) as admin:
            ended = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'deltasql'"
            wait_until(lambda: not admin.execute(ended).fetchall())
        with other.begin() as tx:
            tx.stage(handle, [add()])
        assert tx.versions == {table.name: 1}
        assert handle.files().num_rows == 1


def test_a_standby_cannot_resolve_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby may be behind, so a missing transaction may still be committed."""
    binaries = debian_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL is installed")
    with PostgresServer(binaries, tmp_path) as server:
        with deltasql.connect(server.url) as lake:
            table = lake.create_table("t", "id BIGINT", location=str(tmp_path / "t"))
            committed = lake.begin()
            committed.stage(table, [add()])
            committed.commit()
            server.become_standby()
            monkeypatch.setattr(lake.store._database, "config", Config({"pool.timeout": "1s"}))
            cause = psycopg.OperationalError("the reply was lost")
            for txn_id in (committed.id, str(uuid.uuid4())):
                with pytest.raises(deltasql.CommitOutcomeUnknown, match="standby"):
                    outcome.look_up(lake.store._database, txn_id, (1, datetime.now(UTC)), cause)


def test_errors_that_leave_the_outcome_unknown(lake: deltasql.Lake) -> None:
    """A rejected statement has no effect; a statement during which the server ends the session may have one."""
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.Error) as rejected:
            connection.execute("select 1 / 0")
        assert is_rejection(rejected.value)
        with pytest.raises(psycopg.Error) as unsent:
            connection.execute("select %s", ["a\0b"])
        assert is_rejection(unsent.value)
        connection.execute("set idle_in_transaction_session_timeout = 1")
        connection.execute("begin")
        time.sleep(0.1)
        with pytest.raises(psycopg.Error) as ended:
            connection.execute("commit")
    assert ended.value.sqlstate in ("25P03", None)  # None if the server closed the socket before the message was read
    assert not is_rejection(ended.value)
    assert not is_rejection(psycopg.errors.IoError("could not fsync the log"))  # fsync errors cannot be caused here
    assert not is_rejection(psycopg.OperationalError("connection lost"))
