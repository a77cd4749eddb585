"""Functions, operators, casts, aggregates and windows give the results of PostgreSQL, or are rejected.

The candidates come from the catalog of the embedded server, and their arguments are drawn.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

import deltasql
from deltasql.sql.catalog.pg_catalog import catalog
from tests.effort import LONG, rounds
from tests.sql_comparison import Candidate, Comparison, ValueTable, binds, candidates, column, drawn
from tests.sql_values import VALUES, literal

_ZONES = ["UTC", "America/St_Johns", "Asia/Kolkata", "Australia/Lord_Howe"]
_TIMES = {"date", "timestamp", "timestamptz"}


@pytest.fixture
def choose() -> random.Random:
    return random.Random(None if LONG else 20)


@pytest.fixture
def comparison(lake: deltasql.Lake, spark_session: SparkSession) -> Iterator[Comparison]:
    with psycopg.connect(lake.dsn, autocommit=True) as server:
        server.execute("SET TimeZone = 'UTC'")
        yield Comparison(lake, server)


@pytest.fixture
def table(comparison: Comparison, namespace: str, choose: random.Random) -> ValueTable:
    return ValueTable.fill(comparison, f"{namespace}.vals", rounds(16, 60), choose)


def _report(comparison: Comparison, capsys: pytest.CaptureFixture[str], also: str = "") -> None:
    with capsys.disabled():
        print(f"\n{sum(comparison.outcomes.values())} expressions: {dict(comparison.outcomes)}{also}")
    assert comparison.outcomes["equal"]
    assert not comparison.wrong, "\n".join(comparison.wrong)


def test_functions_operators_and_casts(
    comparison: Comparison, choose: random.Random, spark_session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each candidate is rejected, or gives the results of PostgreSQL for drawn literals."""
    counts: Counter[str] = Counter()
    covered: list[Candidate] = []
    for candidate in candidates():
        is_covered = binds(drawn(candidate, choose))
        covered += [candidate] if is_covered else []
        counts[f"{candidate.kind}s {'covered' if is_covered else 'rejected'}"] += 1
    names = {row[0] for row in spark_session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    own = {name for name in names if name.isidentifier()} - catalog().functions.keys()
    counts["functions are Spark's own"] = len(own)
    expressions = [drawn(candidate, choose) for candidate in covered for _ in range(rounds(1, 12))]
    comparison.compare(expressions if LONG else choose.sample(expressions, 120))
    _report(comparison, capsys, "; " + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())))


def test_functions_of_columns(
    comparison: Comparison, table: ValueTable, choose: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark runs other code for columns than for constants."""
    covered = [candidate for candidate in candidates() if candidate.parameters and binds(drawn(candidate, choose))]
    expressions = [table.expression(candidate, choose) for candidate in covered for _ in range(rounds(1, 2))]
    chosen = expressions if LONG else choose.sample(expressions, 90)
    table.compare(comparison, chosen, errors=rounds(8, 200))
    _report(comparison, capsys)


@pytest.mark.parametrize("zone", _ZONES if LONG else _ZONES[1:2])
def test_functions_of_times_in_a_time_zone(
    comparison: Comparison,
    table: ValueTable,
    choose: random.Random,
    zone: str,
    spark_session: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    of_times = [one for one in candidates() if _TIMES & {*one.parameters, one.result} and binds(drawn(one, choose))]
    comparison.server.execute(f"SET TimeZone = '{zone}'")
    before = spark_session.conf.get("spark.sql.session.timeZone")
    spark_session.conf.set("spark.sql.session.timeZone", zone)
    try:
        chosen = of_times if LONG else choose.sample(of_times, 30)
        table.compare(comparison, [table.expression(one, choose) for one in chosen], errors=rounds(2, 40))
    finally:
        spark_session.conf.set("spark.sql.session.timeZone", before)
    _report(comparison, capsys)


def test_aggregates_and_windows(
    comparison: Comparison, table: ValueTable, choose: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    over = "OVER (PARTITION BY bool_0 ORDER BY id)"
    calls = [one.expression([column(kind, 2) for kind in one.parameters]) for one in candidates(kinds="a")]
    groups = [f"{call} FILTER (WHERE id > 2)" if choose.random() < 0.3 else call for call in calls]
    windows = [f"{call} {over}" for call in calls]
    for one in candidates(kinds="w"):
        arguments = [
            str(choose.randint(1, 4)) if kind == "int4" and n else column(kind, 2)
            for n, kind in enumerate(one.parameters)
        ]
        windows.append(f"{one.expression(arguments if one.name != 'ntile' else ['3'])} {over}")
    for expressions, source in (
        (groups, f"FROM {table.name} GROUP BY bool_0 ORDER BY bool_0"),
        (groups, f"FROM {table.name} WHERE id < 0"),
        (windows, f"FROM {table.name} ORDER BY id"),
    ):
        known = [one for one in expressions if _binds_over(comparison, one, source)]
        comparison.compare(known if LONG else choose.sample(known, 15), source, tolerance=1e-6)
    _report(comparison, capsys)


def _binds_over(comparison: Comparison, expression: str, source: str) -> bool:
    try:
        comparison.lake.sql(f"SELECT {expression} {source}")
    except deltasql.UsageError:
        return False
    return True


def test_the_catalog_is_that_of_the_server(lake: deltasql.Lake) -> None:
    from importlib import resources

    from deltasql.sql.catalog import pg_catalog
    from tests.pg_catalog import catalog_text

    stored = (resources.files("deltasql.sql.catalog") / pg_catalog.FILE).read_text()
    assert stored == catalog_text(lake.dsn), "write it again: python -m tests.pg_catalog"


def test_the_values_of_the_tests_are_values_of_their_types(comparison: Comparison) -> None:
    for name, values in VALUES.items():
        for value in values:
            assert comparison.of_postgres(literal(name, value))[0], (name, value)
    assert isinstance(comparison.of_postgres("CURRENT_DATE")[1][0], dt.date)
