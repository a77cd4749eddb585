"""The types of Parquet's leaf columns, and how their minimum and maximum are written to `add.stats`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

LeafStats = tuple[str | None, str | None, str | None]
"""Lower bound, upper bound and null count as JSON; None where one is unknown."""


@dataclass(frozen=True, slots=True)
class BoundFormat:
    """How the raw minimum and maximum of a column are ordered and serialized; None if a value cannot be."""

    lower: Callable[[Any], str | None]
    upper: Callable[[Any], str | None]
    order: Callable[[Any], Any] | None = None


MAX_STRING = 32
"""The length of string bounds: Delta's default prefix length."""

_ASCII_TIE, _UNICODE_TIE = "\x7f", "\U0010ffff"
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

quote = json.JSONEncoder(ensure_ascii=False).encode


def _lower_string(raw: bytes) -> str | None:
    try:
        return quote(raw.decode()[:MAX_STRING])
    except UnicodeDecodeError:
        return None


def _upper_string(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(text) > MAX_STRING:
        cut = _cut_above(text)
        return None if cut is None else quote(cut)
    return quote(text)


def _cut_above(text: str) -> str | None:
    """Return a shorter string that is not less: a prefix and a character above the first one that is cut off."""
    for length in range(MAX_STRING, 2 * MAX_STRING + 1):
        if length >= len(text):
            return text
        if text[length] < _ASCII_TIE:
            return text[:length] + _ASCII_TIE
        if text[length] < _UNICODE_TIE:
            return text[:length] + _UNICODE_TIE
    return None


def _day(days: int) -> str | None:
    try:
        return f'"{date.fromordinal(_EPOCH_DAY + days).isoformat()}"'
    except (ValueError, OverflowError):
        return None


def _instant(per_ms: int, zone: str) -> Callable[[int], str | None]:
    """Return a serializer that rounds down to milliseconds; readers add one to the maximum to allow for it."""

    def text(ticks: int) -> str | None:
        try:
            moment = _EPOCH + timedelta(milliseconds=ticks // per_ms)
        except OverflowError:
            return None
        return f'"{moment.isoformat(timespec="milliseconds")}{zone}"'

    return text


def _decimal(scale: int) -> Callable[[int], str]:
    def text(unscaled: int) -> str:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"

    return text if scale else str


def _big_endian(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _unsigned(raw: int) -> int:
    return raw & 0xFFFFFFFF


def _float(value: float) -> str | None:
    return repr(value) if math.isfinite(value) else None


# Delta readers order NaN as the largest value. parquet-cpp excludes it from bounds; parquet-mr includes it as the
# maximum, but excluded it in old releases.
FLOAT = BoundFormat(_float, _float)
_PARQUET_MR = re.compile(r"parquet-mr version (\d+)\.(\d+)")
_NAN_IN_BOUNDS_SINCE = (1, 12)


def orders_nan(created_by: str | None) -> bool:
    """Return whether the writer of a file includes NaN in the bounds of a column."""
    match = _PARQUET_MR.match(created_by or "")
    return match is not None and (int(match[1]), int(match[2])) >= _NAN_IN_BOUNDS_SINCE


_STRING = BoundFormat(_lower_string, _upper_string)
_INTEGER = BoundFormat(str, str)
_DATE = BoundFormat(_day, _day)


# --- how a leaf column is stored


@dataclass(frozen=True, slots=True)
class StoredType:
    """The type of a Parquet leaf column: its Delta name, or its Parquet name if Delta has no such type."""

    name: str
    bounds: BoundFormat | None = None


_PLAIN: Mapping[str, StoredType] = {
    "BOOLEAN": StoredType("boolean"),
    "INT32": StoredType("integer", _INTEGER),
    "INT64": StoredType("long", _INTEGER),
    "INT96": StoredType("int96"),
    "FLOAT": StoredType("float", FLOAT),
    "DOUBLE": StoredType("double", FLOAT),
    "BYTE_ARRAY": StoredType("binary"),
    "FIXED_LEN_BYTE_ARRAY": StoredType("fixed size binary"),
}
_LOGICAL: Mapping[str, StoredType] = {
    "String": StoredType("string", _STRING),
    "JSON": StoredType("string", _STRING),
    "Date": StoredType("date", _DATE),
    "Null": StoredType("void"),
}
_INTEGERS: Mapping[tuple[int, bool], StoredType] = {
    (8, True): StoredType("byte", _INTEGER),
    (16, True): StoredType("short", _INTEGER),
    (32, True): StoredType("integer", _INTEGER),
    (64, True): StoredType("long", _INTEGER),
    (8, False): StoredType("uint8", _INTEGER),
    (16, False): StoredType("uint16", _INTEGER),
    (32, False): StoredType("uint32", BoundFormat(str, str, _unsigned)),
    (64, False): StoredType("uint64"),
}
# The other stored types that every Delta reader accepts for a column of this type.
READABLE_AS: Mapping[str, Collection[str]] = {
    "byte": ("short", "integer"),
    "short": ("byte", "uint8", "integer"),
    "integer": ("byte", "short", "uint8", "uint16"),
    "long": ("uint32",),
    "timestamp": ("int96",),
}


NARROW: Mapping[str, range] = {"byte": range(-(2**7), 2**7), "short": range(-(2**15), 2**15)}
"""The values of types that some writers, such as Trino, store as plain 32-bit integers."""


def stored_type(column: pq.ColumnSchema) -> StoredType:
    """Return the type of a Parquet leaf column."""
    logical = json.loads(column.logical_type.to_json())
    kind = logical["Type"]
    if kind == "Int":
        return _INTEGERS[logical["bitWidth"], logical["isSigned"]]
    if kind == "Timestamp":
        return _timestamp_type(logical["timeUnit"], utc=logical["isAdjustedToUTC"])
    if kind == "Decimal":
        text = _decimal(logical["scale"])
        order = None if column.physical_type.startswith("INT") else _big_endian
        return StoredType(f"decimal({logical['precision']},{logical['scale']})", BoundFormat(text, text, order))
    return _PLAIN[column.physical_type] if kind == "None" else _LOGICAL.get(kind, StoredType(kind.lower()))


def _timestamp_type(unit: str, *, utc: bool) -> StoredType:
    name = "timestamp" if utc else "timestamp_ntz"
    if unit == "nanoseconds":
        return StoredType(f"{name} in nanoseconds")
    text = _instant(1000 if unit == "microseconds" else 1, "Z" if utc else "")
    return StoredType(name, BoundFormat(text, text))


@dataclass(slots=True)
class FloatBounds:
    """The bounds of a float column, collected by the writer. A file with NaN gets no bounds: Delta readers order NaN as
    the largest value, and JSON cannot express it."""

    lowest: float = math.inf
    highest: float = -math.inf
    nulls: int = 0
    has_nan: bool = False

    def update(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Add values."""
        self.nulls += values.null_count
        if values.null_count == len(values):
            return
        self.has_nan = self.has_nan or bool(pc.any(pc.is_nan(values)).as_py())
        if not self.has_nan:
            bounds = pc.min_max(values).as_py()
            self.lowest, self.highest = min(self.lowest, bounds["min"]), max(self.highest, bounds["max"])

    def to_json(self) -> LeafStats:
        """Return the bounds and the null count as JSON, which has no infinity."""
        if self.has_nan or not (math.isfinite(self.lowest) and math.isfinite(self.highest)):
            return None, None, str(self.nulls)
        return repr(self.lowest), repr(self.highest), str(self.nulls)
