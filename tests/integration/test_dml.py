"""UPDATE, DELETE and MERGE rewrite the files that hold changed rows, and no other files."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import logging
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import deltasql
from deltasql.engines.spark.dml import merge_pairs
from deltasql.protocol.table_changes import TableState
from tests.effort import LONG
from tests.local_spark import PLAIN
from tests.readers import assert_same_rows
from tests.sample_columns import NESTED, PRIMITIVES, table_of

Make = Callable[..., deltasql.Table]
ZONES = ["UTC", "America/New_York"]
SCHEMA = "id BIGINT NOT NULL, part STRING, n INT, s STRUCT<x: BIGINT>"


@pytest.fixture
def spark(spark_session: SparkSession) -> SparkSession:
    return spark_session


LAYOUTS, REWRITE_PATHS = ["whole", "partitioned"], ["driver", "tasks"]
both_layouts = pytest.mark.parametrize("table", LAYOUTS, indirect=True)
# A short run takes each layout and each path once, a long run every pair.
layouts_and_paths = pytest.mark.parametrize(
    ("table", "rewrite_path"),
    list(itertools.product(LAYOUTS, REWRITE_PATHS) if LONG else zip(LAYOUTS, REWRITE_PATHS, strict=True)),
    indirect=True,
)
zones_and_paths = pytest.mark.parametrize(
    ("zone", "rewrite_path"),
    list(itertools.product(ZONES, REWRITE_PATHS) if LONG else zip(ZONES, REWRITE_PATHS, strict=True)),
    indirect=["rewrite_path"],
)


@pytest.fixture
def table(request: pytest.FixtureRequest, make_table: Make, spark: SparkSession) -> deltasql.Table:
    """A table of three files with ids 0 to 3, 10 to 13 and 20 to 23."""
    table = make_table(
        schema=SCHEMA, partition_by=["part"] if getattr(request, "param", "whole") == "partitioned" else []
    )
    for start in (0, 10, 20):
        ids = list(range(start, start + 4))
        table.append(pa.table({"id": ids, "part": [f"p{start}"] * 4, "n": ids, "s": [{"x": i} for i in ids]}))
    return table


@pytest.fixture
def rewrite_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite files on the driver, as for few rows, and in tasks, as for many rows."""
    if request.param == "tasks":
        monkeypatch.setattr("deltasql.engines.spark.dml.rewrite_files._MOST_ROWS_ON_DRIVER", -1)


def values(table: deltasql.Table, column: str = "n") -> dict[int, Any]:
    found = table.arrow(columns=["id", column]).sort_by("id")
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids))
    return dict(zip(ids, found[column].to_pylist(), strict=True))


def paths(table: deltasql.Table) -> set[str]:
    return set(table.files()["path"].to_pylist())


ALL = {i: i for start in (0, 10, 20) for i in range(start, start + 4)}


class TestInsert:
    def test_rows_with_defaults_are_returned(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, n INT DEFAULT 5, twice BIGINT GENERATED ALWAYS AS (id * 2)")
        rows = table.insert(spark.sql("SELECT '7' AS id UNION ALL SELECT '8'"), returning="*")
        assert sorted(map(tuple, rows.collect())) == [(7, 5, 14), (8, 5, 16)]
        result = table.insert(spark.sql("SELECT '9' AS ID, 1.0 AS n"))
        assert (result.version, result.metrics["numOutputRows"]) == (2, "1")
        assert values(table) == {7: 5, 8: 5, 9: 1}
        assert [entry.operation for entry in table.history(2)] == ["WRITE", "WRITE"]

    def test_rejected_rows(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        with pytest.raises(deltasql.ValidationError, match="cannot hold x"):
            table.insert(spark.sql("SELECT 'x' AS id"), returning="*")
        with pytest.raises(deltasql.ConstraintViolation, match="id fits BIGINT"):
            table.insert(spark.sql("SELECT 'x' AS id"))
        with pytest.raises(deltasql.ValidationError, match="no column for m of the source"):
            table.insert(spark.sql("SELECT 1 AS m"), returning="*")
        assert table.version == 0


class TestUpdate:
    @pytest.mark.usefixtures("rewrite_path")
    @layouts_and_paths
    def test_matching_rows_and_no_others(self, table: deltasql.Table) -> None:
        before = paths(table)
        result = table.update({"n": "n * 100"}, where="id IN (11, 12)")
        assert values(table) == ALL | {11: 1100, 12: 1200}
        assert result.version == table.version == 4
        assert len(before & paths(table)) == 2, "files without matching rows stay"
        assert len(paths(table)) == 4, "the rest of the file and the new rows"
        counts = {"numUpdatedRows": "2", "numCopiedRows": "2", "numAddedFiles": "2", "numRemovedFiles": "1"}
        assert counts.items() <= result.metrics.items()
        [latest] = table.history(1)
        assert (latest.operation, latest.metrics["numUpdatedRows"]) == ("UPDATE", "2")
        assert json.loads(latest.parameters["predicate"]) == ["id IN (11, 12)"]

    @pytest.mark.usefixtures("rewrite_path")
    @layouts_and_paths
    def test_outside_readers_agree(self, table: deltasql.Table, spark: SparkSession) -> None:
        table.update({"n": "n + 1", "s": "named_struct('x', 7)"}, where="n % 2 = 0")
        table.update({"part": "'other'"}, where="id = 3")
        table.delete(where="id > 20")
        assert_same_rows(Path(table.location), table.arrow(), spark=spark)
        assert values(table, "s")[2] == {"x": 7}

    @pytest.mark.usefixtures("rewrite_path")
    @zones_and_paths
    def test_columns_of_all_types_keep_their_values(self, make_table: Make, spark: SparkSession, zone: str) -> None:
        expected = table_of({**PRIMITIVES, **NESTED}).append_column("n", pa.array([1, 2, 3]))
        table = make_table(schema=expected.schema)
        table.append(expected)
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            table.update({"n": "n + 10"}, where="n > 1")
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)
        changed = expected.set_column(expected.num_columns - 1, "n", pa.array([1, 12, 13]))
        assert_same_rows(Path(table.location), changed, spark=spark)

    @both_layouts
    def test_all_rows_of_a_file(self, table: deltasql.Table) -> None:
        result = table.update({"n": "0"}, where="id < 4")
        assert result.metrics["numCopiedRows"] == "0"
        assert len(paths(table)) == 3

    @both_layouts
    def test_without_a_condition(self, table: deltasql.Table) -> None:
        table.update({"n": F.lit(1)})
        assert set(values(table).values()) == {1}

    def test_nothing_matches(self, table: deltasql.Table) -> None:
        result = table.update({"n": "1"}, where="id = 99")
        assert (result.version, table.version, result.metrics["numUpdatedRows"]) == (3, 3, "0")

    def test_null_is_not_true(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, n INT")
        table.append(pa.table({"id": [1, 2, 3], "n": pa.array([None, 1, 2], pa.int32())}))
        table.update({"n": "9"}, where="n > 1")
        table.update({"n": "8"}, where="NOT n > 1")
        assert values(table) == {1: None, 2: 8, 3: 9}

    @both_layouts
    def test_rows_move_to_another_partition(self, table: deltasql.Table) -> None:
        table.update({"part": "concat('new ', id)"}, where="id = 1")
        assert values(table, "part")[1] == "new 1"
        assert table.files(where="part = 'new 1'").num_rows == 1

    def test_columns_of_spark(self, table: deltasql.Table) -> None:
        table.update({"n": F.col("t.n") + F.col("id")}, where=F.col("t.id") == 2)
        assert values(table)[2] == 4

    def test_from_a_source(self, table: deltasql.Table, spark: SparkSession) -> None:
        source = pa.table({"key": [1, 12, 77], "value": [100, 200, 300]})
        rows = table.update(
            {"n": "s.value + t.id"}, where="t.id = s.key", source=source, returning=["id", "n", "s.value"]
        )
        assert sorted(map(tuple, rows.collect())) == [(1, 101, 100), (12, 212, 200)]
        assert values(table) == ALL | {1: 101, 12: 212}

    def test_several_rows_of_the_source_match(self, table: deltasql.Table) -> None:
        source = pa.table({"key": [1, 1], "value": [100, 200]})
        with pytest.raises(deltasql.UsageError, match=r"several source rows match one target row \(1 target rows\)"):
            table.update({"n": "s.value"}, where="id = s.key", source=source)
        assert table.version == 3

    @pytest.mark.usefixtures("rewrite_path")
    @layouts_and_paths
    def test_random_values_are_computed_once(self, table: deltasql.Table) -> None:
        rows = table.update({"n": "CAST(rand() * 1000000 AS INT)"}, where="rand() < 0.5", returning=["id", "n"])
        returned = dict(map(tuple, rows.collect()))
        assert values(table) == ALL | returned
        assert dict(map(tuple, rows.collect())) == returned

    @both_layouts
    def test_returned_rows_do_not_change_later(self, table: deltasql.Table) -> None:
        rows = table.update({"n": "n + 1"}, where="id < 2", returning="*")
        table.delete()
        assert sorted(row["n"] for row in rows.collect()) == [1, 2]

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"m": "1"}, 'column "m" does not exist .known: id, part, n, s'),
            ({"n": "'many'"}, "column 'n' is integer and cannot hold many"),
            ({"n": "id * 10000000000"}, "column 'n' is integer and cannot hold"),
            ({"s": "1"}, "column 's' is struct<x: long>, and its value is integer"),
            ({"id": "NULL"}, "constraint id NOT NULL"),
            ({"n": "1", "N": "2"}, "column 'n' gets two values"),
            ({}, "an update needs a column"),
        ],
    )
    def test_values_that_do_not_fit(self, table: deltasql.Table, changes: dict[str, str], problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            table.update(changes, where="id > 0")
        assert (table.version, values(table)) == (3, ALL)

    def test_constraints_and_generated_columns(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(
            schema="id BIGINT, n INT, twice BIGINT GENERATED ALWAYS AS (id * 2)", constraints={"positive": "n > 0"}
        )
        table.append(spark.sql("SELECT 1L AS id, 1 AS n UNION ALL SELECT 2L, 2"))
        with pytest.raises(deltasql.ConstraintViolation, match="positive"):
            table.update({"n": "n - 1"})
        rows = table.update({"id": "id + 10"}, where="n = 1", returning="*").collect()
        assert [tuple(row) for row in rows] == [(11, 1, 22)]
        assert values(table, "twice") == {2: 4, 11: 22}

    def test_a_table_that_gained_a_column(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        table.append(pa.table({"id": [1, 2]}))
        table.append(pa.table({"id": [3], "n": ["x"]}), merge_schema=True)
        table.update({"n": "'y'"}, where="id = 1")
        assert values(table) == {1: "y", 2: None, 3: "x"}


class TestDelete:
    @both_layouts
    def test_matching_rows_and_no_others(self, table: deltasql.Table) -> None:
        before = paths(table)
        result = table.delete(where="id = 1 OR n = 22")
        assert values(table).keys() == ALL.keys() - {1, 22}
        assert len(before & paths(table)) == 1
        assert (result.metrics["numDeletedRows"], result.metrics["numCopiedRows"]) == ("2", "6")

    @both_layouts
    def test_a_file_that_loses_all_rows_is_not_rewritten(self, table: deltasql.Table) -> None:
        result = table.delete(where="n BETWEEN 10 AND 13")
        assert (result.metrics["numAddedFiles"], result.metrics["numRemovedFiles"]) == ("0", "1")
        assert values(table).keys() == ALL.keys() - {10, 11, 12, 13}

    @both_layouts
    def test_old_rows_are_returned(self, table: deltasql.Table) -> None:
        rows = table.delete(where="id >= 22", returning=["id", "n * 2 AS twice", "s.x"])
        assert sorted(map(tuple, rows.collect())) == [(22, 44, 22), (23, 46, 23)]

    def test_by_a_source(self, table: deltasql.Table, spark: SparkSession) -> None:
        table.delete(
            where="t.id = s.id AND s.flag", source=spark.sql("SELECT 1L AS id, true AS flag UNION ALL SELECT 2L, false")
        )
        assert values(table).keys() == ALL.keys() - {1}

    def test_a_row_with_several_matches_is_deleted_once(self, table: deltasql.Table, lake: deltasql.Lake) -> None:
        rows = table.delete(where="t.id = s.id", source=pa.table({"id": [1, 1, 2, 77]}), returning=["id", "n"])
        assert sorted(map(tuple, rows.collect())) == [(1, 1), (2, 2)]
        result = lake.sql(
            f"DELETE FROM {table.name} USING (VALUES (3), (3), (3)) AS s(id) WHERE {table.name}.id = s.id"
        )
        assert result.metrics["numDeletedRows"] == "1"
        assert values(table).keys() == ALL.keys() - {1, 2, 3}

    def test_delete_of_all_rows_reads_no_data(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, part STRING", partition_by=["part"])
        table.append(pa.table({"id": [1, 2, 3], "part": ["a", "b", None]}))
        for file in table.files()["path"].to_pylist():
            (Path(table.location) / file).unlink()
        assert table.delete(where="part = 'b'").metrics["numDeletedRows"] == "1"
        assert table.delete(where="part IS NULL").metrics["numRemovedFiles"] == "1"
        assert table.delete().metrics["numDeletedRows"] == "1"
        assert table.files().num_rows == 0

    @pytest.mark.parametrize("condition", ["true", "1 = 1", "false", "NULL"])
    def test_a_condition_without_columns(self, make_table: Make, condition: str, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        table.append(pa.table({"id": [1, 2]}))
        table.delete(where=f"CAST({condition} AS BOOLEAN)" if condition == "NULL" else condition)
        assert table.arrow().num_rows == (0 if condition in ("true", "1 = 1") else 2)

    def test_subqueries(self, table: deltasql.Table, spark: SparkSession) -> None:
        spark.range(20, 24).createOrReplaceTempView("doomed")
        table.delete(where="id IN (SELECT id FROM doomed)")
        assert values(table).keys() == ALL.keys() - {20, 21, 22, 23}


class TestMerge:
    SOURCE = pa.table({"id": [1, 11, 50], "part": ["p0", "p10", "new"], "n": pa.array([100, 110, 500], pa.int32())})

    @both_layouts
    def test_upsert(self, table: deltasql.Table, spark: SparkSession) -> None:
        merge = table.merge(self.SOURCE, on="t.id = s.id").when_matched_update().when_not_matched_insert()
        result = merge.execute()
        assert values(table) == ALL | {1: 100, 11: 110, 50: 500}
        assert_same_rows(Path(table.location), table.arrow(), spark=spark)
        metrics = {"numTargetRowsUpdated": "2", "numTargetRowsInserted": "1", "numTargetRowsCopied": "6"}
        assert metrics.items() <= result.metrics.items()
        [latest] = table.history(1)
        assert latest.operation == "MERGE"
        assert json.loads(latest.parameters["notMatchedPredicates"]) == [{"actionType": "insert"}]

    @both_layouts
    def test_every_clause_with_returning(self, table: deltasql.Table) -> None:
        rows = (
            table.merge(self.SOURCE, on="t.id = s.id AND t.part = s.part")
            .when_matched_delete("s.n > 105")
            .when_matched_update({"n": "s.n + t.n"})
            .when_not_matched_insert({"id": "s.id", "part": "'in'"}, condition="s.id = 50")
            .when_not_matched_by_source_update({"n": "-1"}, condition="t.id = 2")
            .when_not_matched_by_source_delete("t.id >= 20")
            .execute(returning=["merge_action()", "id", "n", "s.n AS given"])
        )
        found = {row["id"]: tuple(row) for row in rows.collect()}
        assert found == {
            11: ("DELETE", 11, 11, 110),
            1: ("UPDATE", 1, 101, 100),
            50: ("INSERT", 50, None, 500),
            2: ("UPDATE", 2, -1, None),
            **{i: ("DELETE", i, i, None) for i in range(20, 24)},
        }
        assert values(table) == {0: 0, 1: 101, 2: -1, 3: 3, 10: 10, 12: 12, 13: 13, 50: None}

    def test_the_first_clause_that_fits(self, table: deltasql.Table) -> None:
        merge = table.merge(self.SOURCE, on="t.id = s.id").when_matched_update({"n": "1"}, condition="s.n = 100")
        merge = merge.when_matched_update({"n": "2"})
        with pytest.raises(deltasql.UsageError, match=r"no row reaches \(delete of rows matched\)"):
            merge.when_matched_delete().execute()
        merge.execute()
        assert values(table) == ALL | {1: 1, 11: 2}

    def test_several_rows_of_the_source_match(self, table: deltasql.Table) -> None:
        twice = pa.concat_tables([self.SOURCE, self.SOURCE])
        with pytest.raises(deltasql.UsageError, match=r"several source rows match one target row \(2 target rows\)"):
            table.merge(twice, on="t.id = s.id").when_matched_update().execute()
        assert values(table) == ALL

    def test_several_rows_match_but_one_clause_applies(self, table: deltasql.Table) -> None:
        twice = pa.concat_tables([self.SOURCE, self.SOURCE.slice(0, 1).set_column(2, "n", pa.array([-5], pa.int32()))])
        table.merge(twice, on="t.id = s.id").when_matched_update({"n": "s.n"}, condition="s.n > 0").execute()
        assert values(table) == ALL | {1: 100, 11: 110}

    def test_null_keys_match_nothing(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, n INT")
        table.append(pa.table({"id": pa.array([None, 1], pa.int64()), "n": pa.array([1, 1], pa.int32())}))
        source = pa.table({"id": pa.array([None, 1], pa.int64()), "n": pa.array([2, 2], pa.int32())})
        table.merge(source, on="t.id = s.id").when_matched_update().when_not_matched_insert().execute()
        assert sorted(map(str, table.arrow().to_pylist())) == sorted(
            map(str, [{"id": None, "n": 1}, {"id": None, "n": 2}, {"id": 1, "n": 2}])
        )

    def test_inserts_get_defaults_and_are_checked(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(
            schema="id BIGINT, n INT DEFAULT 7, half DOUBLE GENERATED ALWAYS AS (id / 2)",
            constraints={"small": "id < 100"},
        )
        source = spark.range(1, 3)
        table.merge(source, on="t.id = s.id").when_not_matched_insert({"id": "s.id"}).execute()
        assert values(table) == {1: 7, 2: 7}
        assert values(table, "half") == {1: 0.5, 2: 1.0}
        with pytest.raises(deltasql.ConstraintViolation, match="small"):
            table.merge(spark.range(200, 201), on="t.id = s.id").when_not_matched_insert({"id": "s.id"}).execute()

    def test_values_are_computed_where_they_apply(self, table: deltasql.Table) -> None:
        """`100 / s.d` is not evaluated for the row with `s.d = 0`, which the DELETE clause handles."""
        source = pa.table({"id": [1, 2], "d": [0, 2]})
        merge = table.merge(source, on="t.id = s.id").when_matched_delete("s.d = 0")
        merge.when_matched_update({"n": "CAST(100 / s.d AS INT)"}).execute()
        assert values(table) == {k: v for k, v in (ALL | {2: 50}).items() if k != 1}

    def test_rejected_clauses(self, table: deltasql.Table) -> None:
        with pytest.raises(deltasql.UsageError, match="needs a clause"):
            table.merge(self.SOURCE, on="t.id = s.id").execute()
        with pytest.raises(deltasql.UsageError, match=r"^rows must be a Spark, .*, or a table of the lake, got list"):
            table.merge([1], on="t.id = s.id").when_matched_delete().execute()
        with pytest.raises(deltasql.UsageError, match="no column for more of the source"):
            more = self.SOURCE.append_column("more", pa.array([1, 2, 3]))
            table.merge(more, on="t.id = s.id").when_matched_update().execute()


class TestTypes:
    def test_assignments_are_cast(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, d DATE, t TIMESTAMP, m DECIMAL(6,2), f FLOAT, s STRING, b BOOLEAN")
        table.append(pa.table({"id": [1]}))
        table.update(
            {"d": "'2026-01-31'", "t": "'2026-01-31 12:00:00Z'", "m": "1", "f": "0.5D", "s": "12", "b": "'true'"}
        )
        [row] = table.arrow().to_pylist()
        assert row == {
            "id": 1,
            "d": dt.date(2026, 1, 31),
            "t": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
            "m": Decimal("1.00"),
            "f": 0.5,
            "s": "12",
            "b": True,
        }


class TestEdgeCases:
    def test_a_generator_is_rejected(self, table: deltasql.Table) -> None:
        with pytest.raises(deltasql.UsageError, match="nothing was changed"):
            table.update({"n": "explode(array(7, 8))"}, where="id IN (1, 2)")
        with pytest.raises(deltasql.UsageError, match="nothing was changed"):
            table.update({"n": "explode(array(7, 8))"})
        with pytest.raises(deltasql.UsageError, match="nothing was changed"):
            table.update({"n": "explode(array(7, 8))"}, where="id IN (1, 2)", returning="*")
        assert values(table) == ALL

    def test_files_of_unknown_length(self, make_table: Make, spark: SparkSession) -> None:
        """Files without statistics, as other writers may add them, have an unknown number of rows."""
        table = make_table(schema="id BIGINT, n INT")
        table.append(pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32())}))
        [file] = table.files().to_pylist()
        with table.lake.begin() as tx:
            bare = deltasql.Add(file["path"], file["size"], file["modification_time"], {})
            tx.stage(table, [bare])
        assert table.files()["stats"].to_pylist() == [None]
        with pytest.raises(deltasql.UsageError, match="nothing was changed"):
            table.update({"n": "explode(array(7, 8))"})
        assert table.update({"n": "n + 1"}).metrics["numUpdatedRows"] == "2"
        assert values(table) == {1: 2, 2: 3}

    def test_columns_named_like_internal_columns(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, t INT, s STRING")
        table.append(pa.table({"id": [1], "t": pa.array([5], pa.int32()), "s": ["x"]}))
        source = pa.table({"id": [1], "v": ["new"]})
        rows = table.update({"s": "s.v"}, where="t.id = s.id", source=source, returning="*").collect()
        assert [tuple(row) for row in rows] == [(1, 5, "new")]
        table.merge(source, on="t.id = s.id").when_matched_update({"t": "t.t + 1"}).when_not_matched_insert(
            {"id": "s.id"}
        ).execute()
        assert values(table, "t") == {1: 6}

    def test_a_column_named_like_an_internal_column_is_returned(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, t INT, s STRING, g INT GENERATED ALWAYS AS (t + 1)")
        table.append(pa.table({"id": [1], "t": pa.array([5], pa.int32()), "s": ["x"]}))
        shown = table.update({"s": "t + 1"}, where="t = 5", returning=["t", "s"])
        assert [tuple(row) for row in shown.collect()] == [(5, "6")]
        shown = table.update({"t": "t + 1"}, where="t.t = 5", returning=["t + 1", "t.t", F.col("t"), "t.s", "g"])
        assert [tuple(row) for row in shown.collect()] == [(7, 6, 6, "6", 7)]
        source = pa.table({"id": [1], "v": ["n"]})
        merge = table.merge(source, on="t.id = s.id").when_matched_update({"t": "t.t + 1", "s": "s.v"})
        shown = merge.execute(returning=["t", "s", "t.s", "s.v", "g", "merge_action()"])
        assert [tuple(row) for row in shown.collect()] == [(7, "n", "n", "n", 8, "UPDATE")]

    def test_a_column_named_like_an_internal_column_is_merged(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, T INT")
        table.append(pa.table({"id": [1], "T": pa.array([5], pa.int32())}))
        source = pa.table({"id": [1], "v": [3]})
        merge = table.merge(source, on="t.id = s.id AND t = 5").when_matched_update({"T": "t + s.v"}, "t = 5")
        shown = merge.execute(returning=["t", "t - 1", "t.T", "s.v"])
        assert [tuple(row) for row in shown.collect()] == [(8, 7, 8, 3)]

    def test_the_whole_row_is_returned(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, v STRING")
        table.append(pa.table({"id": [1], "v": ["x"]}))
        [row] = table.delete("id = 1", returning=["t", "t.v"]).collect()
        assert (row.t.asDict(), row.v) == ({"id": 1, "v": "x"}, "x")

    def test_an_empty_text_is_the_null_partition(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, p STRING", partition_by=["p"])
        table.append(pa.table({"id": [1], "p": ["a"]}))
        assert [tuple(row) for row in table.update({"p": "''"}, returning="*").collect()] == [(1, None)]
        assert values(table, "p") == {1: None}

    def test_a_partition_and_a_field_of_a_struct(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, p STRING, a STRUCT<x: BIGINT>", partition_by=["p"])
        table.append(pa.table({"id": [1, 2], "p": ["a", "a"], "a": [{"x": 1}, {"x": 2}]}))
        table.delete("p = 'a' AND a.x = 1")
        assert values(table, "p") == {2: "a"}


@pytest.fixture(params=["small", "keys", "large"] if LONG else ["keys", "large"])
def merge_strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Broadcast the source of a merge (as in the tests above), or only the columns of its condition, or neither."""
    for limit in {"small": (), "keys": ("_SMALL",), "large": ("_SMALL", "_SMALL_KEYS")}[request.param]:
        monkeypatch.setattr(merge_pairs, limit, -1)
    merge_strategy: str = request.param
    return merge_strategy


@pytest.mark.usefixtures("merge_strategy")
class TestMergeStrategies:
    """All strategies of a merge give the same result."""

    SOURCE = pa.table({"id": [1, 11, 50, None, None], "n": pa.array([100, 110, 500, 7, 7], pa.int32())})

    def test_merge_returning_matched_and_unmatched_rows(
        self, lake: deltasql.Lake, table: deltasql.Table, spark: SparkSession
    ) -> None:
        table.append(pa.table({"id": [-1], "n": pa.array([None], pa.int32())}))
        spark.createDataFrame(self.SOURCE).createOrReplaceTempView("given")
        rows = lake.sql(
            f"MERGE INTO {table.name} t USING given s ON t.id = s.id AND t.n < 5 WHEN MATCHED THEN UPDATE SET n = s.n "
            "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (coalesce(s.id, 60 + s.n), s.n) "
            "RETURNING merge_action(), t.id, s.n"
        )
        found = sorted(map(tuple, rows.collect()))
        assert found == [
            ("INSERT", 11, 110),
            ("INSERT", 50, 500),
            ("INSERT", 67, 7),
            ("INSERT", 67, 7),
            ("UPDATE", 1, 100),
        ]
        metrics = {"numSourceRows": "5", "numTargetRowsInserted": "4", "numTargetRowsUpdated": "1"}
        assert metrics.items() <= table.history(1)[0].metrics.items()
        assert table.df().count() == 17

    def test_matched_only(self, table: deltasql.Table) -> None:
        merge = table.merge(self.SOURCE, on="t.id = s.id").when_matched_delete("s.n = 100")
        rows = merge.when_matched_update({"n": "s.n + t.n"}).execute(returning=["merge_action()", "t.id", "s.n"])
        assert sorted(map(tuple, rows.collect())) == [("DELETE", 1, 100), ("UPDATE", 11, 110)]
        assert values(table) == {i: n for i, n in (ALL | {11: 121}).items() if i != 1}

    def test_with_rows_not_matched_by_source(self, table: deltasql.Table) -> None:
        merge = table.merge(self.SOURCE, on=F.expr("t.id = s.id")).when_matched_update({"n": "s.n"})
        merge = merge.when_not_matched_insert({"id": "coalesce(s.id, -s.n)"}, condition="s.id IS NOT NULL")
        merge.when_not_matched_by_source_delete("t.id >= 10").execute()
        assert values(table) == {0: 0, 1: 100, 2: 2, 3: 3, 11: 110, 50: None}

    def test_several_match(self, table: deltasql.Table) -> None:
        twice = pa.concat_tables([self.SOURCE, self.SOURCE])
        merge = table.merge(twice, on="t.id = s.id").when_matched_update({"n": "s.n"})
        with pytest.raises(deltasql.UsageError, match=r"several source rows match one target row \(2 target rows\)"):
            merge.when_not_matched_insert({"id": "0"}, condition="s.id = 50").execute()
        assert values(table) == ALL

    def test_a_nondeterministic_source(self, table: deltasql.Table, spark: SparkSession) -> None:
        """The source is computed once, so that each of its rows is either updated or inserted."""
        source = spark.range(1000).selectExpr("id AS r", "CAST(floor(rand() * 1e9) AS BIGINT) AS id")
        merge = table.merge(source, on="t.id = s.id % 2 + 1000 * s.r")
        result = merge.when_matched_update({"n": "-1"}).when_not_matched_insert({"id": "100000 + s.r"}).execute()
        updated = sum(n == -1 for n in values(table).values())
        assert updated == int(result.metrics["numTargetRowsUpdated"]) == 1
        assert result.metrics["numTargetRowsInserted"] == "999"


class TestConcurrency:
    def test_the_target_as_its_own_source_is_read_again_on_retry(
        self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with during_next_change(table, lambda: table.update({"n": "n + 100"}, where="id = 1"), monkeypatch):
            table.update({"n": "s.n + 1"}, where="t.id = s.id AND t.id = 1", source=table)
        assert values(table) == ALL | {1: 102}

    def test_the_target_as_its_own_source(self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each statement reads the row that the other one changes; the later one reads the new value."""

        def other() -> None:
            table.update({"n": "s.n"}, where="t.id = 11 AND s.id = 1", source=table)

        with during_next_change(table, other, monkeypatch):
            table.update({"n": "s.n"}, where="t.id = 1 AND s.id = 11", source=table)
        assert values(table) == ALL | {11: 1, 1: 1}

    def test_statements_on_different_files_both_commit(
        self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The second statement begins before the first one commits, and is not retried."""
        caplog.set_level(logging.INFO, "deltasql")
        with during_next_change(table, lambda: table.update({"n": "-1"}, where="id = 11"), monkeypatch):
            table.update({"n": "-2"}, where="id = 1")
        assert values(table) == ALL | {1: -2, 11: -1}
        assert "retry" not in caplog.text

    def test_statements_on_the_same_file_are_retried(
        self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "deltasql")
        with during_next_change(table, lambda: table.update({"n": "n + 100"}, where="id = 1"), monkeypatch):
            table.update({"n": "n + 10"}, where="id IN (1, 2)")
        assert values(table) == ALL | {1: 111, 2: 12}
        assert caplog.text.count("retry 1 of") == 1

    def test_retries_are_limited(
        self, lake: deltasql.Lake, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
    ) -> None:
        with deltasql.connect(lake.dsn, config={"dml.retries": 0}, spark=spark) as other:
            mine = other.table(table.name)
            with during_next_change(mine, lambda: table.update({"n": "7"}, where="id = 1"), monkeypatch):
                with pytest.raises(deltasql.CommitConflict):
                    mine.update({"n": "8"}, where="id = 1")
        assert values(table) == ALL | {1: 7}

    def test_a_table_property_limits_retries(self, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(schema="id BIGINT, n INT", properties={"deltasql.dml.retries": "0"})
        table.append(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
        with during_next_change(table, lambda: table.delete(where="id = 1"), monkeypatch):
            with pytest.raises(deltasql.CommitConflict):
                table.update({"n": "8"}, where="id = 1")

    def test_concurrently_added_rows(self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        """A delete does not conflict with a concurrent blind append, and does not delete its rows, as in Delta."""
        late = pa.table({"id": [30], "part": ["p30"], "n": [30]})
        with during_next_change(table, lambda: table.append(late), monkeypatch):
            table.delete(where="n > 20")
        assert values(table).keys() == {i for i in ALL if i <= 20} | {30}


class during_next_change:
    """Run `action` between the read and the commit of the next change."""

    def __init__(self, table: deltasql.Table, action: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self._changer, self._action, self._patch = table.lake.changer, action, monkeypatch

    def __enter__(self) -> None:
        original = self._changer.change
        done = threading.Event()

        def change(txn: Any, state: TableState, row_change: Any) -> Any:
            outcome = original(txn, state, row_change)
            if not done.is_set():
                done.set()
                self._action()
            return outcome

        self._patch.setattr(self._changer, "change", change)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


@pytest.mark.skipif(PLAIN, reason="Delta's jars are for the locked Spark")
@pytest.mark.parametrize("vectors", [pytest.param("false", marks=pytest.mark.long), "true"])
def test_history_has_the_operation_metrics_of_delta(
    lake: deltasql.Lake, make_table: Make, spark: SparkSession, tmp_path: Path, vectors: str
) -> None:
    """deltasql and Delta record the same metric names and row counts for the same statements."""
    properties = {"delta.enableDeletionVectors": vectors}
    rows = pa.table({"id": list(range(100)), "n": pa.array([0] * 100, pa.int32())})
    table = make_table(schema="id BIGINT, n INT", properties=properties)
    table.append(rows)
    delta_table = f"delta.`{tmp_path / 'theirs'}`"
    spark.createDataFrame(rows).coalesce(1).write.format("delta").options(**properties).save(str(tmp_path / "theirs"))
    statements = [
        "UPDATE {t} SET n = n + 1 WHERE id IN (3, 4)",
        "DELETE FROM {t} WHERE id = 5",
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (3, 7), (6, 8), (100, 9) AS v(id, n)) s ON t.id = s.id "
        "WHEN MATCHED AND s.n = 8 THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n "
        "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 10 THEN UPDATE SET n = 10 "
        "WHEN NOT MATCHED BY SOURCE AND t.id IN (11, 12) THEN DELETE",
        "UPDATE {t} SET n = 1",
        "DELETE FROM {t}",
    ]
    for statement in statements:
        lake.sql(statement.format(t=table.name))
        spark.sql(statement.format(t=delta_table))
        [ours] = table.history(1)
        [delta] = spark.sql(f"DESCRIBE HISTORY {delta_table} LIMIT 1").collect()
        assert ours.operation == delta["operation"]
        assert ours.metrics.keys() == delta["operationMetrics"].keys(), statement
        counts = [name for name in ours.metrics if "Rows" in name and "Copied" not in name and "Output" not in name]
        assert {n: ours.metrics[n] for n in counts} == {n: delta["operationMetrics"][n] for n in counts}, statement
    assert ours.parameters["predicate"] == delta["operationParameters"]["predicate"]


SOURCE = pa.table({"id": [1], "w": ["x"]})
COLUMNS = "the table (t) has id, part, n, s"
BOTH = f"{COLUMNS}; the source (s) has id, w"
Statement = Callable[[deltasql.Table], Any]


class TestProblems:
    """Errors in an expression name the table, the expression and the existing columns."""

    @pytest.mark.parametrize(
        ("statement", "problem", "text"),
        [
            (lambda t: t.delete("nope = 1"), f'column "nope" does not exist: {COLUMNS}', "where: nope = 1"),
            (lambda t: t.delete("t.nope = 1"), f'column "t.nope" does not exist: {COLUMNS}', "where: t.nope = 1"),
            (lambda t: t.delete(F.col("nope") == 1), f'column "nope" does not exist: {COLUMNS}', "where: Column"),
            (lambda t: t.delete("id = = 1"), "Syntax error at or near '='", "where: id = = 1"),
            (lambda t: t.delete("id"), "is not a boolean", "where: id"),
            (lambda t: t.delete("nope(id)"), "function nope does not exist", "where: nope(id)"),
            (lambda t: t.delete("id = 1", source=SOURCE), 'column "id" is ambiguous: write', "where: id = 1"),
            (lambda t: t.delete("t.id = s.nope", SOURCE), f'field "nope" does not exist (existing fields: x); {BOTH}', "where: t.id = s.nope"),
            (lambda t: t.delete("n = 1", returning="nope"), f'column "nope" does not exist: {COLUMNS}', "returning: nope"),
            (lambda t: t.update({"n": "nope"}, "id = 1"), f'column "nope" does not exist: {COLUMNS}', "n: nope"),
            (lambda t: t.update({"n": "upper("}), "Syntax error at or near end of input", "n: upper("),
            (lambda t: t.update({"n": "n + s"}), "data type mismatch", "n: n + s"),
            (lambda t: t.update({"n": "1 / (n - n)"}), "Division by zero", "n: 1 / (n - n)"),
            (lambda t: t.update({"n": "1"}, returning=["id", "nope + 1"]), 'column "nope" does not exist', "returning: nope + 1"),
            (lambda t: t.insert(SOURCE.select(["id"]), returning="nope"), 'column "nope" does not exist', "returning: nope"),
            (lambda t: t.merge(SOURCE, "t.nope = s.id").when_matched_delete().execute(), f'column "t.nope" does not exist: {BOTH}', "on: t.nope = s.id"),
            (lambda t: t.merge(SOURCE, "t.id =").when_matched_delete().execute(), "Syntax error at or near", "on: t.id ="),
            (lambda t: t.merge(SOURCE, "t.id = s.id").when_matched_delete("nope").execute(), f'column "nope" does not exist: {BOTH}', "condition: nope"),
            (lambda t: t.merge(SOURCE, "t.id = s.id").when_matched_update({"n": "s.nope"}).execute(), 'field "nope" does not exist (existing fields: id, w)', "n: s.nope"),
            (lambda t: t.merge(SOURCE, "t.id = s.id").when_matched_delete().execute("nope"), f'column "nope" does not exist: {BOTH}', "returning: nope"),
        ],
    )  # fmt: skip
    def test_errors_name_the_table_and_the_expression(
        self, table: deltasql.Table, statement: Statement, problem: str, text: str
    ) -> None:
        with pytest.raises(deltasql.ValidationError) as caught:
            statement(table)
        message = str(caught.value)
        assert message.startswith(f"table {table.name}: ")
        assert problem in message
        assert [line.strip().startswith(text) for line in message.splitlines()[1:]] == [True]
        assert "__deltasql" not in message
        assert caught.value.__cause__ is not None
        assert (caught.value.table, table.version) == (table.name, 3)

    def test_in_a_transaction(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        tx = lake.begin()
        with pytest.raises(deltasql.ValidationError, match='column "nope" does not exist'):
            tx.update(table, {"n": "nope"})
        tx.rollback()


PARTITIONS, DATA = ("a.b", ".x", "a`'b", "Select"), ("c.d", ".y", "y.", 'c`"d', "From")


@pytest.mark.parametrize("layout", ["copied", "marked"])
def test_columns_of_any_name(make_table: Make, lake: deltasql.Lake, spark: SparkSession, layout: str) -> None:
    """Data and partition columns may have names with dots, quotes, upper case and SQL keywords."""

    def tick(name: str) -> str:
        return f"`{name.replace('`', '``')}`"

    def rows(*ids: int) -> pa.Table:
        values = {"id": list(ids), **{name: [f"{i % 2}" for i in ids] for name in PARTITIONS}}
        return pa.table({**values, **{name: [str(i) for i in ids] for name in DATA}})

    marks = {"delta.enableDeletionVectors": "true"} if layout == "marked" else {"deltasql.spark.fast_scan": "off"}
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in (*PARTITIONS, *DATA))])
    table = make_table(
        schema=schema, partition_by=list(PARTITIONS), properties={"delta.enableChangeDataFeed": "true", **marks}
    )
    for start in (0, 10):
        table.append(rows(*range(start, start + 10)))
    given = {name: f"concat(t.{tick(name)}, '!')" for name in (*PARTITIONS, *DATA)}
    is_zero = " AND ".join(f"t.{tick(name)} = '0'" for name in PARTITIONS)
    table.update(given, where=f"{is_zero} AND {tick(DATA[0])} = '2'")
    table.delete(where=f"{is_zero} AND {tick('.y')} = '4'")
    where = " AND ".join(f't."{name.replace(chr(34), chr(34) * 2)}" IS NOT NULL' for name in (*PARTITIONS, *DATA))
    assert lake.sql(f"DELETE FROM {table.name} t WHERE id = 6 AND {where} RETURNING *").count() == 1
    joined = " AND ".join(f"t.{tick(name)} = s.{tick(name)}" for name in (*PARTITIONS, *DATA))
    table.merge(rows(8, 30), on=joined).when_matched_update(given).when_not_matched_insert().execute()
    table.optimize()
    changed = {r["id"]: r for r in table.arrow().to_pylist() if r["id"] in (2, 8)}
    assert [changed[i]["a.b"] for i in (2, 8)] == ["0!", "0!"]
    assert [changed[i]['c`"d'] for i in (2, 8)] == ["2!", "8!"]
    assert sorted(table.arrow()["id"].to_pylist()) == sorted({*range(20), 30} - {4, 6})
    kinds = [row["_change_type"] for row in table.changes(3).collect()]
    assert sorted(kinds) == sorted(["update_preimage", "update_postimage"] * 2 + ["delete"] * 2 + ["insert"])
    assert_same_rows(Path(table.location), table.arrow(), ("delta-rs", "duckdb", "spark"), spark=spark)
