"""Broken conditions in `where=` are rejected, and nothing is read, replaced, deleted or committed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import deltasql
from deltasql.expressions.predicates import Predicate
from deltasql.expressions.stored_expressions import problem_of
from deltasql.protocol.constraints import Constraint
from deltasql.protocol.schema import arrow_schema, schema_string
from tests.effort import rounds
from tests.fuzz.inputs import changed_text, odd_texts, odd_values
from tests.fuzz.limits import only_own_errors, trace

SCHEMA = "id BIGINT, day DATE, name STRING, price DECIMAL(10, 2), at TIMESTAMP, ok BOOLEAN, x DOUBLE, s STRUCT<a: INT>, l ARRAY<INT>"
CONDITIONS = (
    "id = 5 AND day > '2026-01-01' OR NOT (name LIKE 'a%' AND price BETWEEN 1.5 AND 2)",
    "id IN (1, 2, NULL) AND name NOT IN ('a', 'b') AND s.a <=> 7 AND ok",
    "at >= TIMESTAMP '2026-01-01 00:00:00Z' AND day = DATE '2026-01-01' AND x < 1e5D",
    "fuzz_conditions.t.id IS NOT NULL AND upper(name) = 'A' AND CASE WHEN ok THEN 1 ELSE 2 END = 1",
    "cast(id AS STRING) = '5' AND x > -Infinity AND l[0] = 1 /* comment */",
)
WORDS = (
    "AND", "OR", "NOT", "(", ")", "IN (", "BETWEEN", "LIKE", "IS NULL", "<=>", "CAST(", "INTERVAL", "DATE '", "X'zz'", "1e999", ":p",
    "?", "$1", "SELECT 1", "(SELECT 1)", "sum(id)", "OVER ()", "id", "s.a.b.c", "`", "'\\", "r'\\'", "9" * 50, "DATE '99999-99-99'",
    "TIMESTAMP '0000-00-00'", "id = id AND " * 300, "(id = " * 300, "-" * 3_000, "NOT " * 3_000, "(" * 3_000, "[" * 500, "id IN (" + "1, " * 5_000,
    "price = 1" + "0" * 500, "price = 0." + "0" * 500 + "1", "name LIKE '" + "%a" * 500 + "'", "CASE WHEN " * 500,
)  # fmt: skip
conditions = changed_text(CONDITIONS, WORDS) | odd_texts

COLUMNS = arrow_schema(schema_string(SCHEMA))
BATCH = pa.RecordBatch.from_pylist([{}], COLUMNS)


@settings(max_examples=rounds(150, 6_000))
@given(conditions)
def test_predicates(text: str) -> None:
    with only_own_errors():
        predicate = Predicate.parse(text, COLUMNS, ["day"], table="t")
        predicate.may_match({}, 3)
        predicate.partition_part()
        predicate.row_filter("t")(BATCH)


@settings(max_examples=rounds(100, 5_000))
@given(conditions)
def test_stored_expressions(text: str) -> None:
    with only_own_errors():
        problem_of(text)
        Constraint("c", text)


@pytest.fixture(scope="module")
def table(embedded_lake: deltasql.Lake, spark_session: SparkSession) -> deltasql.Table:
    """A table. Rows are replaced with Spark if a condition cannot be decided without it."""
    made = embedded_lake.create_table("fuzz_conditions.t", SCHEMA, partition_by=["day"])
    made.append(rows(3))
    return made


def rows(count: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "name": "a", "x": float(number)} for number in range(count)], COLUMNS)


@settings(max_examples=rounds(20, 200), phases=(Phase.explicit, Phase.generate))
@given(conditions | odd_values)
def test_reading_and_replacing(table: deltasql.Table, where: Any) -> None:
    before = trace(table)
    with only_own_errors():
        table.arrow(where=where)
    with only_own_errors():
        table.files(where=where)
    with only_own_errors() as outcome:
        table.overwrite(rows(2), where=where)
    if outcome.error is not None:
        assert trace(table) == before


@settings(max_examples=rounds(30, 600))
@given(odd_values | st.lists(odd_values, max_size=2), odd_values, odd_values)
def test_odd_columns_versions_and_times(table: deltasql.Table, columns: Any, version: Any, timestamp: Any) -> None:
    with only_own_errors():
        table.arrow(columns=columns)
    with only_own_errors():
        table.arrow(version=version)
    with only_own_errors():
        table.arrow(timestamp=timestamp)
    with only_own_errors():
        table.history(version)


@settings(max_examples=rounds(20, 400))
@given(odd_values)
def test_odd_rows(table: deltasql.Table, value: Any) -> None:
    before = trace(table)
    with only_own_errors() as outcome:
        table.append(value)
    assert outcome.error is not None
    with only_own_errors() as outcome:
        table.add_files(value)
    assert outcome.error is not None or value in ([], {}, "")
    with only_own_errors() as outcome:
        table.add_files(["none.parquet"], partition_values=value)
    assert outcome.error is not None
    assert trace(table)["files"] == before["files"]
