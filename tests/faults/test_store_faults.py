"""The store or the database fails during publishing.

The commit succeeds, readers see the previous or the new version and no error, and the mirror publishes the missing
versions without help.
"""

from __future__ import annotations

import errno
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import obstore
import psycopg
import pytest
from deltalake import DeltaTable
from psycopg.conninfo import make_conninfo

import deltasql
from deltasql.delta_log.layout import LAST_CHECKPOINT, checkpoint_path, commit_path
from deltasql.embedded.binaries import find_binaries
from deltasql.mirror import checkpoints
from deltasql.storage import Directory
from tests.factories import add, remove
from tests.s3 import S3Server
from tests.servers import PostgresServer, debian_binaries, wait_until
from tests.store_proxy import Request, StoreProxy

MAX_COMMIT_SECONDS = 15.0
"""The longest time that a commit may wait for a failing store."""


@dataclass
class ProxiedTable:
    """A table of a lake that reaches its store through a proxy."""

    lake: deltasql.Lake
    table: deltasql.Table
    proxy: StoreProxy
    s3: S3Server
    location: str
    versions: int = 0

    def commit(self) -> int:
        """Commit a version with one more live file, and with all kinds of actions."""
        number = self.versions + 1
        values = {"day": "2026-01-01" if number % 2 else None}
        actions: list[Any] = [
            add(f"{number}-new.parquet", partition_values=values, lo=number, hi=2.5, tags={"a": "é", "b": None}),
            add(f"{number}-old.parquet", partition_values=values, extra={"zebra": [1], "alpha": {"b": None}}),
            deltasql.Txn("app", number),
            deltasql.CommitInfo("MERGE", {"predicate": '"x" = 1'}),
        ]
        if number > 1:
            actions.append(remove(f"{number - 1}-old.parquet"))
        started = time.monotonic()
        with self.lake.begin() as tx:
            tx.stage(self.table, actions)
        assert time.monotonic() - started < MAX_COMMIT_SECONDS
        self.versions = tx.versions[self.table.name]
        assert self.versions == number
        return number

    def seen(self) -> int:
        """Return the version that delta-rs reads without the proxy, and check its number of files."""
        reader = DeltaTable(self.location, storage_options=self.s3.options())
        version = reader.version()
        assert len(reader.file_uris()) == (version + 1 if version else 0)
        return version

    @property
    def status(self) -> deltasql.MirrorStatus:
        return next(s for s in self.lake.mirror.status() if s.table == self.table.name)

    def assert_converges(self) -> None:
        """Assert that all versions are published within a minute, without a call to the mirror."""
        wait_until(lambda: not self.status.lag_versions, 60)
        assert self.seen() == self.versions == self.table.version
        assert self.lake.mirror.validate(self.table.name) == []
        for path, bodies in list(self.proxy.written.items()):
            if not path.endswith("_last_checkpoint"):
                assert len(set(bodies)) == 1, f"{path} was written twice, with different bytes"


def open_lake(dsn: str, proxy: StoreProxy, s3: S3Server, timeout: str = "300ms", **config: Any) -> deltasql.Lake:
    """Open a lake in a separate database schema, with short timeouts by default."""
    settings = {
        "postgres.schema": f"s{uuid.uuid4().hex}",
        "mirror.retry_backoff_base": "20ms",
        "pool.size": 3,
    }
    options = s3.options(proxy.endpoint, timeout=timeout)
    return deltasql.connect(dsn, config=settings | config, storage_options=options)


def make_proxied_table(lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> ProxiedTable:
    table = lake.create_table(
        f"t{uuid.uuid4().hex}",
        "id BIGINT, day DATE",
        location=f"s3://lake/{uuid.uuid4()}",
        partition_by=["day"],
        properties={"delta.checkpointInterval": "4"},
    )
    proxied = ProxiedTable(lake, table, proxy, s3, table.location)
    proxied.commit()
    proxied.assert_converges()
    return proxied


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[StoreProxy]:
    opened = StoreProxy(s3.port)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def short_timeout_lake(embedded_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> Iterator[deltasql.Lake]:
    with open_lake(embedded_lake.dsn, proxy, s3) as lake:
        yield lake


@pytest.fixture
def proxied(short_timeout_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> ProxiedTable:
    return make_proxied_table(short_timeout_lake, proxy, s3)


@pytest.fixture(scope="module")
def long_timeout_lake(embedded_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> Iterator[deltasql.Lake]:
    """A lake whose store client does not time out while the proxy delays a request."""
    with open_lake(make_conninfo(embedded_lake.dsn, application_name="long_timeout"), proxy, s3, "30s") as lake:
        yield lake


@pytest.fixture
def slow_table(long_timeout_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> ProxiedTable:
    return make_proxied_table(long_timeout_lake, proxy, s3)


def is_put(request: Request) -> bool:
    return request.method == "PUT"


def is_head(request: Request) -> bool:
    return request.method == "HEAD"


FAULTS: dict[str, tuple[str, Callable[[Request], bool]]] = {
    "connection refused": ("refuse", lambda _: True),
    "503": ("503", lambda _: True),
    "503 for PUT": ("503", is_put),
    "request cut": ("cut", is_put),
    "response lost": ("lost", is_put),
    "response late": ("late", is_put),
    "no response": ("silent", lambda _: True),
    "HEAD response lost": ("lost", is_head),
    "HEAD response late": ("late", is_head),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_store_fails(proxied: ProxiedTable, name: str) -> None:
    fault, affects = FAULTS[name]
    with proxied.proxy.failing(fault, affects):
        assert proxied.commit() == 2
        assert proxied.table.version == 2
        assert proxied.seen() in (1, 2)
        assert proxied.commit() == 3
        assert proxied.seen() in (1, 2, 3)
        assert fault == "refuse" or proxied.proxy.affected
    proxied.assert_converges()
    assert proxied.commit() == 4
    proxied.assert_converges()


@pytest.mark.parametrize("fault", ["503", "cut", "lost", "late", "silent"])
def test_the_store_fails_once(proxied: ProxiedTable, fault: str) -> None:
    """Only one request fails."""
    with proxied.proxy.failing(fault, lambda request: is_put(request) and proxied.proxy.affected == 0):
        assert proxied.commit() == 2
        assert proxied.seen() in (1, 2)
        proxied.assert_converges()
        assert proxied.proxy.affected == 1


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("checkpoint", "503"),
        ("checkpoint", "cut"),
        ("checkpoint", "lost"),
        ("checkpoint", "late"),
        ("hint", "503"),
        ("hint", "lost"),
    ],
)
def test_the_store_fails_at_a_checkpoint(proxied: ProxiedTable, what: str, fault: str) -> None:
    """A checkpoint that could not be written is written later, although all versions are published."""
    name = checkpoint_path(4) if what == "checkpoint" else LAST_CHECKPOINT
    for _ in range(2):
        proxied.commit()
    with proxied.proxy.failing(fault, lambda request: is_put(request) and name in request.path):
        assert proxied.commit() == 4
        # Where requests do not reach the store, wait for more failures than the client's own retries.
        wait_until(lambda: proxied.proxy.affected > (8 if fault in ("503", "cut") else 0), 60)
        assert proxied.seen() == 4
    wait_until(lambda: proxied.status.checkpoint == 4, 60)
    hint = Directory(proxied.table.location, proxied.s3.options()).get(LAST_CHECKPOINT)
    assert json.loads(hint or b"")["version"] == 4
    proxied.assert_converges()


def is_conditional(request: Request) -> bool:
    return is_put(request) and b"if-none-match" in request.head.lower()


@pytest.mark.parametrize("answer", ["501", "400"])
def test_a_store_without_conditional_put(
    slow_table: ProxiedTable, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The store rejects the first conditional PUT; the library remembers this and logs one warning."""
    proxied = slow_table
    with proxied.proxy.failing(answer, is_conditional):
        for version in (2, 3, 4):
            assert proxied.commit() == version
            assert proxied.seen() == version
        rejected = proxied.proxy.affected
        proxied.assert_converges()
        foreign = Directory(proxied.table.location, proxied.s3.options())
        foreign.put(commit_path(5), b"{}\n")
        proxied.commit()
        assert proxied.status.status == "FAILED"
        assert foreign.get(commit_path(5)) == b"{}\n"
        foreign.delete([commit_path(5)])
        proxied.lake.mirror.repair(proxied.table.name)
        proxied.assert_converges()
        assert proxied.proxy.affected == rejected
    assert caplog.text.count("does not support conditional put") == 1


def test_a_corrupted_staged_object_is_not_renamed(proxied: ProxiedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store without conditional PUT corrupts the staged object: the commit file is not created."""
    directory = Directory(proxied.table.location, proxied.s3.options(conditional_put="disabled"))
    original = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, path, data, **kw: original(store, path, data[::-1], **kw))
    with pytest.raises(deltasql.StorageError, match="does not hold"):
        directory.put_if_absent(commit_path(9), b"same size")
    assert directory.get(commit_path(9)) is None


def test_a_large_commit_over_a_slow_link(embedded_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> None:
    """The upload takes longer than the client's read timeout and PostgreSQL's idle-in-transaction timeout."""
    options = s3.options(proxy.endpoint, read_timeout="1s", timeout="3s")
    config = {"postgres.schema": f"s{uuid.uuid4().hex}"}
    deltasql.connect(embedded_lake.dsn, config=config).close()  # create the schema first, without the short timeout
    config["transaction.timeout"] = "5s"
    with deltasql.connect(embedded_lake.dsn, config=config, storage_options=options) as lake:
        table = lake.create_table("t", "id BIGINT", location=f"s3://lake/{uuid.uuid4()}")
        proxy.rate = 800_000
        try:
            with lake.begin() as tx:
                tx.stage(table, [add(tags={"large": "x" * 6_000_000})])
        finally:
            proxy.rate = 0
        assert tx.mirror == {}
        assert DeltaTable(table.location, storage_options=s3.options()).version() == 1


def test_commits_do_not_queue_up_behind_a_silent_store(proxied: ProxiedTable) -> None:
    """After a failed attempt, the next commits do not send requests to the store."""
    with open_lake(proxied.lake.dsn, proxied.proxy, proxied.s3, **{"mirror.retry_backoff_base": "5s"}) as lake:
        slow = make_proxied_table(lake, proxied.proxy, proxied.s3)
        with proxied.proxy.failing("silent"):
            slow.commit()
            requests = proxied.proxy.affected
            slow.commit()
            slow.commit()
            assert proxied.proxy.affected == requests
        slow.assert_converges()


def test_a_failure_while_the_retry_thread_ends(proxied: ProxiedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit fails to publish after the retry thread found nothing to do and before it exits."""
    look, failed, committed = proxied.lake.store.outbox.status, [], threading.Event()

    def lags(found: list[deltasql.MirrorStatus]) -> bool:
        return any(status.lag_versions for status in found)

    def stale(*key: int) -> list[deltasql.MirrorStatus]:
        found = look(*key)
        if threading.current_thread().name == "deltasql-mirror-retry" and not failed and not lags(found):
            failed.append(1)
            with proxied.proxy.failing("503"):
                proxied.commit()
            committed.set()
        return found

    with proxied.proxy.failing("503"):
        proxied.commit()
        monkeypatch.setattr(proxied.lake.store.outbox, "status", stale)
    assert committed.wait(60)
    proxied.assert_converges()
    assert proxied.versions == 3


def test_a_full_disk(proxied: ProxiedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the local disk is retried like an error of the store."""
    original, failed = checkpoints.write_checkpoint, []

    def full(*args: Any, **kw: Any) -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*args, **kw)

    monkeypatch.setattr(checkpoints, "write_checkpoint", full)
    for _ in range(3):
        proxied.commit()
    wait_until(lambda: proxied.status.checkpoint == 4, 60)
    proxied.assert_converges()


class TestDatabaseFailures:
    def test_between_commit_and_publishing(self, slow_table: ProxiedTable) -> None:
        proxied = slow_table
        publish = proxied.lake.store.publish

        def late(committed: Any) -> None:
            terminate(proxied)
            publish(committed)

        proxied.lake.store.publish = late
        proxied.commit()
        proxied.lake.store.publish = publish
        proxied.assert_converges()

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_around_the_put(self, slow_table: ProxiedTable, moment: str) -> None:
        """In the case `after`, the object exists and the database has not recorded it."""
        proxied = slow_table
        with at(proxied.proxy, moment, is_put, lambda: terminate(proxied)) as times:
            proxied.commit()
            assert proxied.seen() in ((1, 2) if moment == "before" else (2,))
        assert times == [1]
        proxied.assert_converges()

    def test_a_crash_and_a_restart(
        self, proxy: StoreProxy, s3: S3Server, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        binaries = debian_binaries() or find_binaries().directory
        with PostgresServer(binaries, tmp_path_factory.mktemp("pg")) as server:
            with open_lake(server.url, proxy, s3, "30s") as lake:
                proxied = make_proxied_table(lake, proxy, s3)
                with at(proxy, "after", is_put, server.crash) as times:
                    proxied.commit()
                assert times == [1]
                assert proxied.seen() == 2
                server.start()
                proxied.assert_converges()
                proxied.commit()
                proxied.assert_converges()


def terminate(proxied: ProxiedTable) -> None:
    """Terminate all sessions of the lake, including the publisher's."""
    with psycopg.connect(proxied.lake.dsn, application_name="admin", autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'long_timeout'"
        )


@contextmanager
def at(
    proxy: StoreProxy, moment: str, which: Callable[[Request], bool], action: Callable[[], None]
) -> Iterator[list[int]]:
    """Run `action` once, before or after the first matching request."""
    times: list[int] = []

    def run_once(request: Request) -> None:
        if which(request) and not times:
            times.append(1)
            action()

    setattr(proxy, moment, run_once)
    try:
        yield times
    finally:
        setattr(proxy, moment, lambda _: None)
