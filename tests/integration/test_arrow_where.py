"""Predicates without Spark: files and row groups without a match are not read, and only matching rows are returned."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from tests.data_files import write

Make = Callable[..., deltasql.Table]


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def seen(table: pa.Table, column: str = "id") -> list[Any]:
    return sorted(table[column].to_pylist())


def corrupt(path: Path, group: int) -> None:
    """Overwrite one row group with random bytes; the footer stays intact."""
    metadata = pq.ParquetFile(path).metadata
    chunk = metadata.row_group(group).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    with path.open("r+b") as file:
        file.seek(start)
        file.write(os.urandom(chunk.total_compressed_size))


class TestPruning:
    def test_files_are_pruned_by_the_log(self, make_table: Make, tmp_path: Path) -> None:
        """A pruned file is not read: a read fails only when it needs the broken file."""
        table = make_table(schema="id BIGINT, day DATE", location=str(tmp_path), partition_by=["day"])
        for number in (1, 2, 3):
            (tmp_path / f"day=2026-01-0{number}").mkdir()
            pq.write_table(ids(number, number + 10), tmp_path / f"day=2026-01-0{number}" / "f.parquet")
        table.add_files([f"day=2026-01-0{number}/f.parquet" for number in (1, 2, 3)])
        (tmp_path / "day=2026-01-01" / "f.parquet").write_bytes(b"")
        assert seen(table.arrow(where="day > '2026-01-01'")) == [2, 3, 12, 13]
        assert seen(table.arrow(where="id = 12")) == [12]
        assert seen(table.arrow(where="id IN (12, 99) OR day = '2026-01-03'")) == [3, 12, 13]
        with pytest.raises(deltasql.StorageError, match=r"day=2026-01-01/f\.parquet"):
            table.arrow(where="id = 1")

    def test_the_snapshot_of_a_predicate(self, make_table: Make, lake: deltasql.Lake, tmp_path: Path) -> None:
        table = make_table(schema="id BIGINT", location=str(tmp_path))
        for number in (1, 2):
            pq.write_table(ids(number), tmp_path / f"{number}.parquet")
        table.add_files(["1.parquet", "2.parquet"])
        reader = deltasql.SqlTxnLogReader(lake.store)
        for snapshot in (reader.snapshot(table.id, where="id = 2"), reader.snapshot(table.id, 1, where="id = 2")):
            assert snapshot.files["path"].to_pylist() == ["2.parquet"]
            assert (snapshot.version, snapshot.location) == (1, str(tmp_path))
        assert reader.snapshot(table.id).files.num_rows == 2

    @pytest.mark.parametrize(
        ("type", "values", "where"),
        [
            (pa.int64(), [1, 2, 3, 4], "x = {}"),
            (pa.int32(), [1, 2, 3, 4], "x = {}"),
            (pa.string(), ["a", "b", "c", "d"], "x = '{}'"),
            (pa.decimal128(9, 2), [1, 2, 3, 4], "x = {}"),
            (pa.decimal128(25, 2), [1, 2, 3, 4], "x = {}"),
            (pa.date32(), [1, 2, 3, 4], "x = DATE '1970-01-0{}'"),
            (pa.timestamp("us", "UTC"), [1, 2, 3, 4], "x = '1970-01-01T00:00:00.00000{}Z'"),
            (pa.timestamp("us"), [1, 2, 3, 4], "x = TIMESTAMP_NTZ '1970-01-01T00:00:00.00000{}'"),
        ],
        ids=str,
    )
    def test_row_groups_are_pruned_by_footers(
        self, make_table: Make, tmp_path: Path, type: pa.DataType, values: list[Any], where: str
    ) -> None:
        x = pa.array(values, type)
        data = pa.table(
            {"x": x, "s": pa.StructArray.from_arrays([x], names=["x"]), "row": pa.array(range(4), pa.int64())}
        )
        table = make_table(schema=data.schema, location=str(tmp_path))
        path = write(table, data, row_group_size=2)
        corrupt(tmp_path / path, 0)
        day = {pa.date32(): 1}.get(type, 0)
        for number, row in ((3, 2), (4, 3)):
            condition = where.format(values[number - 1] if type == pa.string() else number + day)
            assert seen(table.arrow(where=condition), "row") == [row]
            assert seen(table.arrow(where=condition.replace("x", "s.x", 1)), "row") == [row]
        with pytest.raises(deltasql.StorageError, match=path):
            table.arrow()

    def test_nulls_prune(self, make_table: Make, tmp_path: Path) -> None:
        table = make_table(schema="id BIGINT, d DOUBLE", location=str(tmp_path))
        data = pa.table({"id": pa.array([None, None, 1, 2], pa.int64()), "d": [1.0, 2.0, None, None]})
        path = write(table, data, row_group_size=2)
        corrupt(tmp_path / path, 0)
        assert table.arrow(where="id IS NOT NULL").num_rows == 2
        assert table.arrow(where="d IS NULL").num_rows == 2

    def test_nan_is_not_pruned(self, make_table: Make) -> None:
        """The bounds in the footer ignore NaN."""
        table = make_table(schema="id BIGINT, d DOUBLE, f FLOAT, s STRUCT<d: DOUBLE>")
        d = pa.array([1.0, math.nan])
        data = pa.table({"id": [1, 2], "d": d, "f": d.cast(pa.float32()), "s": pa.StructArray.from_arrays([d], ["d"])})
        path = write(table, data)
        statistics = pq.ParquetFile(Path(table.location) / path).metadata.row_group(0).column(1).statistics
        assert (statistics.min, statistics.max) == (1.0, 1.0)
        for column in ("d", "f", "s.d"):
            assert seen(table.arrow(where=f"{column} > 5")) == [2]
            assert seen(table.arrow(where=f"{column} <> 1")) == [2]
            assert seen(table.arrow(where=f"NOT {column} <= 1")) == [2]
            assert seen(table.arrow(where=f"{column} BETWEEN 0 AND 1")) == [1]
            assert seen(table.arrow(where=f"{column} NOT IN (0, 1, 2, 3, 4, 5)")) == [2]
        assert seen(table.arrow(where="d = f")) == [1, 2]

    def test_int96_is_not_pruned(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, at TIMESTAMP")
        at = pa.array([-1, 5], pa.timestamp("us"))
        write(table, pa.table({"id": [1, 2], "at": at}), use_deprecated_int96_timestamps=True)
        assert seen(table.arrow(where="at < '1970-01-01T00:00:00Z'")) == [1]

    def test_narrower_files(self, make_table: Make) -> None:
        """The file has narrower types than the table, and literals are outside their range."""
        table = make_table(schema="id BIGINT, x BIGINT, p DECIMAL(12, 2)")
        data = pa.table({"id": [1, 2], "x": pa.array([1, 2], pa.int8()), "p": pa.array([1, 2], pa.decimal128(5, 1))})
        write(table, data, row_group_size=1)
        assert seen(table.arrow(where="x > 1000000")) == []
        assert seen(table.arrow(where="x < 3000000000")) == [1, 2]
        assert seen(table.arrow(where="p >= 1.99")) == [2]


class TestRows:
    def test_zeros_nulls_and_columns(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, d DOUBLE, t STRING")
        write(table, pa.table({"id": [1, 2, 3], "d": [0.0, -0.0, None], "t": ["a", None, "ab"]}))
        assert seen(table.arrow(where="d = 0")) == [1, 2]
        assert seen(table.arrow(where="d IN (0, 7, 8, 9, 10, 11)")) == [1, 2]
        assert seen(table.arrow(where="NOT (d <=> 0)")) == [3]
        assert seen(table.arrow(where="t LIKE 'a%' AND d IS NOT NULL")) == [1]
        assert seen(table.arrow(where="t NOT LIKE 'ab%'")) == [1]
        assert table.arrow(where="d IS NULL", columns=["t"]).to_pylist() == [{"t": "ab"}]
        assert seen(table.arrow(where="TRUE")) == [1, 2, 3]
        assert seen(table.arrow(where="FALSE")) == seen(table.arrow(where="NULL")) == []
        assert table.arrow(where="FALSE").schema == table.schema

    def test_nested_columns_are_filtered(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT>, s STRUCT<x: INT>")
        rows = [
            {"id": n, "l": [{"x": n}] * n, "m": [("k", n)] if n % 2 else None, "s": {"x": n} if n % 3 else None}
            for n in range(50)
        ]
        write(table, pa.Table.from_pylist(rows, table.schema))
        found = table.arrow(where="s.x > 10 AND s.x <> 20")
        found.validate(full=True)
        assert found.to_pylist() == [row for row in rows if row["s"] and row["id"] > 10 and row["id"] != 20]

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ("at >= '2026-01-01'", "`?at`? >= '2026-01-01'.*time zone"),
            ("id = 1 AND abs(id) = 1", r"ABS\(id\) = 1"),
            ("id = 1 OR t LIKE '%x'", "t LIKE '%x'"),
        ],
    )
    def test_conditions_that_need_spark_are_rejected(self, make_table: Make, where: str, message: str) -> None:
        table = make_table(schema="id BIGINT, at TIMESTAMP, t STRING")
        with pytest.raises(
            deltasql.UnsupportedFeature, match=rf"table {table.name}: .*{message}.*t\.df\(where=…\)"
        ) as caught:
            table.arrow(where=where)
        assert caught.value.table == table.name

    def test_a_bad_predicate_is_explained(self, make_table: Make) -> None:
        with pytest.raises(deltasql.ValidationError, match='did you mean "amount"'):
            make_table().arrow(where="amout > 1")
