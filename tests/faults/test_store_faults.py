"""A store or a database that fails while a commit is published: the commit stands, readers see the version before or
the version and never an error, and the mirror catches up by itself."""

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

LONGEST_COMMIT = 15.0
"""A commit waits for a store that fails, but not for long."""


@dataclass
class World:
    """A lake that reaches its store through a proxy, and a table in it."""

    lake: deltasql.Lake
    table: deltasql.Table
    proxy: StoreProxy
    s3: S3Server
    location: str
    versions: int = 0

    def commit(self) -> int:
        """Commit a version with one file more; everything that a commit file can hold is in it."""
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
        assert time.monotonic() - started < LONGEST_COMMIT
        self.versions = tx.versions[self.table.name]
        assert self.versions == number
        return number

    def seen(self) -> int:
        """The version that a reader on the other side of the proxy sees, whole."""
        reader = DeltaTable(self.location, storage_options=self.s3.options())
        version = reader.version()
        assert len(reader.file_uris()) == (version + 1 if version else 0)
        return version

    @property
    def status(self) -> deltasql.MirrorStatus:
        return next(s for s in self.lake.mirror.status() if s.table == self.table.name)

    def converges(self) -> None:
        """Nobody helps: the status is only looked at."""
        wait_until(lambda: not self.status.lag_versions, 60)
        assert self.seen() == self.versions == self.table.version
        assert self.lake.mirror.validate(self.table.name) == []
        for path, bodies in list(self.proxy.written.items()):
            if not path.endswith("_last_checkpoint"):
                assert len(set(bodies)) == 1, f"{path} was written twice, with different bytes"


def open_lake(dsn: str, proxy: StoreProxy, s3: S3Server, timeout: str = "300ms", **config: Any) -> deltasql.Lake:
    """A lake with a schema of its own, and little patience unless told otherwise."""
    settings = {
        "postgres.schema": f"s{uuid.uuid4().hex}",
        "mirror.retry_backoff_base": "20ms",
        "pool.size": 3,
    }
    options = s3.options(proxy.endpoint, timeout=timeout)
    return deltasql.connect(dsn, config=settings | config, storage_options=options)


def make_world(lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> World:
    table = lake.create_table(
        f"t{uuid.uuid4().hex}",
        "id BIGINT, day DATE",
        location=f"s3://lake/{uuid.uuid4()}",
        partition_by=["day"],
        properties={"delta.checkpointInterval": "4"},
    )
    world = World(lake, table, proxy, s3, table.location)
    world.commit()
    world.converges()
    return world


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[StoreProxy]:
    opened = StoreProxy(s3.port)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def impatient_lake(embedded_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> Iterator[deltasql.Lake]:
    with open_lake(embedded_lake.dsn, proxy, s3) as lake:
        yield lake


@pytest.fixture
def world(impatient_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> World:
    return make_world(impatient_lake, proxy, s3)


@pytest.fixture(scope="module")
def patient_lake(embedded_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> Iterator[deltasql.Lake]:
    """What happens in the proxy takes its time, and the store's client is not to give up meanwhile."""
    with open_lake(make_conninfo(embedded_lake.dsn, application_name="patient"), proxy, s3, "30s") as lake:
        yield lake


@pytest.fixture
def patient_world(patient_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> World:
    return make_world(patient_lake, proxy, s3)


def is_put(request: Request) -> bool:
    return request.method == "PUT"


def is_look(request: Request) -> bool:
    return request.method == "HEAD"


FAULTS: dict[str, tuple[str, Callable[[Request], bool]]] = {
    "nobody listens": ("refuse", lambda _: True),
    "too busy": ("503", lambda _: True),
    "puts too busy": ("503", is_put),
    "request cut": ("cut", is_put),
    "answer lost": ("lost", is_put),
    "answer late": ("late", is_put),
    "no answer": ("silent", lambda _: True),
    "look lost": ("lost", is_look),
    "look late": ("late", is_look),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_store_fails(world: World, name: str) -> None:
    fault, spoils = FAULTS[name]
    with world.proxy.failing(fault, spoils):
        assert world.commit() == 2
        assert world.table.version == 2
        assert world.seen() in (1, 2)
        assert world.commit() == 3
        assert world.seen() in (1, 2, 3)
        assert fault == "refuse" or world.proxy.spoilt
    world.converges()
    assert world.commit() == 4
    world.converges()


@pytest.mark.parametrize("fault", ["503", "cut", "lost", "late", "silent"])
def test_the_store_fails_once(world: World, fault: str) -> None:
    """A hiccup: the next request goes through."""
    with world.proxy.failing(fault, lambda request: is_put(request) and world.proxy.spoilt == 0):
        assert world.commit() == 2
        assert world.seen() in (1, 2)
        world.converges()
        assert world.proxy.spoilt == 1


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
def test_the_store_fails_at_a_checkpoint(world: World, what: str, fault: str) -> None:
    """A checkpoint that could not be written is written later, though every version is published."""
    name = checkpoint_path(4) if what == "checkpoint" else LAST_CHECKPOINT
    for _ in range(2):
        world.commit()
    with world.proxy.failing(fault, lambda request: is_put(request) and name in request.path):
        assert world.commit() == 4
        # Longer than the store's client tries by itself, where the request did not get through.
        wait_until(lambda: world.proxy.spoilt > (8 if fault in ("503", "cut") else 0), 60)
        assert world.seen() == 4
    wait_until(lambda: world.status.checkpoint == 4, 60)
    hint = Directory(world.table.location, world.s3.options()).get(LAST_CHECKPOINT)
    assert json.loads(hint or b"")["version"] == 4
    world.converges()


def is_conditional(request: Request) -> bool:
    return is_put(request) and b"if-none-match" in request.head.lower()


@pytest.mark.parametrize("answer", ["501", "400"])
def test_a_store_without_conditional_put(patient_world: World, answer: str, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, each time it is asked, and is asked once."""
    world = patient_world
    with world.proxy.failing(answer, is_conditional):
        for version in (2, 3, 4):
            assert world.commit() == version
            assert world.seen() == version
        asked = world.proxy.spoilt
        world.converges()
        foreign = Directory(world.table.location, world.s3.options())
        foreign.put(commit_path(5), b"{}\n")
        world.commit()
        assert world.status.status == "FAILED"
        assert foreign.get(commit_path(5)) == b"{}\n"
        foreign.delete([commit_path(5)])
        world.lake.mirror.repair(world.table.name)
        world.converges()
        assert world.proxy.spoilt == asked
    assert caplog.text.count("does not support conditional put") == 1


def test_the_staged_text_is_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store without conditional put that spoils what it is given does not get it into its place."""
    directory = Directory(world.table.location, world.s3.options(conditional_put="disabled"))
    original = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, path, data, **kw: original(store, path, data[::-1], **kw))
    with pytest.raises(deltasql.StorageError, match="does not hold"):
        directory.put_if_absent(commit_path(9), b"same size")
    assert directory.get(commit_path(9)) is None


def test_a_large_commit_over_a_slow_link(embedded_lake: deltasql.Lake, proxy: StoreProxy, s3: S3Server) -> None:
    """It takes longer than the store's client waits for an answer, and than PostgreSQL lets a transaction idle."""
    options = s3.options(proxy.endpoint, read_timeout="1s", timeout="3s")
    config = {"postgres.schema": f"s{uuid.uuid4().hex}"}
    deltasql.connect(embedded_lake.dsn, config=config).close()  # makes the schema, which may take its time
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


def test_commits_do_not_queue_up_behind_a_silent_store(world: World) -> None:
    """Once an attempt has failed, the next commits do not wait for the store at all."""
    with open_lake(world.lake.dsn, world.proxy, world.s3, **{"mirror.retry_backoff_base": "5s"}) as lake:
        slow = make_world(lake, world.proxy, world.s3)
        with world.proxy.failing("silent"):
            slow.commit()
            asked = world.proxy.spoilt
            slow.commit()
            slow.commit()
            assert world.proxy.spoilt == asked
        slow.converges()


def test_a_failure_while_the_retry_thread_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that retries has found nothing left to do, and a commit fails before it is gone."""
    look, failed, committed = world.lake.store.outbox.status, [], threading.Event()

    def lags(found: list[deltasql.MirrorStatus]) -> bool:
        return any(status.lag_versions for status in found)

    def stale(*key: int) -> list[deltasql.MirrorStatus]:
        found = look(*key)
        if threading.current_thread().name == "deltasql-mirror-retry" and not failed and not lags(found):
            failed.append(1)
            with world.proxy.failing("503"):
                world.commit()
            committed.set()
        return found

    with world.proxy.failing("503"):
        world.commit()
        monkeypatch.setattr(world.lake.store.outbox, "status", stale)
    assert committed.wait(60)
    world.converges()
    assert world.versions == 3


def test_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the store fails: whatever goes wrong at a checkpoint is tried again."""
    original, failed = checkpoints.write_checkpoint, []

    def full(*args: Any, **kw: Any) -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*args, **kw)

    monkeypatch.setattr(checkpoints, "write_checkpoint", full)
    for _ in range(3):
        world.commit()
    wait_until(lambda: world.status.checkpoint == 4, 60)
    world.converges()


class TestTheDatabaseFails:
    def test_between_commit_and_publishing(self, patient_world: World) -> None:
        world = patient_world
        publish = world.lake.store.publish

        def late(landed: Any) -> None:
            terminate(world)
            publish(landed)

        world.lake.store.publish = late
        world.commit()
        world.lake.store.publish = publish
        world.converges()

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_around_the_put(self, patient_world: World, moment: str) -> None:
        """`after`: the object is there, and the database does not know."""
        world = patient_world
        with at(world.proxy, moment, is_put, lambda: terminate(world)) as times:
            world.commit()
            assert world.seen() in ((1, 2) if moment == "before" else (2,))
        assert times == [1]
        world.converges()

    def test_a_crash_and_a_restart(
        self, proxy: StoreProxy, s3: S3Server, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        binaries = debian_binaries() or find_binaries().directory
        with PostgresServer(binaries, tmp_path_factory.mktemp("pg")) as server:
            with open_lake(server.url, proxy, s3, "30s") as lake:
                world = make_world(lake, proxy, s3)
                with at(proxy, "after", is_put, server.crash) as times:
                    world.commit()
                assert times == [1]
                assert world.seen() == 2
                server.start()
                world.converges()
                world.commit()
                world.converges()


def terminate(world: World) -> None:
    """End the lake's sessions, the one that publishes included."""
    with psycopg.connect(world.lake.dsn, application_name="admin", autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'patient'")


@contextmanager
def at(
    proxy: StoreProxy, moment: str, which: Callable[[Request], bool], action: Callable[[], None]
) -> Iterator[list[int]]:
    """Have something happen once, before or after a request is done."""
    times: list[int] = []

    def happen(request: Request) -> None:
        if which(request) and not times:
            times.append(1)
            action()

    setattr(proxy, moment, happen)
    try:
        yield times
    finally:
        setattr(proxy, moment, lambda _: None)
