"""Transactions: commit and rollback, single use, limits, URIs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest

import deltasql
from deltasql import CommitInfo, MultiTableTransaction
from deltasql.protocol.table_changes import NewTable, TableState
from tests.factories import add, paths, remove

Make = Callable[..., deltasql.Table]


class TestCommitAndRollback:
    def test_commit_on_clean_exit(self, lake: deltasql.Lake, make_table: Make) -> None:
        a, b = make_table("a"), make_table("b")
        with lake.begin(author="etl", message="nightly") as tx:
            tx.stage(a, [add("x.parquet")])
            tx.stage(b.name, [add("y.parquet")])
            assert a.files().num_rows == 0
        assert tx.versions == {a.name: 1, b.name: 1}
        for table in (a, b):
            entry = table.history()[0]
            assert (entry.txn_id, entry.author, entry.message) == (tx.id, "etl", "nightly")
        assert a.history()[0].timestamp == b.history()[0].timestamp

    def test_versions_are_keyed_as_the_tables_were_named(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        for name in (table.name, table.id):
            with lake.begin() as tx:
                tx.stage(name, [add()])
            assert list(tx.versions) == [name]

    def test_rollback_on_exception(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        failure = RuntimeError("mine")
        with pytest.raises(RuntimeError) as caught, lake.begin() as tx:
            tx.stage(table, [add()])
            raise failure
        assert caught.value is failure
        assert table.version == 0
        assert tx.versions == {}

    def test_single_use(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        with lake.begin() as tx:
            tx.stage(table, [add()])
        for again in (tx.commit, tx.rollback, tx.__enter__, lambda: tx.stage(table, [add()])):
            with pytest.raises(deltasql.UsageError, match="used once"):
                again()
        assert table.version == 1

    def test_a_failed_commit_is_not_retried(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        tx = lake.begin()
        tx.stage(table, [add()], expected_version=5)
        with pytest.raises(deltasql.VersionConflict):
            tx.commit()
        with pytest.raises(deltasql.UsageError):
            tx.commit()

    def test_explicit_commit_and_rollback_inside(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        with lake.begin() as tx:
            tx.stage(table, [add()])
            assert tx.commit() == {table.name: 1}
        with lake.begin() as tx:
            tx.stage(table, [add()])
            tx.rollback()
        assert table.version == 1

    def test_an_empty_transaction_commits_nothing(self, lake: deltasql.Lake) -> None:
        with lake.begin() as tx:
            pass
        assert tx.versions == {}

    def test_several_stages_make_one_version(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        with lake.begin() as tx:
            tx.stage(table, [add("a.parquet")])
            tx.stage(table, [add("b.parquet"), CommitInfo("MERGE")])
        assert table.version == 1
        assert paths(table.files()) == ["a.parquet", "b.parquet"]
        assert table.history()[0].operation == "MERGE"

    def test_the_same_path_staged_twice(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        tx = lake.begin()
        tx.stage(table, [add("a.parquet")])
        tx.stage(table, [add("a.parquet")])
        with pytest.raises(deltasql.ValidationError, match=r"a\.parquet"):
            tx.commit()
        assert table.version == 0


class TestLowLevel:
    def test_stage_and_commit_by_id(self, lake: deltasql.Lake, make_table: Make) -> None:
        a, b = make_table("a"), make_table("b")
        txn = MultiTableTransaction(lake.store)
        txn.stage(a.id, [add()])
        txn.stage(b.id, [add()], expected_version=1)
        assert txn.commit() == {a.id: 1, b.id: 1}

    def test_one_strict_table_decides_for_all(self, lake: deltasql.Lake, make_table: Make) -> None:
        a, b = make_table("a"), make_table("b")
        for count in (1, 100):
            txn = MultiTableTransaction(lake.store)
            txn.stage(a.id, [add() for _ in range(count)])
            txn.stage(b.id, [add()], expected_version=7)
            with pytest.raises(deltasql.VersionConflict) as caught:
                txn.commit()
            assert (caught.value.table_id, caught.value.expected, caught.value.actual) == (b.id, 7, 0)
        assert (a.version, b.version) == (0, 0)

    def test_one_invalid_table_decides_for_all(self, lake: deltasql.Lake, make_table: Make) -> None:
        a, b = make_table("a"), make_table("b")
        txn = MultiTableTransaction(lake.store)
        txn.stage(a.id, [add()])
        txn.stage(b.id, [remove("missing.parquet")])
        with pytest.raises(deltasql.ValidationError, match=b.name):
            txn.commit()
        assert (a.version, b.version) == (0, 0)

    def test_a_new_table_and_an_old_one_in_one_transaction(
        self, lake: deltasql.Lake, make_table: Make, namespace: str
    ) -> None:
        old, table_id = make_table("old"), str(uuid.uuid4())
        state = TableState(0, table_id, f"{namespace}.new", -1, None, None)
        schema = '{"type":"struct","fields":[{"name":"x","type":"string","nullable":true,"metadata":{}}]}'
        txn = MultiTableTransaction(lake.store)
        place = NewTable(namespace, "new", f"/tmp/{namespace}-{table_id}")
        txn.create(state, place, [deltasql.Protocol(), deltasql.Metadata(id=table_id, schema_string=schema)])
        txn.stage(old.id, [add()])
        assert txn.commit() == {table_id: 0, old.id: 1}
        assert lake.table(f"{namespace}.new").version == 0

    def test_texts_that_postgresql_cannot_store(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        for options in ({"author": "a\x00"}, {"message": "\ud800"}, {"app": ("x\x00", 1)}):
            tx = lake.begin(**options)
            tx.stage(table, [add()])
            with pytest.raises(deltasql.ValidationError, match=table.name):
                tx.commit()
        assert table.version == 0


class TestClosedLakes:
    def test_commits_during_close_fail_only_if_not_committed(self, lake: deltasql.Lake, make_table: Make) -> None:
        """While the lake closes, a commit fails exactly if the database does not have it."""
        table = make_table()
        other = deltasql.connect(lake.dsn)
        outcomes: dict[str, str] = {}
        first = threading.Event()

        def write() -> None:
            for _ in range(50):
                try:
                    tx = other.begin()
                except deltasql.UsageError:
                    return
                try:
                    tx.stage(table.id, [add(lo=1, hi=2) for _ in range(70)])
                    tx.commit()
                    outcomes[str(tx.id)] = "committed"
                    first.set()
                except deltasql.DeltaSqlError:
                    outcomes[str(tx.id)] = "failed"
                    return

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert first.wait(60)
        other.close()
        for thread in threads:
            thread.join()
        for txn_id, outcome in outcomes.items():
            assert bool(lake.store.committed(txn_id)) == (outcome == "committed")

    def test_a_closed_lake_is_rejected(self, lake: deltasql.Lake) -> None:
        other = deltasql.connect(lake.dsn)
        other.close()
        with pytest.raises(deltasql.UsageError, match="closed"):
            other.tables()


class TestLimits:
    def test_tables(self, lake: deltasql.Lake, make_table: Make) -> None:
        tables = [make_table(f"t{i}") for i in range(11)]
        tx = lake.begin()
        for table in tables:
            tx.stage(table, [add()])
        with pytest.raises(deltasql.TransactionLimitExceeded, match="split") as caught:
            tx.commit()
        assert (caught.value.actual, caught.value.maximum) == (11, 10)
        assert {t.version for t in tables} == {0}
        with lake.begin(max_tables=11) as tx:
            for table in tables:
                tx.stage(table, [add()])
        assert {t.version for t in tables} == {1}

    def test_files_per_table(self, lake: deltasql.Lake, make_table: Make) -> None:
        a, b = make_table("a"), make_table("b")
        files = [add() for _ in range(1001)]
        tx = lake.begin()
        tx.stage(a, files)
        tx.stage(b, [add()])
        with pytest.raises(deltasql.TransactionLimitExceeded, match="in a separate transaction") as caught:
            tx.commit()
        assert caught.value.table == a.name
        with lake.begin() as tx:
            tx.stage(a, files)
        with lake.begin(max_files_per_table=2000) as tx:
            tx.stage(a, [add() for _ in range(1001)])
            tx.stage(b, [add()])
        assert (a.version, b.version) == (2, 1)

    def test_configured(self, lake: deltasql.Lake, make_table: Make) -> None:
        tables = [make_table(f"t{i}") for i in range(3)]
        with deltasql.connect(lake.dsn, config={"transaction.max_tables": 2}) as small:
            tx = small.begin()
            for table in tables:
                tx.stage(table.name, [add()])
            with pytest.raises(deltasql.TransactionLimitExceeded):
                tx.commit()

    @pytest.mark.parametrize(
        "options",
        [
            {"timeout": 0},
            {"max_tables": 0},
            {"app": "x"},
            {"app": ("x", "1")},
            {"timeout": "soon"},
            {"max_tables": -1},
            {"isolation": "chaos"},
            {"max_files_per_table": "x"},
        ],
    )
    def test_invalid_options(self, lake: deltasql.Lake, options: dict[str, object]) -> None:
        with pytest.raises(deltasql.UsageError, match=next(iter(options))):
            lake.begin(**options)


class TestUris:
    def test_begin_by_uri_alone(self, lake: deltasql.Lake, make_table: Make) -> None:
        a, b = make_table("a"), make_table("b")
        with deltasql.begin(author="uri") as tx:
            for table in (a, b):
                tx.stage(f"deltasql://embedded/.deltasql/{table.name.replace('.', '/')}", [add()])
        assert sorted(tx.versions.values()) == [1, 1]
        assert a.history()[0].txn_id == b.history()[0].txn_id == tx.id

    def test_a_name_without_a_lake(self) -> None:
        with pytest.raises(deltasql.UsageError, match="deltasql:// URI"), deltasql.begin() as tx:
            tx.stage("orders", [add()])

    def test_a_table_of_another_database(
        self, lake: deltasql.Lake, debian_lake: deltasql.Lake, make_table: Make, namespace: str
    ) -> None:
        here = make_table()
        there = debian_lake.create_table(f"{namespace}.t", "id BIGINT")
        with pytest.raises(deltasql.UsageError, match="cannot span databases"), lake.begin() as tx:
            tx.stage(here, [add()])
            tx.stage(there, [add()])
        uri = debian_lake.dsn.replace("postgresql://", "deltasql://") + f"/{namespace}/t"
        with pytest.raises(deltasql.UsageError, match="another database") as caught:
            lake.table(uri)
        assert ":***@" in str(caught.value)
        assert debian_lake.table(uri).id == there.id
        assert (here.version, there.version) == (0, 0)
