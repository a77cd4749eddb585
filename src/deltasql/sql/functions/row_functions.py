"""The table of functions that return rows: the Spark SQL of an array of the rows. `{0}`, `{1}` … are the arguments.

A series counts up or down by its step. Spark's `sequence` needs a step in the direction of the end, so a series that
is empty in PostgreSQL is an empty array here; and a null argument gives no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from deltasql.sql.catalog.pg_types import INT4, MOST_DIGITS, SqlType, array_of, as_numeric, common_numeric
from deltasql.sql.functions.dates.intervals import DAY_MICROS, DAYS, MONTHS
from deltasql.sql.functions.dates.time_zones import DAY, NO_SUMMER_TIME, let, micros_of, second_of_two, session_local
from deltasql.sql.functions.operator_table import Build
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Typed, filled
from deltasql.sql.functions.text_functions import TEXT_FUNCTIONS

_ZERO = "raise_error('step size cannot equal zero')"


def _series(kind: str) -> str:
    """Return a template of a series of integers with a step."""
    none = f"CAST(array() AS ARRAY<{kind}>)"
    return (
        f"CASE WHEN {{0}} IS NULL OR {{1}} IS NULL OR {{2}} IS NULL THEN {none} WHEN {{2}} = 0 THEN {_ZERO} "
        f"WHEN ({{2}} > 0 AND {{0}} > {{1}}) OR ({{2}} < 0 AND {{0}} < {{1}}) THEN {none} "
        f"ELSE sequence({{0}}, {{1}}, {{2}}) END"
    )


def _series_by_one(kind: str) -> str:
    """Return a template of a series of integers without a step, which only counts up."""
    return f"CASE WHEN {{0}} <= {{1}} THEN sequence({{0}}, {{1}}) ELSE CAST(array() AS ARRAY<{kind}>) END"


def _numeric_series(arguments: Sequence[Typed]) -> Typed:
    """Return a series of numerics: it is counted in units of the last decimal."""
    size = common_numeric([argument.type for argument in arguments])
    precision, scale = size.size
    if precision > 18:
        raise InvalidLiteral("a series of numerics has at most 18 digits: cast its ends to numeric(18, …)")
    trees = [filled(f"CAST({{0}} * {10**scale} AS BIGINT)", [_wide(argument, size)]) for argument in arguments]
    if len(trees) == 2:
        trees.append(filled(f"{10**scale}L", []))
    unscaled = f"CAST(CAST(x AS DECIMAL({MOST_DIGITS - scale}, 0)) / {10**scale} AS {size.ddl})"
    return Typed(filled(f"transform({_series('BIGINT')}, x -> {unscaled})", trees), array_of(size))


def _wide(value: Typed, size: SqlType) -> object:
    return filled(f"CAST({{0}} AS DECIMAL({size.size[0]}, {as_numeric(size).size[1]}))", [value.tree])


# --- Series of times

_LENGTH = f"(CAST({MONTHS} AS BIGINT) * {30 * DAY} + {DAY_MICROS})".replace("{0}", "__i")
_SHORTEST = f"abs(CAST({MONTHS} AS BIGINT) * {28 * DAY} + {DAY_MICROS})".replace("{0}", "__i")
_MONTHS, _DAYS = MONTHS.replace("{0}", "__i"), DAYS.replace("{0}", "__i")


def _is_over(time: str) -> str:
    """Return whether a time is after the end of a series, in Spark SQL."""
    return f"((__l > 0 AND {time} > {{1}}) OR (__l < 0 AND {time} < {{1}}))"


def _times(kind: str, passed: str, fixed: str, is_fixed: str, following: Callable[[str], str]) -> str:
    """Return a template of a series of times.

    A step of a fixed length is added as often as the series has rows. Other steps are added one after another, as
    PostgreSQL does: a series by months from the 31st goes on from the 28th of February.
    """
    none = f"CAST(array() AS ARRAY<{kind}>)"
    linear = f"transform(sequence(0L, {passed} DIV __l), __k -> {fixed})"
    most = f"(abs({passed}) + {2 * DAY}) DIV {_SHORTEST} + 1"
    added = f"CASE WHEN {_is_over('__t')} THEN __r ELSE concat(__r, array(__t)) END"
    grown = let("__t", following("element_at(__r, -1)"), added)
    stepped = f"aggregate(sequence(1L, {most}), array({{0}}), (__r, __k) -> {grown})"
    text = (
        f"CASE WHEN {{0}} IS NULL OR {{1}} IS NULL OR __i IS NULL THEN {none} WHEN __l = 0 THEN {_ZERO} "
        f"WHEN {_is_over('{0}')} THEN {none} WHEN {is_fixed} THEN {linear} ELSE {stepped} END"
    )
    return let("__i", "{2}", let("__l", _LENGTH, text))


def _later_instant(moment: str) -> str:
    step = f"make_interval(0, {_MONTHS}, 0, {_DAYS})"
    exact = f"{second_of_two(f'{moment} + {step}', session_local)} + (__i - {step})"
    return f"CASE WHEN {NO_SUMMER_TIME} THEN {moment} + __i ELSE {exact} END"


_TIMESTAMPS = _times(
    "TIMESTAMP_NTZ", f"({micros_of('{1}')} - {micros_of('{0}')})", "timestampadd(MICROSECOND, __k * __l, {0})",
    f"{_MONTHS} = 0", lambda time: f"{time} + __i",
)  # fmt: skip
_INSTANTS = _times(
    "TIMESTAMP_LTZ", "(unix_micros({1}) - unix_micros({0}))", "timestamp_micros(unix_micros({0}) + __k * __l)",
    f"{_MONTHS} = 0 AND ({_DAYS} = 0 OR {NO_SUMMER_TIME})", _later_instant,
)  # fmt: skip


# --- Arrays and texts


def _subscripts(arguments: Sequence[Typed]) -> Typed:
    """Return the numbers of an array's items, or those of its inner arrays for no other dimension than 1."""
    array, dimension = arguments[:2]
    if array.type.element.name == "array" and not (
        isinstance(dimension.tree, exp.Literal) and dimension.tree.name == "1"
    ):
        raise InvalidLiteral("only the dimension 1 of an array of arrays is supported")
    count = "sequence(1, size({0}))"
    if len(arguments) == 3:
        count = (
            f"CASE WHEN {{2}} THEN reverse({count}) WHEN NOT {{2}} THEN {count} ELSE CAST(array() AS ARRAY<INT>) END"
        )
    text = f"CASE WHEN {{1}} = 1 AND size({{0}}) > 0 THEN {count} ELSE CAST(array() AS ARRAY<INT>) END"
    return Typed(filled(text, [argument.tree for argument in arguments]), array_of(INT4))


ROW_FUNCTIONS: Mapping[str, str | Build] = {
    "generate_series(int4,int4)": _series_by_one("INT"),
    "generate_series(int4,int4,int4)": _series("INT"),
    "generate_series(int8,int8)": _series_by_one("BIGINT"),
    "generate_series(int8,int8,int8)": _series("BIGINT"),
    "generate_series(numeric,numeric)": _numeric_series,
    "generate_series(numeric,numeric,numeric)": _numeric_series,
    "generate_series(timestamp,timestamp,interval)": _TIMESTAMPS,
    "generate_series(timestamptz,timestamptz,interval)": _INSTANTS,
    "unnest(anyarray)": "{0}",
    "generate_subscripts(anyarray,int4)": _subscripts,
    "generate_subscripts(anyarray,int4,bool)": _subscripts,
    "string_to_table(text,text)": TEXT_FUNCTIONS["string_to_array(text,text)"],
    "string_to_table(text,text,text)": TEXT_FUNCTIONS["string_to_array(text,text,text)"],
}
