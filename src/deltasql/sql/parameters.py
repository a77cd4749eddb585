"""Write the values of parameters as literals in Spark SQL.

Spark can bind parameters, but not in sessions with another parser, such as Delta Lake's. A text is written as the hex
digits of its bytes, so that no value can be parsed as anything else.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import secrets
import uuid
from decimal import Decimal
from typing import Any

from sqlglot import exp, parse_one

from deltasql.errors import UsageError

PARAMETER = re.compile(r":(__deltasql_[0-9a-f]{16}_(.*?)_)(?!\w)")
"""A parameter in Spark SQL text: its unique name, and the name that the user gave it."""
_ITEM = re.compile(r"(.*)_item(\d+)")
_LONG = range(-(2**63), 2**63)
_MOST_DIGITS = 38


def name_for(key: object) -> str:
    """Return a unique name for a parameter, which no statement can contain by accident."""
    return f"__deltasql_{secrets.token_hex(8)}_{key}_"


def name_for_item(name: str, number: int) -> str:
    """Return a unique name for an item of a list parameter."""
    found = PARAMETER.match(f":{name}")
    return name_for(f"{found[2] if found else name}_item{number}")


def shown_name(key: str) -> str:
    """Return the name of a parameter as the user wrote it."""
    item = _ITEM.fullmatch(key)
    if item is not None:
        return f"{shown_name(item[1])}[{item[2]}]"
    return f"${int(key) + 1}" if key.isdigit() else f":{key}"


def shown_parameter(name: str) -> str:
    """Return the unique name of a parameter as the user wrote it."""
    found = PARAMETER.match(f":{name}")
    return shown_name(found[2]) if found else name


def checked(value: Any) -> Any:
    """Return the value of a parameter, numbers of NumPy and UUIDs as plain values; reject others that have no type."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    elif isinstance(value, uuid.UUID):
        value = str(value)
    literal(value)
    return value


def literal(value: Any) -> str:
    """Return a value in Spark SQL."""
    found: str | None = None
    match value:
        case None:
            found = "NULL"
        case bool():
            found = "TRUE" if value else "FALSE"
        case int():
            found = f"({value})" if value in _LONG else literal(Decimal(value))
        case float():
            found = f"CAST('{value!r}' AS DOUBLE)"
        case Decimal() if value.is_finite():
            found = _decimal(value)
        case str():
            found = f"CAST(X'{_bytes(value).hex()}' AS STRING)"
        case bytes():
            found = f"X'{value.hex()}'"
        case dt.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP_LTZ"
            found = f"CAST('{value.isoformat()}' AS {kind})"
        case dt.date():
            found = f"DATE'{value.isoformat()}'"
        case list() | tuple():
            found = f"ARRAY({', '.join(map(literal, value))})"
    if found is not None:
        return found
    raise UsageError(
        f"a parameter is None, a bool, a number, a text, bytes, a date, a datetime or a list of these, got "
        f"{type(value).__name__}",
        value=type(value).__name__,
    )


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"a parameter is not valid Unicode text: {text!r}", value=text) from None


def constant(value: Any) -> Any:
    """Return a value as a tree that file pruning understands, with the meaning of `literal`."""
    if value is None or isinstance(value, bool | str) or (isinstance(value, int) and value in _LONG):
        return exp.convert(value)
    if isinstance(value, float) and math.isfinite(value):
        digits = repr(abs(value))
        number = exp.Literal(this=digits if "e" in digits else f"{digits}e0", is_string=False)
        return exp.Neg(this=number) if math.copysign(1, value) < 0 else number
    return parse_one(literal(value), read="spark")


def _decimal(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale)
    if precision > _MOST_DIGITS:
        raise UsageError(f"a decimal has {_MOST_DIGITS} digits at most, got {value}", value=value)
    return f"CAST('{value:f}' AS DECIMAL({precision}, {scale}))"
