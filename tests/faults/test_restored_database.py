"""A database that was restored from a backup with pg_dump, cloned or moved, and processes that live through it."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from psycopg.conninfo import make_conninfo

import deltasql
from deltasql.cli.main import cli
from deltasql.embedded.binaries import find_binaries

Restore = Callable[[], None]


class Backups:
    """A database, and backups of it."""

    def __init__(self, server: str, folder: Path) -> None:
        self.name = f"r{uuid.uuid4().hex}"
        self.dsn = make_conninfo(server, dbname=self.name)
        self._server, self._file = server, folder / "dump"
        self.execute(f"CREATE DATABASE {self.name}")

    def execute(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement)

    def dump(self) -> None:
        self._run("pg_dump", "--format=custom", f"--file={self._file}", self.dsn)

    def restore(self) -> None:
        self.execute(f"DROP DATABASE {self.name} WITH (FORCE)")
        self.execute(f"CREATE DATABASE {self.name}")
        self._run("pg_restore", f"--dbname={self.dsn}", str(self._file))

    def restore_in_place(self) -> None:
        self._run("pg_restore", "--clean", f"--dbname={self.dsn}", str(self._file))

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(find_binaries().directory / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture
def backups(embedded_lake: deltasql.Lake, tmp_path: Path) -> Iterator[Backups]:
    found = Backups(embedded_lake.dsn, tmp_path)
    yield found
    found.execute(f"DROP DATABASE IF EXISTS {found.name} WITH (FORCE)")


@pytest.fixture
def lake(backups: Backups, tmp_path: Path) -> Iterator[deltasql.Lake]:
    with deltasql.connect(backups.dsn, config={"lake.location": str(tmp_path / "lake")}) as lake:
        yield lake


@pytest.fixture
def table(lake: deltasql.Lake, tmp_path: Path) -> deltasql.Table:
    table = lake.create_table("t", "id BIGINT", location=str(tmp_path / "t"))
    table.append(pa.table({"id": [1]}))
    return table


def ids(location: str) -> list[int]:
    """Return the rows that other engines see."""
    return sorted(DeltaTable(location).to_pyarrow_table()["id"].to_pylist())


def test_a_process_that_lives_on_notices_the_lost_schema(backups: Backups, table: deltasql.Table) -> None:
    backups.dump()
    table.append(pa.table({"id": [2], "x": [2]}), merge_schema=True)
    backups.restore()
    with pytest.raises(deltasql.ValidationError, match=r"'x' .*is not in the table"):
        table.append(pa.table({"id": [3], "x": [3]}))
    assert table.arrow().to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_transaction_that_read_the_lost_history_fails(
    backups: Backups, table: deltasql.Table, in_place: bool
) -> None:
    backups.dump()
    table.append(pa.table({"id": [2]}))
    with (
        pytest.raises(deltasql.HistoryReplaced, match="version 2, which this transaction has read"),
        table.lake.begin() as tx,
    ):
        tx.write("t", pa.table({"id": [3]}))
        backups.restore_in_place() if in_place else backups.restore()
    assert table.arrow().to_pylist() == [{"id": 1}]
    table.append(pa.table({"id": [4]}))
    assert table.arrow().num_rows == 2


def test_no_commit_id_is_drawn_again(backups: Backups, table: deltasql.Table) -> None:
    backups.dump()
    for _ in range(3):
        table.append(pa.table({"id": [2]}))
    backups.restore()
    with deltasql.connect(backups.dsn) as other:
        for _ in range(10):
            table.append(pa.table({"id": [3]}))
            other.table("t").append(pa.table({"id": [4]}))
    assert table.version == 21


def test_the_way_out_is_one_command(backups: Backups, table: deltasql.Table) -> None:
    lake = table.lake
    backups.dump()
    for number in (20, 30):
        table.append(pa.table({"id": [number]}))
    backups.restore()
    [status] = lake.mirror.status()
    assert (status.version, status.log_ahead) == (1, 2)
    assert "mirror recover" in (status.error or "")
    result = table.append(pa.table({"id": [2]}))
    assert (result.version, result.published) == (2, False)
    assert "this database is a copy" in str(result.mirror)
    assert ids(table.location) == [1, 20, 30], "nothing was overwritten"

    asked = CliRunner().invoke(cli, ["--url", backups.dsn, "mirror", "recover"], input="n\n")
    assert (asked.exit_code, ids(table.location)) == (1, [1, 20, 30])
    assert "_deltasql_set_aside" in "".join(asked.output.split())
    done = CliRunner().invoke(cli, ["--url", backups.dsn, "mirror", "recover", "--yes"])
    assert done.exit_code == 0, done.output
    assert ids(table.location) == [1, 2]
    aside = [path.name for path in Path(table.location).glob("_deltasql_set_aside/*/_delta_log/*.json")]
    assert sorted(aside) == [f"{version:020d}.json" for version in (2, 3)]
    assert lake.mirror.validate("t") == []
    assert table.append(pa.table({"id": [3]})).published
    assert lake.mirror.recover(dry_run=True) == []


def test_manifests_of_the_lost_history_are_set_aside(backups: Backups, lake: deltasql.Lake, tmp_path: Path) -> None:
    for name in "ab":
        lake.create_table(name, "id BIGINT", location=str(tmp_path / name))

    def both(number: int) -> None:
        with lake.begin() as tx:
            for name in "ab":
                tx.write(name, pa.table({"id": [number]}))

    both(1)
    backups.dump()
    both(2)
    backups.restore()
    lake.table("a").append(pa.table({"id": [3]}))
    lake.mirror.recover()
    location = str(tmp_path / "lake")
    assert deltasql.versions_as_of(location).versions == {"public.a": 1, "public.b": 1}
    both(4)
    assert deltasql.versions_as_of(location).versions == {"public.a": 3, "public.b": 2}
    assert len(list((tmp_path / "lake").glob("_deltasql_set_aside/*/_deltasql/transactions/*.json"))) == 1


def test_a_clone_neither_publishes_nor_deletes(backups: Backups, table: deltasql.Table) -> None:
    location = table.location
    table.lake.close()
    clone = f"{backups.name}_clone"
    backups.execute(f"CREATE DATABASE {clone} TEMPLATE {backups.name}")
    try:
        with deltasql.connect(make_conninfo(backups.dsn, dbname=clone)) as copied:
            result = copied.table("t").append(pa.table({"id": [2]}))
            assert "this database is a copy" in str(result.mirror)
            with pytest.raises(deltasql.UsageError, match="was not dropped: this database is a copy"):
                copied.drop_table("t", purge=True)
        with deltasql.connect(backups.dsn) as original:
            assert original.table("t").append(pa.table({"id": [3]})).published
        assert ids(location) == [1, 3]
    finally:
        backups.execute(f"DROP DATABASE {clone} WITH (FORCE)")


def test_a_copied_embedded_lake_is_a_copy(tmp_path: Path) -> None:
    with deltasql.connect(f"deltasql://embedded/{tmp_path}/one") as lake:
        lake.create_table("t", "id BIGINT", location=str(tmp_path / "t")).append(pa.table({"id": [1]}))
    subprocess.run(["cp", "-a", tmp_path / "one", tmp_path / "two"], check=True)
    with deltasql.connect(f"deltasql://embedded/{tmp_path}/two") as copied:
        result = copied.table("t").append(pa.table({"id": [2]}))
        assert f"moved from {tmp_path}/one" in str(result.mirror)
        copied.mirror.recover()
        assert copied.table("t").append(pa.table({"id": [3]})).published
        assert ids(str(tmp_path / "t")) == [1, 2, 3]
