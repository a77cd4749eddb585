"""A predicate without Spark keeps the same rows as Spark's `where`, with and without ANSI mode, or is rejected."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.expressions.predicates import Predicate
from tests.effort import rounds
from tests.predicate_cases import (
    COLUMNS,
    OPERATORS,
    PARTITIONS,
    Col,
    Lit,
    Pred,
    conditions_of,
    negate,
    one_of,
    predicates,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 120


def some_rows() -> pa.Table:
    """Make rows with each value of each column at least once, and nulls, in random order."""
    chance = random.Random(7)
    columns: dict[str, pa.Array] = {"row": pa.array(range(ROWS), pa.int64())}
    for col in COLUMNS + PARTITIONS:
        values: list[Any] = [*col.values, None, None]
        values += chance.choices(values, k=ROWS - len(values))
        chance.shuffle(values)
        array = pa.array(values, col.type)
        columns[col.path[0]] = array if len(col.path) == 1 else nested(array, chance)
    return pa.table(columns)


def nested(values: pa.Array, chance: random.Random) -> pa.Array:
    """Put values into a struct that is sometimes null."""
    mask = pa.array([chance.random() < 0.1 for _ in values])
    return pa.StructArray.from_arrays([values], names=["Deep"], mask=mask)


@pytest.fixture(scope="module")
def table(embedded_lake: deltasql.Lake, tmp_path_factory: pytest.TempPathFactory) -> deltasql.Table:
    """A partitioned table with several row groups per file."""
    rows = some_rows()
    root = tmp_path_factory.mktemp("rows")
    made = embedded_lake.create_table("row_filter.t", rows.schema, location=str(root), partition_by=["p_day"])
    files, values = [], []
    for number, day in enumerate(pc.unique(rows["p_day"])):
        chosen = pc.equal(rows["p_day"], day) if day.is_valid else rows["p_day"].is_null()
        files.append(f"{number}.parquet")
        values.append({"p_day": str(day) if day.is_valid else None})
        pq.write_table(rows.filter(chosen).drop_columns("p_day"), root / files[-1], row_group_size=5)
    made.add_files(files, partition_values=values)
    return made


@pytest.fixture(scope="module")
def frame(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The same rows as a Spark DataFrame."""
    path = tmp_path_factory.mktemp("spark") / "rows.parquet"
    pq.write_table(some_rows(), path)
    return spark_session.read.parquet(str(path)).repartition(1).cache()


@contextmanager
def ansi(spark: SparkSession, enabled: bool) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", enabled)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


Kept = Callable[[str], set[int]]


def by_where(frame: DataFrame, conditions: list[str]) -> list[set[int]]:
    """Return the rows that `where` keeps for each condition, with one Spark job."""
    # Spark rejects a bare NULL as a condition, because it has no type.
    parts = [
        frame.where(f"CAST(({text}) AS BOOLEAN)").selectExpr(f"{i} AS i", "row") for i, text in enumerate(conditions)
    ]
    found: list[set[int]] = [set() for _ in conditions]
    for i, row in reduce(lambda a, b: a.unionAll(b), parts).collect():
        found[i].add(row)
    return found


def by_value(frame: DataFrame, conditions: list[str]) -> list[set[int]]:
    """Return the rows for which each condition is true, computed as columns, which is faster in Spark than `where`."""
    found: list[set[int]] = [set() for _ in conditions]
    for row, *values in frame.selectExpr("row", *(f"({text})" for text in conditions)).collect():
        for rows in (rows for rows, value in zip(found, values, strict=True) if value):
            rows.add(row)
    return found


def assert_same_as_spark(
    conditions: Iterable[str], kept: Kept, frame: DataFrame, spark: Callable[[DataFrame, list[str]], list[set[int]]]
) -> float:
    """Assert that Spark keeps the same rows in both modes, and return the share of conditions that are not rejected."""
    found: dict[str, set[int]] = {}
    distinct = list(dict.fromkeys(conditions))
    for text in distinct:
        with suppress(deltasql.UnsupportedFeature):
            found[text] = kept(text)
    for mode in (True, False):
        with ansi(frame.sparkSession, mode):
            for texts in batched(found):
                for text, rows in zip(texts, spark(frame, texts), strict=True):
                    assert found[text] == rows, (text, "ANSI" if mode else "not ANSI")
    return len(found) / len(distinct)


def batched(texts: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(texts)
    while some := list(islice(waiting, 100)):
        yield some


# --- Every value against every literal

BATCH = some_rows().combine_chunks().to_batches()[0]


def in_memory(text: str) -> set[int]:
    """Return the rows of an in-memory batch that a condition keeps."""
    mask = Predicate.parse(text, BATCH.schema, []).row_filter("t")(BATCH)
    if isinstance(mask, pa.Scalar):
        mask = pa.repeat(mask, ROWS)
    return set(BATCH.filter(mask)["row"].to_pylist())


def half_negated(conditions: Iterable[Pred]) -> Iterator[str]:
    """Negate every second condition; both forms of all conditions take too long in Spark."""
    for number, condition in enumerate(conditions):
        yield (negate(condition) if number % 2 else condition).sql


@pytest.mark.parametrize("col", COLUMNS, ids=lambda col: ".".join(col.path))
def test_every_value_against_every_literal(col: Col, frame: DataFrame) -> None:
    long_lists = [one_of(col, list(items), negated) for items in by_kind(col) for negated in (True, False)]
    share = assert_same_as_spark(half_negated([*conditions_of(col), *long_lists]), in_memory, frame, by_value)
    # most literals for timestamps have no time zone and are rejected
    assert share > (0.2 if pa.types.is_temporal(col.type) else 0.6)


def by_kind(col: Col) -> Iterator[tuple[Lit, ...]]:
    for _, same in groupby(col.literals, key=lambda lit: lit.kind):
        yield tuple(same)


PAIRS = [
    f"{a} {operator} {b}"
    for a, b in [
        ("d", "f"), ("f", "d"), ("d", "d"), ("f", "p_float"), ("d", "big"), ("big", "d"), ("id", "tiny"), ("tiny", "f"),
        ("f", "tiny"), ("s.Deep", "big"), ("price", "p_price"), ("name", "p_text"), ("day", "p_day"), ("at", "p_at"),
        ("flag", "p_flag"), ("id", "d"),
    ]
    for operator in (*OPERATORS, "<=>")
]  # fmt: skip


def test_columns_against_columns(frame: DataFrame) -> None:
    assert assert_same_as_spark([*PAIRS, *(f"NOT ({pair})" for pair in PAIRS)], in_memory, frame, by_value) == 1


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("at >= '2026-01-01'", "time zone"),
        ("at = TIMESTAMP '2026-01-01 00:00:00'", "time zone"),
        ("day < TIMESTAMP '2026-01-01 00:00:00Z'", "time zone"),
        ("at IN ('2026-01-01T00:00:00Z')", "as texts"),
        ("local IN ('2026-01-01 00:00:00')", "as texts"),
        ("price > 1.5e0", "rounded"),
        ("wide IN (1, 2.5D)", "rounded"),
        ("f = 16777217", "FLOAT"),
        ("f NOT IN (1, 16777217)", "FLOAT"),
        ("tiny <> '1000'", "cannot hold it"),
        ("f = id", "round the integers"),
        ("wide <> 1.00000000000000000000000000000000001", "kind of condition is not supported"),
        ("id < 9223372036854775808", "kind of condition is not supported"),
        ("name LIKE '%a'", "kind of condition is not supported"),
        ("abs(id) = 1", "kind of condition is not supported"),
        ("id = 1 OR upper(name) = 'A'", r"by UPPER\(name\) = 'A' without Spark"),
        ("id BETWEEN 1 AND abs(id)", r"by id <= ABS\(id\) without Spark"),
        ("(id = 1) IS NOT TRUE", "kind of condition is not supported"),
    ],
)
def test_conditions_that_need_spark_are_rejected(condition: str, message: str) -> None:
    with pytest.raises(deltasql.UnsupportedFeature, match=f"table t: .*{message}.*t.df\\(where=…\\)"):
        in_memory(condition)


# --- Random conditions on a table

texts = predicates.map(lambda pred: pred.sql)


@settings(
    max_examples=rounds(8),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(texts, min_size=30, max_size=40), st.lists(texts, min_size=4, max_size=8))
def test_tables_are_filtered_as_spark_does(
    table: deltasql.Table, frame: DataFrame, many: list[str], few: list[str]
) -> None:
    def kept(text: str) -> set[int]:
        return set(table.arrow(where=text, columns=["row"])["row"].to_pylist())

    assert_same_as_spark(many, kept, frame, by_value)
    assert_same_as_spark(few, kept, frame, by_where)
