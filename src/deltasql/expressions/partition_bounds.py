"""Partition values, which Delta keeps as strings, as bounds: exact wherever the string is clear."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.expressions.bounds import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UNORDERED,
    Bounds,
    bounds_type,
    single_precision,
)
from deltasql.expressions.temporal import ZONE_SLACK, parse_date, parse_timestamp

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_NOT_FINITE = re.compile(r"NaN|[+-]?Infinity")


class _Value(NamedTuple):
    """The bounds of one value; `null`: is it the SQL null, or None if readers may differ."""

    low: Any = None
    high: Any = None
    null: bool | None = False


_UNCLEAR = _Value(null=None)


def partition_bounds(values: pa.Array | pa.ChunkedArray, type: pa.DataType) -> Bounds:
    """The bounds of one partition column from the serialised values of each file; null is the SQL null."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    distinct = whole.cast(STRING).dictionary_encode()
    target = bounds_type(type)
    read = [_read(text, target) for text in distinct.dictionary.to_pylist()]
    if not _fit([value.low for value in read], type):
        read = [value if _fit([value.low], type) else _UNCLEAR for value in read]
    low = pa.array([value.low for value in read], target)
    high = pa.array([value.high for value in read], target)
    if pa.types.is_float32(type):
        low, high = single_precision(low, upper=False), single_precision(high, upper=True)
    null = pa.array([value.null for value in read], BOOL).take(distinct.indices)
    null = pc.if_else(distinct.indices.is_null(), True, null)
    return Bounds(low.take(distinct.indices), high.take(distinct.indices), null, null)


def _read(text: str, target: pa.DataType) -> _Value:
    if not text and target != STRING:
        return _Value(null=True)
    if target == UNORDERED:
        return _Value()
    reader = _read_decimal if pa.types.is_decimal(target) else _READERS[target]
    return reader(text)


def _fit(values: Sequence[Any], type: pa.DataType) -> bool:
    """Readers turn a value outside the column's type into null, or into another value."""
    try:
        pa.array(values, type)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _exact(value: Any) -> _Value:
    return _UNCLEAR if value is None else _Value(value, value)


def _read_string(text: str) -> _Value:
    """The protocol says that the empty string is null, Spark reads the empty string."""
    return _exact(text) if text else _Value("", "", None)


def _read_int(text: str) -> _Value:
    return _exact(int(text) if _INTEGER.fullmatch(text) else None)


def _read_double(text: str) -> _Value:
    if _NOT_FINITE.fullmatch(text):
        return _Value()
    return _exact(float(text) if _NUMBER.fullmatch(text) else None)


def _read_decimal(text: str) -> _Value:
    return _exact(Decimal(text) if _NUMBER.fullmatch(text) else None)


def _read_bool(text: str) -> _Value:
    return _exact({"true": True, "false": False}.get(text.lower()))


def _read_timestamp(text: str) -> _Value:
    """Without a zone, the time is in that of the writer."""
    found = parse_timestamp(text)
    if found is None:
        return _UNCLEAR
    slack = 0 if found.zoned else ZONE_SLACK
    return _Value(found.micros - slack, found.micros + slack)


def _read_timestamp_ntz(text: str) -> _Value:
    found = parse_timestamp(text)
    return _exact(None if found is None or found.zoned else found.micros)


_READERS: dict[pa.DataType, Callable[[str], _Value]] = {
    INT: _read_int,
    DOUBLE: _read_double,
    STRING: _read_string,
    DATE: lambda text: _exact(parse_date(text)),
    BOOL: _read_bool,
    TIMESTAMP: _read_timestamp,
    TIMESTAMP_NTZ: _read_timestamp_ntz,
}
