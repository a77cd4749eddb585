"""Partition values, which Delta keeps as texts, in the types of their columns.

The texts come from the log, never from paths. A time without a zone is in UTC: the log does not say in which zone the
writer was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from deltasql.core.schema import primitive_name

_EPOCH = datetime(1970, 1, 1)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"[+-]?\d{4,7}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d.*)?", re.ASCII)
_TRUTH = re.compile("true|false", re.IGNORECASE | re.ASCII)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}


@lru_cache(maxsize=4096)
def partition_value(text: str | None, type: pa.DataType) -> pa.Scalar:
    """The value of a text; ValueError if it is none of that type. The empty text is null."""
    if not text:
        return pa.scalar(None, type)
    kind = (primitive_name(type) or "").partition("(")[0]
    if kind not in _READERS:
        raise ValueError(text)
    try:
        return pa.scalar(_READERS[kind](text), type)
    except (pa.ArrowInvalid, ArithmeticError) as error:
        raise ValueError(text) from error


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _integer(text: str) -> int:
    return int(_matching(_INTEGER, text))


def _float(text: str) -> float:
    return _NOT_FINITE[text] if text in _NOT_FINITE else float(_matching(_NUMBER, text))


def _decimal(text: str) -> Decimal:
    return Decimal(_matching(_NUMBER, text))


def _boolean(text: str) -> bool:
    return _matching(_TRUTH, text).lower() == "true"


def _day(text: str) -> int:
    """Beyond the years that Python's dates know, too: those have a sign."""
    return int(np.datetime64(_matching(_DATE, text).removeprefix("+"), "D").astype(np.int64))


def _micros(text: str, *, zoned: bool) -> int:
    moment = datetime.fromisoformat(_matching(_TIME, text))
    if moment.tzinfo is not None:
        if not zoned:
            raise ValueError(text)
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)


_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "binary": str.encode,
    "byte": _integer,
    "short": _integer,
    "integer": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "boolean": _boolean,
    "date": _day,
    "timestamp": lambda text: _micros(text, zoned=True),
    "timestamp_ntz": lambda text: _micros(text, zoned=False),
}
