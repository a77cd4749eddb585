"""Columns of every Delta type with edge values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    pass


MOMENT = dt.datetime(2024, 2, 29, 1, 2, 3, 456789)
INSTANT = MOMENT.replace(tzinfo=dt.UTC)
PRIMITIVES = {
    "i8": (pa.int8(), [-128, 127, None]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "f32": (pa.float32(), [1.5, float("nan"), None]),
    "f64": (pa.float64(), [-0.0, float("-inf"), None]),
    "flag": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["naïve ✓ 'quoted'", "", None]),
    "bytes": (pa.binary(), [b"\x00\xff", b"text", None]),
    "day": (pa.date32(), [dt.date(1582, 10, 4), dt.date(9999, 12, 31), None]),
    "instant": (pa.timestamp("us", "UTC"), [INSTANT, dt.datetime(1900, 1, 1, microsecond=1, tzinfo=dt.UTC), None]),
    "moment": (pa.timestamp("us"), [MOMENT, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None]),
    "price": (pa.decimal128(10, 2), [Decimal("-1.25"), Decimal("12345678.90"), None]),
    "wide": (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), Decimal("-0.5"), None]),
}
NESTED = {
    "pair": (
        pa.struct([("x", pa.int32()), ("text", pa.string()), ("bytes", pa.binary()), ("moment", pa.timestamp("us"))]),
        [{"x": 1, "text": "a", "bytes": b"\xfe", "moment": MOMENT}, {"x": None, "text": "", "bytes": b""}, None],
    ),
    "numbers": (pa.list_(pa.int64()), [[1, None, 3], [], None]),
    "pairs": (pa.list_(pa.struct([("k", pa.string()), ("v", pa.float64())])), [[{"k": "a", "v": 0.5}, {}], [], None]),
    "counts": (pa.map_(pa.string(), pa.int32()), [[("b", 1), ("a", None)], [], None]),
    "instants": (pa.map_(pa.int32(), pa.list_(pa.timestamp("us", "UTC"))), [[(2, [INSTANT]), (1, [])], [], None]),
    "grid": (pa.list_(pa.list_(pa.decimal128(5, 1))), [[[Decimal("0.5")], [], None], [], None]),
}
PARTITIONS = {
    "text": (
        pa.string(),
        [None, "a b", "x/y", "ü=1", "100%", "%20", "a:b", "q?", "#", "'\"", "a\\b", "[{*}]", "a+b&c"],
    ),
    "int": (pa.int32(), [None, -5, 7]),
    "flag": (pa.bool_(), [None, True, False]),
    "double": (pa.float64(), [None, 1.5, -0.25]),
    "day": (pa.date32(), [None, dt.date(2024, 2, 29), dt.date(1969, 12, 31)]),
    "instant": (pa.timestamp("us", "UTC"), [None, INSTANT, dt.datetime(1960, 1, 1, tzinfo=dt.UTC)]),
    "moment": (pa.timestamp("us"), [None, MOMENT, dt.datetime(1960, 1, 1)]),
    "decimal": (pa.decimal128(10, 2), [None, Decimal("1.25"), Decimal("100.00")]),
}


def table_of(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def partitioned(kind: pa.DataType, values: list[Any]) -> pa.Table:
    return pa.table({"p": pa.array(values, kind), "id": pa.array(range(len(values)), pa.int64())})
