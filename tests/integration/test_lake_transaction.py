"""A transaction over several tables reads one snapshot and its own changes, and commits to all tables or none."""

from __future__ import annotations

import json
import pickle
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql
from deltasql.store.write import log_writer
from tests.readers import assert_same_rows

pytestmark = pytest.mark.usefixtures("spark_session")

Make = Callable[..., deltasql.Table]


def rows(ids: list[int], n: int | None = None) -> pa.Table:
    return pa.table({"id": ids, "n": pa.array([i if n is None else n for i in ids], pa.int32())})


def values(found: pa.Table) -> dict[int, Any]:
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids))
    return dict(sorted(zip(ids, found["n"].to_pylist(), strict=True)))


def data_files(table: deltasql.Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("*.parquet") if "_delta_log" not in path.parts}


def live_files(table: deltasql.Table) -> set[str]:
    return {Path(path).name for path in table.files()["path"].to_pylist()}


@pytest.fixture
def pair(make_table: Make) -> tuple[deltasql.Table, deltasql.Table]:
    """Two tables with three rows each."""
    tables = make_table("a", schema="id BIGINT, n INT"), make_table("b", schema="id BIGINT, n INT")
    for table in tables:
        table.append(rows([1, 2, 3]))
    return tables


Pair = tuple[deltasql.Table, deltasql.Table]


class TestSnapshot:
    def test_all_tables_are_read_at_the_begin_of_the_transaction(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        with lake.begin() as tx:
            a.append(rows([4]))
            b.overwrite(rows([9]))
            assert values(tx.arrow(a)) == {1: 1, 2: 2, 3: 3}
            assert values(tx.arrow(b, where="id > 1")) == {2: 2, 3: 3}
            assert tx.arrow(a, columns=["id"]).column_names == ["id"]

    def test_reads_use_the_schema_at_the_begin(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, _ = pair
        with lake.begin() as tx:
            a.append(pa.table({"id": [4], "more": ["x"]}), merge_schema=True)
            assert tx.arrow(a).column_names == ["id", "n"]

    def test_a_table_created_later_is_not_visible(self, lake: deltasql.Lake, make_table: Make) -> None:
        with lake.begin() as tx:
            table = make_table(schema="id BIGINT")
            with pytest.raises(deltasql.TableNotFound, match="was created after transaction"):
                tx.arrow(table)
            tx.write(table, pa.table({"id": [1]}))
        assert table.arrow()["id"].to_pylist() == [1]

    def test_writes_rebase_on_concurrent_commits(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, _ = pair
        with lake.begin() as tx:
            tx.write(a, rows([4]))
            a.append(rows([5]))
        assert tx.versions == {a.name: 3}
        assert values(a.arrow()) == {i: i for i in range(1, 6)}

    def test_overwrite_with_a_new_schema_conflicts_with_an_append(self, lake: deltasql.Lake, pair: Pair) -> None:
        """The overwrite with a new schema also reads the files of the snapshot at the begin of the transaction."""
        a, _ = pair
        tx = lake.begin()
        a.append(rows([4]))
        tx.write(a, pa.table({"id": ["x"]}), mode="overwrite", overwrite_schema=True)
        with pytest.raises(deltasql.ConcurrentAppend):
            tx.commit()
        assert values(a.arrow()) == {1: 1, 2: 2, 3: 3, 4: 4}


class TestOwnWrites:
    def test_own_rows_are_visible(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        with lake.begin() as tx:
            tx.write(a, rows([4]))
            assert values(tx.arrow(a)) == {1: 1, 2: 2, 3: 3, 4: 4}
            assert values(tx.arrow(a, where="id > 3")) == {4: 4}
            tx.write(a, rows([5]))
            tx.write(b, rows([7]), mode="overwrite")
            tx.write(b, rows([8]))
            assert values(tx.arrow(a)) == {i: i for i in range(1, 6)}
            assert values(tx.arrow(b)) == {7: 7, 8: 8}
            assert values(a.arrow()) == {1: 1, 2: 2, 3: 3}, "uncommitted rows are not visible outside"
        assert values(a.arrow()) == {i: i for i in range(1, 6)}
        assert values(b.arrow()) == {7: 7, 8: 8}

    def test_own_rows_can_be_overwritten(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, _ = pair
        with lake.begin() as tx:
            tx.write(a, rows([4, 5]))
            tx.write(a, rows([5], n=50), mode="overwrite", where="id >= 5")
            tx.write(a, rows([2], n=20), mode="overwrite", where="id = 2")
            assert values(tx.arrow(a)) == {1: 1, 2: 20, 3: 3, 4: 4, 5: 50}
        assert values(a.arrow()) == {1: 1, 2: 20, 3: 3, 4: 4, 5: 50}
        assert [tx.token in name for name in data_files(a) - live_files(a)] == [False], (
            "the only unreferenced file is the one committed before"
        )
        [latest] = a.history(1)
        assert latest.operation == "WRITE"
        assert [part["mode"] for part in json.loads(latest.parameters["statements"])] == [
            "Append",
            "Overwrite",
            "Overwrite",
        ]

    def test_statements_one_after_the_other(self, lake: deltasql.Lake, pair: Pair, spark_session: SparkSession) -> None:
        a, b = pair
        with lake.begin(author="etl", message="all of it") as tx:
            assert tx.insert(a, rows([4, 5]))["numOutputRows"] == "2"
            assert tx.update(a, {"n": "n * 10"}, where="id >= 3")["numUpdatedRows"] == "3"
            assert tx.delete(a, where="id IN (1, 5)")["numDeletedRows"] == "2"
            merge = tx.merge(a, rows([2, 6], n=7), on="t.id = s.id").when_matched_update().when_not_matched_insert()
            assert merge.execute()["numTargetRowsInserted"] == "1"
            shown = tx.update(a, {"n": "-n"}, where="id = 6", returning=["id", "n"])
            assert [tuple(row) for row in shown.collect()] == [(6, -7)]
            assert tx.sql(f"DELETE FROM {a.name} WHERE id = 4")["numDeletedRows"] == "1"
            expected = {2: 7, 3: 30, 6: -7}
            assert values(tx.arrow(a)) == expected
            assert {row["id"]: row["n"] for row in tx.df(a).collect()} == expected
            joined = tx.sql(f"SELECT x.id FROM {a.name} x JOIN {b.name} y ON x.id = y.id ORDER BY 1")
            assert [row[0] for row in joined.collect()] == [2, 3]
            tx.sql(f"INSERT INTO {b.name} SELECT id + 100, n FROM {a.name}")
        assert values(a.arrow()) == expected
        assert values(b.arrow()) == {1: 1, 2: 2, 3: 3} | {i + 100: n for i, n in expected.items()}
        assert a.version == 2, "one commit"
        [latest] = a.history(1)
        assert (latest.operation, latest.author, latest.message) == ("TRANSACTION", "etl", "all of it")
        kinds = [part["operation"] for part in json.loads(latest.parameters["statements"])]
        assert kinds == ["WRITE", "UPDATE", "DELETE", "MERGE", "UPDATE", "DELETE"]
        assert_same_rows(Path(a.location), a.arrow(), spark=spark_session)
        assert data_files(a) >= live_files(a)
        written = {name for name in data_files(a) if tx.token in name}
        assert written == {name for name in live_files(a) if tx.token in name}, (
            "files that the transaction removed again are deleted"
        )

    def test_a_table_is_created_filled_and_read(self, lake: deltasql.Lake, pair: Pair, namespace: str) -> None:
        a, _ = pair
        name = f"{namespace}.made"
        with lake.begin() as tx:
            tx.create_table(name, "id BIGINT, n INT", constraints={"small": "n < 100"})
            with pytest.raises(deltasql.TableNotFound):
                lake.table(name)
            with pytest.raises(deltasql.TableExists):
                tx.create_table(name, "id BIGINT")
            tx.write(name, rows([1]))
            tx.sql(f"INSERT INTO {name} SELECT id + 10, n FROM {a.name}")
            tx.update(name, {"n": "n + 1"}, where="id > 11")
            with pytest.raises(deltasql.ConstraintViolation, match="small"):
                tx.update(name, {"n": "500"})
            assert values(tx.arrow(name)) == {1: 1, 11: 1, 12: 3, 13: 4}
            tx.sql(f"CREATE TABLE {name}2 AS SELECT id FROM {name} WHERE id > 11")
        assert tx.versions == {name: 0, f"{name}2": 0}
        assert values(lake.table(name).arrow()) == {1: 1, 11: 1, 12: 3, 13: 4}
        assert lake.table(f"{name}2").arrow()["id"].to_pylist() == [12, 13]

    def test_a_table_by_a_short_name_and_by_its_handle(self, lake: deltasql.Lake, make_table: Make) -> None:
        name = f"short_{uuid.uuid4().hex[:8]}"
        others = [make_table(f"t{n}", schema="id BIGINT, n INT") for n in range(8)]
        with lake.begin() as tx:
            tx.create_table(name, "id BIGINT, n INT")
            tx.write(name, rows([1]))
            tx.write(f"public.{name}", rows([2]))
            for other in others:
                tx.write(other, rows([9]))
        assert values(lake.table(name).arrow()) == {1: 1, 2: 2}
        lake.drop_table(name, purge=True)

    def test_a_source_is_read_at_the_same_point(
        self, lake: deltasql.Lake, pair: Pair, spark_session: SparkSession
    ) -> None:
        a, b = pair
        with lake.begin() as tx:
            tx.write(b, rows([4], n=40))
            b.append(rows([5]))
            tx.update(a, {"n": "s.n + 1"}, where="t.id = s.id", source=b)
            merge = tx.merge(a, b.name, on="t.id = s.id").when_not_matched_insert()
            assert merge.execute()["numSourceRows"] == "4"
        assert values(a.arrow()) == {1: 2, 2: 3, 3: 4, 4: 40}

    def test_the_schema_changes(self, lake: deltasql.Lake, pair: Pair, spark_session: SparkSession) -> None:
        a, _ = pair
        with lake.begin() as tx:
            tx.write(a, pa.table({"id": [4], "more": ["x"]}), merge_schema=True)
            tx.sql(f"ALTER TABLE {a.name} ADD COLUMN other INT")
            tx.update(a, {"other": "id * 2", "more": "coalesce(more, 'none')"}, where="id > 2")
            found = sorted(map(tuple, tx.df(a).collect()))
            assert found == [(1, 1, None, None), (2, 2, None, None), (3, 3, "none", 6), (4, None, "x", 8)]
        assert sorted(map(tuple, a.df().collect())) == found
        assert a.version == 2

    def test_rollback_discards_everything(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, _ = pair
        with lake.begin() as tx:
            tx.write(a, rows([4]))
            tx.delete(a)
            assert tx.arrow(a).num_rows == 0
            tx.write(a, rows([5]))
        assert values(a.arrow()) == {5: 5}
        assert {name for name in data_files(a) if tx.token in name} == live_files(a)


class TestSavepoints:
    def test_rollback_to_savepoint(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        with lake.begin() as tx:
            tx.write(a, rows([4]))
            with pytest.raises(ZeroDivisionError), tx.savepoint():
                tx.write(a, rows([5]))
                tx.write(b, rows([6]), mode="overwrite")
                raise ZeroDivisionError
            assert values(tx.arrow(a)) == {1: 1, 2: 2, 3: 3, 4: 4}
            with tx.savepoint() as point:
                tx.write(b, rows([7]))
                with tx.savepoint():
                    tx.write(b, rows([8]))
                assert values(tx.arrow(b)) == {1: 1, 2: 2, 3: 3, 7: 7, 8: 8}
                point.rollback()
                tx.write(b, rows([9]))
        assert values(a.arrow()) == {1: 1, 2: 2, 3: 3, 4: 4}
        assert values(b.arrow()) == {1: 1, 2: 2, 3: 3, 9: 9}
        for table in pair:
            assert {name for name in data_files(table) if tx.token in name} <= live_files(table)

    def test_rollback_to_savepoint_restores_removed_rows(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, _ = pair
        with lake.begin() as tx:
            tx.write(a, rows([4]))
            with tx.savepoint() as point:
                tx.delete(a)
                point.rollback()
            assert values(tx.arrow(a)) == {1: 1, 2: 2, 3: 3, 4: 4}
        assert values(a.arrow()) == {1: 1, 2: 2, 3: 3, 4: 4}

    def test_rollback_to_savepoint_restores_the_schema(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, _ = pair
        more = pa.table({"id": [4], "more": ["x"]})
        with lake.begin() as tx:
            with tx.savepoint() as point:
                tx.write(a, more, merge_schema=True)
                assert tx.arrow(a).column_names == ["id", "n", "more"]
                point.rollback()
            a.append(rows([5]))
            assert tx.arrow(a).column_names == ["id", "n"]
            with pytest.raises(deltasql.ValidationError, match="more"):
                tx.write(a, more)


class TestIsolation:
    """Two concurrent transactions: each reads one table and deletes the rows of the other."""

    def skew(self, lake: deltasql.Lake, pair: Pair, isolation: str | None) -> None:
        a, b = pair
        first, second = lake.begin(isolation=isolation), lake.begin(isolation=isolation)
        assert first.arrow(a).num_rows == 3
        first.delete(b)
        assert second.arrow(b).num_rows == 3
        second.delete(a)
        first.commit()
        second.commit()

    def test_by_default_write_skew_is_possible(self, lake: deltasql.Lake, pair: Pair) -> None:
        self.skew(lake, pair, None)
        assert [table.arrow().num_rows for table in pair] == [0, 0]

    def test_serializable_prevents_write_skew(self, lake: deltasql.Lake, pair: Pair) -> None:
        with pytest.raises(deltasql.CommitConflict) as caught:
            self.skew(lake, pair, "serializable")
        a, b = pair
        assert (caught.value.table, a.arrow().num_rows, b.arrow().num_rows) == (b.name, 3, 0)

    def test_only_rows_read_conflict(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        with lake.begin(isolation="serializable") as tx:
            assert tx.arrow(a, where="id < 3").num_rows == 2
            tx.write(b, rows([4]))
            a.append(rows([10]))
        assert b.version == 2
        assert a.version == 2, "a table that is read gets no version"
        with pytest.raises(deltasql.ConcurrentAppend), lake.begin(isolation="serializable") as tx:
            assert tx.arrow(a, where="id < 3").num_rows == 2
            tx.write(b, rows([5]))
            a.append(rows([2]))

    def test_a_read_only_transaction_never_conflicts(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, _ = pair
        with lake.begin(isolation="serializable") as tx:
            tx.arrow(a)
            a.delete(where="id = 1")
        assert tx.versions == {}

    def test_a_table_that_is_read_and_written(self, lake: deltasql.Lake, pair: Pair) -> None:
        """A lost update is impossible at every isolation level."""
        a, _ = pair
        tx = lake.begin()
        total = sum(tx.arrow(a)["n"].to_pylist())
        tx.write(a, rows([100], n=total))
        a.overwrite(rows([1, 2], n=5))
        with pytest.raises(deltasql.CommitConflict):
            tx.commit()
        assert values(a.arrow()) == {1: 5, 2: 5}

    def test_reads_count_after_rollback_to_savepoint(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        with pytest.raises(deltasql.CommitConflict, match=a.name), lake.begin(isolation="serializable") as tx:
            with tx.savepoint() as point:
                count = tx.arrow(a).num_rows
                point.rollback()
            tx.write(b, rows([count + 100]))
            a.append(rows([4]))
        assert b.version == 1

    def test_a_statement_without_matches_counts_as_a_read(self, lake: deltasql.Lake, make_table: Make) -> None:
        a, b = (make_table(name, schema="id BIGINT, n INT", partition_by=["id"]) for name in ("pa", "pb"))
        first, second = lake.begin(isolation="serializable"), lake.begin(isolation="serializable")
        first.delete(a, where="id = 1")
        second.delete(b, where="id = 1")
        first.write(b, rows([1]))
        second.write(a, rows([1]))
        first.commit()
        with pytest.raises(deltasql.ConcurrentAppend):
            second.commit()
        assert (a.version, b.version) == (0, 1)

    def test_a_rewrite_without_data_change_after_a_read(self, lake: deltasql.Lake, pair: Pair) -> None:
        """A rewrite alone does not conflict with an append; under serializable, the reads of the transaction do."""
        a, b = pair
        for isolation in ("serializable", None):
            tx = lake.begin(isolation=isolation)
            tx.arrow(a)
            tx.write(b, rows([100]))
            (file,) = a.files(where="id = 1").to_pylist()
            copy = f"{isolation}.parquet"
            shutil.copy(Path(a.location) / file["path"], Path(a.location) / copy)
            again = deltasql.Add(copy, file["size"], 0, data_change=False, stats=file["stats"])
            tx.stage(a, [deltasql.Remove(file["path"], data_change=False), again])
            a.append(rows([4]))
            if isolation:
                with pytest.raises(deltasql.ConcurrentAppend):
                    tx.commit()
            else:
                tx.commit()

    def test_through_sql(self, lake: deltasql.Lake, pair: Pair, spark_session: SparkSession) -> None:
        a, b = pair
        with pytest.raises(deltasql.CommitConflict, match=a.name), lake.begin(isolation="serializable") as tx:
            tx.sql(f"INSERT INTO {b.name} SELECT id + 10, n FROM {a.name}")
            a.append(rows([4]))
        assert b.version == 1


class TestEnd:
    def test_a_failure_leaves_nothing(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        before = {table: data_files(table) for table in pair}
        with pytest.raises(ZeroDivisionError), lake.begin() as tx:
            tx.write(a, rows([4]))
            tx.delete(b, where="id = 1")
            raise ZeroDivisionError
        assert {table: data_files(table) for table in pair} == before
        with pytest.raises(deltasql.CommitConflict), lake.begin() as tx:
            tx.write(b, rows([9]))
            tx.delete(a, where="id = 1")
            a.delete(where="id = 1")
        assert data_files(b) == before[b]
        assert [table.version for table in pair] == [2, 1]
        with pytest.raises(deltasql.UsageError, match="used once"):
            tx.write(a, rows([5]))

    def test_files_of_other_writers_are_kept(self, lake: deltasql.Lake, pair: Pair) -> None:
        """A rollback does not delete staged files that the transaction did not write."""
        a, _ = pair
        path = Path(a.location) / "mine.parquet"
        path.write_bytes(next(Path(a.location).glob("part-*.parquet")).read_bytes())
        tx = lake.begin()
        tx.stage(a, [deltasql.Add("mine.parquet", path.stat().st_size, 0, {})])
        tx.rollback()
        assert path.exists()

    def test_a_conflicting_transaction_is_retried(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        calls = []

        def work(tx: deltasql.Transaction) -> int:
            calls.append(tx.id)
            total = sum(tx.arrow(a)["n"].to_pylist())
            tx.write(b, rows([100], n=total))
            tx.delete(a, where="id = 2")
            if len(calls) == 1:
                a.delete(where="id IN (1, 2)")
                a.append(rows([2], n=50))
            return total

        assert lake.run(work, author="again") == 53
        assert len(calls) == 2
        assert values(b.arrow()) == {1: 1, 2: 2, 3: 3, 100: 53}
        with pytest.raises(deltasql.CommitConflict):
            lake.run(lambda tx: (tx.delete(a, where="id = 3"), a.overwrite(rows([3])))[0], retries=0)

    def test_tables_committed_together(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        with lake.begin(author="etl", message="both") as tx:
            tx.write(a, rows([4]))
            tx.write(b, rows([4]))
        [latest] = lake.transactions(1)
        assert (latest.id, latest.author, latest.message) == (tx.id, "etl", "both")
        assert dict(latest.versions) == tx.versions == {a.name: 2, b.name: 2}
        assert lake.transaction(str(tx.id)) == latest
        for table in pair:
            text = (Path(table.location) / "_delta_log" / f"{2:020d}.json").read_text()
            info = json.loads(text.splitlines()[0])["commitInfo"]
            assert (info["txnId"], info["txnTables"]) == (tx.id, {a.name: 2, b.name: 2})
            assert lake.mirror.validate(table.name) == []
        one = a.append(rows([5]))
        assert dict(lake.transaction(one.txn_id).versions) == {a.name: 3}
        with pytest.raises(deltasql.UsageError, match="was not committed"):
            lake.transaction("00000000-0000-0000-0000-000000000000")

    def test_unpublished_tables_are_reported(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        foreign = Path(b.location) / "_delta_log" / f"{2:020d}.json"
        foreign.write_text('{"commitInfo":{"operation":"WRITE"}}\n')
        with lake.begin() as tx:
            tx.write(a, rows([4]))
            tx.write(b, rows([4]))
        assert tx.versions == {a.name: 2, b.name: 2}
        assert set(tx.mirror) == {b.name}
        assert isinstance(tx.mirror[b.name], deltasql.MirrorFailure)
        assert (tx.mirror[b.name].table_id, tx.mirror[b.name].version) == (b.id, 2)
        lake.drop_table(b.name)  # stops further retries


class TestFailuresAfterCommit:
    """A failure after the commit does not roll back: the files of the committed version are kept."""

    def check(self, pair: Pair) -> None:
        for table in pair:
            assert table.version == 2
            assert values(table.arrow()) == {1: 1, 2: 2, 3: 3, 4: 4}

    def test_an_unexpected_publishing_failure(
        self, lake: deltasql.Lake, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Any) -> None:
            raise deltasql.UsageError("no such thing")

        monkeypatch.setattr(lake.store, "publish", fail)
        with lake.begin() as tx:
            for table in pair:
                tx.write(table, rows([4]))
        assert {name: str(failure.error) for name, failure in tx.mirror.items()} == dict.fromkeys(
            (table.name for table in pair), "UsageError: no such thing"
        )
        self.check(pair)

    def test_the_reply_is_lost_and_the_lake_closed(
        self, lake: deltasql.Lake, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with deltasql.connect(lake.dsn) as other:
            finish = log_writer.finish

            def lose(*args: Any) -> Any:
                finish(*args)
                other.store._database.close()
                raise psycopg.OperationalError("the connection is lost")

            monkeypatch.setattr(log_writer, "finish", lose)
            with pytest.raises(deltasql.CommitOutcomeUnknown), other.begin() as tx:
                for table in pair:
                    tx.write(table.name, rows([4]))
        self.check(pair)

    def test_an_invalid_property_is_rejected_before_writing(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        metadata = a.state().metadata
        assert metadata is not None
        bad = msgspec.structs.replace(metadata, configuration={"deltasql.mirror.mode": "bogus"})
        with pytest.raises(deltasql.UsageError, match=r"mirror\.mode must be"), lake.begin() as tx:
            tx.write(b, rows([4]))
            tx.stage(a, [bad])
        assert [table.version for table in pair] == [1, 1]


class TestErrors:
    def test_where_a_commit_failed(self, lake: deltasql.Lake, pair: Pair) -> None:
        a, b = pair
        with pytest.raises(deltasql.CommitConflict) as conflict, lake.begin() as tx:
            tx.write(b, rows([9]))
            tx.delete(a, where="id = 1")
            a.delete(where="id = 1")
            a.append(rows([8]))
        error = conflict.value
        assert (error.stage, error.table, error.winner, error.expected, error.actual) == ("commit", a.name, 2, 2, 3)
        with pytest.raises(deltasql.ValidationError) as invalid, lake.begin() as tx:
            tx.stage(a, [deltasql.Add("/etc/passwd", 1, 0, {})])
        assert invalid.value.stage == "validate"
        with (
            pytest.raises(deltasql.TransactionLimitExceeded, match="split it") as limit,
            lake.begin(max_tables=1) as tx,
        ):
            tx.write(a, rows([9]))
            tx.write(b, rows([9]))
        assert limit.value.stage == "validate"
        with pytest.raises(deltasql.CommitTimeout) as late, psycopg.connect(lake.dsn) as connection:
            with lake.begin(timeout="200ms") as tx:
                tx.write(a, rows([9]))
                tx.write(b, rows([9]))
                connection.execute("select from deltasql.dl_tables where table_id = %s for update", [b.id])
        assert late.value.stage == "lock"
        assert [table.version for table in pair] == [3, 1]

    def test_tables_of_two_databases(
        self, lake: deltasql.Lake, debian_lake: deltasql.Lake, pair: Pair, namespace: str
    ) -> None:
        other = debian_lake.create_table(f"{namespace}.elsewhere", "id BIGINT")
        with pytest.raises(deltasql.UsageError, match="cannot span databases") as rejected, lake.begin() as tx:
            tx.write(pair[0], rows([4]))
            tx.write(other, pa.table({"id": [1]}))
        for one in (lake, debian_lake):
            assert repr(one) in str(rejected.value)
        assert pair[0].version == 1


def test_a_stream_into_two_tables(lake: deltasql.Lake, pair: Pair, spark_session: SparkSession) -> None:
    """`stream_to` applies each batch once, even when `foreachBatch` delivers a batch twice."""
    a, b = pair
    feed = deltasql.stream_to(lake, "feed", {a.name: None, b.name: lambda batch: batch.where("id > 10")})
    batches = [spark_session.createDataFrame(rows([n + 10, n + 20])) for n in range(2)]
    for number, batch in ((0, batches[0]), (0, batches[0]), (1, batches[1]), (0, batches[0])):
        feed(batch, number)
    elsewhere = pickle.loads(pickle.dumps(deltasql.stream_to(lake, "pickled", {a.name: None})))
    elsewhere(spark_session.createDataFrame(rows([30])), 0)
    assert values(a.arrow(where="id = 30")) == {30: 30}
    a.delete(where="id = 30")
    assert (a.version, b.version) == (5, 3)
    assert values(a.arrow()).keys() == {1, 2, 3, 10, 11, 20, 21}
    assert values(b.arrow()).keys() == {1, 2, 3, 11, 20, 21}

    def work(tx: deltasql.Transaction, batch: Any) -> None:
        tx.delete(a, where="t.id = s.id", source=batch)
        tx.write(b, batch)

    feed = deltasql.stream_to(lake, "other feed", work)
    before = data_files(b)
    for _ in range(2):
        feed(spark_session.createDataFrame(rows([20, 30])), 0)
    assert values(a.arrow()).keys() == {1, 2, 3, 10, 11, 21}
    assert sorted(b.arrow()["id"].to_pylist()) == [1, 2, 3, 11, 20, 20, 21, 30]
    assert (a.version, b.version) == (6, 4)
    assert data_files(b) - before == live_files(b) - before, "the files of the second run are deleted"
    with pytest.raises(deltasql.UsageError, match="tables is empty"):
        deltasql.stream_to(lake, "feed", {})
    with pytest.raises(deltasql.UsageError, match="non-empty text"):
        deltasql.stream_to(lake, "", {a.name: None})


def test_a_replayed_transaction_returns_its_versions(lake: deltasql.Lake, pair: Pair) -> None:
    a, b = pair
    for _ in range(2):
        with lake.begin(app=("job", 7)) as tx:
            tx.write(a, rows([4]))
            tx.write(b, rows([4]))
        assert tx.versions == {a.name: 2, b.name: 2}
    assert values(a.arrow()) == {1: 1, 2: 2, 3: 3, 4: 4}


def test_a_replay_returns_the_versions_of_the_first_run(lake: deltasql.Lake, pair: Pair) -> None:
    """A table without changed rows records the application version too."""
    a, b = pair
    for _ in range(2):
        with lake.begin(app=("job", 1)) as tx:
            tx.write(a, rows([5]))
            tx.delete(b, where="id = 10")
        b.append(rows([10]))
    assert tx.versions == {a.name: 2, b.name: 2}
    assert sorted(b.arrow()["id"].to_pylist()) == [1, 2, 3, 10, 10]
    assert sorted(a.arrow()["id"].to_pylist()) == [1, 2, 3, 5]


class TestSkipped:
    def test_a_repeated_number_is_skipped(
        self, lake: deltasql.Lake, make_table: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = make_table(schema="id BIGINT")
        for expected in ({}, {table.name: 1}):
            with lake.begin(app=("feed", 7)) as tx:
                tx.write(table.name, pa.table({"id": [1]}))
            assert tx.skipped == expected
        assert table.version == 1
        assert caplog.text == ""

    def test_a_lower_number_is_skipped_with_a_warning(
        self, lake: deltasql.Lake, make_table: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = make_table(schema="id BIGINT")
        for number in (7, 0):
            with lake.begin(app=("feed", number)) as tx:
                tx.write(table.name, pa.table({"id": [1]}))
        assert (tx.skipped, table.version) == ({table.name: 1}, 1)
        assert "number 0 of application 'feed' was not committed, because number 7 was" in caplog.text
        assert "a new checkpoint needs a new name" in caplog.text


class TestLocks:
    @pytest.mark.parametrize("options", [{}, {"timeout": 1}])
    def test_a_locked_head_is_a_timeout_of_the_lock(
        self, lake: deltasql.Lake, make_table: Make, options: dict[str, Any]
    ) -> None:
        table = make_table(schema="id BIGINT")
        config = {"transaction.lock_timeout": "30s", "transaction.timeout": "1s"}
        with (
            psycopg.connect(lake.dsn) as holder,
            deltasql.connect(lake.dsn, config=config) as other,
        ):
            holder.execute("select from deltasql.dl_tables where table_id = %s for update", [table.id])
            with pytest.raises(deltasql.CommitTimeout) as caught, other.begin(**options) as tx:
                tx.write(table.name, pa.table({"id": [1]}))
        assert caught.value.stage == "lock"


def test_results_say_whether_the_version_is_published(lake: deltasql.Lake, make_table: Make) -> None:
    table = make_table(schema="id BIGINT")
    result = table.append(pa.table({"id": [1]}))
    assert (result.published, result.mirror) == (True, None)
    log = Path(table.location) / "_delta_log"
    log.rename(log.with_name("gone"))
    log.write_text("a file, so that nothing can be published here")
    for result in (table.append(pa.table({"id": [2]})), table.delete("id = 1"), lake.sql(f"DELETE FROM {table.name}")):
        assert not result.published
        assert isinstance(result.mirror, deltasql.MirrorFailure)
        assert result.mirror.version == result.version
