"""Columns, literals and predicates of every type, and a row-by-row evaluator with three-valued logic."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from deltasql.protocol.statistics import ColumnPath

EPOCH = datetime(1970, 1, 1)
HOUR = 3_600_000_000
DAY = 24 * HOUR


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def single(value: float) -> float:
    """Return the nearest 32-bit float."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


@dataclass(frozen=True)
class Lit:
    kind: str  # int, dec, dbl, str, date, ts, ltz, ntz, bool, null; ts has a time zone, ltz is in the session time zone
    value: Any

    @property
    def sql(self) -> str:
        return SQL[self.kind](self.value)


def in_quotes(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def double_sql(value: float) -> str:
    text = repr(value)
    return text if "e" in text else text + "D"


SQL: dict[str, Callable[[Any], str]] = {
    "int": str,
    "dec": lambda value: format(value, "f") if value.as_tuple().exponent < 0 else format(value, "f") + ".",
    "dbl": double_sql,
    "str": in_quotes,
    "date": lambda value: f"DATE '{value.isoformat()}'",
    "ts": lambda value: f"TIMESTAMP '{moment(value + 2 * HOUR).isoformat()}+02:00'",
    "ltz": lambda value: f"TIMESTAMP '{moment(value).isoformat(' ')}'",
    "ntz": lambda value: f"TIMESTAMP_NTZ '{moment(value).isoformat()}'",
    "bool": lambda value: str(value).upper(),
    "null": lambda _: "NULL",
}


def literals(kind: str, *values: Any) -> tuple[Lit, ...]:
    return tuple(Lit(kind, value) for value in values)


@dataclass(frozen=True)
class Col:
    path: ColumnPath
    type: pa.DataType
    values: tuple[Any, ...]
    literals: tuple[Lit, ...]
    pair: Callable[[Any, Lit, int], tuple[Any, Any]]
    low: Callable[[Any, Any], Any]  # the minimum and maximum as printed by a writer of the given style
    high: Callable[[Any, Any], Any]
    partition: Callable[[Any, Any], str] | None = None
    order: Callable[[Any], Any] = field(default=lambda value: value)

    @property
    def sql(self) -> str:
        return ".".join(f"`{part}`" for part in self.path)


def total(value: float) -> tuple[bool, float]:
    """Return a sort key in the order of Spark: NaN equals NaN and is larger than every number."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def number_pair(value: Any, lit: Lit, _: int) -> tuple[Any, Any]:
    other = Decimal(lit.value) if lit.kind == "str" else lit.value
    if isinstance(value, float) or lit.kind == "dbl" or (isinstance(value, Decimal) and lit.kind == "str"):
        return total(float(value)), total(float(other))
    return Fraction(value), Fraction(other)


def text_pair(value: str, lit: Lit, _: int) -> tuple[Any, Any]:
    return value.encode(), lit.value.encode()


def same_pair(value: Any, lit: Lit, _: int) -> tuple[Any, Any]:
    return value, lit.value


def instant(lit: Lit, offset: int) -> int:
    """Return the instant of a literal in a session whose time zone is `offset` ahead of UTC."""
    if lit.kind == "date":
        return micros(datetime.combine(lit.value, datetime.min.time())) - offset
    if lit.kind == "str":
        return micros(datetime.fromisoformat(lit.value)) - offset
    return int(lit.value) - (0 if lit.kind == "ts" else offset)


def timestamp_pair(value: int, lit: Lit, offset: int) -> tuple[Any, Any]:
    return value, instant(lit, offset)


def ntz_pair(value: int, lit: Lit, offset: int) -> tuple[Any, Any]:
    return value - offset, instant(lit, offset)


def date_pair(value: date, lit: Lit, offset: int) -> tuple[Any, Any]:
    if lit.kind in ("date", "str"):
        return value, date.fromisoformat(lit.value) if lit.kind == "str" else lit.value
    return micros(datetime.combine(value, datetime.min.time())) - offset, instant(lit, offset)


def print_double(value: float, _: Any) -> Any:
    return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def print_single(value: float, style: Any) -> Any:
    """Print the shortest text of the 32-bit float, as Spark, or of the same value as a double, as delta-rs."""
    if not math.isfinite(value) or style:
        return print_double(value, style)
    return next(float(f"{value:.{n}g}") for n in range(1, 10) if single(float(f"{value:.{n}g}")) == value)


def print_decimal(value: Decimal, style: Any) -> Any:
    return float(value) if style else Exactly(format(value, "f"))


def print_low_text(value: str, style: Any) -> Any:
    return value[:3] if style else value


def print_high_text(value: str, style: Any) -> Any:
    """Truncate a maximum and append a tie-breaker, as Spark."""
    if not style or len(value) <= 3:
        return value
    return value[:3] + ("\x7f" if value[3] < "\x7f" else "\U0010ffff")


def print_timestamp(value: int, style: Any) -> str:
    """Truncate to milliseconds; old releases of Spark print the session time zone."""
    cut = moment(value // 1000 * 1000)
    if style:
        return (cut - timedelta(hours=8)).isoformat(timespec="milliseconds") + "-08:00"
    return cut.isoformat(timespec="milliseconds") + "Z"


def print_ntz(value: int, _: Any) -> str:
    return moment(value // 1000 * 1000).isoformat(timespec="milliseconds")


def plain(value: Any, _: Any) -> Any:
    return value


def iso(value: date, _: Any) -> str:
    return value.isoformat()


def partition_timestamp(value: int, style: Any) -> str:
    """Print in the writer's time zone, five hours behind UTC, or in UTC."""
    return moment(value - 5 * HOUR).isoformat(" ") if style else moment(value).isoformat() + "Z"


class Exactly(str):
    """A number that JSON prints with exactly these digits."""


def decimals(*texts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, texts))


few = (-2, -1, 0, 1, 5)
longs = (-(2**63), *few, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1)
small = decimals("-1.25", "0.00", "0.01", "1.00", "1.25", "5.00")
wide = decimals("0.00", "1.25", "12345678901234567.80", "12345678901234567.83", "12345678901234567.86")
doubles = (-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 1.25, 1e300, math.inf, math.nan)
floats = (-math.inf, -1.5, single(0.1), single(0.2), 1.0, 16777216.0, 3.4028234663852886e38, math.nan)
instants = (-2 * DAY, -9 * HOUR, -1001, -1, 0, 999, 1000, 1001, 6 * HOUR, DAY)
days = tuple((EPOCH + timedelta(days=n)).date() for n in range(-2, 3))
words = (
    "",
    "a",
    "ab",
    "abz",
    "abza",
    "abzé",
    "abzé~",
    "ac",
    "b",
    "\x7f",
    "é",
    "łódź",
    "ジ",
    "\ud7ffx",
    "\ue000",
    "\U0001f600",
)
exact = literals("int", *longs, 16777217, 2**63, -(2**70)) + literals(
    "dec", *decimals("0.5", "0.1", "1.25", "1.250", "1.2551", "-1.2501", "5.0", "12345678901234567.83", "0.005")
)
numbers = exact + literals("dbl", 0.0, 0.1, 1.0, 1.25, 5.5, 2.0**53, 1e300, 12345678901234568.0)
numbers_or_texts = numbers + literals("str", "-1", "0", "5")
texts = literals("str", *words)
dates = literals("date", *days) + literals("str", *map(date.isoformat, days))
clocks = literals("ntz", *instants) + literals("ltz", *instants) + literals("ts", *instants)
times = clocks + dates + literals("str", *(moment(n).isoformat(" ") for n in instants))
truths = literals("bool", True, False)


def number(name: str, type: pa.DataType, values: tuple[Any, ...], print_: Any = plain, **more: Any) -> Col:
    path = tuple(name.split("."))
    return Col(path, type, values, numbers_or_texts, number_pair, print_, print_, **more)


COLUMNS = [
    number("tiny", pa.int8(), few),
    number("id", pa.int32(), few),
    number("big", pa.int64(), longs),
    number("f", pa.float32(), floats, print_single, order=total),
    number("d", pa.float64(), doubles, print_double, order=total),
    number("price", pa.decimal128(9, 2), small, print_decimal),
    number("wide", pa.decimal128(30, 2), wide, print_decimal),
    Col(("name",), pa.string(), words, texts, text_pair, print_low_text, print_high_text, order=str.encode),
    Col(("day",), pa.date32(), days, dates + clocks, date_pair, iso, iso),
    Col(("at",), pa.timestamp("us", "UTC"), instants, times, timestamp_pair, print_timestamp, print_timestamp),
    Col(("local",), pa.timestamp("us"), instants, times, ntz_pair, print_ntz, print_ntz),
    Col(("flag",), pa.bool_(), (True, False), truths, same_pair, plain, plain),
    number("s.Deep", pa.int64(), few),
]


def partition(name: str, values: tuple[Any, ...], like: str, print_: Callable[[Any, Any], str]) -> Col:
    """Make a partition column with the comparison rules of a data column."""
    model = next(col for col in COLUMNS if col.path == (like,))
    return replace(model, path=(name,), values=values, partition=print_)


PARTITIONS = [
    partition("p_int", few, "id", lambda value, _: str(value)),
    partition("p_text", words, "name", lambda value, _: str(value)),
    partition("p_day", days, "day", iso),
    partition("p_at", instants, "at", partition_timestamp),
    partition("p_price", small, "price", lambda value, _: format(value, "f")),
    partition("p_float", floats, "f", lambda value, _: str(print_single(value, False))),
    partition("p_flag", (True, False), "flag", lambda value, _: str(value).lower()),
]
Row = dict[ColumnPath, Any]


@dataclass(frozen=True)
class Pred:
    sql: str
    columns: frozenset[Col]
    holds: Callable[[Row, int], bool | None]


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
OPERATORS = list(COMPARISONS)


def compare(col: Col, operator: str, lit: Lit, row: Row, offset: int) -> bool | None:
    value = row[col.path]
    if operator in ("<", "<=", ">", ">=") and beyond_long(col, lit):
        value = 0  # Spark replaces the comparison by TRUE or FALSE, also for nulls
    if value is None or lit.kind == "null":
        return None
    return COMPARISONS[operator](*col.pair(value, lit, offset))


def beyond_long(col: Col, lit: Lit) -> bool:
    return pa.types.is_integer(col.type) and lit.kind in ("int", "dec") and not -(2**63) <= lit.value < 2**63


def negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def conjunction(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def disjunction(values: list[bool | None]) -> bool | None:
    return negation(conjunction([negation(value) for value in values]))


def lits(col: Col) -> st.SearchStrategy[Lit]:
    return st.one_of(*[st.sampled_from(col.literals)] * 9, st.just(Lit("null", None)))


def comparison(col: Col, operator: str, lit: Lit, *, literal_first: bool = False) -> Pred:
    flipped = operator if operator == "<>" else operator.translate(str.maketrans("<>", "><"))
    sql = f"{lit.sql} {flipped} {col.sql}" if literal_first else f"{col.sql} {operator} {lit.sql}"
    return Pred(sql, frozenset([col]), lambda row, offset: compare(col, operator, lit, row, offset))


def null_safe(col: Col, lit: Lit) -> Pred:
    def holds(row: Row, offset: int) -> bool:
        if row[col.path] is None or lit.kind == "null":
            return row[col.path] is None and lit.kind == "null"
        return bool(compare(col, "=", lit, row, offset))

    return Pred(f"{col.sql} <=> {lit.sql}", frozenset([col]), holds)


def between(col: Col, low: Lit, high: Lit, negated: bool) -> Pred:
    def holds(row: Row, offset: int) -> bool | None:
        inside = [compare(col, ">=", low, row, offset), compare(col, "<=", high, row, offset)]
        return negation(conjunction(inside)) if negated else conjunction(inside)

    word = "NOT BETWEEN" if negated else "BETWEEN"
    return Pred(f"{col.sql} {word} {low.sql} AND {high.sql}", frozenset([col]), holds)


def one_of(col: Col, items: list[Lit], negated: bool) -> Pred:
    def holds(row: Row, offset: int) -> bool | None:
        found = disjunction([compare(col, "=", item, row, offset) for item in items])
        return negation(found) if negated else found

    sql = f"{col.sql} {'NOT IN' if negated else 'IN'} ({', '.join(item.sql for item in items)})"
    return Pred(sql, frozenset([col]), holds)


def like(col: Col, prefix: str, end: str, negated: bool) -> Pred:
    def holds(row: Row, _: int) -> bool | None:
        value = row[col.path]
        found = None if value is None else value.startswith(prefix) if end else value == prefix
        return negation(found) if negated else found

    word = "NOT LIKE" if negated else "LIKE"
    return Pred(f"{col.sql} {word} {in_quotes(prefix + end)}", frozenset([col]), holds)


def nullness(col: Col, is_null: bool) -> Pred:
    sql = f"{col.sql} IS NULL" if is_null else f"{col.sql} IS NOT NULL"
    return Pred(sql, frozenset([col]), lambda row, _: (row[col.path] is None) == is_null)


@st.composite
def lists(draw: st.DrawFn, col: Col) -> Pred:
    """Use literals of one kind: with mixed kinds, Spark's ANSI modes differ."""
    kind = draw(st.sampled_from(sorted({lit.kind for lit in col.literals})))
    same = st.sampled_from([lit for lit in col.literals if lit.kind == kind])
    items = draw(st.lists(same, min_size=1, max_size=8))
    nulls = draw(st.lists(st.just(Lit("null", None)), max_size=1))
    return one_of(col, items + nulls, draw(st.booleans()))


@st.composite
def column_pairs(draw: st.DrawFn) -> Pred:
    same = [col for col in COLUMNS + PARTITIONS if pa.types.is_integer(col.type) or col.path == ("d",)]
    a, b, operator = (
        draw(st.sampled_from(same)),
        draw(st.sampled_from(same)),
        draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="])),
    )

    def holds(row: Row, _: int) -> bool | None:
        left, right = row[a.path], row[b.path]
        if left is None or right is None:
            return None
        if isinstance(left, float) or isinstance(right, float):
            left, right = total(float(left)), total(float(right))
        return COMPARISONS[operator](left, right)

    return Pred(f"{a.sql} {operator} {b.sql}", frozenset([a, b]), holds)


def opaque(col: Col) -> st.SearchStrategy[Pred]:
    """Make a predicate that cannot be used for pruning."""
    pred = Pred(f"coalesce({col.sql}, {col.sql}) IS NULL", frozenset([col]), lambda row, _: row[col.path] is None)
    return st.just(pred)


def constants() -> st.SearchStrategy[Pred]:
    values = st.sampled_from([True, False, None])
    return values.map(lambda v: Pred("NULL" if v is None else str(v), frozenset(), lambda _, __: v))


def leaves(col: Col) -> st.SearchStrategy[Pred]:
    this, flags = st.just(col), st.booleans()
    compared = st.builds(comparison, this, st.sampled_from(OPERATORS), lits(col), literal_first=flags)
    kinds = [compared] * 3 + [
        st.builds(null_safe, this, lits(col)),
        st.builds(between, this, lits(col), lits(col), flags),
        lists(col),
        st.builds(nullness, this, flags),
        opaque(col),
    ]
    if col.type == pa.string():
        kinds.append(st.builds(like, this, st.sampled_from(words), st.sampled_from(["", "%", "%%"]), flags))
    if col.type == pa.bool_():
        kinds.append(st.just(Pred(col.sql, frozenset([col]), lambda row, _: row[col.path])))
    return st.one_of(kinds)


def joined(word: str, parts: list[Pred]) -> Pred:
    logic = conjunction if word == "AND" else disjunction
    return Pred(
        f" {word} ".join(f"({part.sql})" for part in parts),
        frozenset[Col]().union(*(part.columns for part in parts)),
        lambda row, offset: logic([part.holds(row, offset) for part in parts]),
    )


def negate(pred: Pred) -> Pred:
    return Pred(f"NOT ({pred.sql})", pred.columns, lambda row, offset: negation(pred.holds(row, offset)))


any_leaf = st.sampled_from(COLUMNS + PARTITIONS).flatmap(leaves) | column_pairs() | constants()
predicates = st.recursive(
    any_leaf,
    lambda inner: (
        st.builds(joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)) | inner.map(negate)
    ),
    max_leaves=6,
)


def conditions_of(col: Col) -> Iterator[Pred]:
    null = Lit("null", None)
    for lit in (*col.literals, null):
        yield from (comparison(col, operator, lit) for operator in OPERATORS)
        yield null_safe(col, lit)
    for negated in (False, True):
        yield nullness(col, negated)
        yield from (between(col, low, high, negated) for low, high in pairwise((*col.literals, null)))
        for _, same in groupby(col.literals, key=lambda lit: lit.kind):
            items = list(same)
            yield from (one_of(col, items[at : at + 6], negated) for at in range(0, len(items), 2))
            yield one_of(col, [items[0], null], negated)
        if col.type == pa.string():
            yield from (like(col, word, end, negated) for word in words for end in ("", "%"))
