"""The table of casts: which type is cast to which, in which context, and how in Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import (
    DURATION,
    INTERVAL,
    MOST_DIGITS,
    SqlType,
    array_of,
    as_numeric,
    numeric,
)
from deltasql.sql.functions.dates import intervals, time_zones
from deltasql.sql.functions.float_texts import DOUBLE_TO_TEXT, REAL_TO_TEXT
from deltasql.sql.functions.templates import Typed, filled

IMPLICIT, ASSIGNMENT, EXPLICIT = "implicit", "assignment", "explicit"
"""The contexts of casts: any expression; a value for a column; only CAST and `::`. Each includes those before it."""
_CONTEXTS = (IMPLICIT, ASSIGNMENT, EXPLICIT)
_SCALE_OF_ANY = 18
"""The scale of a numeric whose size is not given."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast of values of one type to another."""

    source: str
    target: str
    context: str
    spark: str
    """The Spark SQL: `{0}` is the value, `{type}` the target."""


_PLAIN = "CAST({0} AS {type})"
_ROUND_EVEN = "CAST(rint({0}) AS {type})"
_ROUND_AWAY = "CAST(round({0}) AS {type})"
_DATE = r"^\\s*\\d\\d\\d\\d-\\d\\d?-\\d\\d?"
_TIME = r"([ T]\\d\\d?:\\d\\d(:\\d\\d(\\.\\d\\d?\\d?\\d?\\d?\\d?)?)?)?"
_ZONE = r" ?(Z|UTC|[+-]\\d\\d(:?\\d\\d)?)"


def _checked(pattern: str, kind: str) -> str:
    """Return a cast of texts that Spark reads as PostgreSQL does; others are an error."""
    wrong = f"raise_error(concat('invalid input syntax for type {kind}: \"', {{0}}, '\"'))"
    return f"CASE WHEN {{0}} IS NULL OR {{0}} RLIKE '{pattern}' THEN CAST({{0}} AS {{type}}) ELSE {wrong} END"


_NOT_FINITE = (
    "CASE WHEN {0} IS NULL THEN NULL WHEN isnan({0}) OR abs({0}) = CAST('Infinity' AS DOUBLE) "
    "THEN raise_error('cannot convert NaN or infinity to numeric') "
)
_DIGITS_15, _DIGITS_16 = "format_string('%.14e', {0})", "format_string('%.15e', {0})"


def _rounded_down(digits: str, is_lower: str) -> str:
    """Return the case of a float whose last digit is 5 and is dropped: one more digit is written than is wanted.

    Java rounds its shortest digits up, PostgreSQL rounds the exact value of the float, and to an even digit if it is
    exactly between two numbers.
    """
    written = f"{digits} LIKE '%5e%' AND CAST({digits} AS DOUBLE) = CAST({{0}} AS DOUBLE)"
    return f"WHEN {written} AND {is_lower} THEN CAST(regexp_replace({digits}, '5e', '0e') AS {{type}}) "


def _is_lower() -> str:
    """Return whether a double is lower than its 16 digits: both are compared as whole numbers, which are exact."""
    even = f"{_DIGITS_16} RLIKE '[02468]5e'"
    number = f"abs(CAST({_DIGITS_16} AS DECIMAL(38, 20)))"
    cases = []
    for least, value, digits, power, decimals in (
        ("1e15", "{0}", number, 0, 0),
        ("1", "({0} - CAST({0} AS BIGINT))", f"{number} % 1BD", 52, 15),
        ("0.0078125", "{0}", f"CAST({number} AS DECIMAL(20, 20))", 59, 18),
        ("0.00006103515625", "{0}", f"CAST({number} AS DECIMAL(20, 20))", 66, 20),
    ):
        exact = f"CAST(CAST(abs({value}) * {2.0**power!r} AS BIGINT) AS DECIMAL(20, 0)) * {10**decimals}BD"
        written = f"CAST(({digits}) * {10**decimals}BD AS DECIMAL(20, 0)) * {2**power}BD"
        cases.append(f"WHEN abs({{0}}) >= {least}D THEN {exact} < {written} OR ({exact} = {written} AND {even})")
    lower = f"CAST(regexp_replace({_DIGITS_16}, '5e', '0e') AS {{type}})"
    wrong = "raise_error('the number is too small')"
    differ = f"CASE WHEN {lower} <> CAST({_DIGITS_15} AS {{type}}) THEN {wrong} ELSE false END"
    return f"CASE {' '.join(cases)} ELSE {differ} END"


_DOUBLE_TO_NUMERIC = _NOT_FINITE + _rounded_down(_DIGITS_16, _is_lower()) + f"ELSE CAST({_DIGITS_15} AS {{type}}) END"
"""PostgreSQL takes 15 significant digits of a double."""
_REAL_TO_NUMERIC = (
    _NOT_FINITE
    + _rounded_down("format_string('%.6e', {0})", "format_string('%.6e', {0}) RLIKE '[02468]5e'")
    + "ELSE CAST(format_string('%.5e', {0}) AS {type}) END"
)
"""PostgreSQL takes 6 significant digits of a real."""
_TOO_MANY_DECIMALS = "raise_error('the number has too many decimals: cast it to a numeric of a certain size')"
_WITHOUT_SIZE = {
    "float4": f"CASE WHEN abs({{0}}) < 1e-12D AND {{0}} <> 0 THEN {_TOO_MANY_DECIMALS} ELSE {{1}} END",
    "float8": (
        "CASE WHEN abs({0}) < 1e-3D AND CAST({1} AS DOUBLE) <> CAST(" + _DIGITS_15 + " AS DOUBLE) "
        f"THEN {_TOO_MANY_DECIMALS} ELSE {{1}} END"
    ),
    "text": rf"CASE WHEN {{0}} RLIKE '[.]\\d{{18,}}[1-9]|[eE]-' THEN {_TOO_MANY_DECIMALS} ELSE {{1}} END",
}
"""Casts to a numeric without a size: `{1}` is the number with the scale that is assumed, which may be too small."""

_TO_REAL = (
    "CASE WHEN (abs(CAST({0} AS FLOAT)) = CAST('Infinity' AS FLOAT) AND abs({0}) <> CAST('Infinity' AS DOUBLE)) "
    "OR (CAST({0} AS FLOAT) = 0 AND {0} <> 0) THEN raise_error('value out of range for type real') "
    "ELSE CAST({0} AS FLOAT) END"
)

CASTS = [
    *(Cast("int2", target, IMPLICIT, _PLAIN) for target in ("int4", "int8", "float4", "float8", "numeric")),
    Cast("int4", "int2", ASSIGNMENT, _PLAIN),
    *(Cast("int4", target, IMPLICIT, _PLAIN) for target in ("int8", "float4", "float8", "numeric")),
    *(Cast("int8", target, ASSIGNMENT, _PLAIN) for target in ("int2", "int4")),
    *(Cast("int8", target, IMPLICIT, _PLAIN) for target in ("float4", "float8", "numeric")),
    *(Cast("numeric", target, ASSIGNMENT, _ROUND_AWAY) for target in ("int2", "int4", "int8")),
    Cast("numeric", "float4", IMPLICIT, _TO_REAL),
    Cast("numeric", "float8", IMPLICIT, _PLAIN),
    Cast("numeric", "numeric", IMPLICIT, _PLAIN),
    *(Cast("float4", target, ASSIGNMENT, _ROUND_EVEN) for target in ("int2", "int4", "int8")),
    *(Cast("float8", target, ASSIGNMENT, _ROUND_EVEN) for target in ("int2", "int4", "int8")),
    Cast("float4", "float8", IMPLICIT, _PLAIN),
    Cast("float8", "float4", ASSIGNMENT, _TO_REAL),
    Cast("float8", "numeric", ASSIGNMENT, _DOUBLE_TO_NUMERIC),
    Cast("float4", "numeric", ASSIGNMENT, _REAL_TO_NUMERIC),
    Cast("int4", "bool", EXPLICIT, "({0} <> 0)"),
    Cast("bool", "int4", EXPLICIT, _PLAIN),
    Cast("date", "timestamp", IMPLICIT, _PLAIN),
    Cast("date", "timestamptz", IMPLICIT, _PLAIN),  # cast() has more for these two
    Cast("timestamp", "timestamptz", IMPLICIT, _PLAIN),
    Cast("interval", "text", ASSIGNMENT, _PLAIN),
    Cast("timestamp", "date", ASSIGNMENT, _PLAIN),
    Cast("timestamptz", "date", ASSIGNMENT, _PLAIN),
    Cast("timestamptz", "timestamp", ASSIGNMENT, _PLAIN),
    # to text
    *(Cast(source, "text", ASSIGNMENT, _PLAIN) for source in ("bool", "int2", "int4", "int8", "numeric")),
    *(Cast(source, "text", IMPLICIT, "{0}") for source in ("varchar", "bpchar")),
    Cast(
        "date", "text", ASSIGNMENT,
        "CASE WHEN year({0}) NOT BETWEEN 1 AND 9999 THEN raise_error('the year does not have four digits') "
        "ELSE CAST({0} AS STRING) END",
    ),
    Cast("timestamp", "text", ASSIGNMENT, _PLAIN),
    Cast(
        "timestamptz", "text", ASSIGNMENT,
        "concat(CAST({0} AS STRING), regexp_replace(date_format({0}, 'xxxxx'), '^(...):00$', '$1'))",
    ),
    Cast("float4", "text", ASSIGNMENT, REAL_TO_TEXT),
    Cast("float8", "text", ASSIGNMENT, DOUBLE_TO_TEXT),
    Cast("bytea", "text", ASSIGNMENT, r"concat('\\x', lower(hex({0})))"),
    Cast("json", "text", ASSIGNMENT, "{0}"),
    # from text
    *(Cast("text", target, EXPLICIT, _PLAIN) for target in ("int2", "int4", "int8")),
    Cast("text", "numeric", EXPLICIT, _PLAIN),
    Cast("text", "float4", EXPLICIT, _checked(r"[^dDfF]\\s*$|[iI]nf\\s*$", "real")),
    Cast("text", "float8", EXPLICIT, _checked(r"[^dDfF]\\s*$|[iI]nf\\s*$", "double precision")),
    Cast("text", "bool", EXPLICIT, _PLAIN),
    Cast("text", "date", EXPLICIT, _checked(_DATE + _TIME + r"\\s*$", "date")),
    Cast("text", "timestamp", EXPLICIT, _checked(_DATE + _TIME + r"\\s*$", "timestamp")),
    Cast("text", "timestamptz", EXPLICIT, _checked(_DATE + _TIME + _ZONE + r"\\s*$", "timestamp with time zone")),
    Cast("text", "json", EXPLICIT, "{0}"),
]  # fmt: skip
_BY_TYPES = {(cast.source, cast.target): cast for cast in CASTS}


def castable(source: SqlType, target: SqlType, context: str = IMPLICIT) -> bool:
    """Return whether PostgreSQL casts a type to another in a context."""
    if source.name in (target.name, "unknown"):
        return source.name != "array" or castable(source.element, target.element, context)
    if source.name in ("varchar", "bpchar"):
        if target.name == "text":
            return True
        source = SqlType("text")
    found = _BY_TYPES.get((source.name, target.name if target.name not in ("varchar", "bpchar") else "text"))
    if found is None:
        return source.name == "text" and target.name in ("varchar", "bpchar")
    return _CONTEXTS.index(found.context) <= _CONTEXTS.index(context)


def cast(value: Typed, target: SqlType) -> Typed:
    """Return a value cast to a type to which it can be cast."""
    source = value.type
    if source.name == "interval":
        return _interval_cast(value, target)
    if source.name == "array" and target.name == "array":
        return value if source == target else _array_cast(value, target)
    if source.name == target.name and (source.size == target.size or not target.size):
        return value
    if target.name in _TEXTS:
        return _text_cast(value, target)
    if target.name == "timestamptz" and source.name in ("date", "timestamp", *_TEXTS):
        return Typed(_instant_of_text(value) if source.name in _TEXTS else time_zones.instant(value.tree), target)
    return _table_cast(value, target)


_TEXTS = ("text", "varchar", "bpchar")


def _interval_cast(value: Typed, target: SqlType) -> Typed:
    if target.name in _TEXTS:
        text = intervals.as_text(Typed(as_interval(value), INTERVAL))
        return text if target.name == "text" else cast(text, target)
    return Typed(as_interval(value), INTERVAL) if target == INTERVAL else value


def _text_cast(value: Typed, target: SqlType) -> Typed:
    if target.name != "text":
        return Typed(_shortened(value, target), SqlType(target.name, target.size))
    return Typed(value.tree, target) if value.type.name in _TEXTS else _table_cast(value, target)


def _table_cast(value: Typed, target: SqlType) -> Typed:
    source = value.type
    size = _sized(source, target)
    name = "text" if source.name in ("varchar", "bpchar") else source.name
    tree = filled(_BY_TYPES[name, target.name].spark.replace("{type}", size.ddl), [value.tree])
    if target.name == "numeric" and not target.size and name in _WITHOUT_SIZE:
        tree = filled(_WITHOUT_SIZE[name], [value.tree, tree])
    return Typed(tree, size)


def _array_cast(value: Typed, target: SqlType) -> Typed:
    """Return an array whose items are cast."""
    source, wanted = value.type.element, target.element
    found = _BY_TYPES.get((source.name, wanted.name))
    if source.name == wanted.name or (found is not None and found.spark == _PLAIN):
        sized = array_of(_sized(source, wanted))
        return Typed(filled(f"CAST({{0}} AS {sized.ddl})", [value.tree]), sized)
    item = cast(Typed(exp.to_identifier("__i"), source), wanted)
    return Typed(filled("transform({0}, __i -> {1})", [value.tree, item.tree]), array_of(item.type))


def _instant_of_text(value: Typed) -> object:
    """Return the instant of a text; one without a time zone is in that of the session."""
    is_local = f"{{0}} RLIKE '{_DATE}{_TIME}" + r"\\s*$'"
    local = filled(f"CASE WHEN {is_local} THEN CAST({{0}} AS TIMESTAMP_NTZ) END", [value.tree])
    with_zone = filled(_BY_TYPES["text", "timestamptz"].spark.replace("{type}", "TIMESTAMP_LTZ"), [value.tree])
    text = f"CASE WHEN {is_local} THEN {{1}} ELSE {{2}} END"
    return filled(text, [value.tree, time_zones.instant(local), with_zone])


def _sized(source: SqlType, target: SqlType) -> SqlType:
    """Return the target with the size that holds all values of the source, if it has none."""
    if target.name != "numeric" or target.size:
        return target
    if source.name in ("int2", "int4", "int8", "numeric"):
        return as_numeric(source)
    return numeric(MOST_DIGITS, _SCALE_OF_ANY, padded=True)


def _shortened(value: Typed, target: SqlType) -> object:
    text = cast(value, SqlType("text")).tree
    if not target.size:
        return text
    if target.name == "bpchar":
        return filled(f"rpad({{0}}, {target.size[0]}, ' ')", [text])
    return filled(f"left({{0}}, {target.size[0]})", [text])


def with_days(tree: Any, exact: Any) -> Any:
    """Return a sum of durations that remembers its days: those of `1 day 13:00` twice are 2 days and 26 hours."""
    tree.meta["with_days"] = exact
    return tree


def as_interval(value: Typed) -> object:
    """Return an interval of months, days and time; the days of a duration count as days."""
    if value.type != DURATION:
        return value.tree
    inner = value.tree
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if "with_days" in inner.meta:
        return inner.meta["with_days"].copy()
    whole = (
        "make_interval(0, 0, 0, extract(DAY FROM {0}), extract(HOUR FROM {0}), extract(MINUTE FROM {0}), "
        "extract(SECOND FROM {0}))"
    )
    return filled(whole, [value.tree])
