"""Partition values as a reader needs them: from Delta's texts to plain values, without a time zone to depend on.

Dates become days and timestamps microseconds since 1970, decimals their exact text, bytes bytes. A time without a
zone means UTC, and the empty text is null, as the protocol says. A text that is no value of its type is refused:
reading it as null would lose rows without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache

import pyarrow as pa

from deltasql.errors import ValidationError
from deltasql.expressions.temporal import DAY_MICROS
from deltasql.protocol.schema import primitive_name

Stored = None | bool | int | float | str | bytes

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_NOT_FINITE = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
_DECIMAL_TYPE = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_DATE_PATTERN = r"([+-]?\d{4,6})-(\d\d)-(\d\d)"
_DATE = re.compile(_DATE_PATTERN, re.ASCII)
_TIMESTAMP = re.compile(
    _DATE_PATTERN + r"(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(Z|[+-]\d\d:?\d\d(?::?\d\d)?)?", re.ASCII
)
_COUNTED = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def partition_value(kind: str, text: str | None, *, table: str, column: str) -> Stored:
    """The value that Delta's text stands for in a column of this type."""
    try:
        return _stored(kind, text)
    except ValueError:
        raise ValidationError(
            f"table {table}: partition column {column!r} is {kind}, and a file has the value {text!r}, which is none: "
            f"remove the file and add it again with its right value",
            table=table,
            value=text,
        ) from None


@lru_cache(maxsize=4096)
def partition_scalar(text: str | None, type: pa.DataType) -> pa.Scalar:
    """The same in Arrow's words; ValueError if the text is no value of the type."""
    kind = primitive_name(type) or ""
    value = _stored(kind, text)
    if value is not None and kind in _COUNTED:
        return pa.scalar(value, _COUNTED[kind]).cast(type)
    return pa.scalar(Decimal(value) if kind.startswith("decimal") and isinstance(value, str) else value, type)


def _stored(kind: str, text: str | None) -> Stored:
    if not text:
        return None
    name = kind.partition("(")[0]
    try:
        return _decimal(kind, text) if name == "decimal" else _READERS[name](text)
    except (KeyError, ArithmeticError) as error:
        raise ValueError(text) from error


def _integer(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else 2**63
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(text)
        return value

    return read


def _float(text: str) -> float:
    if not (_NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text)):
        raise ValueError(text)
    return float(text)


def _decimal(kind: str, text: str) -> str:
    """The digits at the scale of the column; a value that does not fit is none of its type."""
    found = _DECIMAL_TYPE.fullmatch(kind)
    if found is None or not _NUMBER.fullmatch(text):
        raise ValueError(text)
    exact = Context(prec=int(found[1]), traps=[Inexact, InvalidOperation])
    return format(Decimal(text).quantize(Decimal((0, (1,), -int(found[2]))), context=exact), "f")


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _date(text: str) -> int:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return _days(*map(int, found.groups()))


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the Gregorian calendar, extended both ways further than Python's dates go."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + (leap and month == 2):
        raise ValueError((year, month, day))
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + sum(_MONTH_DAYS[: month - 1]) + (leap and month > 2) + day - 719_163


def _micros(text: str) -> tuple[int, str | None]:
    """Microseconds on the clock that the text shows, and its zone. Finer fractions are cut off, as Spark does."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    clock = [int(part or 0) for part in (hour, minute, second)]
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise ValueError(text)
    seconds = clock[0] * 3600 + clock[1] * 60 + clock[2]
    micros = int((fraction or "0").ljust(6, "0")[:6])
    return _days(int(year), int(month), int(day)) * DAY_MICROS + seconds * 1_000_000 + micros, zone


def _timestamp(text: str) -> int:
    micros, zone = _micros(text)
    if zone is None or zone == "Z":
        return micros
    digits = zone[1:].replace(":", "").ljust(6, "0")
    offset = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
    return micros - (-offset if zone[0] == "-" else offset) * 1_000_000


def _timestamp_ntz(text: str) -> int:
    micros, zone = _micros(text)
    if zone not in (None, "Z"):
        raise ValueError(text)
    return micros


_READERS: dict[str, Callable[[str], Stored]] = {
    **{name: _integer(bits) for name, bits in _BITS.items()},
    "float": _float,
    "double": _float,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "string": str,
    "char": str,
    "varchar": str,
    "binary": str.encode,
}
