"""Functions, operators and casts give the results of PostgreSQL, or are rejected.

The candidates come from the catalog of the embedded server, and their arguments are drawn.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import deltasql
from deltasql.sql.catalog.pg_catalog import Overload, catalog
from tests.effort import LONG, rounds
from tests.sql_values import CONSTANTS, VALUES, literal, same

_ANY = {
    "anyelement": "int4", "anyarray": "_int4", "anynonarray": "text", "anycompatible": "int4", "any": "text",
    "anycompatiblearray": "_int4", "anycompatiblenonarray": "int4",
}  # fmt: skip
_VOLATILE = {
    "random", "random_normal", "clock_timestamp", "gen_random_uuid", "now", "statement_timestamp",
    "transaction_timestamp", "timeofday", "array_shuffle", "array_sample",
}  # fmt: skip
_BATCH = 40


@dataclass(frozen=True)
class Candidate:
    """A function, operator or cast of the catalog."""

    kind: str
    name: str
    parameters: tuple[str, ...]
    result: str = ""

    def expression(self, arguments: Sequence[str]) -> str:
        """Return the candidate with its arguments."""
        if self.kind == "cast":
            return f"CAST({arguments[0]} AS {self.result})"
        if self.kind == "operator":
            return f"({f' {self.name} '.join(arguments)})" if len(arguments) > 1 else f"({self.name} {arguments[0]})"
        return f"{self.name}({', '.join(arguments)})"

    def __str__(self) -> str:
        return self.expression(self.parameters)


def _supported(types: Sequence[str]) -> tuple[str, ...] | None:
    """Return the types of arguments to draw, or None if lake tables have no such type."""
    named = tuple(_ANY.get(name, name) for name in types)
    return named if all(name in VALUES for name in named) else None


def _of_catalog() -> Iterator[Candidate]:
    for kind, entries in (("function", catalog().functions), ("operator", catalog().operators)):
        for overload in (one for overloads in entries.values() for one in overloads):
            types = _supported(overload.parameters)
            if types is not None and _is_scalar(overload):
                yield Candidate(kind, overload.name, types)
    for source, target in catalog().casts:
        if source in VALUES and target in VALUES:
            yield Candidate("cast", "cast", (source,), target)


def _is_scalar(overload: Overload) -> bool:
    return overload.kind == "f" and not overload.returns_rows and overload.name not in _VOLATILE


def _drawn(candidate: Candidate, choose: random.Random) -> list[str]:
    constants = CONSTANTS.get(candidate.name)
    position = 1 if candidate.name in ("encode", "decode", "to_char", "to_date", "to_timestamp") else 0
    return [
        literal(name, choose.choice(constants if constants and name == "text" and index == position else VALUES[name]))
        for index, name in enumerate(candidate.parameters)
    ]


class Comparison:
    """Runs expressions in PostgreSQL and in the lake."""

    def __init__(self, lake: deltasql.Lake, server: psycopg.Connection[Any]) -> None:
        self.lake, self.server = lake, server
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []

    def of_postgres(self, expression: str) -> tuple[bool, Any]:
        """Return whether PostgreSQL computes an expression, and its value."""
        try:
            row = self.server.execute(f"SELECT {expression}").fetchone()
        except psycopg.Error as error:
            return False, str(error).partition("\n")[0]
        return True, row[0] if row else None

    def is_rejected(self, expression: str) -> bool:
        """Return whether the lake rejects an expression before it runs."""
        try:
            self.lake.sql(f"SELECT {expression} AS x")
        except deltasql.UsageError:
            return True
        return False

    def compare(self, expressions: Sequence[str]) -> None:
        """Compare the results of expressions; one query computes those that PostgreSQL can compute."""
        known = {expression: self.of_postgres(expression) for expression in expressions}
        possible = [e for e in expressions if known[e][0]]
        for expression, value in self._values(possible):
            if isinstance(value, Exception):
                self.outcomes["an error instead of a result"] += 1
            elif same(value, known[expression][1]):
                self.outcomes["equal"] += 1
            else:
                self.wrong.append(f"{expression}: {value!r}, in PostgreSQL {known[expression][1]!r}")
        for expression in expressions:
            if not known[expression][0] and "syntax error" not in known[expression][1]:  # the name is a keyword
                [(_, value)] = self._values([expression])
                if isinstance(value, Exception):
                    self.outcomes["an error in both"] += 1
                else:
                    self.wrong.append(f"{expression}: {value!r}, in PostgreSQL an error: {known[expression][1]}")

    def _values(self, expressions: Sequence[str]) -> Iterator[tuple[str, Any]]:
        if not expressions:
            return
        items = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
        try:
            [row] = self.lake.sql(f"SELECT {items}").collect()
            yield from zip(expressions, row, strict=True)
        except Exception as error:
            if len(expressions) == 1:
                yield expressions[0], error
                return
            half = len(expressions) // 2
            yield from self._values(expressions[:half])
            yield from self._values(expressions[half:])


@pytest.fixture
def comparison(lake: deltasql.Lake, spark_session: SparkSession) -> Iterator[Comparison]:
    with psycopg.connect(lake.dsn, autocommit=True) as server:
        server.execute("SET TimeZone = 'UTC'")
        yield Comparison(lake, server)


def test_functions_operators_and_casts(comparison: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    """Each candidate is rejected, or gives the results of PostgreSQL for drawn arguments."""
    choose = random.Random(None if LONG else 20)
    candidates = sorted(set(_of_catalog()), key=str)
    counts: Counter[tuple[str, str]] = Counter()
    drawn: list[str] = []
    for candidate in candidates:
        first = candidate.expression(_drawn(candidate, choose))
        if _binds(comparison.lake, first):
            counts[candidate.kind, "covered"] += 1
            drawn += [first] + [candidate.expression(_drawn(candidate, choose)) for _ in range(rounds(1, 12) - 1)]
        else:
            counts[candidate.kind, "rejected"] += 1
    chosen = drawn if LONG else choose.sample(drawn, min(len(drawn), 300))
    for start in range(0, len(chosen), _BATCH):
        comparison.compare(chosen[start : start + _BATCH])
    with capsys.disabled():
        print(f"\n{len(chosen)} expressions: {dict(comparison.outcomes)}; {_shown(counts)}")
    assert not comparison.wrong, "\n".join(comparison.wrong)


def _binds(lake: deltasql.Lake, expression: str) -> bool:
    """Return whether an expression has a translation. No Spark is needed for that."""
    from deltasql.sql.meaning import PostgresMeaning
    from deltasql.sql.parse import parse

    try:
        parsed = parse(f"SELECT {expression}")
        PostgresMeaning(parsed.text, parsed.values, _no_spark, _no_spark).query(parsed.tree)
    except deltasql.ValidationError:
        return False
    return True


def _no_spark(_: Any) -> Any:
    raise AssertionError("a function of PostgreSQL asks Spark for its type")


def _shown(counts: Counter[tuple[str, str]]) -> str:
    return ", ".join(f"{number} {kind}s {state}" for (kind, state), number in sorted(counts.items()))


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
    assert isinstance(comparison.of_postgres("CURRENT_DATE")[1], dt.date)
