"""A lake with tables on S3, read by delta-rs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

import deltasql
from deltasql.delta_log.layout import LAST_CHECKPOINT, checkpoint_path, commit_path
from deltasql.storage import Directory
from tests.factories import add, remove
from tests.s3 import S3Server


@pytest.fixture(scope="module")
def lake(embedded_lake: deltasql.Lake, s3: S3Server) -> Iterator[deltasql.Lake]:
    """A lake in a separate database schema: lakes without the S3 credentials cannot publish its tables."""
    config = {"postgres.schema": f"s{uuid.uuid4().hex}"}
    with deltasql.connect(embedded_lake.dsn, config=config, storage_options=s3.options()) as opened:
        yield opened


@pytest.fixture
def table(lake: deltasql.Lake, namespace: str) -> deltasql.Table:
    return lake.create_table(
        f"{namespace}.t",
        "id BIGINT, day DATE, amount DOUBLE",
        location=f"s3://lake/{namespace} é+%/{uuid.uuid4()}",
        partition_by=["day"],
        properties={"delta.checkpointInterval": "3"},
    )


def commit(lake: deltasql.Lake, table: deltasql.Table, *names: str) -> int:
    with lake.begin() as tx:
        tx.stage(table, [add(name, partition_values={"day": "2026-01-01"}, lo=1, hi=2) for name in names])
    return tx.versions[table.name]


def seen(table: deltasql.Table, s3: S3Server) -> DeltaTable:
    return DeltaTable(table.location, storage_options=s3.options())


def same_to_delta_rs(table: deltasql.Table, s3: S3Server) -> bool:
    reader = seen(table, s3)
    paths = sorted(table.files()["path"].to_pylist())
    uris = sorted(unquote(uri.rpartition("/")[2]) for uri in reader.file_uris())
    return (reader.version(), uris) == (table.version, paths)


def test_published_with_checkpoints(lake: deltasql.Lake, table: deltasql.Table, s3: S3Server) -> None:
    for number in range(1, 8):
        assert commit(lake, table, f"a{number}.parquet", f"b{number}.parquet") == number
        assert seen(table, s3).version() == number
    with lake.begin() as tx:
        tx.stage(table, [remove("a1.parquet")])
    lake.mirror.settle()
    log = Directory(table.location, s3.options())
    found = {entry.path for entry in log.list("_delta_log")}
    assert {commit_path(v) for v in range(9)} | {checkpoint_path(6), LAST_CHECKPOINT} <= found
    assert json.loads(log.get(LAST_CHECKPOINT) or b"")["version"] == 6
    status = next(s for s in lake.mirror.status() if s.table == table.name)
    assert (status.published, status.checkpoint, status.lag_versions, status.error) == (8, 6, 0, None)
    assert lake.mirror.validate(table.name) == []
    assert same_to_delta_rs(table, s3)
    log.delete([commit_path(v) for v in range(6)])
    assert same_to_delta_rs(table, s3), "the checkpoint does not hold what the commits before it did"


def test_repair(lake: deltasql.Lake, table: deltasql.Table, s3: S3Server) -> None:
    for number in range(2):
        commit(lake, table, f"{number}.parquet")
    log = Directory(table.location, s3.options())
    before = {v: log.get(commit_path(v)) for v in (1, 2)}
    log.delete([commit_path(1), commit_path(2)])
    assert lake.mirror.validate(table.name)
    assert lake.mirror.repair(table.name).versions == (1, 2)
    assert {v: log.get(commit_path(v)) for v in (1, 2)} == before
    assert lake.mirror.validate(table.name) == []
    assert same_to_delta_rs(table, s3)


def test_a_foreign_commit_is_kept(lake: deltasql.Lake, table: deltasql.Table, s3: S3Server) -> None:
    log = Directory(table.location, s3.options())
    foreign = b'{"commitInfo":{"operation":"WRITE","engineInfo":"other/1"}}\n'
    log.put(commit_path(1), foreign)
    assert commit(lake, table, "a.parquet") == 1
    with pytest.raises(deltasql.MirrorConflict, match="WRITE by other/1") as caught:
        lake.mirror.repair(table.name)
    assert s3.secret not in str(caught.value)
    assert log.get(commit_path(1)) == foreign
    log.delete([commit_path(1)])
    assert lake.mirror.repair(table.name).versions == (1,)
    assert same_to_delta_rs(table, s3)


def test_purge(lake: deltasql.Lake, s3: S3Server) -> None:
    """A drop with `purge` deletes only the files of the table's location."""
    location = f"s3://lake/{uuid.uuid4()}"
    tables = [lake.create_table(f"purge.{name}", "id BIGINT", location=f"{location}/{name}/") for name in ("a", "ab")]
    assert [t.location for t in tables] == [f"{location}/a", f"{location}/ab"]
    lake.drop_table("purge.a", purge=True)
    assert [e.path for e in Directory(location, s3.options()).list()] == [
        f"ab/{commit_path(0)}",
        "ab/_deltasql_owner.json",
    ]


def test_two_tables_of_one_commit(lake: deltasql.Lake, table: deltasql.Table, s3: S3Server, namespace: str) -> None:
    other = lake.create_table(f"{namespace}.u", "id BIGINT", location=f"s3://lake/{uuid.uuid4()}")
    with lake.begin() as tx:
        tx.stage(table, [add("a.parquet", partition_values={"day": None})])
        tx.stage(other, [add("b.parquet")])
    assert same_to_delta_rs(table, s3)
    assert same_to_delta_rs(other, s3)
