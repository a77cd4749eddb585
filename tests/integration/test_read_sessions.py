"""The log is read row by row for small tables, and through ADBC for large tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

import deltasql
from deltasql.config import Config
from deltasql.store.database import Database
from deltasql.store.read import file_lists
from deltasql.store.read.arrow_queries import ArrowSession
from deltasql.store.read.row_queries import RowSession
from tests.factories import add, paths, remove

Make = Callable[..., deltasql.Table]


def test_both_sessions_return_the_same_tables(lake: deltasql.Lake, make_table: Make) -> None:
    table = make_table(partition_by=["day"])
    day, no_day = {"day": "2026-01-01"}, {"day": None}
    with lake.begin() as tx:
        first = add("a.parquet", lo=1, hi=5, partition_values=day)
        tx.stage(table, [first, add("b.parquet", tags={"tag": "Zürich"}, partition_values=no_day)])
    with lake.begin() as tx:
        tx.stage(table, [remove("a.parquet"), add("c.parquet", partition_values=day)])
    key = table.state().table_key
    queries = {
        "arrow_head": {},
        "arrow_identity": {"version": 1},
        "arrow_live": {},
        "arrow_live_at": {"version": 1},
        "arrow_commits": {},
        "arrow_added_after": {"version": 0},
        "arrow_removed_after": {"version": 1},
        "arrow_bounds": {"paths": ["id"]},
    }
    database = Database(lake.dsn, Config())
    sessions = [RowSession(database), ArrowSession(database)]
    try:
        for name, values in queries.items():
            by_row, by_adbc = (s.read(lambda s: s.table(name, table_key=key, **values)) for s in sessions)  # noqa: B023
            assert by_row.schema.equals(by_adbc.schema), name
            # The queries have no ORDER BY, so the plans may return rows in different orders.
            assert sorted(map(repr, by_row.to_pylist())) == sorted(map(repr, by_adbc.to_pylist())), name
            assert by_row.num_rows or name in ("arrow_bounds", "arrow_removed_after"), name
    finally:
        for session in sessions:
            session.shut()


def test_a_growing_table_is_read_through_adbc(
    lake: deltasql.Lake, make_table: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lists, "_MAX_FILES_BY_ROW", 2)
    table = make_table()
    for number in range(4):
        with lake.begin() as tx:
            tx.stage(table, [add(f"{number}.parquet", lo=number, hi=number)])
        assert paths(table.files()) == [f"{n}.parquet" for n in range(number + 1)]
        assert paths(table.files(where=f"id = {number}")) == [f"{number}.parquet"]
    assert paths(table.files(version=2)) == ["0.parquet", "1.parquet"]


def test_the_first_read_of_a_small_table_loads_no_pandas(lake: deltasql.Lake, make_table: Make) -> None:
    table = make_table(schema="id BIGINT, name STRING, day DATE", partition_by=["day"])
    day = pa.array([20_454], pa.int32()).cast(pa.date32())
    table.append(pa.table({"id": [1], "name": ["a"], "day": day}))
    code = (
        "import sys, deltasql\n"
        f"with deltasql.connect({lake.dsn!r}) as lake: rows = lake.table({table.name!r}).arrow()\n"
        "assert rows.num_rows == 1\n"
        "print(*{'pandas', 'polars', 'sqlglot', 'pyspark', 'duckdb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
