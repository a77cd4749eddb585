"""The scenarios of the SQL writer's specification, on the embedded server and on a Debian server."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
import pytest

import deltasql
from deltasql import CommitInfo, DomainMetadata, Metadata, Protocol, SqlTxnLogReader, SqlTxnLogWriter, Txn
from tests.conftest import table_maker
from tests.factories import add, paths, remove
from tests.patience import patience


def name_of(value: Any) -> str:
    """Return a parametrize id without random parts, which must be equal in all xdist workers."""
    return re.sub(r"part-[-0-9a-f]+", "part", str(value))[:40]


@pytest.fixture
def make_table(any_lake: deltasql.Lake, namespace: str) -> Callable[..., deltasql.Table]:
    return table_maker(any_lake, namespace)


@pytest.fixture
def table(make_table: Callable[..., deltasql.Table]) -> deltasql.Table:
    return make_table()


@pytest.fixture
def writer(any_lake: deltasql.Lake) -> SqlTxnLogWriter:
    return SqlTxnLogWriter(any_lake.store)


class Log:
    """Run queries on the log tables."""

    def __init__(self, lake: deltasql.Lake) -> None:
        self._dsn = lake.dsn

    def __call__(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn, options="-c search_path=deltasql") as connection:
            return connection.execute(query, params).fetchall()


@pytest.fixture
def log(any_lake: deltasql.Lake) -> Log:
    return Log(any_lake)


def counts(log: Log, table: deltasql.Table) -> tuple[Any, ...]:
    """Return the number of rows of a table in each log table."""
    names = ("add_files", "remove_files", "table_versions", "metadata_updates", "txn_actions", "mirror_status")
    key = "(select table_key from dl_tables where table_id = %s)"
    return tuple(log(f"select count(*) from dl_{n} where table_key = {key}", table.id)[0][0] for n in names)


class TestAtomicCommit:
    def test_successful_commit(self, table: deltasql.Table, writer: SqlTxnLogWriter) -> None:
        actions = [add("a.parquet"), add("b.parquet"), Txn("stream", 4)]
        assert writer.commit(table.id, 1, actions, CommitInfo("WRITE")) == 1
        assert table.version == 1
        assert paths(table.files()) == ["a.parquet", "b.parquet"]

    def test_transaction_rollback(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log) -> None:
        writer.commit(table.id, 1, [add("a.parquet")], CommitInfo("WRITE"))
        before = counts(log, table)
        with pytest.raises(deltasql.ValidationError, match="never-there"):
            writer.commit(table.id, 2, [add("b.parquet"), remove("never-there.parquet")], CommitInfo("WRITE"))
        with pytest.raises(deltasql.VersionConflict):
            writer.commit(table.id, 7, [add(f"{i}.parquet") for i in range(100)], CommitInfo("WRITE"))
        assert counts(log, table) == before
        assert table.version == 1


class TestOptimisticConcurrency:
    def test_version_validation(self, table: deltasql.Table, writer: SqlTxnLogWriter) -> None:
        for wrong in (0, 2, 10):
            with pytest.raises(deltasql.VersionConflict):
                writer.commit(table.id, wrong, [add()], CommitInfo("WRITE"))
        assert writer.commit(table.id, 1, [add()], CommitInfo("WRITE")) == 1

    def test_concurrent_writer_conflict(
        self, any_lake: deltasql.Lake, table: deltasql.Table, writer: SqlTxnLogWriter
    ) -> None:
        outcomes: list[object] = []
        barrier = threading.Barrier(4)

        def write() -> None:
            barrier.wait()
            try:
                outcomes.append(writer.commit(table.id, 1, [add()], CommitInfo("WRITE")))
            except deltasql.VersionConflict as conflict:
                outcomes.append(conflict)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(o for o in outcomes if isinstance(o, int)) == [1]
        assert sum(isinstance(o, deltasql.VersionConflict) for o in outcomes) == 3
        assert table.files().num_rows == 1

    def test_row_level_locking(self, any_lake: deltasql.Lake, table: deltasql.Table, writer: SqlTxnLogWriter) -> None:
        with psycopg.connect(any_lake.dsn, options="-c search_path=deltasql") as other:
            other.execute("select from dl_tables where table_id = %s for update", [table.id])
            done: list[int] = []
            thread = threading.Thread(
                target=lambda: done.append(writer.commit(table.id, 1, [add()], CommitInfo("WRITE")))
            )
            thread.start()
            time.sleep(0.3)
            assert not done, "the commit must wait for the row lock"
            other.rollback()
            thread.join(60)
        assert done == [1]


class TestActionPersistence:
    def test_add_file_actions(
        self, make_table: Callable[..., deltasql.Table], writer: SqlTxnLogWriter, log: Log
    ) -> None:
        table = make_table(partition_by=["day"])
        file = add("day=2026-01-01/a.parquet", lo=1, hi=9, size=77, partition_values={"day": "2026-01-01"})
        writer.commit(table.id, 1, [file], CommitInfo("WRITE"))
        [row] = log(
            "select path, size, stats, partition_values from dl_files where table_id = %s and added_version = 1",
            table.id,
        )
        assert row == (file.path, 77, file.stats, '{"day":"2026-01-01"}')

    def test_remove_file_actions(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log) -> None:
        writer.commit(table.id, 1, [add("a.parquet"), add("b.parquet")], CommitInfo("WRITE"))
        writer.commit(table.id, 2, [remove("a.parquet", deletion_timestamp=42)], CommitInfo("DELETE"))
        [row] = log(
            "select r.path, r.deletion_timestamp from dl_remove_files r join dl_tables t using (table_key) "
            "where t.table_id = %s",
            table.id,
        )
        assert row == ("a.parquet", 42)
        assert paths(table.files()) == ["b.parquet"]
        shown = log("select path, added_version, removed_version from dl_files where table_id = %s", table.id)
        assert sorted(shown) == [("a.parquet", 1, 2), ("b.parquet", 1, None)]

    def test_metadata_update(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log) -> None:
        schema = '{"type":"struct","fields":[{"name":"only","type":"long","nullable":true,"metadata":{}}]}'
        metadata = Metadata(id=table.id, schema_string=schema, configuration={"owner": "me"})
        writer.commit(table.id, 1, [metadata], CommitInfo("ALTER"))
        [row] = log(
            "select m.schema_string, m.partition_columns, t.properties from dl_metadata_updates m "
            "join dl_tables t using (table_key) where t.table_id = %s and m.version = 1",
            table.id,
        )
        assert row == (schema, [], {"owner": "me"})
        assert table.schema.names == ["only"]
        assert table.properties == {"owner": "me"}

    def test_protocol_update(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log) -> None:
        writer.commit(table.id, 1, [Protocol(1, 7, None, ("domainMetadata", "appendOnly", "invariants"))])
        [row] = log(
            "select min_reader_version, min_writer_version, writer_features from dl_protocol_updates p "
            "join dl_tables t using (table_key) where t.table_id = %s and p.version = 1",
            table.id,
        )
        assert row == (1, 7, ["domainMetadata", "appendOnly", "invariants"])
        writer.commit(table.id, 2, [DomainMetadata("my.domain", "{}")], CommitInfo("SET"))
        assert log("select domain, removed from dl_domain_metadata where domain = 'my.domain'")[-1][1] is False

    def test_transaction_action(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log) -> None:
        writer.commit(table.id, 1, [add(), Txn("stream-7", 12, last_updated=99)], CommitInfo("STREAMING UPDATE"))
        [row] = log(
            "select app_id, txn_version, last_updated from dl_txn_actions x join dl_tables t using (table_key) "
            "where t.table_id = %s",
            table.id,
        )
        assert row == ("stream-7", 12, 99)


class TestBatchOperations:
    def test_large_commit(self, table: deltasql.Table, writer: SqlTxnLogWriter) -> None:
        files = [add(f"f{i}.parquet", lo=i, hi=i + 1) for i in range(1500)]
        assert writer.commit(table.id, 1, files, CommitInfo("WRITE")) == 1
        assert table.files().num_rows == 1500
        assert paths(table.files(where="id = 700")) == ["f699.parquet", "f700.parquet"]

    def test_batch_performance(self, table: deltasql.Table, writer: SqlTxnLogWriter) -> None:
        files = [add(f"f{i}.parquet", lo=i, hi=i + 1) for i in range(10_000)]
        began = time.monotonic()
        writer.commit(table.id, 1, files, CommitInfo("WRITE"))
        assert time.monotonic() - began < patience(5)
        assert table.files().num_rows == 10_000

    def test_hundred_thousand_files(self, lake: deltasql.Lake, namespace: str) -> None:
        table = lake.create_table(f"{namespace}.large", "id BIGINT")
        SqlTxnLogWriter(lake.store).commit(table.id, 1, [add(f"f{i}.parquet") for i in range(100_000)])
        assert table.files().num_rows == 100_000


class TestIdempotency:
    def test_duplicate_commit(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log) -> None:
        actions = [add("a.parquet")]
        writer.commit(table.id, 1, actions, CommitInfo("WRITE"))
        before = counts(log, table)
        with pytest.raises(deltasql.VersionConflict):
            writer.commit(table.id, 1, actions, CommitInfo("WRITE"))
        assert counts(log, table) == before

    @pytest.mark.parametrize("files", [1, 100], ids=["one call", "copy"])
    def test_application_transaction_applied_before(
        self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log, files: int
    ) -> None:
        assert writer.commit(table.id, 1, [add(), Txn("app", 5)]) == 1
        assert writer.commit(table.id, 2, [add(), Txn("app", 6)]) == 2
        before = counts(log, table)
        for expected in (1, 3):
            batch = [add(f"{i}.parquet") for i in range(files)]
            assert writer.commit(table.id, expected, [*batch, Txn("app", 5)]) == 1
            assert writer.commit(table.id, expected, [*batch, Txn("app", 6)]) == 2
        assert counts(log, table) == before


class TestValidation:
    @pytest.mark.parametrize(
        "bad",
        [
            add(""), add("/etc/passwd"), add("s3://other/a.parquet"), add("../a.parquet"), add("a/%2e%2e/b.parquet"),
            add("a\nb.parquet"), add("a\x00b.parquet"), add("a\\b.parquet"), add("_hidden.parquet"),
            add("x/.hidden"), add(size=-1), add(size="big"), add(size=True), add(modification_time=None),
            add(stats="{"), add(stats={"numRecords": 1}), add(partition_values={"day": "2026-01-01"}),
            remove(""), remove("../x"), Txn("", 1), Txn("a", "one"), "not an action", None,
        ],
        ids=name_of,
    )  # fmt: skip
    def test_invalid_action_schema(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log, bad: Any) -> None:
        before = counts(log, table)
        with pytest.raises(deltasql.ValidationError, match=table.name):
            writer.commit(table.id, 1, [add("good.parquet"), bad], CommitInfo("WRITE"))
        assert counts(log, table) == before

    @pytest.mark.parametrize(
        "protocol",
        [
            Protocol(4, 2), Protocol(1, 8), Protocol(1, 1), Protocol(0, 2), Protocol(1, 7), Protocol(3, 7, None, ()),
            Protocol(1, 2, (), ()), Protocol(3, 7, ("deletionVectors",), ()),
            Protocol(3, 7, ("warpDrive",), ("warpDrive",)), Protocol("1", 2),
        ],
        ids=name_of,
    )  # fmt: skip
    def test_protocol_compatibility(
        self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log, protocol: Protocol
    ) -> None:
        before = counts(log, table)
        with pytest.raises((deltasql.ValidationError, deltasql.UnsupportedFeature), match=table.name):
            writer.commit(table.id, 1, [protocol], CommitInfo("UPGRADE"))
        assert counts(log, table) == before


class TestVersionTracking:
    def test_operation_is_recorded(self, table: deltasql.Table, writer: SqlTxnLogWriter, log: Log) -> None:
        info = CommitInfo("MERGE", {"predicate": "id = 1"}, user_name="ada", operation_metrics={"rows": "3"})
        writer.commit(table.id, 1, [add()], info)
        [row] = log(
            "select version, author, operation, operation_parameters, committed_at is not null "
            "from dl_history where table_id = %s and version = 1",
            table.id,
        )
        assert row == (1, "ada", "MERGE", '{"predicate":"id = 1"}', True)

    def test_history_is_preserved(self, table: deltasql.Table, writer: SqlTxnLogWriter) -> None:
        for version in range(1, 6):
            info = {"operation": f"OP {version}", "customField": version, "operation_parameters": {"n": version}}
            writer.commit(table.id, version, [add()], info)
        history = table.history()
        assert [h.version for h in history] == [5, 4, 3, 2, 1, 0]
        assert [h.operation for h in history[:5]] == [f"OP {v}" for v in (5, 4, 3, 2, 1)]
        assert history[0].parameters == {"n": 5}
        assert history[0].commit_info["customField"] == 5
        assert history[-1].operation == "CREATE TABLE"
        assert all(a.timestamp > b.timestamp for a, b in pairwise(history))
        assert [h.version for h in table.history(limit=2)] == [5, 4]


class TestErrorReporting:
    def test_version_conflict_details(self, table: deltasql.Table, writer: SqlTxnLogWriter) -> None:
        writer.commit(table.id, 1, [add()], CommitInfo("WRITE"))
        with pytest.raises(deltasql.VersionConflict) as caught:
            writer.commit(table.id, 1, [add()], CommitInfo("WRITE"))
        error = caught.value
        assert (error.table_id, error.expected, error.actual, error.table) == (table.id, 1, 1, table.name)
        assert "version 1" in str(error)
        assert table.name in str(error)

    def test_constraint_violation(self, any_lake: deltasql.Lake, table: deltasql.Table) -> None:
        """A head that is behind the log, as after a manual update of the tables, violates a constraint."""
        with any_lake.begin() as tx:
            tx.stage(table, [add()])
        with psycopg.connect(any_lake.dsn, options="-c search_path=deltasql") as other:
            other.execute("update dl_tables set current_version = 0 where table_id = %s", [table.id])
        tx = any_lake.begin()
        tx.stage(table, [add()])
        with pytest.raises(deltasql.ConstraintViolation, match=r"exists only once|committed once") as caught:
            tx.commit()
        assert caught.value.constraint in ("dl_table_versions_pkey", "dl_mirror_status_pkey")
        assert caught.value.constraint in str(caught.value)


class TestTransactionIsolation:
    def test_read_committed_isolation(self, any_lake: deltasql.Lake, table: deltasql.Table) -> None:
        """An uncommitted version is not visible to readers."""
        reader = SqlTxnLogReader(any_lake.store)
        with psycopg.connect(any_lake.dsn, options="-c search_path=deltasql") as other:
            other.execute("update dl_tables set current_version = current_version + 1 where table_id = %s", [table.id])
            assert reader.version(table.id) == 0
            assert reader.snapshot(table.id).version == 0
            other.rollback()
        level = "select setting from pg_settings where name = 'default_transaction_isolation'"
        rows = any_lake.store._database._pool  # the sessions that commits use
        with rows.connection() as connection:
            assert connection.execute(level).fetchone() == {"setting": "read committed"}

    def test_serializable_for_conflicts(
        self, any_lake: deltasql.Lake, table: deltasql.Table, writer: SqlTxnLogWriter
    ) -> None:
        """Of two writers that read the same version, one commits and the other conflicts."""
        writer.commit(table.id, 1, [add("a.parquet")], CommitInfo("WRITE"))
        first, second = any_lake.begin(), any_lake.begin()
        first.stage(table, [remove("a.parquet"), add("a1.parquet")])
        second.stage(table, [remove("a.parquet"), add("a2.parquet")])
        first.commit()
        with pytest.raises(deltasql.ConcurrentDeleteDelete) as caught:
            second.commit()
        assert caught.value.winner == 2
        assert paths(table.files()) == ["a1.parquet"]
