"""Random statements on random tables change the same rows as in PostgreSQL."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import deltasql
from tests.change_feed import assert_changes_lead_to_each_version
from tests.effort import rounds
from tests.readers import assert_same_rows

NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "ab", "b", "B", "%", "é"]))
PRICES = st.one_of(st.none(), st.integers(-8, 8).map(lambda n: Decimal(n) / 4))
DAYS = st.one_of(st.none(), st.dates(dt.date(2026, 2, 27), dt.date(2026, 3, 2)))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, TEXTS, PRICES, DAYS), min_size=1, max_size=12)
COLUMNS = {"a": pa.int32(), "b": pa.int32(), "s": pa.string(), "p": pa.decimal128(8, 2), "d": pa.date32()}
SCHEMA = pa.schema([("id", pa.int64()), *COLUMNS.items()])

_number = st.one_of(st.sampled_from(["a", "b", "id", "NULL", "a + b", "coalesce(a, 0)"]), st.integers(-3, 3).map(str))
_text = st.one_of(st.sampled_from(["s", "NULL", "s || 'x'", "upper(s)"]), st.sampled_from(["''", "'a'", "'ab'", "'é'"]))
_leaf = st.one_of(
    st.builds("{} {} {}".format, _number, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), _number),
    st.builds("{} {} {}".format, _text, st.sampled_from(["=", "<>", "<", ">"]), _text),
    st.builds("{} IS {}NULL".format, st.sampled_from(["a", "b", "s"]), st.sampled_from(["", "NOT "])),
    st.builds("{} IS {}DISTINCT FROM {}".format, _number, st.sampled_from(["", "NOT "]), _number),
    st.builds("a {}IN ({}, {})".format, st.sampled_from(["", "NOT "]), _number, _number),
    st.builds("b {}BETWEEN {} AND {}".format, st.sampled_from(["", "NOT "]), _number, _number),
    st.builds("s {}LIKE {}".format, st.sampled_from(["", "NOT "]), st.sampled_from(["'a%'", "'%b'", "'_'", "'a'"])),
    st.builds(
        "p {} {}".format, st.sampled_from(["=", "<>", "<", ">="]), st.sampled_from(["0.5", "-1.25", "a", "p * 2"])
    ),
    st.builds("d {} DATE '2026-03-01'".format, st.sampled_from(["=", "<>", "<", ">="])),
    st.sampled_from(["TRUE", "FALSE", "a > (SELECT min(b) FROM {t})", "id IN (SELECT a FROM {t})"]),
)
CONDITIONS = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        inner.map("NOT ({})".format),
    ),
    max_leaves=4,
)
FEED = {"delta.enableChangeDataFeed": "true"}
MARKS = {"delta.enableDeletionVectors": "true", "deltasql.dml.copy_on_write_threshold": "70%"}
LAYOUTS = st.fixed_dictionaries(
    {
        "copied": st.sampled_from([{"partition_by": ["a"]}, {"partition_by": ["a"], "properties": FEED}]),
        "marked": st.sampled_from([{"properties": FEED | MARKS}, {"partition_by": ["b"], "properties": FEED | MARKS}]),
    }
)
READERS = ("delta-rs", "duckdb", "spark")
SETS = st.sampled_from(
    [
        "a = b",
        "b = a + 1, a = b",
        "s = s || '!'",
        "a = NULL",
        "s = DEFAULT, b = id",
        "a = -a",
        "p = p * 1.5, a = p",
        "d = d + 1",
        "d = DATE '2026-03-01', p = a",
    ]
)
STATEMENTS = st.one_of(
    st.builds("UPDATE {{t}} SET {} WHERE {} RETURNING *".format, SETS, CONDITIONS),
    st.builds("DELETE FROM {{t}} WHERE {} RETURNING *".format, CONDITIONS),
    st.builds(
        "DELETE FROM {{t}} USING (VALUES (1), (1), (2), (NULL)) AS o(k) WHERE {{t}}.a = o.k AND {} RETURNING {{t}}.*".format,
        CONDITIONS,
    ),
    st.builds(
        "INSERT INTO {{t}} (id, a, s, d) SELECT id + 50, b, s || 'i', d FROM {{t}} WHERE {} RETURNING *".format,
        CONDITIONS,
    ),
    st.sampled_from(
        ["INSERT INTO {t} VALUES (70, NULL, 1.5, '', 2.345, '2026-03-01'), (71, 2, 2, 'ä', -0.005, NULL) RETURNING *"]
    ),
    st.builds(
        "UPDATE {{t}} SET b = o.m FROM (SELECT a AS k, max(id) AS m FROM {{t}} GROUP BY a) o WHERE {{t}}.a = o.k AND {} RETURNING {{t}}.*".format,
        CONDITIONS,
    ),
    st.builds(
        "MERGE INTO {{t}} AS t USING (SELECT a AS k, count(*) AS n FROM {{t}} GROUP BY a) AS o ON t.id = o.k "
        "WHEN MATCHED AND {} THEN DELETE WHEN MATCHED THEN UPDATE SET b = o.n "
        "WHEN NOT MATCHED AND o.k IS NOT NULL THEN INSERT (id, a) VALUES (o.k + 100, o.n) RETURNING merge_action(), t.*".format,
        CONDITIONS,
    ),
)
STEPS = st.builds(
    lambda one, two, order: [((one,), two, ())[place] for place in order],
    STATEMENTS,
    st.tuples(STATEMENTS, STATEMENTS),
    st.permutations(range(3)),
)
"""One statement, a transaction of two statements, and a compaction, in random order."""


@pytest.fixture(scope="module")
def postgres(embedded_lake: deltasql.Lake) -> Any:
    with psycopg.connect(embedded_lake.dsn, autocommit=True) as connection:
        connection.execute("SET lc_messages = 'C'")
        yield connection


@settings(
    max_examples=rounds(2, 40),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(rows=ROWS, steps=STEPS, files=st.integers(1, 3), layouts=LAYOUTS)
def test_statements_match_postgres(
    embedded_lake: deltasql.Lake,
    postgres: psycopg.Connection[Any],
    spark_session: SparkSession,
    rows: list[Any],
    steps: list[tuple[str, ...]],
    files: int,
    layouts: dict[str, dict[str, Any]],
) -> None:
    """Tables with and without deletion vectors have the same rows as PostgreSQL after each statement, for all readers.

    The change feed leads from each version to each later version, and a compaction changes no rows.
    """
    name = f"t{uuid.uuid4().hex[:12]}"
    numbered = [{"id": i, **dict(zip(COLUMNS, row, strict=True))} for i, row in enumerate(rows)]
    whole = pa.Table.from_pylist(numbered, SCHEMA)
    tables = {
        namespace: embedded_lake.create_table(f"{namespace}.{name}", SCHEMA, **options)
        for namespace, options in layouts.items()
    }
    for part in range(files):
        if (piece := whole.filter(pa.array([i % files == part for i in range(len(rows))]))).num_rows:
            for table in tables.values():
                table.append(piece)
    postgres.execute(
        f'CREATE TEMPORARY TABLE {name} (id bigint, a int, b int, s text COLLATE "C", p decimal(8,2), d date)'
    )
    with postgres.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s, %s)", [tuple(r.values()) for r in numbered])
    for number, step in enumerate(steps, 1):
        expected = [postgres.execute(statement.replace("{t}", name)).fetchall() for statement in step]
        left = postgres.execute(f"SELECT * FROM {name}").fetchall()
        for namespace, table in tables.items():
            found = _run(embedded_lake, table, step)
            assert list(map(_sorted, found)) == list(map(_sorted, expected)), (namespace, step)
            after = [tuple(row.values()) for row in table.arrow().to_pylist()]
            assert _sorted(after) == _sorted(left), (namespace, step)
            if namespace == "marked" or number == len(steps):
                assert_same_rows(Path(table.location), table.arrow(), READERS, spark=spark_session)
    for table in tables.values():
        if table.properties.get("delta.enableChangeDataFeed") == "true":
            assert_changes_lead_to_each_version(table)
    postgres.execute(f"DROP TABLE {name}")


def _run(lake: deltasql.Lake, table: deltasql.Table, step: tuple[str, ...]) -> list[list[tuple[Any, ...]]]:
    """Run a step, and return the rows of each statement."""
    name = table.name.partition(".")[2]
    texts = [statement.replace("{t}", table.name).replace(f"{table.name}.", f"{name}.") for statement in step]
    if not texts:
        table.optimize()
        return []
    if len(texts) == 1:
        return [[tuple(row) for row in lake.sql(texts[0]).collect()]]
    with lake.begin() as tx:
        return [[tuple(row) for row in tx.sql(text).collect()] for text in texts]


def _sorted(rows: list[Any]) -> list[str]:
    return sorted(map(repr, rows))
