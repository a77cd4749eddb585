"""Streams of batches hold few rows in memory, may be closed early, and feed Polars and DuckDB."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import deltasql
from deltasql.engines.arrow.read import scan
from tests.data_files import write
from tests.factories import remove
from tests.readers import rows
from tests.sample_columns import NESTED, PRIMITIVES, table_of

Make = Callable[..., deltasql.Table]


def many_files(table: deltasql.Table, files: int, each: int) -> None:
    for number in range(files):
        write(table, pa.table({"id": pa.array(range(number * each, (number + 1) * each), pa.int64())}))


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("deltasql-read")]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestStreams:
    def test_memory_is_bounded(self, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """A slow consumer of 80 MB of rows holds less than 16 MiB in memory."""
        table = make_table(schema="id BIGINT")
        many_files(table, 20, 500_000)
        monkeypatch.setattr(scan, "_ROOM", 1 << 20)
        before, peak, total = pa.total_allocated_bytes(), 0, 0
        for batch in table.batches():
            time.sleep(0.005)
            total += batch.num_rows
            peak = max(peak, pa.total_allocated_bytes() - before)
        assert total == 10_000_000
        assert peak < 16 << 20

    def test_wide_rows_are_split_into_small_batches(self, make_table: Make) -> None:
        table = make_table(schema="text STRING")
        texts = [f"{n:06}" * 5000 for n in range(2000)]
        write(table, pa.table({"text": texts}), use_dictionary=False, compression="none")
        sizes = [batch.nbytes for batch in table.batches()]
        assert sum(sizes) > 60_000_000
        assert max(sizes) < 20_000_000

    def test_a_stream_closed_early(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        many_files(table, 10, 1000)
        stream = table.batches()
        assert not readers()
        assert stream.read_next_batch().num_rows == 1000
        del stream
        wait_for(lambda: not readers())

    @pytest.mark.parametrize(
        ("reading", "printed"),
        [
            ("print(stream.read_next_batch().num_rows)", "32768\n"),
            (
                "threading.Thread(target=lambda: (time.sleep(1), print(stream.read_all().num_rows))).start()",
                "1000000\n",
            ),
        ],
        ids=["during a stream", "before other threads"],
    )
    def test_the_main_thread_may_exit_first(
        self, make_table: Make, lake: deltasql.Lake, reading: str, printed: str
    ) -> None:
        table = make_table(schema="id BIGINT")
        many_files(table, 10, 100_000)
        program = (
            "import deltasql, sys, threading, time; from deltasql.engines.arrow.read import scan; scan._ROOM = 1\n"
            "lake = deltasql.connect(sys.argv[1]); stream = lake.table(sys.argv[2]).batches()\n"
        )
        command = [sys.executable, "-c", program + reading, lake.dsn, table.name]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")

    def test_an_error_follows_the_batches_before_it(self, make_table: Make, lake: deltasql.Lake) -> None:
        table = make_table(schema="id BIGINT")
        many_files(table, 3, 10)
        with lake.begin() as tx:
            tx.stage(table, [deltasql.Add("gone.parquet", 1, 1, {})])
        stream = table.batches()
        assert [stream.read_next_batch()["id"][0].as_py() for _ in range(3)] == [0, 10, 20]
        with pytest.raises(deltasql.StorageError, match=r"gone\.parquet"):
            stream.read_next_batch()
        wait_for(lambda: not readers())

    def test_many_readers_at_once(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        many_files(table, 12, 5000)
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(table.arrow().num_rows)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [60_000] * 6

    def test_large_files_are_read_in_parts(self, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each row is returned once, with every size of the parts."""
        table = make_table(schema="id BIGINT")
        data = pa.table({"id": pa.array(range(100_000), pa.int64())})
        write(table, data, row_group_size=5000)
        for part in (500, 5000, 50_000, 1 << 30):
            monkeypatch.setattr(scan, "_PART_BYTES", part)
            assert table.arrow().equals(data)


class TestPolars:
    @pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
    def test_every_type(self, make_table: Make, columns: dict[str, Any]) -> None:
        expected = table_of(columns)
        table = make_table(schema=expected.schema)
        write(table, expected)
        found = table.polars()
        assert isinstance(found, pl.DataFrame)
        assert found.equals(pl.from_arrow(table.arrow()))

    def test_arguments_of_a_read(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, t STRING")
        write(table, pa.table({"id": [1, 2, 3], "t": ["a", "b", "c"]}))
        assert table.polars(where="id > 1", columns=["t"]).to_dicts() == [{"t": "b"}, {"t": "c"}]
        assert table.polars(version=0).shape == (0, 2)


class TestDuckDB:
    @pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
    def test_every_type(self, make_table: Make, columns: dict[str, Any]) -> None:
        expected = table_of(columns)
        table = make_table(schema=expected.schema)
        write(table, expected)
        with duckdb.connect() as connection:
            found = table.duckdb(connection).to_arrow_table()
        assert found.column_names == expected.column_names
        assert rows(found) == rows(expected)

    def test_queried_more_than_once(self, make_table: Make, lake: deltasql.Lake) -> None:
        table = make_table("orders", schema="id BIGINT, amount DECIMAL(9, 2), t STRING")
        data = pa.table(
            {
                "id": [1, 2, 3],
                "amount": pa.array([Decimal("1.5"), Decimal("2.5"), None], pa.decimal128(9, 2)),
                "t": ["a", "b", None],
            }
        )
        path = write(table, data)
        with duckdb.connect() as connection:
            relation = table.duckdb(connection)
            assert isinstance(relation, duckdb.DuckDBPyRelation)
            assert relation.aggregate("sum(amount)").fetchall() == [(Decimal("4.00"),)]
            with lake.begin() as tx:
                tx.stage(table, [remove(path)])
            for _ in range(2):
                assert connection.sql("SELECT id FROM orders WHERE amount > 2 AND t = 'b'").fetchall() == [(2,)]
                assert connection.sql("SELECT count(*) FROM orders").fetchall() == [(3,)]
                assert connection.sql(
                    "SELECT a.id FROM orders a JOIN orders b USING (id) ORDER BY 1 DESC LIMIT 1"
                ).fetchall() == [(3,)]
            assert table.duckdb(connection, "now").fetchall() == []
            assert table.duckdb(connection, "then", version=1, where="id < 3", columns=["id"]).fetchall() == [
                (1,),
                (2,),
            ]
            assert table.duckdb(connection).fetchall() == []
        wait_for(lambda: not readers())

    def test_nan_is_the_largest(self, make_table: Make) -> None:
        """DuckDB treats NaN as the largest number, but pushes filters down to Arrow, which does not."""
        table = make_table("t", schema="id BIGINT, d DOUBLE, f FLOAT, s STRUCT<d: DOUBLE, t: STRUCT<f: FLOAT>>")
        values = [1.0, math.nan, None, -0.0]
        found = [{"id": n, "d": x, "f": x, "s": {"d": x, "t": {"f": x}}} for n, x in enumerate(values)]
        write(table, pa.Table.from_pylist(found, table.schema))
        with duckdb.connect() as connection:
            table.duckdb(connection)
            connection.execute("CREATE TABLE own AS SELECT * FROM t")
            for column in ("d", "f", "s.d", "s.t.f"):
                for condition in (
                    "> 0.5",
                    ">= 1",
                    "<> 1",
                    "= 'nan'",
                    "< 'nan'",
                    "= 0",
                    "<= 0",
                    "IS NULL",
                    "IN (0, 'nan')",
                ):
                    query = f"SELECT id FROM {{}} WHERE {column} {condition} ORDER BY id"
                    assert (
                        connection.sql(query.format("t")).fetchall() == connection.sql(query.format("own")).fetchall()
                    ), query

    def test_only_the_columns_of_the_query_are_read(self, make_table: Make) -> None:
        """A column with a wrong type fails only the queries that read it."""
        table = make_table("t", schema="id BIGINT, broken BIGINT")
        write(table, pa.table({"id": [1], "broken": ["text"]}))
        with duckdb.connect() as connection:
            table.duckdb(connection)
            assert connection.sql("SELECT id FROM t WHERE id = 1").fetchall() == [(1,)]
            with pytest.raises(duckdb.Error, match="column 'broken' is string in the file"):
                connection.sql("SELECT * FROM t").fetchall()

    def test_names(self, make_table: Make) -> None:
        table = make_table("t", schema='id BIGINT, `a"b` DOUBLE')
        write(table, pa.table({"id": [1], 'a"b': [0.5]}))
        with duckdb.connect() as connection:
            assert table.duckdb(connection, "with-dash").fetchall() == [(1, 0.5)]
            with pytest.raises(deltasql.ValidationError, match="a name starts with a letter"):
                table.duckdb(connection, "1; DROP TABLE x")
        with pytest.raises(deltasql.UsageError, match=r"duckdb\.connect\(\)"):
            table.duckdb("memory")


@pytest.mark.parametrize("package", ["polars", "duckdb"])
def test_missing_packages_are_named(make_table: Make, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    table = make_table()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(deltasql.UsageError, match=rf"pip install 'deltasql\[{package}\]'"):
        table.polars() if package == "polars" else table.duckdb(object())
