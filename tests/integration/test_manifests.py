"""Manifests list the table versions that belong to the same transactions, and only fully published transactions."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import deltasql
from deltasql.storage import Directory


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def own_lake(embedded_lake: deltasql.Lake, namespace: str, place: Path) -> Iterator[deltasql.Lake]:
    """A lake in a separate database with a location for manifests."""
    with psycopg.connect(embedded_lake.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(namespace)))
        config = {"lake.location": str(place), "mirror.retry_backoff_base": "50ms"}
        with deltasql.connect(make_conninfo(embedded_lake.dsn, dbname=namespace), config=config) as lake:
            yield lake
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(namespace)))


@pytest.fixture
def tables(own_lake: deltasql.Lake, tmp_path: Path) -> list[deltasql.Table]:
    return [own_lake.create_table(n, "id BIGINT", location=str(tmp_path / n)) for n in ("a", "b", "c")]


def manifests(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "_deltasql/transactions").glob("*.json"))


def commit_to_all(lake: deltasql.Lake, *tables: deltasql.Table) -> deltasql.Transaction:
    with lake.begin(author="etl") as tx:
        for table in tables:
            tx.write(table, pa.table({"id": [1]}))
    return tx


def test_the_versions_to_read_together(own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path) -> None:
    a, b, c = tables
    with pytest.raises(deltasql.UsageError, match=r"has no manifest: .* lake\.location"):
        deltasql.versions_as_of(str(place))
    first = commit_to_all(own_lake, a, b)
    a.append(pa.table({"id": [9]}))
    assert dict(deltasql.versions_as_of(str(place)).versions) == {"public.a": 1, "public.b": 1}
    second = commit_to_all(own_lake, a, c)
    found = deltasql.versions_as_of(str(place))
    assert dict(found.versions) == {"public.a": 3, "public.b": 1, "public.c": 1}
    assert found.txn_id == second.id
    assert manifests(place) == [f"{n:020d}.json" for n in range(2)]
    before = found.timestamp - timedelta(milliseconds=1)
    assert deltasql.versions_as_of(str(place), before).txn_id == first.id
    for name, version in found.versions.items():
        rows = deltalake.DeltaTable(found.locations[name], version=version).to_pyarrow_table()
        assert rows.num_rows == own_lake.table(name).arrow(version=version).num_rows
    text = json.loads((place / "_deltasql/transactions" / manifests(place)[1]).read_text())
    assert (text["author"], set(text["tables"])) == ("etl", {"public.a", "public.c"})


def test_a_half_published_transaction_is_not_listed(
    own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path
) -> None:
    a, b, c = tables
    commit_to_all(own_lake, a, b)
    foreign = Path(b.location) / "_delta_log" / f"{2:020d}.json"
    foreign.write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    torn = commit_to_all(own_lake, a, b)
    assert set(torn.mirror) == {b.name}
    later = commit_to_all(own_lake, a, c)
    assert dict(deltasql.versions_as_of(str(place)).versions) == {"public.a": 1, "public.b": 1}
    foreign.unlink()
    own_lake.mirror.repair(b.name)
    own_lake.mirror.run()
    found = deltasql.versions_as_of(str(place))
    assert (found.txn_id, dict(found.versions)) == (later.id, {"public.a": 3, "public.b": 2, "public.c": 1})


def test_a_killed_publisher(own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path) -> None:
    """The publisher wrote a manifest and was killed before it recorded it in the database."""
    a, b, c = tables
    first = commit_to_all(own_lake, a, b)
    with psycopg.connect(own_lake.dsn) as connection:
        connection.execute("update deltasql.dl_transactions set manifest = null, snapshot = null")
    before = (place / "_deltasql/transactions" / manifests(place)[0]).read_bytes()
    second = commit_to_all(own_lake, b, c)
    assert len(manifests(place)) == 2
    assert (place / "_deltasql/transactions" / manifests(place)[0]).read_bytes() == before
    assert deltasql.versions_as_of(str(place)).txn_id == second.id
    with psycopg.connect(own_lake.dsn) as connection:
        rows = connection.execute("select txn_id::text, manifest from deltasql.dl_transactions order by 2").fetchall()
    assert rows == [(first.id, 0), (second.id, 1)]


def test_many_writers_and_few_connections(own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path) -> None:
    """With one pool connection, concurrent transactions do not wait for each other to publish manifests."""
    config = {"lake.location": str(place), "pool.size": 1, "pool.timeout": "30s"}
    with deltasql.connect(own_lake.dsn, config=config) as small, ThreadPoolExecutor(4) as pool:
        began = time.monotonic()
        done = list(pool.map(lambda _: commit_to_all(small, *tables), range(8)))
        assert time.monotonic() - began < 30
        assert [tx.mirror for tx in done] == [{}] * 8
    own_lake.mirror.run()
    assert dict(deltasql.versions_as_of(str(place)).versions) == {"public.a": 8, "public.b": 8, "public.c": 8}
    assert len(manifests(place)) == 8


def test_tables_that_are_not_published(own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path) -> None:
    private = own_lake.create_table("private", "id BIGINT", properties={"deltasql.mirror.mode": "off"})
    commit_to_all(own_lake, tables[0], private, tables[1])
    assert set(deltasql.versions_as_of(str(place)).versions) == {"public.a", "public.b"}
    own_lake.drop_table("a")
    commit_to_all(own_lake, tables[1], tables[2])
    assert set(deltasql.versions_as_of(str(place)).versions) == {"public.b", "public.c"}


def test_a_timestamp_excludes_later_commits(own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path) -> None:
    """Manifests are numbered in the order of publishing, which can differ from the order of commits."""
    a, b, c = tables
    with psycopg.connect(own_lake.dsn, autocommit=True) as connection:
        first = commit_to_all(own_lake, a, b)
        connection.execute("update deltasql.dl_transactions set committed_at = committed_at - interval '1 hour'")
        connection.execute("update deltasql.dl_transactions set manifest = null, snapshot = null")
    (place / "_deltasql/transactions" / manifests(place)[0]).unlink()
    early = commit_to_all(own_lake, b, c)  # its publisher also writes the missing manifest of the first transaction
    with psycopg.connect(own_lake.dsn, autocommit=True) as connection:
        connection.execute("update deltasql.dl_transactions set committed_at = committed_at - interval '2 hours'")
    found = deltasql.versions_as_of(str(place), datetime.now(UTC) - timedelta(minutes=30))
    assert (found.txn_id, dict(found.versions)) == (first.id, {"public.a": 1, "public.b": 1})
    assert deltasql.versions_as_of(str(place)).txn_id == early.id


def test_old_manifests_are_deleted(own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path) -> None:
    for _ in range(4):
        commit_to_all(own_lake, *tables[:2])
    folder = place / "_deltasql/transactions"
    for i, name in enumerate(manifests(place)[:3]):
        old = time.time() - (40 - i) * 86400
        os.utime(folder / name, (old, old))
    own_lake.mirror.run()
    assert manifests(place) == [f"{n:020d}.json" for n in (2, 3)]
    commit_to_all(own_lake, *tables[:2])
    assert manifests(place)[-1] == f"{4:020d}.json"


def test_foreign_manifests_are_ignored(own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path) -> None:
    """A foreign file in the manifest folder is reported; tables are still published, and commits do not wait."""
    folder = place / "_deltasql/transactions"
    folder.mkdir(parents=True)
    foreign = {"txnId": str(uuid.uuid4()), "timestamp": 0, "tables": {}, "snapshot": {}}
    for text, problem in ((json.dumps(foreign), "does not have"), ("?", "not a manifest of deltasql")):
        (folder / f"{0:020d}.json").write_text(text)
        began = time.monotonic()
        assert commit_to_all(own_lake, *tables).mirror == {}
        assert time.monotonic() - began < 10
        (report,) = own_lake.mirror.run()
        assert (report.table, problem in (report.error or "")) == (str(place), True)
    (folder / f"{0:020d}.json").unlink()
    own_lake.mirror.run()
    assert len(manifests(place)) == 2


def test_a_manifest_deleted_while_it_is_read(
    own_lake: deltasql.Lake, tables: list[deltasql.Table], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = commit_to_all(own_lake, *tables), commit_to_all(own_lake, *tables)
    get = Directory.get
    gone = manifests(place)[1]
    monkeypatch.setattr(Directory, "get", lambda self, path: None if path.endswith(gone) else get(self, path))
    assert deltasql.versions_as_of(str(place)).txn_id == first.id
