"""The table of operators: the Spark SQL of each operator for each pair of types. `{0}` and `{1}` are the operands."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from deltasql.sql.functions import numeric_arithmetic
from deltasql.sql.functions.dates import intervals
from deltasql.sql.functions.regex.regular_expressions import REGEX_OPERATORS
from deltasql.sql.functions.templates import Typed

Build = Callable[[Sequence[Typed]], Typed]
"""Builds an expression whose type or text depends on its arguments."""

_WHOLE = ("int2", "int4", "int8")
_FLOATS = ("float4", "float8")
_INFINITY = "CAST('Infinity' AS DOUBLE)"
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def _in_range(result: str) -> str:
    """Return a computation of floats that fails where the result is infinite and the operands are not."""
    overflow = "raise_error('value out of range: overflow')"
    return (
        f"CASE WHEN abs({result}) = {_INFINITY} AND abs({{0}}) <> {_INFINITY} AND abs({{1}}) <> {_INFINITY} "
        f"THEN {overflow} ELSE {result} END"
    )


def _not_tiny(result: str) -> str:
    """Return a product or quotient of floats that fails where it is zero and its operands are not."""
    zero = f"{result} = 0 AND {{0}} <> 0 AND abs({{1}}) <> {_INFINITY}" + (" AND {1} <> 0" if "*" in result else "")
    return f"CASE WHEN {zero} THEN raise_error('value out of range: underflow') ELSE {_in_range(result)} END"


def ascii_lower(text: str) -> str:
    """Return a text with the letters A to Z in lower case, as the locale C has it."""
    return f"translate({text}, '{string.ascii_uppercase}', '{string.ascii_lowercase}')"


def _shifted(name: str, bits: int) -> str:
    wrong = f"raise_error('a shift is between 0 and {bits}')"
    return f"CASE WHEN {{1}} NOT BETWEEN 0 AND {bits} THEN {wrong} ELSE {name}({{0}}, {{1}}) END"


def _contains(whole: str, part: str) -> str:
    """Return whether an array has all items of another; null is in no array."""
    each = f"__i -> coalesce(array_contains({whole}, __i), false)"
    return f"CASE WHEN {whole} IS NOT NULL THEN forall({part}, {each}) END"


def _wider(one: str, other: str) -> str:
    return max(one, other, key=_WHOLE.index)


_POWER = (
    "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN {0} = 1 OR {1} = 0 THEN CAST(1 AS DOUBLE) "
    "WHEN isnan({0}) OR isnan({1}) THEN CAST('NaN' AS DOUBLE) "
    "WHEN {0} = 0 AND {1} < 0 THEN raise_error('zero raised to a negative power is undefined') WHEN {0} < 0 AND "
    "{1} <> rint({1}) THEN raise_error('a negative number raised to a non-integer power yields a complex result') "
    f"WHEN {{0}} = -1 AND abs({{1}}) = {_INFINITY} THEN CAST(1 AS DOUBLE) "
    f"WHEN power({{0}}, {{1}}) = 0 AND {{0}} <> 0 AND abs({{0}}) <> {_INFINITY} AND abs({{1}}) <> {_INFINITY} "
    f"THEN raise_error('value out of range: underflow') ELSE {_in_range('power({0}, {1})')} END"
)
_CASTS = {"int2": "SMALLINT", "int4": "INT", "int8": "BIGINT"}
_ARITHMETIC: dict[str, str | Build] = {
    **{f"{sign}({a},{b})": f"({{0}} {sign} {{1}})" for sign, a, b in product("+-*", _WHOLE, _WHOLE)},
    **{f"%({a},{a})": "({0} % {1})" for a in _WHOLE},
    **{f"/({a},{b})": f"CAST({{0}} DIV {{1}} AS {_CASTS[_wider(a, b)]})" for a, b in product(_WHOLE, _WHOLE)},
    **{f"{sign}({a},{b})": _in_range(f"({{0}} {sign} {{1}})") for sign, a, b in product("+-", _FLOATS, _FLOATS)},
    **{f"{sign}({a},{b})": _not_tiny(f"({{0}} {sign} {{1}})") for sign, a, b in product("*/", _FLOATS, _FLOATS)},
    "/(float4,float4)": _not_tiny("CAST({0} / {1} AS FLOAT)"),
    "+(numeric,numeric)": numeric_arithmetic.add,
    "-(numeric,numeric)": numeric_arithmetic.subtract,
    "*(numeric,numeric)": numeric_arithmetic.multiply,
    "/(numeric,numeric)": numeric_arithmetic.divide,
    "%(numeric,numeric)": numeric_arithmetic.remainder,
    **{f"-({a})": "(- {0})" for a in (*_WHOLE, *_FLOATS)},
    "-(numeric)": numeric_arithmetic.negate,
    **{f"+({a})": "{0}" for a in (*_WHOLE, *_FLOATS)},
    "+(numeric)": lambda arguments: arguments[0],
    "^(float8,float8)": _POWER,
    "|/(float8)": "CASE WHEN {0} < 0 THEN raise_error('square root of a negative number') ELSE sqrt({0}) END",
    "||/(float8)": "cbrt({0})",
    **{f"@({a})": "abs({0})" for a in (*_WHOLE, *_FLOATS)},
}  # fmt: skip
_BITS = {
    **{f"{sign}({a},{a})": f"({{0}} {sign} {{1}})" for sign, a in product("&|", _WHOLE)},
    **{f"#({a},{a})": "({0} ^ {1})" for a in _WHOLE},
    **{f"~({a})": "(~ {0})" for a in _WHOLE},
    **{
        f"{sign}({a},int4)": _shifted(name, bits)
        for sign, name in (("<<", "shiftleft"), (">>", "shiftright"))
        for a, bits in (("int4", 31), ("int8", 63))
    },
}  # fmt: skip
_TEXTS = {
    "||(text,text)": "concat({0}, {1})",
    "||(text,anynonarray)": "concat({0}, {1})",
    "||(anynonarray,text)": "concat({0}, {1})",
    "||(bytea,bytea)": "concat({0}, {1})",
    "~~(text,text)": "({0} LIKE {1})",
    "!~~(text,text)": "({0} NOT LIKE {1})",
    "~~*(text,text)": f"({ascii_lower('{0}')} LIKE {ascii_lower('{1}')})",
    "!~~*(text,text)": f"({ascii_lower('{0}')} NOT LIKE {ascii_lower('{1}')})",
    "^@(text,text)": "startswith({0}, {1})",
}  # fmt: skip
_DATES: dict[str, str | Build] = {
    "+(date,int4)": intervals.add_days("+", 1),
    "+(int4,date)": intervals.add_days("+", 0),
    "-(date,int4)": intervals.add_days("-", 1),
    "-(date,date)": "datediff({0}, {1})",
    "+(date,interval)": "(CAST({0} AS TIMESTAMP_NTZ) + {1})",
    "+(interval,date)": "(CAST({1} AS TIMESTAMP_NTZ) + {0})",
    "-(date,interval)": "(CAST({0} AS TIMESTAMP_NTZ) - {1})",
    "+(timestamp,interval)": "({0} + {1})",
    "+(interval,timestamp)": "({1} + {0})",
    "-(timestamp,interval)": "({0} - {1})",
    "-(timestamp,timestamp)": "({0} - {1})",
    "+(timestamptz,interval)": intervals.add_to_instant,
    "+(interval,timestamptz)": intervals.add_to_instant,
    "-(timestamptz,interval)": intervals.subtract_from_instant,
    "-(timestamptz,timestamptz)": intervals.difference,
    "+(interval,interval)": "({0} + {1})",
    "-(interval,interval)": "({0} - {1})",
    "-(interval)": "(- {0})",
}  # fmt: skip
_ARRAYS = {
    "@>(anyarray,anyarray)": _contains("{0}", "{1}"),
    "<@(anyarray,anyarray)": _contains("{1}", "{0}"),
    "&&(anyarray,anyarray)": (
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN coalesce(arrays_overlap({0}, {1}), false) END"
    ),
    "||(anycompatiblearray,anycompatiblearray)": (
        "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE concat({0}, {1}) END"
    ),
    "||(anycompatiblearray,anycompatible)": "concat(coalesce({0}, array()), array({1}))",
    "||(anycompatible,anycompatiblearray)": "concat(array({0}), coalesce({1}, array()))",
}  # fmt: skip

OPERATORS: Mapping[str, str | Build] = {**_ARITHMETIC, **_BITS, **_TEXTS, **_DATES, **_ARRAYS, **REGEX_OPERATORS}
"""Operators other than comparisons, which Spark has with the same meaning."""
