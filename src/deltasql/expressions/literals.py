"""Literals of a predicate: their values, and their position among the values of a compared column.

This module applies Spark's implicit casts where they are the same in every Spark mode. Where they are not, a literal
does not fit the column, and the comparison is undecided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import pyarrow as pa
from sqlglot import exp

from deltasql.expressions.bounds import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    bounds_type,
)
from deltasql.expressions.value_text import DAY_MICROS, ZONE_SLACK, parse_plain_date, parse_plain_timestamp


class Zone(Enum):
    """The time zone of a time."""

    UTC = "utc"
    SESSION = "session"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Day:
    """A date literal, in days since 1970."""

    days: int


@dataclass(frozen=True, slots=True)
class Instant:
    """A timestamp literal, in microseconds since 1970."""

    micros: int
    zone: Zone


Value = None | bool | int | Decimal | float | str | Day | Instant


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal whose value is known; None is NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Fitted:
    """The position of a literal among the values of a column, in the type of the comparison.

    The literal is from `low` to `high`. With `gap` it is strictly between them, where the column has no value.
    """

    low: pa.Scalar
    high: pa.Scalar
    gap: bool = False


# --- From SQL

_PLAIN_INTEGER = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
# More digits are undecided: Spark has no such decimals, and Python converts them slowly.
_PLAIN_NUMBER = re.compile(r"-?\d{1,99}(?:\.\d{1,99})?", re.ASCII)
_INTEGER = re.compile(r"\d{1,99}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,99}\.\d{0,99}|\.\d{1,99}", re.ASCII)
_DOUBLE = re.compile(r"(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+", re.ASCII)
_TWO_DIGITS = re.compile(r"\d{1,2}", re.ASCII)
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def constant(node: Any, is_doubtful: Callable[[str], bool]) -> Constant | None:
    """Return the value of a literal, or None; `is_doubtful` finds strings that Spark may interpret differently."""
    if isinstance(node, exp.Null | exp.Boolean):
        return Constant(None if isinstance(node, exp.Null) else bool(node.this))
    if isinstance(node, exp.Literal):
        return _literal(node, is_doubtful)
    if not isinstance(node, exp.Paren | exp.Neg | exp.Cast):
        return None
    inner = constant(node.this, is_doubtful)
    if inner is None or isinstance(node, exp.Paren):
        return inner
    return _negative(inner.value) if isinstance(node, exp.Neg) else _cast(inner.value, node)


def _literal(node: exp.Literal, is_doubtful: Callable[[str], bool]) -> Constant | None:
    if not node.is_string:
        return _number(node.name)
    return None if is_doubtful(node.name) else Constant(node.name)


def _number(text: str) -> Constant | None:
    if _INTEGER.fullmatch(text):
        return Constant(int(text))
    if _DECIMAL.fullmatch(text):
        return Constant(Decimal(text))
    return Constant(float(text)) if _DOUBLE.fullmatch(text) else None


def _negative(value: Value) -> Constant | None:
    if isinstance(value, Decimal):
        return Constant(value.copy_negate())  # unlike the operator, it keeps all digits
    return Constant(-value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _cast(value: Value, node: exp.Cast) -> Constant | None:
    name = getattr(node.to.this, "name", "")
    if value is None or node.args.get("format"):
        return Constant(None) if value is None else None
    if name in _INTEGER_BITS:
        found: Value = _cast_to_int(value, _INTEGER_BITS[name])
    elif name == "DECIMAL":
        found = _cast_to_decimal(value, [param.name for param in node.to.expressions] or ["10"])
    else:
        found = _CASTS[name](value) if name in _CASTS else None
    return None if found is None else Constant(found)


def _cast_to_int(value: Value, bits: int) -> int | None:
    if isinstance(value, str) and _PLAIN_INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def _cast_to_decimal(value: Value, params: list[str]) -> Decimal | None:
    """Return the decimal if it keeps all its digits."""
    precision, scale = (int(param) if _TWO_DIGITS.fullmatch(param) else -1 for param in (*params, "0")[:2])
    if isinstance(value, str) and _PLAIN_NUMBER.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if not 0 <= scale <= precision <= MAX_PRECISION:
        return None
    units = Fraction(value) * 10**scale
    return Decimal(value) if units.denominator == 1 and abs(units) < 10**precision else None


def _cast_to_double(value: Value) -> float | None:
    if isinstance(value, str) and _PLAIN_NUMBER.fullmatch(value):
        value = Decimal(value)
    return _double(value) if isinstance(value, int | Decimal | float) and not isinstance(value, bool) else None


def _double(value: int | Decimal | float) -> float | None:
    try:
        double = float(value)
    except OverflowError:
        return None
    return double if math.isfinite(double) else None


def _cast_to_date(value: Value) -> Day | None:
    if isinstance(value, str):
        days = parse_plain_date(value)
        return None if days is None else Day(days)
    return value if isinstance(value, Day) else None


def _cast_to_timestamp(value: Value) -> Instant | None:
    if isinstance(value, Day):
        return Instant(value.days * DAY_MICROS, Zone.SESSION)
    if isinstance(value, Instant):
        return value if value.zone is Zone.UTC else Instant(value.micros, Zone.SESSION)
    found = parse_plain_timestamp(value) if isinstance(value, str) else None
    return None if found is None else Instant(found.micros, Zone.UTC if found.zone else Zone.SESSION)


def _cast_to_timestamp_ntz(value: Value) -> Instant | None:
    if isinstance(value, Day):
        return Instant(value.days * DAY_MICROS, Zone.NONE)
    if isinstance(value, Instant):
        return value if value.zone is Zone.NONE else None
    found = parse_plain_timestamp(value) if isinstance(value, str) else None
    return None if found is None or found.zone else Instant(found.micros, Zone.NONE)


_CASTS: dict[str, Callable[[Value], Value]] = {
    "BOOLEAN": lambda value: value if isinstance(value, bool) else None,
    "DATE": _cast_to_date,
    "DOUBLE": _cast_to_double,
    "TIMESTAMP": _cast_to_timestamp,
    "TIMESTAMPLTZ": _cast_to_timestamp,
    "TIMESTAMPNTZ": _cast_to_timestamp_ntz,
    "TIMESTAMPTZ": _cast_to_timestamp,
}


# --- Against a column

_INT_DIGITS = 20  # Spark compares a BIGINT with a decimal as DECIMAL(20, 0)
_ZONE = "the result depends on the time zone of the Spark session: compare with a value such as '2026-01-31T12:00:00Z'"
_ROUNDED = "Spark compares decimals with this literal as rounded doubles: write a number such as 1.5, without E"
_SINGLE = "the column is FLOAT, and some modes of Spark round the literal to FLOAT"
_NARROW = "some modes of Spark cast the text to the column's type, which cannot hold it"


def fit(value: Value, type: pa.DataType) -> Fitted | None:
    """Return the position of a literal among the values of a column; None if Spark's comparison is not certain."""
    rule = _FITS.get(value.__class__)
    target = bounds_type(type)
    return rule(value, target) if rule and _has_room([value], target) else None


def doubt(value: Value, type: pa.DataType) -> str | None:
    """Return why a literal that fits can prune files but not filter rows; None if it can do both."""
    literal = fit(value, type)
    if literal is None or literal.gap:
        return None
    if literal.low != literal.high:
        return _ZONE
    if pa.types.is_decimal(type) and literal.low.type == DOUBLE:
        return _ROUNDED
    if pa.types.is_float32(type) and not _is_single(literal.low.as_py()):
        return _SINGLE
    if isinstance(value, str) and pa.types.is_integer(type) and not _point(int(value), type):
        return _NARROW
    return None


def _is_single(value: float) -> bool:
    """Return whether a number is an exact float: without ANSI mode, Spark compares an integer literal as a float."""
    return not value.is_integer() or bool(pa.scalar(value, pa.float32()).as_py() == value)


def _has_room(values: Sequence[Value], target: pa.DataType) -> bool:
    """Return whether a Spark decimal has room for all digits of the column and the literals."""
    decimals = [value for value in values if isinstance(value, Decimal)]
    if pa.types.is_decimal(target):
        digits = [(target.precision - target.scale, target.scale), *(_digits(v) for v in values)]
    elif target == INT and decimals:
        digits = [(_INT_DIGITS, 0), *map(_digits, decimals)]
    else:
        return True
    return bool(max(whole for whole, _ in digits) + max(fraction for _, fraction in digits) <= MAX_PRECISION)


def _digits(value: Value) -> tuple[int, int]:
    """Return the number of digits before and after the point."""
    if not isinstance(value, int | Decimal):
        return 0, 0
    digits, exponent = Decimal(value).as_tuple()[1:]
    places = int(exponent)
    return len(digits) + places, -places


def fit_all(values: Sequence[Value], type: pa.DataType, *, negated: bool) -> list[Fitted] | None:
    """Return the positions of the literals of `IN` or `NOT IN`: Spark casts the column and all literals to one type.

    Literals that no value of the column equals are left out.
    """
    target = bounds_type(type)
    if not _one_type(values, target, negated=negated) or not _has_room(values, target):
        return None
    if target != DOUBLE and any(isinstance(value, float) for value in values):
        values = [_cast_to_double(value) for value in values]
    fitted = [fit(value, type) for value in values]
    known = [literal for literal in fitted if literal is not None]
    same = len(known) == len(fitted) and len({literal.low.type for literal in known}) <= 1
    return [literal for literal in known if not literal.gap] if same else None


def _one_type(values: Sequence[Value], target: pa.DataType, *, negated: bool) -> bool:
    """Return whether all literals are compared in one type. With a string among them, some modes compare strings."""
    if not any(isinstance(value, str) for value in values):
        return True
    if pa.types.is_timestamp(target):
        return not negated
    kinds: dict[pa.DataType, tuple[type[Any], ...]] = {STRING: (str,), INT: (str, int), DATE: (str, Day)}
    return target in kinds and all(isinstance(value, kinds[target]) and not isinstance(value, bool) for value in values)


def _point(value: Value, type: pa.DataType, slack: int = 0) -> Fitted | None:
    try:
        if not slack:
            point = pa.scalar(value, type)
            return Fitted(point, point)
        return Fitted(pa.scalar(value - slack, type), pa.scalar(value + slack, type))  # type: ignore[operator]
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None


def _fit_exact(value: int | Decimal, target: pa.DataType) -> Fitted | None:
    if target == DOUBLE:
        return _fit_double(_double(value), target)
    if target == INT:
        return _between(value, 0, INT)
    if pa.types.is_decimal(target):
        return _between(value, target.scale, pa.decimal128(MAX_PRECISION, target.scale))
    return None


def _between(value: int | Decimal, scale: int, type: pa.DataType) -> Fitted | None:
    """Return the neighbours of the literal among the multiples of the scale's unit."""
    units = Fraction(value) * 10**scale
    below = _point(_unscaled(math.floor(units), scale), type)
    above = _point(_unscaled(math.ceil(units), scale), type)
    return below and above and Fitted(below.low, above.low, gap=units.denominator != 1)


def _unscaled(units: int, scale: int) -> int | Decimal:
    return Decimal(f"{units}E-{scale}") if scale else units


def _fit_double(value: float | None, target: pa.DataType) -> Fitted | None:
    """Return the position of a double: Spark compares integers and decimals with it as doubles."""
    numeric = target in (INT, DOUBLE) or pa.types.is_decimal(target)
    return _point(value, DOUBLE) if numeric and value is not None and math.isfinite(value) else None


def _fit_bool(value: bool, target: pa.DataType) -> Fitted | None:
    return _point(value, BOOL) if target == BOOL else None


def _fit_text(text: str, target: pa.DataType) -> Fitted | None:
    if target == STRING:
        return _point(text, STRING)
    if target in _TEXT_CASTS:
        return fit(_TEXT_CASTS[target](text), target)
    if not _PLAIN_INTEGER.fullmatch(text):
        return None
    return _fit_exact(int(text), INT) if target == INT else _fit_double(_double(int(text)), target)


def _fit_day(day: Day, target: pa.DataType) -> Fitted | None:
    if target == DATE:
        return _point(day.days, DATE)
    midnight = Zone.NONE if target == TIMESTAMP_NTZ else Zone.SESSION
    return _fit_instant(Instant(day.days * DAY_MICROS, midnight), target)


def _fit_instant(instant: Instant, target: pa.DataType) -> Fitted | None:
    """Return the position of a time: exact for the same zone, else within the possible zones of the session."""
    if target == TIMESTAMP:
        return _point(instant.micros, target, 0 if instant.zone is Zone.UTC else ZONE_SLACK)
    if target in (TIMESTAMP_NTZ, DATE):
        return _point(instant.micros, TIMESTAMP_NTZ, 0 if instant.zone is Zone.NONE else ZONE_SLACK)
    return None


_TEXT_CASTS: dict[pa.DataType, Callable[[Value], Value]] = {
    DATE: _cast_to_date,
    TIMESTAMP: _cast_to_timestamp,
    TIMESTAMP_NTZ: _cast_to_timestamp_ntz,
}
_FITS: dict[type, Callable[[Any, pa.DataType], Fitted | None]] = {
    bool: _fit_bool,
    int: _fit_exact,
    Decimal: _fit_exact,
    float: _fit_double,
    str: _fit_text,
    Day: _fit_day,
    Instant: _fit_instant,
}
