"""Partition values: from the texts in the log to typed values, independent of any time zone.

Dates become days and timestamps microseconds since 1970, decimals their exact text. A time without a zone is UTC, and
the empty text is null, as the protocol says. A text that is not a value of its type is rejected: reading it as null
would silently lose rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, partial

import pyarrow as pa

from deltasql.errors import ValidationError
from deltasql.expressions.arrow_values import scalar_of
from deltasql.expressions.value_text import (
    has_plain_year,
    parse_boolean,
    parse_date,
    parse_decimal,
    parse_double,
    parse_integer,
    parse_plain_date,
    parse_timestamp,
)
from deltasql.protocol.schema import primitive_name

Stored = None | bool | int | float | str | bytes

_DECIMAL_TYPE = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_AS_INTEGERS = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def partition_value(kind: str, text: str | None, *, table: str, column: str) -> Stored:
    """Return the value of a partition text in a column of this type; raise ValidationError if it is invalid."""
    try:
        return _stored(kind, text)
    except ValueError:
        raise ValidationError(
            f"table {table}: partition column {column!r}: invalid {kind} value {text!r}: remove the file and add it "
            f"again with the correct value",
            table=table,
            value=text,
        ) from None


@lru_cache(maxsize=4096)
def partition_scalar(text: str | None, type: pa.DataType) -> pa.Scalar:
    """Return the value of a partition text as an Arrow scalar; raise ValueError if it is invalid."""
    kind = primitive_name(type) or ""
    value = _stored(kind, text)
    if value is not None and kind in _AS_INTEGERS:
        return scalar_of(value, _AS_INTEGERS[kind]).cast(type)
    return scalar_of(Decimal(value) if kind.startswith("decimal") and isinstance(value, str) else value, type)


def partition_text(kind: str, text: str) -> str | None:
    """Return the text that the log keeps for a partition value of a file that is registered, or None if the text is
    not a value of the type."""
    name = kind.partition("(")[0]
    if name in _BITS:
        value = _bounded(text, _BITS[name])
        return None if value is None else str(value)
    return _checked_text(name, text)


def _checked_text(name: str, text: str) -> str | None:
    match name:
        case "boolean":
            return None if parse_boolean(text) is None else text.lower()
        case "float" | "double":
            known = parse_double(text) is not None
        case "decimal":
            known = parse_decimal(text) is not None
        case "date":
            known = parse_plain_date(text) is not None
        case "timestamp" | "timestamp_ntz":
            timestamp = parse_timestamp(text)
            known = timestamp is not None and timestamp.has_seconds and has_plain_year(text)
        case _:
            known = True
    return text if known else None


def _stored(kind: str, text: str | None) -> Stored:
    if not text:
        return None
    name = kind.partition("(")[0]
    try:
        value = _decimal(kind, text) if name == "decimal" else _READERS[name](text)
    except (KeyError, ArithmeticError) as error:
        raise ValueError(text) from error
    if value is None:
        raise ValueError(text)
    return value


def _bounded(text: str, bits: int) -> int | None:
    value = parse_integer(text)
    return value if value is not None and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def _decimal(kind: str, text: str) -> str | None:
    """Return the digits at the scale of the column. A value that does not fit raises ArithmeticError."""
    type_, value = _DECIMAL_TYPE.fullmatch(kind), parse_decimal(text)
    if type_ is None or value is None:
        return None
    exact = Context(prec=int(type_[1]), traps=[Inexact, InvalidOperation])
    return format(value.quantize(Decimal((0, (1,), -int(type_[2]))), context=exact), "f")


def _timestamp(text: str) -> int | None:
    """A time without a zone is UTC."""
    timestamp = parse_timestamp(text)
    return None if timestamp is None else timestamp.micros


def _timestamp_ntz(text: str) -> int | None:
    timestamp = parse_timestamp(text)
    return timestamp.micros if timestamp is not None and timestamp.zone in (None, "Z") else None


_READERS: dict[str, Callable[[str], Stored]] = {
    **{name: partial(_bounded, bits=bits) for name, bits in _BITS.items()},
    "float": parse_double,
    "double": parse_double,
    "boolean": parse_boolean,
    "date": parse_date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "string": str,
    "char": str,
    "varchar": str,
    "binary": str.encode,
}
