"""Compare expressions of the lake with those of PostgreSQL: candidates of the catalog, over literals or columns."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from py4j.protocol import Py4JNetworkError

import deltasql
from deltasql.sql.catalog.pg_catalog import Overload, catalog
from tests.sql_values import CONSTANTS, VALUES, literal, same, type_text

_ANY = {
    "anyelement": "int4", "anyarray": "_int4", "anynonarray": "text", "anycompatible": "int4", "any": "text",
    "anycompatiblearray": "_int4", "anycompatiblenonarray": "int4",
}  # fmt: skip
_VOLATILE = {
    "random", "random_normal", "clock_timestamp", "gen_random_uuid", "now", "statement_timestamp",
    "transaction_timestamp", "timeofday", "array_shuffle", "array_sample",
}  # fmt: skip
_BATCH = 20


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
            return f"CAST({arguments[0]} AS {type_text(self.result)})"
        if self.kind == "operator":
            return f"({f' {self.name} '.join(arguments)})" if len(arguments) > 1 else f"({self.name} {arguments[0]})"
        return f"{self.name}({', '.join(arguments)})"

    def __str__(self) -> str:
        return self.expression(self.parameters)


def candidates(*, kinds: str = "f") -> list[Candidate]:
    """Return the functions, operators and casts for types of lake tables; `kinds` may be a or w for aggregates."""
    found = {*_calls("function", catalog().functions.values(), kinds)}
    if kinds == "f":
        found |= {*_calls("operator", catalog().operators.values(), kinds)}
        texts = [pair for name in VALUES for pair in ((name, "text"), ("text", name))]
        casts = [pair for pair in (*catalog().casts, *texts) if {*pair} <= VALUES.keys()]
        found |= {Candidate("cast", "cast", (source,), target) for source, target in casts}
    return sorted(found, key=str)


def _calls(kind: str, entries: Iterable[Sequence[Overload]], kinds: str) -> Iterator[Candidate]:
    for overload in (one for overloads in entries for one in overloads):
        types = tuple(_ANY.get(name, name) for name in overload.parameters)
        known = all(name in VALUES for name in types) and overload.name not in _VOLATILE
        if known and overload.kind in kinds and not overload.returns_rows:
            yield Candidate(kind, overload.name, types)


def binds(expression: str, source: str = "") -> bool:
    """Return whether an expression has a translation. No Spark is needed for that."""
    from deltasql.sql.meaning import PostgresMeaning
    from deltasql.sql.parse import parse

    try:
        parsed = parse(f"SELECT {expression} {source}")
        PostgresMeaning(parsed.text, parsed.values, _no_spark, _no_spark).query(parsed.tree)
    except deltasql.ValidationError:
        return False
    return True


def _no_spark(_: Any) -> Any:
    raise AssertionError("a function of PostgreSQL asks Spark for its type")


def constant(candidate: Candidate, index: int, choose: random.Random) -> str:
    """Return a drawn literal for an argument."""
    name, constants = candidate.parameters[index], CONSTANTS.get(candidate.name)
    position = 1 if candidate.name in ("encode", "decode", "to_char", "to_date", "to_timestamp") else 0
    is_keyword = constants and name == "text" and index == position
    return literal(name, choose.choice(constants if constants and is_keyword else VALUES[name]))


def drawn(candidate: Candidate, choose: random.Random) -> str:
    """Return a candidate with drawn literals."""
    return candidate.expression([constant(candidate, n, choose) for n in range(len(candidate.parameters))])


@dataclass
class Comparison:
    """Runs expressions in PostgreSQL and in the lake."""

    lake: deltasql.Lake
    server: psycopg.Connection[Any]
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def of_postgres(self, expression: str, source: str = "") -> tuple[bool, Any]:
        """Return whether PostgreSQL computes an expression, and its values in all rows, or the error."""
        try:
            return True, [value for (value,) in self.server.execute(f"SELECT {expression} {source}").fetchall()]
        except psycopg.Error as error:
            return False, str(error).partition("\n")[0]

    def compare(self, expressions: Sequence[str], source: str = "", tolerance: float = 0.0) -> None:
        """Compare the results of expressions; queries of the lake compute those that PostgreSQL can compute."""
        known = {expression: self.of_postgres(expression, source) for expression in expressions}
        possible = [e for e in expressions if known[e][0]]
        for start in range(0, len(possible), _BATCH):
            for expression, values in self._values(possible[start : start + _BATCH], source):
                self._judge(expression, values, known[expression][1], tolerance)
        for expression in expressions:
            if not known[expression][0]:
                self.expect_error(expression, source, known[expression][1])

    def _judge(self, expression: str, ours: Any, theirs: list[Any], tolerance: float) -> None:
        if isinstance(ours, Exception):
            self.outcomes["an error instead of a result"] += 1
        elif same(ours, theirs, tolerance):
            self.outcomes["equal"] += 1
        else:
            pairs = zip(ours, theirs, strict=True) if len(ours) == len(theirs) else [(ours, theirs)]
            first = next(pair for pair in pairs if not same(*pair, tolerance))
            self.wrong.append(f"{expression}: {first[0]!r}, in PostgreSQL {first[1]!r}")

    def expect_error(self, expression: str, source: str, problem: str) -> None:
        """Expect an error where PostgreSQL has one; a syntax error means that the name is a keyword."""
        if "syntax error" in problem:
            return
        [(_, values)] = self._values([expression], source)
        if isinstance(values, Exception):
            self.outcomes["an error in both"] += 1
        else:
            self.wrong.append(f"{expression} {source}: {values!r}, in PostgreSQL an error: {problem}")

    def _values(self, expressions: Sequence[str], source: str) -> Iterator[tuple[str, Any]]:
        items = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
        try:
            rows = self.lake.sql(f"SELECT {items} {source}").collect()
            yield from ((expression, [row[n] for row in rows]) for n, expression in enumerate(expressions))
        except (OSError, Py4JNetworkError) as error:
            raise AssertionError(f"Spark died while it computed {items}") from error
        except Exception as error:
            if len(expressions) == 1:
                yield expressions[0], error
                return
            half = len(expressions) // 2
            yield from self._values(expressions[:half], source)
            yield from self._values(expressions[half:], source)


_COLUMN_TYPES = {
    "bool": ("BOOLEAN", pa.bool_()), "int2": ("SMALLINT", pa.int16()), "int4": ("INT", pa.int32()),
    "int8": ("BIGINT", pa.int64()), "numeric": ("NUMERIC(24, 6)", pa.decimal128(24, 6)), "float4": ("REAL", pa.float32()),
    "float8": ("DOUBLE PRECISION", pa.float64()), "text": ("TEXT", pa.string()), "bytea": ("BYTEA", pa.binary()),
    "date": ("DATE", pa.date32()), "timestamp": ("TIMESTAMP WITHOUT TIME ZONE", pa.timestamp("us")),
    "timestamptz": ("TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC")), "_int4": ("INT[]", pa.list_(pa.int32())),
    "_text": ("TEXT[]", pa.list_(pa.string())), "_float8": ("DOUBLE PRECISION[]", pa.list_(pa.float64())),
}  # fmt: skip
_COPIES = 3
_EXTREME = {"1e300", "1e-300", "3e38", "9223372036854775807", "-9223372036854775808"}


def column(type_name: str, copy: int) -> str:
    """Return the column of the table of values with the n-th drawn values of a type."""
    return f"{type_name.lstrip('_')}{'s' if type_name.startswith('_') else ''}_{copy}"


@dataclass(frozen=True)
class ValueTable:
    """A table of drawn values, in the lake and on the server; its last copy of a type has no extreme numbers."""

    name: str
    rows: int

    @classmethod
    def fill(cls, comparison: Comparison, name: str, rows: int, choose: random.Random) -> ValueTable:
        """Create the table."""
        wanted = [(kind, copy) for kind in _COLUMN_TYPES for copy in range(_COPIES)]
        columns = ", ".join(f"{column(kind, copy)} {_COLUMN_TYPES[kind][0]}" for kind, copy in wanted)
        server, schema = comparison.server, name.partition(".")[0]
        server.execute(f"CREATE SCHEMA {schema}")
        server.execute(f"CREATE TABLE {name} (id INT, {columns})")
        for number in range(rows):
            values = [literal(kind, _value(kind, copy, choose)) for kind, copy in wanted]
            server.execute(f"INSERT INTO {name} VALUES ({number}, {', '.join(values)})")
        comparison.lake.sql(f"CREATE TABLE {name} (id INT, {columns})")
        found = server.execute(f"SELECT * FROM {name} ORDER BY id").fetchall()
        types = [pa.int32(), *(_COLUMN_TYPES[kind][1] for kind, _ in wanted)]
        names = ["id", *(column(kind, copy) for kind, copy in wanted)]
        arrays = [pa.array(values, kind) for values, kind in zip(zip(*found, strict=True), types, strict=True)]
        comparison.lake.table(name).append(pa.table(arrays, names=names))
        return cls(name, rows)

    def expression(self, candidate: Candidate, choose: random.Random) -> str:
        """Return a candidate over columns; formats, patterns and intervals are literals."""
        arguments = [
            constant(candidate, n, choose)
            if kind not in _COLUMN_TYPES or (kind == "text" and candidate.name in CONSTANTS)
            else column(kind, min(n, _COPIES - 1))
            for n, kind in enumerate(candidate.parameters)
        ]
        return candidate.expression(arguments)

    def compare(self, comparison: Comparison, expressions: Sequence[str], errors: int) -> None:
        """Compare expressions in the rows in which PostgreSQL has a result; then expect errors in some other rows."""
        guarded, failing = [], []
        for expression in expressions:
            found = {n: comparison.of_postgres(expression, self._row(n)) for n in range(self.rows)}
            failing += [(expression, n, problem) for n, (is_value, problem) in found.items() if not is_value]
            possible = [str(n) for n, (is_value, _) in found.items() if is_value]
            if possible:
                guarded.append(f"CASE WHEN id IN ({', '.join(possible)}) THEN {expression} END")
        comparison.compare(guarded, f"FROM {self.name} ORDER BY id")
        for expression, n, problem in random.Random(1).sample(failing, min(errors, len(failing))):
            comparison.expect_error(expression, self._row(n), problem)

    def _row(self, number: int) -> str:
        return f"FROM {self.name} WHERE id = {number}"


def _value(kind: str, copy: int, choose: random.Random) -> str:
    values = VALUES[kind]
    return choose.choice([v for v in values if v not in _EXTREME] if copy == _COPIES - 1 else values)
