"""Bounds of partition columns from partition values, which Delta stores as texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from deltasql.expressions.value_text import (
    ZONE_SLACK,
    parse_boolean,
    parse_decimal,
    parse_double,
    parse_integer,
    parse_plain_date,
    parse_plain_timestamp,
)

_NOT_FINITE = ("NaN", "Infinity", "+Infinity", "-Infinity")


class _Value(NamedTuple):
    """The bounds of one value. `null` is whether it is the SQL null; None if readers may differ."""

    low: Any = None
    high: Any = None
    null: bool | None = False


_UNCLEAR = _Value(null=None)


def partition_bounds(values: pa.Array | pa.ChunkedArray, type: pa.DataType) -> Bounds:
    """Return the bounds of one partition column from the text of each file; null is the SQL null."""
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
    return _exact(parse_decimal(text)) if pa.types.is_decimal(target) else _READERS[target](text)


def _fit(values: Sequence[Any], type: pa.DataType) -> bool:
    """Return whether values fit the type: readers turn other values into null, or into different values."""
    try:
        pa.array(values, type)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _exact(value: Any) -> _Value:
    return _UNCLEAR if value is None else _Value(value, value)


def _read_string(text: str) -> _Value:
    """The protocol defines the empty string as null, but Spark reads it as the empty string."""
    return _exact(text) if text else _Value("", "", None)


def _read_double(text: str) -> _Value:
    if text in _NOT_FINITE:
        return _Value()
    value = parse_double(text)
    return _exact(value if value is not None and math.isfinite(value) else None)


def _read_timestamp(text: str) -> _Value:
    """A time without a zone is in the unknown zone of the writer."""
    found = parse_plain_timestamp(text)
    if found is None:
        return _UNCLEAR
    slack = 0 if found.zone else ZONE_SLACK
    return _Value(found.micros - slack, found.micros + slack)


def _read_timestamp_ntz(text: str) -> _Value:
    found = parse_plain_timestamp(text)
    return _exact(None if found is None or found.zone else found.micros)


_READERS: dict[pa.DataType, Callable[[str], _Value]] = {
    INT: lambda text: _exact(parse_integer(text)),
    DOUBLE: _read_double,
    STRING: _read_string,
    DATE: lambda text: _exact(parse_plain_date(text)),
    BOOL: lambda text: _exact(parse_boolean(text)),
    TIMESTAMP: _read_timestamp,
    TIMESTAMP_NTZ: _read_timestamp_ntz,
}
