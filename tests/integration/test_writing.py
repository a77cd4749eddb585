"""Writing Arrow rows without Spark: accepted and rejected input, schema evolution, overwrites, files."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltasql
from tests.effort import rounds
from tests.readers import assert_same_rows
from tests.sample_columns import NESTED, PRIMITIVES, table_of

Make = Callable[..., deltasql.Table]
ENGINES = ("delta-rs", "polars", "duckdb", "clickhouse")
DAY = dt.date(2026, 1, 1)
NUMBERS = itertools.count()


def read(table: deltasql.Table, **options: Any) -> list[dict[str, Any]]:
    """Read the published table with delta-rs."""
    found = DeltaTable(table.location, **options).to_pyarrow_table()
    return found.sort_by([(found.schema.names[0], "ascending")]).to_pylist()


def data_files(table: deltasql.Table) -> list[Path]:
    return [p for p in Path(table.location).rglob("*.parquet") if "_delta_log" not in p.parts]


class TestInputs:
    ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "day": [DAY, None], "amount": [1.5, None]})

    @pytest.mark.parametrize(
        "convert",
        [
            lambda t: t,
            lambda t: t.to_batches()[0],
            lambda t: t.to_reader(),
            lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
            pl.from_arrow,
            lambda t: duckdb.from_arrow(t),
        ],
        ids=["table", "batch", "reader", "pandas", "polars", "duckdb"],
    )
    def test_every_arrow_source(self, make_table: Make, convert: Callable[[pa.Table], Any]) -> None:
        table = make_table()
        result = table.append(convert(self.ROWS))
        assert result.version == table.version == 1
        assert result.metrics["numOutputRows"] == "2"
        assert read(table) == self.ROWS.to_pylist()

    def test_a_plain_pandas_frame(self, make_table: Make) -> None:
        table = make_table()
        table.append(pd.DataFrame({"id": [1], "amount": [2.0]}, index=["not a column"]))
        assert read(table) == [{"id": 1, "day": None, "amount": 2.0}]

    def test_other_sources_are_rejected(self, make_table: Make) -> None:
        with pytest.raises(deltasql.UsageError, match="got list"):
            make_table().append([{"id": 1}])

    def test_all_types(self, make_table: Make, tmp_path: Path) -> None:
        expected = table_of({**PRIMITIVES, **NESTED})
        table = make_table(schema=expected.schema, location=str(tmp_path / "t"))
        table.append(expected)
        assert_same_rows(Path(table.location), expected, ENGINES)

    def test_no_rows(self, make_table: Make) -> None:
        table = make_table()
        assert table.append(self.ROWS.slice(0, 0)).metrics["numFiles"] == "0"
        assert table.files().num_rows == 0


class TestSchemaMatching:
    def test_columns_are_matched_by_name_in_any_case_and_order(self, make_table: Make) -> None:
        table = make_table()
        table.append(pa.table({"AMOUNT": [1.0], "Id": pa.array([7], pa.int64())}))
        assert read(table) == [{"id": 7, "day": None, "amount": 1.0}]

    def test_every_schema_difference_is_named_and_nothing_is_written(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT NOT NULL, day DATE, amount DOUBLE")
        with pytest.raises(deltasql.ValidationError) as caught:
            table.append(pa.table({"day": ["2026-01-01"], "amuont": [1.0], "other": [1]}))
        text = str(caught.value)
        assert "column 'id' is missing, but NOT NULL" in text
        assert "column 'day' is string, but date in the table" in text
        assert '(double) is not in the table (did you mean "amount"?)' in text
        assert "'other' (long) is not in the table" in text
        assert table.name in text
        assert (table.version, data_files(table)) == (0, [])

    @pytest.mark.parametrize(
        ("column", "source", "kept"),
        [
            ("INT", pa.array([5], pa.int64()), 5),
            ("BIGINT", pa.array([5], pa.int8()), 5),
            ("BIGINT", pa.array([5], pa.uint32()), 5),
            ("DOUBLE", pa.array([1.5], pa.float32()), 1.5),
            ("DOUBLE", pa.array([3], pa.int32()), 3.0),
            ("DECIMAL(10,2)", pa.array([Decimal("1.5")], pa.decimal128(38, 18)), Decimal("1.50")),
            ("DECIMAL(10,2)", pa.array([7], pa.int32()), Decimal("7.00")),
            ("STRING", pa.array(["a"]).dictionary_encode(), "a"),
            ("STRING", pa.array(["a"], pa.large_string()), "a"),
            ("TIMESTAMP_NTZ", pa.array([1_000], pa.timestamp("ns")), dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
            ("STRING", pa.nulls(1), None),
        ],
    )
    def test_other_types_that_hold_the_value(self, make_table: Make, column: str, source: pa.Array, kept: Any) -> None:
        table = make_table(schema=f"x {column}")
        table.append(pa.table({"x": source}))
        assert read(table) == [{"x": kept}]

    @pytest.mark.parametrize(
        ("column", "source"),
        [
            ("INT", pa.array([2**40])),
            ("DECIMAL(10,2)", pa.array([Decimal("1.005")])),
            ("TIMESTAMP_NTZ", pa.array([1], pa.timestamp("ns"))),
        ],
    )
    def test_lossy_casts_are_rejected(self, make_table: Make, column: str, source: pa.Array) -> None:
        table = make_table(schema=f"x {column}")
        with pytest.raises(deltasql.ValidationError, match="column 'x' has a value"):
            table.append(pa.table({"x": source}))
        assert table.version == 0

    @pytest.mark.parametrize(
        ("column", "source"),
        [
            ("FLOAT", pa.array([1.5])),
            ("BIGINT", pa.array([1.0])),
            ("TIMESTAMP", pa.array([0], pa.timestamp("us"))),
            ("STRING", pa.array([1])),
            ("ARRAY<INT>", pa.array([["a"]])),
            ("STRUCT<a: INT>", pa.array([1])),
        ],
    )
    def test_other_types_are_rejected(self, make_table: Make, column: str, source: pa.Array) -> None:
        with pytest.raises(deltasql.ValidationError, match=r"but .* in the table"):
            make_table(schema=f"x {column}").append(pa.table({"x": source}))

    def test_nested_fields_by_name(self, make_table: Make) -> None:
        table = make_table(
            schema="id BIGINT, s STRUCT<a: BIGINT, b: STRING>, l ARRAY<STRUCT<x: INT, y: INT>>, m MAP<STRING, STRUCT<v: BIGINT>>"
        )
        one = {"B": "text", "a": 1}
        source = pa.table(
            {
                "id": pa.array([1, 2, 3], pa.int64()),
                "s": pa.array([one, None, {"B": None, "a": 2}], pa.struct([("B", pa.string()), ("a", pa.int32())])),
                "l": pa.array([[{"Y": 5}], None, []], pa.list_(pa.struct([("Y", pa.int32())]))),
                "m": pa.array([[("k", {"V": 1})], None, []], pa.map_(pa.string(), pa.struct([("V", pa.int64())]))),
            }
        )
        table.append(source.slice(0, 1))
        table.append(source.slice(1))
        assert read(table) == [
            {"id": 1, "s": {"a": 1, "b": "text"}, "l": [{"x": None, "y": 5}], "m": [("k", {"v": 1})]},
            {"id": 2, "s": None, "l": None, "m": None},
            {"id": 3, "s": {"a": 2, "b": None}, "l": [], "m": []},
        ]


class TestConstraints:
    def test_not_null_names_the_rows(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT NOT NULL, name STRING")
        with pytest.raises(deltasql.ConstraintViolation) as caught:
            table.append(pa.table({"id": [1, None, None, None, None], "name": ["a", "b", "c", "d", "e"]}))
        text = str(caught.value)
        assert caught.value.constraint == "id NOT NULL"
        assert f"table {table.name}: 4 rows violate" in text
        assert [name for name in "abcde" if f"name='{name}'" in text] == ["b", "c", "d"]
        assert table.version == 0

    def test_inside_a_struct(self, make_table: Make) -> None:
        inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
        table = make_table(schema=pa.schema([("s", inner)]))
        loose = pa.struct([("a", pa.int64())])
        table.append(pa.table({"s": pa.array([None, {"a": 1}], loose)}))
        with pytest.raises(deltasql.ConstraintViolation, match=r"s\.a NOT NULL"):
            table.append(pa.table({"s": pa.array([{"a": None}], loose)}))


class TestSchemaEvolution:
    def test_columns_are_added(self, make_table: Make, tmp_path: Path) -> None:
        table = make_table(schema="id BIGINT NOT NULL, s STRUCT<a: INT>", location=str(tmp_path / "t"))
        table.append(pa.table({"id": [1], "s": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))}))
        wider = pa.struct([("a", pa.int32()), ("b", pa.string())])
        second = pa.table({"id": [2], "s": pa.array([{"a": 2, "b": "x"}], wider), "extra": [True]})
        with pytest.raises(
            deltasql.ValidationError, match=r"(?s)'s.b' \(string\).*'extra' \(boolean\).*merge_schema=True"
        ):
            table.append(second)
        table.append(second, merge_schema=True)
        assert table.schema.names == ["id", "s", "extra"]
        assert not table.schema.field("id").nullable
        expected = pa.table(
            {
                "id": pa.array([1, 2], pa.int64()),
                "s": pa.array([{"a": 1, "b": None}, {"a": 2, "b": "x"}], wider),
                "extra": [None, True],
            }
        )
        assert_same_rows(Path(table.location), expected, ENGINES)

    def test_a_type_that_needs_a_feature(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        moment = dt.datetime(2026, 1, 1, 12)
        table.append(pa.table({"id": [1], "at": pa.array([moment], pa.timestamp("us"))}), merge_schema=True)
        assert "timestampNtz" in (table.protocol.reader_features or ())
        assert read(table) == [{"id": 1, "at": moment}]

    def test_a_column_of_nulls_has_no_type(self, make_table: Make) -> None:
        with pytest.raises(deltasql.ValidationError, match="'x' is new and has no type"):
            make_table().append(pa.table({"id": [1], "x": pa.nulls(1)}), merge_schema=True)

    def test_equal_columns_do_not_change_the_schema(self, make_table: Make) -> None:
        table = make_table()
        created = table.state()
        table.append(pa.table({"id": [1]}), merge_schema=True)
        assert table.state().shape_id == created.shape_id == created.head_id

    def test_overwriting_the_schema(self, make_table: Make) -> None:
        table = make_table(properties={"delta.checkpointInterval": "7"})
        table.append(pa.table({"id": [1]}))
        table.overwrite(pa.table({"id": ["now a text"]}), overwrite_schema=True)
        assert table.schema.names == ["id"]
        assert table.properties == {"delta.checkpointInterval": "7"}
        assert read(table) == [{"id": "now a text"}]
        assert read(table, version=1) == [{"id": 1, "day": None, "amount": None}]

    def test_overwriting_the_schema_keeps_the_partitions(self, make_table: Make) -> None:
        table = make_table(partition_by=["day"])
        with pytest.raises(deltasql.ValidationError, match='partition column "day" does not exist'):
            table.overwrite(pa.table({"id": [1]}), overwrite_schema=True)


class TestOverwriting:
    def test_all_rows_are_replaced(self, make_table: Make) -> None:
        table = make_table()
        for n in (1, 2):
            table.append(pa.table({"id": [n]}))
        result = table.overwrite(pa.table({"id": [3]}))
        assert [row["id"] for row in read(table)] == [3]
        assert (result.metrics["numFiles"], result.metrics["numRemovedFiles"]) == ("1", "2")
        assert [row["id"] for row in read(table, version=2)] == [1, 2]
        entry = table.history(1)[0]
        assert (entry.operation, entry.parameters["mode"]) == ("WRITE", "Overwrite")

    def test_a_table_without_rows(self, make_table: Make) -> None:
        table = make_table()
        table.overwrite(pa.table({"id": [3]}))
        assert [row["id"] for row in read(table)] == [3]

    def test_an_append_in_between_is_a_conflict(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        tx = lake.begin()
        tx.write(table, pa.table({"id": [1]}), mode="overwrite")
        table.append(pa.table({"id": [2]}))
        with pytest.raises(deltasql.ConcurrentAppend):
            tx.commit()
        assert [row["id"] for row in read(table)] == [2]

    def test_the_rows_of_a_partition(self, make_table: Make) -> None:
        table = make_table(partition_by=["day"])
        other = DAY + dt.timedelta(1)
        table.append(pa.table({"id": [1, 2, 3], "day": [DAY, other, None]}))
        before = {
            p
            for p, v in zip(*(table.files()[c].to_pylist() for c in ("path", "partition_values")), strict=True)
            if v["day"] != "2026-01-01"
        }
        result = table.overwrite(pa.table({"id": [4, 5], "day": [DAY, DAY]}), where="day = '2026-01-01'")
        assert [row["id"] for row in read(table)] == [2, 3, 4, 5]
        assert before < set(table.files()["path"].to_pylist())
        assert (result.metrics["numFiles"], result.metrics["numRemovedFiles"]) == ("1", "1")
        assert table.history(1)[0].parameters["predicate"] == "day = '2026-01-01'"

    def test_some_rows_of_files(self, make_table: Make) -> None:
        table = make_table()
        for ids in ([1, 2, 3], [4, 5, 6], [7, 8, 9]):
            table.append(pa.table({"id": ids, "amount": [0.5, None, 2.5]}))
        [untouched] = table.files("id > 6")["path"].to_pylist()
        result = table.overwrite(pa.table({"id": [3], "amount": [99.0]}), where="id >= 2 AND id < 5 AND id = id")
        assert [(row["id"], row["amount"]) for row in read(table)] == [
            (1, 0.5), (3, 99.0), (5, None), (6, 2.5), (7, 0.5), (8, None), (9, 2.5),
        ]  # fmt: skip
        assert untouched in table.files()["path"].to_pylist()
        assert (result.metrics["numRemovedFiles"], result.metrics["numCopiedRows"]) == ("2", "3")

    def test_rows_outside_the_condition_are_rejected(self, make_table: Make) -> None:
        table = make_table(partition_by=["day"])
        table.append(pa.table({"id": [1], "day": [DAY]}))
        for day in (DAY + dt.timedelta(1), None):
            with pytest.raises(deltasql.ConstraintViolation, match="overwrite where day = '2026-01-01'"):
                table.overwrite(pa.table({"id": [2], "day": pa.array([day], pa.date32())}), where="day = '2026-01-01'")
        assert [row["id"] for row in read(table)] == [1]

    def test_an_invalid_condition(self, make_table: Make) -> None:
        table = make_table()
        for where, problem in (("nothing = 1", 'column "nothing" does not exist'), ("id =", "invalid condition")):
            with pytest.raises(deltasql.ValidationError, match=problem):
                table.overwrite(pa.table({"id": [1]}), where=where)
        assert data_files(table) == []

    def test_only_the_same_rows_conflict(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(partition_by=["day"])
        other = DAY + dt.timedelta(1)
        table.append(pa.table({"id": [1, 2], "day": [DAY, other]}))
        tx, late = lake.begin(), lake.begin()
        tx.write(table, pa.table({"id": [3], "day": [DAY]}), mode="overwrite", where="day = '2026-01-01'")
        late.write(table, pa.table({"id": [4], "day": [DAY]}), mode="overwrite", where="day = '2026-01-01'")
        table.overwrite(pa.table({"id": [5], "day": [other]}), where="day = '2026-01-02'")
        tx.commit()
        with pytest.raises(deltasql.CommitConflict):
            late.commit()
        assert [row["id"] for row in read(table)] == [3, 5]

    def test_dynamic_partitions(self, make_table: Make) -> None:
        table = make_table(partition_by=["day"])
        days = [DAY, DAY + dt.timedelta(1), None]
        table.append(pa.table({"id": [1, 2, 3], "day": days}))
        table.overwrite(pa.table({"id": [4, 5], "day": [DAY, None]}), dynamic=True)
        assert [(row["id"], row["day"]) for row in read(table)] == [(2, days[1]), (4, DAY), (5, None)]

    def test_dynamic_overwrites_of_different_partitions_do_not_conflict(
        self, lake: deltasql.Lake, make_table: Make
    ) -> None:
        table = make_table(partition_by=["day"])
        other = DAY + dt.timedelta(1)
        table.append(pa.table({"id": [1, 2], "day": [DAY, other]}))
        first, second, third = lake.begin(), lake.begin(), lake.begin()
        first.write(table, pa.table({"id": [3], "day": [DAY]}), mode="overwrite", dynamic=True)
        second.write(table, pa.table({"id": [4], "day": [other]}), mode="overwrite", dynamic=True)
        third.write(table, pa.table({"id": [5], "day": [other]}), mode="overwrite", dynamic=True)
        first.commit()
        second.commit()
        with pytest.raises(deltasql.CommitConflict):
            third.commit()
        assert [row["id"] for row in read(table)] == [3, 4]

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"dynamic": True}, "needs a partitioned table"),
            ({"dynamic": True, "where": "id = 1"}, "cannot be combined"),
            ({"overwrite_schema": True, "where": "id = 1"}, "replaces all rows"),
        ],
    )
    def test_conflicting_arguments(self, make_table: Make, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            make_table().overwrite(pa.table({"id": [1]}), **options)


class TestTransactions:
    def test_two_tables_or_none(self, lake: deltasql.Lake, make_table: Make) -> None:
        features, labels = make_table("features"), make_table("labels")
        with lake.begin() as tx:
            tx.write(features, pa.table({"id": [1]}))
            tx.write(labels.name, pa.table({"id": [2]}), mode="append")
        assert tx.versions == {features.name: 1, labels.name: 1}
        with pytest.raises(deltasql.ValidationError), lake.begin() as tx:
            tx.write(features, pa.table({"id": [3]}))
            tx.write(labels, pa.table({"nothing": [4]}))
        assert [row["id"] for row in read(features)] == [1]

    def test_the_last_overwrite_wins(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        table.append(pa.table({"id": [1]}))
        with lake.begin() as tx:
            tx.write(table, pa.table({"id": [2]}))
            tx.write(table, pa.table({"id": [3]}), mode="overwrite")
            tx.write(table, pa.table({"id": [4]}))
        assert [row["id"] for row in read(table)] == [3, 4]

    def test_two_columns_added_one_after_the_other(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        with lake.begin() as tx:
            tx.write(table, pa.table({"id": [1], "a": ["x"]}), merge_schema=True)
            tx.write(table, pa.table({"id": [2], "b": ["y"]}), merge_schema=True)
        assert read(table) == [{"id": 1, "a": "x", "b": None}, {"id": 2, "a": None, "b": "y"}]

    def test_an_unknown_mode(self, lake: deltasql.Lake, make_table: Make) -> None:
        with pytest.raises(deltasql.UsageError, match="'append' or 'overwrite', got 'upsert'"), lake.begin() as tx:
            tx.write(make_table(), pa.table({"id": [1]}), mode="upsert")


class TestCreateAs:
    def test_the_schema_comes_from_the_rows(self, lake: deltasql.Lake, namespace: str) -> None:
        source = pa.table({"id": [1, 2], "day": [DAY, None]})
        table = lake.create_table(f"{namespace}.t", as_=source, partition_by=["day"])
        assert table.version == 0
        assert read(table) == source.to_pylist()

    def test_a_given_schema(self, lake: deltasql.Lake, namespace: str) -> None:
        table = lake.create_table(f"{namespace}.t", "id INT NOT NULL, more STRING", as_=pa.table({"id": [1]}))
        assert read(table) == [{"id": 1, "more": None}]

    def test_a_constraint_violation_creates_no_table(self, lake: deltasql.Lake, namespace: str) -> None:
        with pytest.raises(deltasql.ConstraintViolation):
            lake.create_table(f"{namespace}.t", "id INT NOT NULL", as_=pa.table({"id": pa.nulls(1, pa.int32())}))
        with pytest.raises(deltasql.TableNotFound):
            lake.table(f"{namespace}.t")

    def test_neither_schema_nor_rows(self, lake: deltasql.Lake, namespace: str) -> None:
        with pytest.raises(deltasql.UsageError, match="a schema is missing"):
            lake.create_table(f"{namespace}.t")


PARTITIONS = {
    "BOOLEAN": (pa.bool_(), [True, False, None]),
    "INT": (pa.int32(), [-1, 2**31 - 1, None]),
    "BIGINT": (pa.int64(), [-(2**63), 0, None]),
    "FLOAT": (pa.float32(), [0.1, -1e-30, None]),
    "DOUBLE": (pa.float64(), [0.1, 1e300, None]),
    "DECIMAL(18,4)": (pa.decimal128(18, 4), [Decimal("-1.5000"), Decimal("99999999999999.9999"), None]),
    "DATE": (pa.date32(), [DAY, dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), None]),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 1, 2, 3, 4), None]),
    "STRING": (pa.string(), ["plain", "a b/c=d", "100%25", "ü€😀", "{[*?]}", "+&#;'\"\\", None]),
}


class TestFiles:
    @pytest.mark.parametrize("kind", PARTITIONS)
    def test_partition_values(self, make_table: Make, tmp_path: Path, kind: str) -> None:
        type_, values = PARTITIONS[kind]
        expected = pa.table({"id": pa.array(range(len(values)), pa.int64()), "p": pa.array(values, type_)})
        table = make_table(schema=f"id BIGINT, p {kind}", partition_by=["p"], location=str(tmp_path / "t"))
        table.append(expected)
        assert table.files().num_rows == len(values)
        assert_same_rows(Path(table.location), expected, ENGINES)

    def test_a_partition_value_too_long_for_a_directory(self, make_table: Make, tmp_path: Path) -> None:
        expected = pa.table({"id": pa.array([1, 2], pa.int64()), "p": ["x" * 1000, "y"]})
        table = make_table(schema="id BIGINT, p STRING", partition_by=["p"], location=str(tmp_path / "t"))
        table.append(expected)
        assert_same_rows(Path(table.location), expected, ENGINES, known_faults=["files outside of Hive directories"])

    def test_an_empty_text_is_the_null_partition(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, p STRING", partition_by=["p"])
        table.append(pa.table({"id": [1, 2], "p": ["", None]}))
        assert table.files()["partition_values"].to_pylist() == [{"p": None}]

    def test_two_partition_columns(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, a STRING, b INT", partition_by=["b", "a"])
        source = pa.table({"id": range(100), "a": [f"a{n % 3}" for n in range(100)], "b": [n % 5 for n in range(100)]})
        table.append(source)
        assert table.files().num_rows == 15
        assert read(table) == source.to_pylist()

    def test_files_have_a_target_size(self, make_table: Make) -> None:
        table = make_table(properties={"deltasql.writer.target_file_size": "200kb"})
        source = pa.table({"id": range(400_000), "amount": [math.sin(n) for n in range(400_000)]})
        table.append(source)
        sizes = table.files()["size"].to_pylist()
        assert len(sizes) > 5
        assert all(100_000 < size < 2_500_000 for size in sizes[:-1])
        assert DeltaTable(table.location).to_pyarrow_table().num_rows == 400_000

    def test_many_partitions_at_once(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, p INT", partition_by=["p"])
        source = pa.table({"id": range(1000), "p": [n % 250 for n in range(1000)]})
        table.append(pa.concat_tables([source.slice(n, 250) for n in range(0, 1000, 250)]))
        assert read(table) == source.to_pylist()

    def test_parquet_statistics_leave_floats_out(self, make_table: Make) -> None:
        """Spark prunes by footer statistics, and Arrow's bounds ignore NaN: Spark would skip [1.0, NaN] for `x > 100`."""
        table = make_table(schema="x DOUBLE, s STRUCT<y: FLOAT>, l ARRAY<DOUBLE>, n BIGINT")
        table.append(pa.table({"x": [1.0, math.nan], "n": [1, 2]}))
        footer = pq.read_metadata(data_files(table)[0])
        kinds = {
            footer.schema.column(i).path: footer.row_group(0).column(i).statistics for i in range(footer.num_columns)
        }
        assert [path for path, statistics in kinds.items() if statistics is not None] == ["n"]
        assert '"minValues":{"n":1}' in table.files()["stats"][0].as_py()

    def test_bounds_of_floats(self, make_table: Make) -> None:
        table = make_table(schema="x DOUBLE, s STRUCT<y: FLOAT>")
        table.append(
            pa.table(
                {
                    "x": [1.5, -2.0, None],
                    "s": pa.array([{"y": 0.5}, None, {"y": 1.5}], pa.struct([("y", pa.float32())])),
                }
            )
        )
        stats = table.files()["stats"][0].as_py()
        assert '"minValues":{"x":-2.0,"s":{"y":0.5}}' in stats
        assert '"maxValues":{"x":1.5,"s":{"y":1.5}}' in stats
        assert '"nullCount":{"x":1,"s":{"y":1}}' in stats
        table.append(pa.table({"x": [math.inf, 1.0]}))
        assert sorted('"minValues"' in stats for stats in table.files()["stats"].to_pylist()) == [False, True]

    def test_statistics_of_chosen_columns(self, make_table: Make) -> None:
        first = make_table("first", properties={"delta.dataSkippingNumIndexedCols": "1"})
        named = make_table("named", properties={"delta.dataSkippingStatsColumns": "amount"})
        for table, column in ((first, "id"), (named, "amount")):
            table.append(pa.table({"id": [1], "amount": [1.0]}))
            assert f'"nullCount":{{"{column}":0}}' in table.files()["stats"][0].as_py()

    def test_the_codec_of_the_table_is_used(self, make_table: Make) -> None:
        table = make_table(properties={"delta.parquet.compression.codec": "zstd"})
        table.append(pa.table({"id": [1]}))
        [file] = data_files(table)
        assert file.name.endswith(".zstd.parquet")
        assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"


class TestRegistration:
    def writes(self, lake: deltasql.Lake, table: deltasql.Table) -> list[str]:
        with psycopg.connect(lake.dsn) as connection:
            found = connection.execute(
                "select txn_id from deltasql.dl_writes w join deltasql.dl_tables t using (table_key) where t.table_id = %s",
                [table.id],
            )
            return [str(row[0]) for row in found]

    def test_files_are_registered_before_they_are_written(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        seen = []

        def batches() -> Any:
            seen.extend(self.writes(lake, table))
            yield pa.record_batch({"id": pa.array([1], pa.int64())})

        result = table.append(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches()))
        assert seen == [result.txn_id]
        assert self.writes(lake, table) == []
        assert result.txn_id.replace("-", "") in table.files()["path"][0].as_py()

    def test_a_failed_write_is_unregistered(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(schema="id BIGINT NOT NULL")
        with pytest.raises(deltasql.ConstraintViolation):
            table.append(pa.table({"id": pa.nulls(1, pa.int64())}))
        assert self.writes(lake, table) == []

    def test_a_transaction_that_is_rolled_back(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        with pytest.raises(ZeroDivisionError), lake.begin() as tx:
            tx.write(table, pa.table({"id": [1]}))
            assert self.writes(lake, table) == [tx.id]
            raise ZeroDivisionError
        assert self.writes(lake, table) == []


COLUMNS = {
    "n": (pa.int64(), st.integers(-3, 3)),
    "x": (pa.float64(), st.sampled_from([-1.5, -0.0, 0.0, 2.5, math.inf, -math.inf, math.nan])),
    "f": (pa.float32(), st.sampled_from([-1.5, 0.1, 2.5, math.nan])),
    "d": (pa.decimal128(6, 2), st.decimals(-3, 3, places=2)),
    "t": (pa.string(), st.sampled_from(["", "a", "a" * 32 + "\x7f", "a" * 33, "a" * 40 + "b", "é" * 40, "\U0010ffff" * 40])),
    "day": (pa.date32(), st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 5))),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2), timezones=st.just(dt.UTC))),
}  # fmt: skip


def literal(value: Any) -> str:
    if isinstance(value, float):
        return "double('NaN')" if math.isnan(value) else f"double('{value}')" if math.isinf(value) else f"{value!r}D"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat()}'"
    return f"DATE '{value}'" if isinstance(value, dt.date) else f'"{value}"' if isinstance(value, str) else str(value)


@settings(max_examples=rounds(6, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_file_with_a_matching_row_is_pruned(lake: deltasql.Lake, workdir: Path, data: st.DataObject) -> None:
    """Random rows, with NaN as the largest number, truncated texts and times truncated to milliseconds."""
    lines = data.draw(
        st.lists(st.fixed_dictionaries({c: st.none() | s for c, (_, s) in COLUMNS.items()}), min_size=1, max_size=12)
    )
    given_rows = pa.Table.from_pylist(lines, schema=pa.schema([(c, k) for c, (k, _) in COLUMNS.items()]))
    name = f"pruned.t{next(NUMBERS)}"
    table = lake.create_table(name, as_=given_rows.slice(0, 4), properties={"deltasql.mirror.mode": "off"})
    for start in range(4, given_rows.num_rows, 4):
        table.append(given_rows.slice(start, 4))
    for column, (_, strategy) in COLUMNS.items():
        value = data.draw(strategy)
        for operator, holds in OPERATORS.items():
            kept = set(table.files(f"{column} {operator} {literal(value)}")["path"].to_pylist())
            for path in table.files()["path"].to_pylist():
                if path not in kept:
                    values = pq.read_table(f"{table.location}/{path}")[column].to_pylist()
                    assert not any(v is not None and holds(key(v), key(value)) for v in values), (
                        operator,
                        value,
                        values,
                    )


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


def key(value: Any) -> Any:
    """Return a sort key in the order of Spark: NaN equals NaN and is larger than every number."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value
