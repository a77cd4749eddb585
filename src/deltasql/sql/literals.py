"""Values of parameters as literals of Spark's SQL.

Spark can bind parameters by itself, but not where another parser is plugged into the session, as Delta's is. So they
become literals here, of which none can be anything else: a text is written by the digits of its bytes.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

from sqlglot import exp, parse_one

from deltasql.errors import UsageError

_LONG = range(-(2**63), 2**63)
_MOST_DIGITS = 38


def literal(value: Any) -> str:
    """A value in Spark's SQL."""
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
            found = f"CAST(X'{value.encode().hex()}' AS STRING)"
        case bytes():
            found = f"X'{value.hex()}'"
        case dt.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
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


def constant(value: Any) -> Any:
    """A value as a tree, in the words that tell files apart; it means what `literal` means."""
    if value is None or isinstance(value, bool | str) or (isinstance(value, int) and value in _LONG):
        return exp.convert(value)
    if isinstance(value, float) and math.isfinite(value):
        return exp.Literal.number(repr(value) if "e" in repr(value) else f"{value!r}e0")
    return parse_one(literal(value), read="spark")


def _decimal(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale)
    if precision > _MOST_DIGITS:
        raise UsageError(f"a decimal has {_MOST_DIGITS} digits at most, got {value}", value=value)
    return f"CAST('{value:f}' AS DECIMAL({precision}, {scale}))"
