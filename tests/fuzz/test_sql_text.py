"""Broken SQL statements and parameters are rejected, and no table is changed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import deltasql
from deltasql.sql.parse import parse
from tests.effort import rounds
from tests.fuzz.inputs import changed_text, huge_numbers, odd_texts, odd_values
from tests.fuzz.limits import only_own_errors, trace

STATEMENTS = (
    "SELECT a.id, count(*) FILTER (WHERE b.x > 1.5) AS n FROM fuzz_sql.t a JOIN fuzz_sql.t b ON a.id = b.id GROUP BY 1 HAVING max(b.x) > 0 ORDER BY n DESC LIMIT 3",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
    "INSERT INTO fuzz_sql.t (id, name) VALUES (1, 'it''s'), (2, E'\\n') RETURNING id",
    "INSERT INTO fuzz_sql.t AS t (id, name) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET name = excluded.name || t.name",
    "UPDATE fuzz_sql.t SET name = upper(name), x = x * 2 WHERE id BETWEEN 1 AND 2 AND day IS NULL",
    "DELETE FROM fuzz_sql.t USING fuzz_sql.t s WHERE t.id = s.id AND s.name ~ '^a.*$' RETURNING t.id",
    "MERGE INTO fuzz_sql.t USING (SELECT 7 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    "ALTER TABLE fuzz_sql.t ADD COLUMN extra NUMERIC(10, 2) DEFAULT 1.5, ALTER COLUMN name SET NOT NULL",
    "CREATE TABLE fuzz_sql.made (id BIGINT NOT NULL, day DATE, CHECK (id > 0)) PARTITIONED BY (day) TBLPROPERTIES ('a' = 'b')",
    "TRUNCATE TABLE fuzz_sql.t",
    "EXPLAIN SELECT date_trunc('day', now()), extract(year FROM DATE '2026-01-01'), to_char(1.5, '9.9')",
    "SELECT CASE WHEN name LIKE 'a%' ESCAPE '!' THEN 1 ELSE NULL END, x::int, row_number() OVER (PARTITION BY id ORDER BY x) FROM fuzz_sql.t",
    "SELECT ARRAY[1, 2][1], INTERVAL '1 day', $$text$$, U&'\\0061', X'ff', 1e5, -7 % 3, NULL::text IS DISTINCT FROM 'a'",
)  # fmt: skip
WORDS = (
    "SELECT", "FROM", "WHERE", "JOIN LATERAL", "(", ")", ",", ";", "$1", "?", ":name", "%s", "::", "::date[]", "OVER (", "FILTER (WHERE", "INTERVAL",
    "AS", "AND", "NOT", "NULL", "*", "t.*", "regexp_replace(", "~", "'(?<'", "to_date('', '", "FOR UPDATE", "UNION", "INTO", "9" * 60, "1e999",
    "DATE '99999-99-99'", "TIMESTAMP 'infinity'", "E'\\u0000'", "E'\\ud800'", "U&'\\d800'", "B'2'", "X'g'", "$tag$", "--", "/*", "COPY", "VACUUM",
    "(" * 2_000, "NOT " * 2_000, "- " * 2_000, "CASE WHEN " * 400, "ARRAY[" * 400, "(SELECT " * 400, "1 + " * 3_000, "id, " * 3_000, "a." * 500,
)  # fmt: skip
NO_SHRINKING = (Phase.explicit, Phase.generate)  # each step of it would be a Spark job
statements = changed_text(STATEMENTS, WORDS) | odd_texts
parameters = st.one_of(
    odd_values,
    huge_numbers,
    st.sampled_from([dt.datetime.min, dt.date.max, Decimal("NaN"), Decimal("1e999999"), Decimal(10) ** 38, b"\xff", float("inf")]),
    st.sampled_from([{"set"}, object, 1j, dt.timedelta(1), dt.time(1)]),
)  # fmt: skip


@settings(max_examples=rounds(100, 5_000))
@given(statements, st.sampled_from(["postgres", "spark"]))
def test_parsed_statements(text: str, dialect: str) -> None:
    with only_own_errors():
        parse(text, None, dialect)
    with only_own_errors():
        parse(text, [1, 2], dialect)


@settings(max_examples=rounds(50, 2_000))
@given(st.lists(parameters, max_size=3) | st.dictionaries(odd_texts, parameters, max_size=2) | parameters, odd_values)
def test_parameters(params: Any, odd: Any) -> None:
    for text in (
        "SELECT $1, $2",
        "SELECT ?, %s",
        "SELECT :name",
        "SELECT %(name)s",
        "SELECT $0, $99999999999999999999",
    ):
        with only_own_errors():
            parse(text, params)
    for text, dialect in ((odd, "postgres"), ("SELECT 1", odd)):
        with only_own_errors():
            parse(text, params, dialect)


@pytest.fixture(scope="module")
def table(embedded_lake: deltasql.Lake, spark_session: SparkSession) -> deltasql.Table:
    made = embedded_lake.create_table("fuzz_sql.t", "id BIGINT, day DATE, name STRING, x DOUBLE")
    made.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "x": [0.5, 1.5, None]}))
    return made


@settings(max_examples=rounds(20, 400), phases=NO_SHRINKING)
@given(statements, st.none() | st.lists(parameters, max_size=2), st.sampled_from(["postgres", "postgres", "spark"]))
def test_statements(table: deltasql.Table, text: str, params: Any, dialect: str) -> None:
    before = trace(table)
    with only_own_errors() as outcome:
        result = table.lake.sql(text, params, dialect=dialect)
        if hasattr(result, "collect"):
            result.limit(3).collect()
    if outcome.error is not None:
        assert trace(table) == before
    if any(info.name == "fuzz_sql.made" for info in table.lake.tables()):
        table.lake.drop_table("fuzz_sql.made")
    if table.schema.names != ["id", "day", "name", "x"]:
        table.overwrite(
            pa.table({"id": [1], "day": pa.nulls(1, pa.date32()), "name": ["a"], "x": [1.0]}), overwrite_schema=True
        )


@settings(max_examples=rounds(10, 150), phases=NO_SHRINKING)
@given(
    changed_text(["name", "x", "upper(name)", "x + 1"]),
    changed_text(["id = 1", "t.name LIKE 'a%'"], WORDS) | odd_values,
)
@example(value="x", where=10**400)
def test_changes_of_rows(table: deltasql.Table, value: str, where: Any) -> None:
    for change in (
        lambda: table.update({"name": value}, where=where),
        lambda: table.update({value: "1"}, where="id = 1"),
        lambda: table.delete(where=where),
    ):
        before = trace(table)
        with only_own_errors() as outcome:
            change()
        if outcome.error is not None:
            assert trace(table) == before
