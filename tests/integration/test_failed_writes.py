"""A failed write leaves no files, for every operation and both engines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import deltasql
from deltasql.engines.arrow.write import deletion_vector_write
from deltasql.engines.spark.dml import rewrite_files
from deltasql.operations import optimize

DAY = dt.date(2026, 1, 1)
SCHEMA = "id BIGINT, day DATE, amount DOUBLE"
GOOD = pa.table({"id": [1, 2, 3], "day": [DAY] * 3, "amount": [1.0, 2.0, 3.0]})
MORE = pa.table({"id": [4, 5], "day": [DAY, DAY + dt.timedelta(1)], "amount": [4.0, 5.0]})
BAD = pa.table({"id": [6, 7], "day": [DAY, DAY], "amount": [6.0, -7.0]})
POSITIVE = {"positive": "amount > 0"}
VECTORS = {"delta.enableDeletionVectors": "true", "deltasql.dml.copy_on_write_threshold": "0.9"}
FEED = {"delta.enableChangeDataFeed": "true"}

Rows = Callable[[pa.Table], Any]


@pytest.fixture(scope="module")
def lake(workdir: Path, spark_session: Any) -> Iterator[deltasql.Lake]:
    with deltasql.connect(spark=spark_session) as lake:
        yield lake


@pytest.fixture(params=["arrow", "spark"])
def rows(request: pytest.FixtureRequest, spark_session: Any) -> Rows:
    """Convert an Arrow table to the input of the engine under test."""
    return (lambda table: table) if request.param == "arrow" else (lambda table: spark_session.createDataFrame(table))


@pytest.fixture(params=["flat", "partitioned"])
def table(request: pytest.FixtureRequest, lake: deltasql.Lake, namespace: str) -> deltasql.Table:
    return filled_table(lake, namespace, partition_by=["day"] if request.param == "partitioned" else [])


def filled_table(lake: deltasql.Lake, namespace: str, **options: Any) -> deltasql.Table:
    made = lake.create_table(f"{namespace}.t", SCHEMA, constraints=POSITIVE, **options)
    made.append(GOOD)
    made.append(MORE)
    return made


def files(location: str) -> set[str]:
    """Return all files below a location outside `_delta_log`, and all directories of single writes."""
    root = Path(location)
    found = (path.relative_to(root) for path in root.rglob("*") if "_delta_log" not in path.parts)
    return {str(path) for path in found if (root / path).is_file() or path.name.startswith("w-tx")}


def assert_unchanged(table: deltasql.Table, work: Callable[[], Any], error: type[Exception]) -> None:
    before, version = files(table.location), table.version
    with pytest.raises(error):
        work()
    assert files(table.location) == before
    assert table.version == version
    with psycopg.connect(table.lake.dsn) as connection:
        writing = "SELECT * FROM deltasql.dl_writes JOIN deltasql.dl_tables USING (table_key) WHERE table_id = %s"
        assert connection.execute(writing, [table.id]).fetchall() == []


class TestConstraintViolations:
    def test_append(self, table: deltasql.Table, rows: Rows) -> None:
        assert_unchanged(table, lambda: table.append(rows(BAD)), deltasql.ConstraintViolation)

    def test_overwrite(self, table: deltasql.Table, rows: Rows) -> None:
        assert_unchanged(table, lambda: table.overwrite(rows(BAD)), deltasql.ConstraintViolation)

    def test_overwrite_where(self, table: deltasql.Table, rows: Rows) -> None:
        assert_unchanged(table, lambda: table.overwrite(rows(BAD), where="id > 5"), deltasql.ConstraintViolation)

    def test_overwrite_where_with_rows_outside_the_condition(self, table: deltasql.Table, rows: Rows) -> None:
        assert_unchanged(table, lambda: table.overwrite(rows(GOOD), where="id = 1"), deltasql.ConstraintViolation)

    def test_insert(self, table: deltasql.Table, rows: Rows) -> None:
        assert_unchanged(table, lambda: table.insert(rows(BAD)), deltasql.ConstraintViolation)

    def test_insert_returning(self, table: deltasql.Table, rows: Rows) -> None:
        assert_unchanged(table, lambda: table.insert(rows(BAD), returning="*"), deltasql.ConstraintViolation)

    def test_merge(self, table: deltasql.Table, rows: Rows) -> None:
        merge = table.merge(rows(BAD), on="t.id = s.id").when_matched_delete().when_not_matched_insert()
        assert_unchanged(table, merge.execute, deltasql.ConstraintViolation)


class TestStatements:
    """A failed UPDATE leaves no rewritten files, deletion vectors, change files or new rows."""

    @pytest.fixture(params=["copy", "vectors", "feed"])
    def table(self, request: pytest.FixtureRequest, lake: deltasql.Lake, namespace: str) -> deltasql.Table:
        return filled_table(lake, namespace, properties={"copy": {}, "vectors": VECTORS, "feed": FEED}[request.param])

    @pytest.fixture(autouse=True, params=["driver", "tasks"])
    def _rewriting(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deletion_vector_write, "MAX_INLINE_BYTES", 0)
        if request.param == "tasks":
            monkeypatch.setattr(rewrite_files, "_MOST_ROWS_ON_DRIVER", -1)

    def test_update(self, table: deltasql.Table) -> None:
        update = {"amount": "CASE WHEN id = 4 THEN -1 ELSE 9 END"}
        assert_unchanged(table, lambda: table.update(update, where="id IN (2, 4)"), deltasql.ConstraintViolation)

    def test_sql(self, table: deltasql.Table) -> None:
        text = f"UPDATE {table.name} SET amount = 2.0 - id WHERE id IN (1, 4) RETURNING id"
        assert_unchanged(table, lambda: table.lake.sql(text), deltasql.ConstraintViolation)


class TestFailingSources:
    def test_append_of_a_frame_that_fails_after_some_tasks(self, table: deltasql.Table, spark_session: Any) -> None:
        frame = spark_session.range(0, 4, 1, 4).selectExpr(
            "id", "date'2026-01-01' AS day", "if(id < 3, 1D, double(raise_error('no more rows'))) AS amount"
        )
        assert_unchanged(table, lambda: table.append(frame), Exception)

    def test_append_of_batches_that_fail(self, table: deltasql.Table) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from GOOD.to_batches()
            raise RuntimeError("no more rows")

        reader = pa.RecordBatchReader.from_batches(GOOD.schema, batches())
        assert_unchanged(table, lambda: table.append(reader), RuntimeError)


class TestFailedCommits:
    def test_conflict(self, table: deltasql.Table, rows: Rows) -> None:
        first, second = table.lake.begin(), table.lake.begin()
        second.write(table, rows(GOOD), mode="overwrite")
        first.write(table, MORE, mode="overwrite")
        first.commit()
        live = files(table.location)
        with pytest.raises(deltasql.CommitConflict):
            second.commit()
        assert {name for name in live if second.token not in name} == files(table.location)

    def test_compaction(
        self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch, spark_session: Any, lake: deltasql.Lake
    ) -> None:
        for engine_limit in (1 << 30, 0):  # first in this process, then by Spark
            monkeypatch.setattr(optimize, "_HERE_BYTES", engine_limit)
            monkeypatch.setattr(optimize, "_check_rows", lambda *_: (_ for _ in ()).throw(deltasql.StorageError("no")))
            assert_unchanged(table, table.optimize, deltasql.StorageError)

    def test_rolled_back(self, table: deltasql.Table, rows: Rows) -> None:
        def work() -> None:
            with table.lake.begin() as tx:
                tx.write(table, rows(GOOD))
                tx.delete(table, where="id = 1")
                raise KeyError("not today")

        assert_unchanged(table, work, KeyError)


class TestNewTables:
    def test_create_with_a_constraint_violation(self, lake: deltasql.Lake, namespace: str, rows: Rows) -> None:
        location = Path(f"{namespace}-new").resolve()
        with pytest.raises(deltasql.ConstraintViolation):
            lake.create_table(f"{namespace}.new", SCHEMA, as_=rows(BAD), location=str(location), constraints=POSITIVE)
        assert not location.exists()

    def test_create_of_a_name_taken_concurrently(self, lake: deltasql.Lake, namespace: str, rows: Rows) -> None:
        location = Path(f"{namespace}-taken").resolve()
        with pytest.raises(deltasql.TableExists), lake.begin() as tx:
            tx.create_table(f"{namespace}.t", SCHEMA, as_=rows(GOOD), location=str(location), partition_by=["day"])
            lake.create_table(f"{namespace}.t", SCHEMA)
        assert not location.exists()

    def test_create_table_as_select(self, lake: deltasql.Lake, namespace: str) -> None:
        location = Path(f"{namespace}-select").resolve()
        text = f"CREATE TABLE {namespace}.t (id BIGINT CHECK (id < 2)) LOCATION '{location}' AS SELECT * FROM range(3)"
        with pytest.raises(deltasql.DeltaSqlError):
            lake.sql(text)
        assert not location.exists()


class TestFormat:
    def test_batch(self, table: deltasql.Table, spark_session: Any) -> None:
        deltasql.register(spark_session, table.lake.dsn)
        write = spark_session.createDataFrame(BAD).write.format("deltasql")
        assert_unchanged(table, lambda: write.mode("append").save(table.name), Exception)

    def test_batch_that_conflicts(self, table: deltasql.Table, spark_session: Any) -> None:
        deltasql.register(spark_session, table.lake.dsn)
        write = spark_session.createDataFrame(GOOD).write.format("deltasql").mode("overwrite")
        assert_unchanged(table, lambda: write.option("replaceWhere", "id = 1").save(table.name), Exception)
