"""The database: migrations, roles, limits, connections."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import deltasql
from deltasql.cli.lake_access import open_store
from deltasql.store.migrations import latest, migrations
from deltasql.store.sqlstate import CONSTRAINTS
from tests.factories import add
from tests.processes import run_all
from tests.servers import PostgresServer, wait_until


@pytest.fixture
def empty_database(any_lake: deltasql.Lake, namespace: str) -> Iterator[str]:
    """Create a separate database on the same server, and return its connection string."""
    with psycopg.connect(any_lake.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(namespace)))
        yield make_conninfo(any_lake.dsn, dbname=namespace)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(namespace)))


@pytest.fixture
def next_release(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add a migration that the database does not have yet, and return its file."""
    deltasql.connect(empty_database).close()
    for migration in migrations():
        (tmp_path / f"{migration.number:04d}_{migration.name}.sql").write_text(migration.text)
    added = tmp_path / f"{latest() + 1:04d}_next.sql"
    added.write_text("select 1")
    monkeypatch.setattr("deltasql.store.migrations.FOLDER", tmp_path)
    return added


class TestMigrations:
    def test_numbers_have_no_gap(self) -> None:
        assert [m.number for m in migrations()] == list(range(1, latest() + 1))

    def test_every_constraint_has_an_error_class(self) -> None:
        text = "\n".join(m.text for m in migrations())
        names = set(re.findall(r"constraint (dl_\w+)", text)) | set(re.findall(r"unique index (dl_\w+)", text))
        reachable = {name for name in names if not name.endswith("_pkey")} | {"dl_table_versions_pkey"}
        assert reachable == set(CONSTRAINTS)

    def test_connect_sets_an_empty_database_up(self, empty_database: str) -> None:
        with deltasql.connect(empty_database) as lake:
            assert lake.tables() == []
            assert lake.create_table("t", "id BIGINT").version == 0

    def test_a_newer_schema_suggests_an_upgrade(self, empty_database: str) -> None:
        deltasql.connect(empty_database).close()
        _execute(empty_database, f"insert into deltasql.dl_migrations values ({latest() + 1}, 'from the future')")
        with pytest.raises(deltasql.SchemaOutdated, match="upgrade deltasql") as caught:
            deltasql.connect(empty_database)
        assert (caught.value.found, caught.value.wanted) == (latest() + 1, latest())
        with pytest.raises(deltasql.SchemaOutdated, match="upgrade deltasql"), open_store(empty_database) as store:
            store.migrate()

    def test_an_older_schema_suggests_migrate(self, empty_database: str, next_release: Path) -> None:
        with pytest.raises(deltasql.SchemaOutdated, match="run `deltasql migrate`") as caught:
            deltasql.connect(empty_database)
        assert (caught.value.found, caught.value.wanted) == (latest() - 1, latest())
        next_release.write_text("create table dl_new (id int)")
        with open_store(empty_database) as store:
            assert store.migrate() == [f"{latest():04d} next"]
            assert store.migrate() == []
        deltasql.connect(empty_database).close()
        assert _tables_like(empty_database, "dl_new") == ["dl_new"]

    def test_an_upgrade_that_fails_changes_nothing(self, empty_database: str, next_release: Path) -> None:
        next_release.write_text("create table dl_new (id int); select 1 / 0")
        with pytest.raises(deltasql.DatabaseError, match="division by zero"), open_store(empty_database) as store:
            store.migrate()
        assert _tables_like(empty_database, "dl_new") == []
        with pytest.raises(deltasql.SchemaOutdated, match="run `deltasql migrate`"):
            deltasql.connect(empty_database)

    def test_a_migration_that_fails_leaves_nothing(self, empty_database: str) -> None:
        _execute(empty_database, "create schema deltasql; create view deltasql.dl_files as select 1")
        with pytest.raises(deltasql.DatabaseError):
            deltasql.connect(empty_database)
        assert _tables_like(empty_database, "dl\\_%") == ["dl_files"]

    def test_another_postgres_schema(self, empty_database: str) -> None:
        with deltasql.connect(empty_database, config={"postgres.schema": "lake_one"}) as one:
            one.create_table("t", "id BIGINT")
            with deltasql.connect(empty_database, config={"postgres.schema": "lake_two"}) as two:
                assert two.tables() == []
                assert len(one.tables()) == 1

    def test_eight_processes_set_up_one_database(self, lake: deltasql.Lake, namespace: str) -> None:
        _execute(lake.dsn, f"create database {namespace}")
        dsn = make_conninfo(lake.dsn, dbname=namespace)
        assert run_all(count_tables, [(dsn,)] * 8) == [0] * 8
        _execute(lake.dsn, f"drop database {namespace} with (force)")


def count_tables(dsn: str) -> int:
    with deltasql.connect(dsn) as lake:
        return len(lake.tables())


def _tables_like(dsn: str, pattern: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select relname from pg_class where relname like %s", [pattern])
        return [name for (name,) in found]


def _execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


class TestRoles:
    @pytest.fixture
    def with_roles(self, empty_database: str) -> str:
        deltasql.connect(empty_database).close()
        with open_store(empty_database) as store:
            store.create_roles()
            store.create_roles()
        return empty_database

    def _as(self, dsn: str, role: str) -> deltasql.Lake:
        return deltasql.connect(make_conninfo(dsn, options=f"-c role={role}"))

    def test_a_writer_commits(self, with_roles: str) -> None:
        with self._as(with_roles, "deltasql_writer") as lake:
            table = lake.create_table("t", "id BIGINT", partition_by=[])
            for count in (1, 100):
                with lake.begin() as tx:
                    tx.stage(table, [add() for _ in range(count)])
            assert table.files().num_rows == 101
            lake.drop_table("t")

    def test_a_reader_reads_and_cannot_write(self, with_roles: str) -> None:
        with deltasql.connect(with_roles) as owner:
            owner.create_table("t", "id BIGINT")
        with self._as(with_roles, "deltasql_reader") as lake:
            table = lake.table("t")
            assert table.files().num_rows == 0
            tx = lake.begin()
            tx.stage(table, [add()])
            with pytest.raises(deltasql.DatabaseError, match="deltasql init --roles"):
                tx.commit()
            assert table.version == 0

    @pytest.mark.parametrize("role", ["deltasql_reader", "deltasql_writer", "deltasql_mirror"])
    def test_no_role_rewrites_history(self, with_roles: str, role: str) -> None:
        for statement in ("delete from deltasql.dl_add_files", "update deltasql.dl_table_versions set version = 9"):
            with psycopg.connect(with_roles, options=f"-c role={role}") as connection:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)


class TestLimits:
    def test_session_settings_are_kept_by_the_server(self, any_lake: deltasql.Lake) -> None:
        with deltasql.connect(
            any_lake.dsn, config={"transaction.timeout": "7s", "transaction.lock_timeout": 3}
        ) as lake:
            expected = {"lock_timeout": "3000", "statement_timeout": "7000", "search_path": "deltasql"}
            with lake.store._database.connection() as connection:
                rows = connection.execute(
                    "select name, setting from pg_settings where name = any(%s)", [list(expected)]
                ).fetchall()
        assert {r["name"]: r["setting"] for r in rows} == expected

    @pytest.mark.parametrize("files", [1, 100], ids=["one call", "copy"])
    def test_a_held_lock_ends_in_commit_timeout(self, any_lake: deltasql.Lake, namespace: str, files: int) -> None:
        config = {"transaction.lock_timeout": "300ms"}
        with deltasql.connect(any_lake.dsn, config=config) as lake:
            table = lake.create_table(f"{namespace}.t", "id BIGINT")
            with psycopg.connect(any_lake.dsn, options="-c search_path=deltasql") as other:
                other.execute("select from dl_tables where table_id = %s for update", [table.id])
                tx = lake.begin()
                tx.stage(table, [add() for _ in range(files)])
                with pytest.raises(deltasql.CommitTimeout, match="lock") as caught:
                    tx.commit()
            assert isinstance(caught.value, TimeoutError)
            assert table.version == 0

    def test_pool_exhaustion_is_named(self, lake: deltasql.Lake) -> None:
        with deltasql.connect(lake.dsn, config={"pool.size": 1}) as small:
            small.store._database._pool.timeout = 0.2  # after the first connection is open
            with small.store._database.connection():
                with pytest.raises(deltasql.DatabaseUnavailable, match=r"pool\.size"):
                    small.tables()

    def test_pool_defaults(self, lake: deltasql.Lake) -> None:
        assert (lake.store.config["pool.size"], lake.store.config["pool.timeout"]) == (10, 30)


class TestConnecting:
    def test_unreachable(self) -> None:
        with pytest.raises(deltasql.DatabaseUnavailable):
            deltasql.connect("postgresql://nobody@127.0.0.1:1/none")

    def test_a_wrong_password_is_not_repeated(self, debian_server: PostgresServer) -> None:
        url = re.sub(r":[^:@]+@", ":s3cr3t@", debian_server.url)
        with pytest.raises(deltasql.DatabaseUnavailable) as caught:
            deltasql.connect(url)
        assert "s3cr3t" not in f"{caught.value!r} {caught.value.__cause__!r}"

    def test_invalid_connection_string(self) -> None:
        with pytest.raises(deltasql.UsageError, match="connection string") as caught:
            deltasql.connect("host=x passwrod=s3cr3t password=s3cr3t")
        assert "passwrod" in str(caught.value)
        assert "s3cr3t" not in str(caught.value)

    def test_passwords_are_hidden(self, debian_lake: deltasql.Lake) -> None:
        password = re.search(r":([^:@]+)@", debian_lake.dsn)
        assert password
        assert password[1] not in repr(debian_lake)

    def test_a_forked_child_is_rejected(self, lake: deltasql.Lake) -> None:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                lake.tables()
            except deltasql.UsageError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        assert b"deltasql.connect() in this process" in os.read(read, 1000)
        os.waitpid(child, 0)
        assert isinstance(lake.tables(), list)

    def test_an_open_lake_survives_the_end_of_all_its_sessions(self, tmp_path: Path) -> None:
        with deltasql.connect(f"deltasql://embedded/{tmp_path}/lake") as lake:
            table = lake.create_table("t", "id BIGINT")
            with psycopg.connect(lake.dsn, autocommit=True) as admin:
                ended = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'deltasql'"
                wait_until(lambda: not admin.execute(ended).fetchall())
            with lake.begin() as tx:
                tx.stage(table, [add()])
            assert table.files().num_rows == 1
