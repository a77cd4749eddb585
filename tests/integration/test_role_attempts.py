"""Attempts to rewrite the log as each role, on real servers over TCP with passwords, on Debian's server with TLS as well.

Every attempt must fail, and the log must be the same afterwards. The number of attempts is printed.
"""

from __future__ import annotations

import json
import secrets
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

import deltasql
from deltasql.cli.main import cli
from deltasql.embedded.binaries import find_binaries
from tests.factories import add
from tests.servers import PostgresServer, debian_binaries

ACCOUNTS = {
    "reader": "deltasql_reader",
    "writer": "deltasql_writer",
    "mirror": "deltasql_mirror",
    "shop_reader": None,
    "shop_writer": None,
}
"""The accounts and their roles. The last two have grants on the namespace shop."""
TABLES = [
    "dl_add_files", "dl_borrowed_files", "dl_cdc_files", "dl_column_bounds", "dl_domain_metadata", "dl_grantees",
    "dl_grants", "dl_lake", "dl_metadata_updates", "dl_migrations", "dl_mirror_status", "dl_partition_files",
    "dl_partitions", "dl_protocol_updates", "dl_remove_files", "dl_staged", "dl_table_versions", "dl_tables",
    "dl_transactions", "dl_txn_actions", "dl_writes",
]  # fmt: skip


HIDDEN = ("dl_grantees", "dl_grants")


@dataclass
class AttackedLake:
    """A lake with the connection strings of its accounts."""

    owner: str
    accounts: Mapping[str, str]
    directory: Path

    def log(self) -> dict[str, str]:
        """Return a hash of each table of the log."""
        with psycopg.connect(self.owner, options="-c search_path=deltasql") as connection:
            hashes = {"rights": _scalar(connection, "select array_agg(relacl::text order by relname) from pg_class")}
            return hashes | {name: _scalar(connection, f"select md5(string_agg(t::text, '|' order by t::text)) from {name} t")
                    for name in TABLES}  # fmt: skip

    def as_account(self, account: str) -> deltasql.Lake:
        (self.directory / account).mkdir(exist_ok=True)
        with chdir(self.directory / account):
            return deltasql.connect(self.accounts[account], config={"lake.location": str(self.directory / "lake")})


def _scalar(connection: psycopg.Connection[Any], statement: str, *values: Any) -> Any:
    row = connection.execute(statement, values).fetchone()  # type: ignore[arg-type]
    return row[0] if row else None


def command(url: str, *words: str, ok: bool = True) -> str:
    done = CliRunner().invoke(cli, words, env={"DELTASQL_URL": url, "COLUMNS": "100"})
    assert (done.exit_code == 0) is ok, done.output
    return done.output


@pytest.fixture(scope="module", params=["debian with TLS", "wheel"])
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedLake]:
    is_debian = request.param == "debian with TLS"
    binaries = debian_binaries() if is_debian else find_binaries().directory
    if binaries is None or (is_debian and shutil.which("openssl") is None):
        pytest.skip("needs an installed PostgreSQL (Debian: postgresql) and openssl")
    directory = tmp_path_factory.mktemp("attacked")
    with PostgresServer(binaries, tmp_path_factory.mktemp("pg"), tls=is_debian) as server:
        passwords = {name: secrets.token_hex(8) for name in ("lake_owner", *ACCOUNTS)}
        with psycopg.connect(server.url, autocommit=True) as admin:
            for name, password in passwords.items():
                admin.execute(
                    f"create role {name} login {'createrole' if name == 'lake_owner' else ''} password '{password}'"
                )
            admin.execute("create database lake owner lake_owner")
            if is_debian:
                assert _scalar(admin, "select ssl from pg_stat_ssl where pid = pg_backend_pid()")
        urls = {
            name: make_conninfo(server.url, user=name, password=password, dbname="lake")
            for name, password in passwords.items()
        }
        owner = urls.pop("lake_owner")
        command(owner, "init", "--roles")
        with psycopg.connect(owner, autocommit=True) as connection:
            for name, role in ACCOUNTS.items():
                if role is not None:
                    connection.execute(f"grant {role} to {name}")  # type: ignore[arg-type]
            connection.execute("select lo_from_bytea(4711, 'secret')")
        command(owner, "grant", "read", "ON", "NAMESPACE", "shop", "TO", "shop_reader")
        command(owner, "grant", "write", "on", "namespace", "Shop", "to", "shop_writer")
        command(owner, "roots", str(directory))
        with chdir(directory), deltasql.connect(owner) as lake:
            for name in ("shop.a", "hr.b"):
                table = lake.create_table(name, "id BIGINT, p STRING", partition_by=["p"])
                table.append(pa.table({"id": [1, 2], "p": ["x", "y"]}))
                table.delete(where="id = 2")
            with lake.begin(message="both") as tx:
                for name in ("shop.a", "hr.b"):
                    tx.stage(name, [add(partition_values={"p": "x"}, lo=1, hi=2) for _ in range(100)])
            lake.store.settle()
        yield AttackedLake(owner, urls, directory)


def ddl_and_dml() -> Iterator[str]:
    for name in TABLES:
        yield f"insert into {name} default values"
        yield f"update {name} set {_FIRST_COLUMN.get(name, 'table_key')} = {_FIRST_COLUMN.get(name, 'table_key')}"
        yield f"delete from {name}"
        yield f"truncate {name}"
        yield f"copy {name} from stdin"
        yield f"lock table {name} in access exclusive mode"
        yield f"drop table {name}"
        yield f"alter table {name} add column x int"
        yield f"alter table {name} disable row level security"
        yield f"alter table {name} disable trigger all"
        yield f"create index on {name} ((1))"
        yield f"create trigger x before insert on {name} for each row execute function suppress_redundant_updates_trigger()"
        yield f"create rule x as on insert to {name} do instead nothing"
        yield f"create policy x on {name} using (true)"


_FIRST_COLUMN = {
    "dl_grantees": "role", "dl_grants": "role", "dl_lake": "place", "dl_migrations": "name", "dl_transactions": "author",
}  # fmt: skip

OTHER_WAYS = [
    "select setval('dl_commit_ids', 1)",
    "select nextval('dl_commit_ids')",
    "select dl_stage('[]')",
    "select dl_write_details('{}', 1)",
    "select dl_add_partitions(1, '[]')",
    "select dl_begin_stage(1, 1, 0, 0, 0)",
    "select dl_check_paths(array['x'])",
    "select dl_require(1, 'write')",
    "create function x() returns int language sql as 'select 1'",
    "create or replace function dl_is_confined() returns boolean language sql as 'select false'",
    "alter function dl_is_confined() set search_path = public",
    "drop function dl_is_confined()",
    "create table deltasql.x (i int)",
    "create table public.x (i int)",
    "create schema x",
    "drop schema deltasql cascade",
    "alter schema deltasql owner to current_user",
    "create extension dblink",
    "create language plperlu",
    "create event trigger x on ddl_command_start execute function suppress_redundant_updates_trigger()",
    "create database x",
    "create role x superuser",
    "alter role current_user superuser",
    "alter role current_user createrole",
    "grant pg_read_server_files to current_user",
    "grant pg_execute_server_program to current_user",
    "set role lake_owner",
    "set role postgres",
    "set session authorization postgres",
    "set session_replication_role = replica",
    "alter system set archive_command = 'touch /tmp/x'",
    "copy (select 1) to program 'cat'",
    "copy dl_lake from program 'id'",
    "copy (select 1) to '/tmp/x'",
    "create temp table passwords (line text) on commit drop; copy passwords from '/etc/passwd'",
    "select pg_read_file('/etc/passwd')",
    "select pg_read_binary_file('/etc/passwd')",
    "select pg_ls_dir('/')",
    "select lo_import('/etc/passwd')",
    "select lo_export(4711, '/tmp/x')",
    "select lo_get(4711)",
    "select lo_put(4711, 0, 'x')",
    "select lo_unlink(4711)",
    "select * from pg_authid",
    "select pg_reload_conf()",
    "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'lake_owner'",
    "comment on table dl_tables is 'x'",
    "security label on table dl_tables is 'x'",
]


class Forgeries:
    """Calls of the functions, by somebody who may call them, which break a rule of the log."""

    def __init__(self, lake: AttackedLake) -> None:
        with psycopg.connect(
            lake.owner, options="-c search_path=deltasql", row_factory=psycopg.rows.dict_row
        ) as connection:
            rows = connection.execute("select * from dl_tables where name in ('a', 'b') order by name").fetchall()
            self.shop, self.hr = rows
            self.commits = {
                row["table_key"]: row["commit_id"]
                for row in connection.execute("select * from dl_table_versions where version = 1").fetchall()
            }
            self.txn = connection.execute("select txn_id from dl_transactions").fetchall()[0]["txn_id"]

    def statements(self, table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
        """Return attempts on a table: the statements of one transaction."""
        key, old, head = table["table_key"], self.commits[table["table_key"]], table["head_commit_id"]
        for commit in (old, head):
            yield (_adds(key, commit, "new.parquet"),)
            yield (_removes(key, commit, old, 0, "x"),)
            yield (
                f"select dl_stage_cdc({key}, {commit}, array[0], array[1], array['_change_data/x'], array['{{}}'], null, null)",
            )
            yield (f"select dl_stage_partitions({key}, {commit})",)
            yield (_commit(key, commit, adds=["new.parquet"]),)
        yield _adds(key, 1, "new.parquet"), "commit"  # staged without a version
        checked = {"check": True, "staged": True}
        yield _adds(key, 1, "new.parquet"), _commit(key, 1, **checked), "commit"  # a table that is only checked
        yield _adds(key, 1, "new.parquet"), _commit(key, 1), "commit"  # a commit that does not name its staged files
        other = self.hr if table is self.shop else self.shop
        yield _adds(key, 1, "new.parquet"), _commit(other["table_key"], 1, staged=True), "commit"  # of another table
        yield (_removes(key, 1, 999, 0, "never added"),)
        yield (_commit(key, 1, adds=[{"k": "/../x"}]),)
        yield (_commit(key, 1, adds=["new.parquet"], txn_id=self.txn),)
        yield f"begin isolation level repeatable read; {_commit(key, 1, adds=['new.parquet'])}", "commit"
        for path in OUTSIDE:
            yield (_adds(key, 1, path),)
            yield (_commit(key, 1, adds=[path]),)
            yield (
                f"select dl_stage_cdc({key}, 1, array[0], array[1], array[{_text(path)}], array['{{}}'], null, null)",
            )
        for version in (0, 1, table["current_version"], table["current_version"] + 2, 2**40):
            yield (_commit(key, 1, expected=version),)  # the head moves to its next version only
        yield (_commit(key, 1, read_commit=12345, adds=["new.parquet"]),)
        yield (_commit(10**6, 1, adds=["new.parquet"]),)
        yield (f"select dl_store_bounds({key}, {old}, array['[\"id\"]'], array['x'::bytea])",)
        yield (f"select dl_store_bounds({key}, {head}, array['[\"id\"]'], array['x'::bytea])",)
        yield (f"select dl_manifest_written('{self.txn}', 77, '{{}}')",)
        yield (f"select dl_manifest_written('{self.txn}', null, '{{}}')",)
        yield (f"select dl_manifest_written('{uuid.uuid4()}', -1, '{{}}')",)
        namespace = table["namespace"]
        for location in (
            "/etc",
            "/",
            "relative",
            "s3://other/bucket",
            f"{table['location']}/../x",
            f"{table['location']}/inside",
            f"{table['location']}/",
            f"{Path(table['location']).parent}/",
            f"{Path(table['location']).parent}/./x",
            f"{Path(table['location']).parent}//x",
            f"file://{table['location']}-new",
            "s3://bucket",
        ):
            yield _create(namespace, location), "commit"
        yield _create(namespace, f"{table['location']}-new"), "commit"  # a table without a version
        yield f"begin isolation level repeatable read; {_adds(key, 1, 'new.parquet')}", "commit"

    def foreign(self, table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
        """Return legal calls on a table of a namespace that the account was not granted."""
        key, head, version = table["table_key"], table["head_commit_id"], table["current_version"]
        metadata = {
            "id": "x",
            "provider": "parquet",
            "options": "{}",
            "schema": "{}",
            "partition_columns": [],
            "configuration": "{}",
        }
        yield (_commit(key, 1, adds=["new.parquet"], read_commit=head),)
        yield (_commit(key, 1, metadata=metadata, expected=version + 1),)
        yield (_commit(key, 1, check=True),)
        yield (_adds(key, 1, "new.parquet"),)
        yield (f"select dl_drop_table({key}, false)",)
        yield (f"select dl_drop_table({key}, true)",)
        yield (f"select dl_begin_write('{uuid.uuid4()}', {key})",)
        yield (f"select dl_forget_writes({key})",)
        yield (f"select dl_find_files({key}, array['x'])",)
        yield (f"select dl_mirror_succeeded({key}, array[{version}])",)
        yield (f"select dl_mirror_failed({key}, {version}, 'x', true, 1)",)
        yield (f"select dl_mirror_reopen({key}, array[{version}])",)
        yield (f"select dl_mirror_retry({key})",)
        yield (f"select dl_mirror_checkpoint({key}, {version}, null)",)
        yield (f"select dl_mirror_cleaned({key}, {version})",)
        yield (f"select dl_mirror_give_up({key})",)
        yield _create(table["namespace"], f"{table['location']}-new"), "commit"


OUTSIDE = [
    "../x", "a/../../x", "..", "a/..", "/etc/passwd", "file:///etc/passwd", "s3://bucket/x", "%2e%2e/x", "%2E./x", "a/%2e%2e/%2e%2e/x",
    "..%2fx", "a%2F..%2Fx", "%2fetc/passwd", "..\\x", "\\\\server\\share", "%5c..%5cx", "hdfs:/x", "C:/x",
    "file%3A///etc/passwd", "%66ile:///etc/passwd", "", "_delta_log/00000000000000000009.json", "a//b",
]  # fmt: skip


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _adds(key: int, commit: int, path: str) -> str:
    nulls = ", ".join(["null"] * 8)
    return f"select dl_stage_adds({key}, {commit}, 1000, array[1], array[1], null, null, null, array[{_text(path)}], {nulls})"


def _removes(key: int, commit: int, add_commit: int, ord_: int, path: str) -> str:
    arrays = f"array[1000], array[{add_commit}], array[{ord_}], array[1], array[true], array[false], array[true], array[{_text(path)}]"
    return f"select dl_stage_removes({key}, {commit}, {arrays}, {', '.join(['null'] * 8)})"


def _commit(key: int, commit: int, *, adds: Sequence[Any] = (), txn_id: Any = None, **more: Any) -> str:
    files = [[n, 1, 1, None, True, 0, path, "{}", *[None] * 7] for n, path in enumerate(adds)]
    request: dict[str, Any] = {
        "key": key, "commit": commit, "read_version": 0, "checked_version": 10**9, "is_blind_append": True, "data_change": True,
        "isolation_level": "WriteSerializable", "operation": "FORGED", "commit_info": "{}", "committer": "postgres",
    }  # fmt: skip
    if adds:
        request["adds"] = files
    return (
        f"select * from dl_commit('{txn_id or uuid.uuid4()}', 'postgres', null, {_text(json.dumps([request | more]))})"
    )


def _create(namespace: str, location: str) -> str:
    return f"select dl_create_table('{uuid.uuid4()}', '{namespace}', 'forged', {_text(location)})"


MISTAKES = (None, "42601", "42703", "42P01", "42883")
"""Syntax errors, and unknown columns, tables and functions."""


def _fails(connection: psycopg.Connection[Any], statements: tuple[str, ...]) -> bool:
    try:
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error as error:
        if error.sqlstate in MISTAKES:
            raise
        return True
    finally:
        connection.rollback()
    return False


@pytest.mark.parametrize("account", ACCOUNTS)
def test_attempts(attacked: AttackedLake, account: str, capsys: pytest.CaptureFixture[str]) -> None:
    forgeries = Forgeries(attacked)
    attempts = [(statement,) for statement in (*ddl_and_dml(), *OTHER_WAYS)]
    attempts += [*forgeries.statements(forgeries.shop), *forgeries.statements(forgeries.hr)]
    if account != "writer":
        attempts += forgeries.foreign(forgeries.hr)
    if account == "mirror":  # it publishes all tables
        attempts = [one for one in attempts if "dl_mirror_" not in one[0]]
    before = attacked.log()
    session = psycopg.connect(attacked.owner)  # which the account must not end
    with session, psycopg.connect(attacked.accounts[account], options="-c search_path=deltasql") as connection:
        version = connection.info.server_version // 10000
        connection.execute(
            "select set_config('statement_timeout', '10s', false), set_config('lock_timeout', '2s', false)"
        )
        connection.commit()
        allowed = [one for one in attempts if not _fails(connection, one)]
        assert _scalar(session, "select 1") == 1
    assert allowed == []
    assert attacked.log() == before
    with capsys.disabled():
        print(f"\n{len(attempts)} attempts as {account} on PostgreSQL {version}: all refused")


def test_legal_calls_work(attacked: AttackedLake) -> None:
    """The calls that are attempted fail for what they ask, not for how they are written."""
    forgeries = Forgeries(attacked)
    key, commit = forgeries.shop["table_key"], forgeries.shop["head_commit_id"]
    with psycopg.connect(attacked.accounts["writer"], options="-c search_path=deltasql") as connection:
        [live] = connection.execute(
            "select commit_id, ord, path from dl_add_files where table_key = %s and commit_id = %s limit 1",
            [key, commit],
        )
        legal = [
            (_adds(key, 1, "new.parquet"), f"select dl_stage_partitions({key}, 1)", _commit(key, 1, staged=True)),
            (_adds(key, 1, "new.parquet"), _commit(key, 1, staged=True), "set constraints all immediate"),
            (_removes(key, 1, *live),),
            (_commit(key, 1, adds=["new.parquet"]),),
            (f"select dl_stage_cdc({key}, 1, array[0], array[1], array['_change_data/x'], array['{{}}'], null, null)",),
            *((statements[0],) for statements in forgeries.foreign(forgeries.shop)),
        ]
        for statements in legal:
            assert not _fails(connection, statements), statements


def test_statements_that_change_nothing(attacked: AttackedLake) -> None:
    """Legal calls with no effect, and temporary objects with the names of the log's."""
    forgeries = Forgeries(attacked)
    key, version = forgeries.shop["table_key"], forgeries.shop["current_version"]
    before = attacked.log()
    with psycopg.connect(attacked.accounts["writer"], options="-c search_path=deltasql", autocommit=True) as connection:
        for statement in (
            *(
                f"grant all on {name} to writer with grant option"
                for name in TABLES
                if name not in (*HIDDEN, "dl_transactions")
            ),
            "create temp table dl_grantees (role text)",
            "create temp table dl_tables (like deltasql.dl_tables)",
            "create function pg_temp.dl_may(text, text) returns boolean language sql as 'select true'",
            "set search_path = pg_temp, deltasql",
            f"select dl_mirror_give_up({key})",
            f"select dl_forget_writes({key})",
            f"select dl_end_write('{uuid.uuid4()}')",
            _commit(key, 1, check=True, adds=["new.parquet"], checked_version=version),
        ):
            connection.execute(statement)  # type: ignore[arg-type]
    assert attacked.log() == before


def test_the_committer_is_the_account(attacked: AttackedLake) -> None:
    with attacked.as_account("writer") as lake:
        table = lake.create_table("shop.signed", "id BIGINT")
        for count in (1, 100):
            with lake.begin(author="postgres") as tx:
                tx.stage(table, [add() for _ in range(count)])
                tx.stage("hr.b", [add(partition_values={"p": "x"})])
            entry = table.history()[0]
            assert (entry.committer, entry.author, entry.num_added_files) == ("writer", "postgres", count)
            assert (lake.transaction(tx.id).committer, lake.transaction(tx.id).author) == ("writer", "postgres")
        assert table.files().num_rows == 101
        lake.drop_table("shop.signed")


def test_staged_rows_do_not_join_the_commit_of_another_session(attacked: AttackedLake) -> None:
    """The ids of commits can be guessed."""
    key = Forgeries(attacked).shop["table_key"]
    with psycopg.connect(attacked.owner, options="-c search_path=deltasql", autocommit=True) as owner:
        [first] = owner.execute("select dl_draw_commit_ids()").fetchone() or (0,)
        with psycopg.connect(attacked.accounts["writer"], options="-c search_path=deltasql") as attacker:
            attacker.execute(_adds(key, first, "injected.parquet"))  # type: ignore[arg-type]
            owner.execute(_commit(key, first, adds=[f"{uuid.uuid4()}.parquet"]))  # type: ignore[arg-type]
            with pytest.raises(psycopg.Error, match="staged and not committed"):
                attacker.commit()
        added = "select count(*) from dl_add_files where commit_id = %s"
        assert _scalar(owner, added, first) == 1


class TestNamespaces:
    @pytest.mark.parametrize("view", ["dl_files", "dl_history"])
    def test_views_show_hidden_rows_to_no_function(self, attacked: AttackedLake, view: str) -> None:
        with psycopg.connect(attacked.accounts["shop_reader"], options="-c search_path=deltasql") as connection:
            seen: list[str] = []
            connection.add_notice_handler(lambda notice: seen.append(notice.message_primary or ""))
            connection.execute(
                "create function pg_temp.leak(text) returns boolean language plpgsql cost 0.0000001 "
                "as $$ begin raise notice '%', $1; return true; end $$"
            )
            connection.execute(f"select count(*) from {view} v where pg_temp.leak(v.namespace)")  # type: ignore[arg-type]
            assert set(seen) == {"shop"}

    def test_a_confined_account_locks_nothing_of_others(self, attacked: AttackedLake) -> None:
        forgeries = Forgeries(attacked)
        shop, hr = forgeries.shop["table_key"], forgeries.hr["table_key"]
        options = "-c search_path=deltasql"
        with psycopg.connect(attacked.owner, options=options) as owner:
            owner.execute("select dl_lock_heads(array[%s])", [shop])
            with psycopg.connect(attacked.accounts["shop_writer"], options=options) as connection:
                both = _commit(hr, 1).replace(
                    '[{"key"', f'[{{"key": {hr}, "check": true}}, {{"key": {shop}, "check": true}}, {{"key"'
                )
                with pytest.raises(psycopg.DatabaseError, match="does not exist"):
                    connection.execute(both)  # type: ignore[arg-type]

    @pytest.mark.parametrize("account", ["shop_reader", "shop_writer"])
    def test_only_granted_namespaces_are_visible(self, attacked: AttackedLake, account: str) -> None:
        with psycopg.connect(attacked.owner, options="-c search_path=deltasql") as connection:
            hr = _scalar(connection, "select table_key from dl_tables where namespace = 'hr'")
            txn = _scalar(connection, "select txn_id from dl_transactions limit 1")
        with psycopg.connect(
            attacked.accounts[account], options="-c search_path=deltasql", autocommit=True
        ) as connection:
            for name in TABLES:
                if name in ("dl_lake", "dl_migrations", "dl_transactions"):
                    continue
                if name in HIDDEN:
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(f"select * from {name}")  # type: ignore[arg-type]
                    continue
                assert _scalar(connection, f"select count(*) from {name} where table_key = %s", hr) == 0
            assert _scalar(connection, "select count(*) from dl_transactions where txn_id = %s", txn) == 0
            for view in ("dl_history", "dl_files"):
                assert _scalar(connection, f"select array_agg(distinct namespace) from {view}") == ["shop"]
            assert _scalar(connection, "select count(*) from dl_column_bounds") > 0
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("set row_security = off").execute("select * from dl_tables")  # type: ignore[attr-defined]
        with attacked.as_account(account) as lake:
            assert [table.name for table in lake.tables()] == ["shop.a"]
            assert lake.table("shop.a").files(where="id = 1").num_rows > 0
            with pytest.raises(deltasql.TableNotFound, match=r"hr\.b"):
                lake.table("hr.b").files()

    def test_a_writer_writes_where_it_was_granted(self, attacked: AttackedLake) -> None:
        with attacked.as_account("shop_writer") as lake:
            table = lake.create_table("SHOP.mine", "id BIGINT")
            table.append(pa.table({"id": [1, 2, 3]}))
            table.delete(where="id = 1")
            with lake.begin() as tx:
                tx.stage(table, [add() for _ in range(100)])
                tx.stage("shop.a", [add(partition_values={"p": "x"})])
            assert table.files().num_rows >= 101
            with pytest.raises(deltasql.DatabaseError, match="deltasql grant write ON NAMESPACE hr TO shop_writer"):
                lake.create_table("hr.forged", "id BIGINT")
            with pytest.raises(deltasql.DatabaseError, match="deltasql grant purge ON NAMESPACE SHOP TO shop_writer"):
                lake.drop_table("shop.mine", purge=True)
            assert list(Path(table.location).glob("*.parquet"))
            location = Path(table.location)
            command(attacked.owner, "grant", "purge", "ON", "NAMESPACE", "shop", "TO", "shop_writer")
            lake.drop_table("shop.mine", purge=True)
            command(attacked.owner, "revoke", "purge", "ON", "NAMESPACE", "shop", "FROM", "shop_writer")
            assert not list(location.glob("*.parquet"))
            assert not list((attacked.directory / "shop_writer").glob("**/hr"))

    def test_a_transaction_needs_the_privilege_on_every_table(self, attacked: AttackedLake) -> None:
        command(attacked.owner, "grant", "read", "ON", "NAMESPACE", "hr", "TO", "shop_writer")
        try:
            with attacked.as_account("shop_writer") as lake:
                versions = {name: lake.table(name).version for name in ("shop.a", "hr.b")}
                for count in (1, 100):
                    tx = lake.begin()
                    for name in versions:
                        tx.stage(name, [add(partition_values={"p": "x"}) for _ in range(count)])
                    with pytest.raises(deltasql.DatabaseError, match="shop_writer may not write in namespace hr"):
                        tx.commit()
                assert {name: lake.table(name).version for name in versions} == versions
        finally:
            command(attacked.owner, "revoke", "read", "ON", "NAMESPACE", "hr", "FROM", "shop_writer")

    def test_manifests_come_from_accounts_that_see_all_tables(self, attacked: AttackedLake) -> None:
        numbers = "select count(*) filter (where manifest is null) from dl_transactions"
        with psycopg.connect(attacked.owner, options="-c search_path=deltasql", autocommit=True) as connection:
            with attacked.as_account("shop_writer") as lake:
                table = lake.create_table("shop.second", "id BIGINT")
                with lake.begin() as tx:
                    tx.stage(table, [add()])
                    tx.stage("shop.a", [add(partition_values={"p": "x"})])
                lake.mirror.run()
                lake.drop_table("shop.second")
            assert _scalar(connection, numbers) > 0
            with attacked.as_account("mirror") as lake:
                lake.mirror.run()
            assert _scalar(connection, numbers) == 0

    def test_the_commands_show_what_is_granted(self, attacked: AttackedLake) -> None:
        with psycopg.connect(attacked.owner, autocommit=True) as connection:
            connection.execute("create role once login")
        command(attacked.owner, "grant", "write", "ON", "ALL", "NAMESPACES", "TO", "once")
        rows = json.loads(command(attacked.owner, "grants", "--json"))
        assert {"role": "once", "namespace": None, "privilege": "write"} in rows
        assert {"role": "shop_reader", "namespace": "shop", "privilege": "read"} in rows
        assert "(all)" in command(attacked.owner, "grants")
        command(attacked.owner, "revoke", "write", "ON", "ALL", "NAMESPACES", "FROM", "once")
        assert {"role": "once", "namespace": None, "privilege": None} in json.loads(
            command(attacked.owner, "grants", "--json")
        )

    def test_a_renamed_role_stays_confined_without_privileges(self, attacked: AttackedLake) -> None:
        with psycopg.connect(attacked.owner, autocommit=True) as connection:
            connection.execute("create role team")
            connection.execute("grant deltasql_reader, team to reader")
            told = command(attacked.owner, "grant", "write", "ON", "NAMESPACE", "shop", "TO", "team")
            assert "team is now a member of deltasql_writer." in told
            try:
                with attacked.as_account("reader") as lake:
                    assert {table.name for table in lake.tables()} == {"shop.a"}
                connection.execute("alter role team rename to crew")
                assert "team (does not exist)" in command(attacked.owner, "grants")
                with attacked.as_account("reader") as lake:
                    assert lake.tables() == []
                connection.execute("alter role crew rename to team")
            finally:
                connection.execute("revoke team from reader")
                command(attacked.owner, "revoke", "write", "ON", "NAMESPACE", "shop", "FROM", "team")

    def test_a_missing_privilege_is_an_error_of_its_own(self, attacked: AttackedLake) -> None:
        with attacked.as_account("reader") as lake, pytest.raises(deltasql.AccessDenied, match="deltasql_writer"):
            lake.table("shop.a").append(pa.table({"id": [1], "p": ["x"]}))

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            ("roots /", "the root / allows every path"),
            ("grant read ON NAMESPACE shop TO nobody_at_all", "role nobody_at_all does not exist"),
            ("grant read ON NAMESPACE shop TO lake_owner", "no grant confines"),
            ("grant steal ON NAMESPACE shop TO reader", "unknown privilege 'steal'"),
            ("grant read shop reader", "expected: read|write|purge ON NAMESPACE name TO role"),
            ("revoke purge ON NAMESPACE shop FROM reader", "was not granted purge on namespace shop"),
        ],
    )
    def test_mistakes(self, attacked: AttackedLake, words: str, problem: str) -> None:
        assert problem in command(attacked.owner, *words.split(), ok=False)
