"""Delta's statistics JSON as typed bounds, vectorised over many files.

A bound is never narrower than the one that was written, and as much wider as the writer may have rounded. A value that
cannot be parsed is unknown; the values next to it stay exact. Wrong statistics of a writer (a maximum that ignores NaN)
are trusted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltasql.expressions.arrow_values import array_of, scalar_of
from deltasql.expressions.bounds import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    UNORDERED,
    Bounds,
    ColumnPath,
    bounds_type,
    concat_bounds,
    decode_bounds,
    encode_bounds,
    leaf_columns,
    leaf_fields,
    single_precision,
    unknown_bounds,
)
from deltasql.expressions.partition_bounds import partition_bounds
from deltasql.expressions.value_text import OFFSET_PATTERN, ZONE_SLACK, parse_plain_date, parse_plain_timestamp

__all__ = [
    "Bounds",
    "ColumnPath",
    "concat_bounds",
    "decode_bounds",
    "encode_bounds",
    "leaf_columns",
    "parse_stats",
    "partition_bounds",
    "unknown_bounds",
]

_PIECE_ROWS = 65_536
_SLOW_ROWS = 512
_MIN_BLOCK = 1 << 20
_ZERO = scalar_of(0, INT)
_FALSE = scalar_of(False, BOOL)
_NO_STATS, _OPEN, _CLOSE, _NOTHING = array_of(["null", '{"stats":', "}\n", ""], STRING)
_MILLISECOND = scalar_of(1000, pa.int64()).cast(pa.duration("us"))
_ZONES = rf"(?:Z|{OFFSET_PATTERN})$"
# Some writers print a decimal from a double that they divided by a power of ten: four roundings with ours.
_DECIMAL_ERROR = 2.0**-49
_PHYSICAL_NAME = b"delta.columnMapping.physicalName"
_TYPE_CHANGES = b"delta.typeChanges"


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf column in the JSON: its path of keys, and the type that its bounds were printed from."""

    keys: ColumnPath
    type: pa.DataType

    @property
    def json_type(self) -> pa.DataType:
        type = bounds_type(self.type)
        if type in (INT, BOOL, UNORDERED):
            return type
        return DOUBLE if type == DOUBLE or pa.types.is_decimal(type) else STRING


def parse_stats(
    texts: pa.Array | pa.ChunkedArray, schema: pa.Schema, columns: Collection[ColumnPath]
) -> dict[ColumnPath, Bounds]:
    """Return the bounds of leaf columns from the `stats` of each file; null stands for a file without statistics."""
    known = {tuple(field.name for field in chain): _leaf(chain) for chain in leaf_fields(schema)}
    leaves = {path: known[path] for path in columns}
    if not leaves or not len(texts):
        return {path: unknown_bounds(len(texts), leaf.type) for path, leaf in leaves.items()}
    stats = _read(texts, _stats_type(leaves.values()))
    return {path: _leaf_bounds(stats, leaf) for path, leaf in leaves.items()}


def _leaf(chain: tuple[pa.Field, ...]) -> _Leaf:
    metadata = chain[-1].metadata or {}
    was_float = b'"float"' in metadata.get(_TYPE_CHANGES, b"")
    return _Leaf(tuple(map(_physical_name, chain)), pa.float32() if was_float else chain[-1].type)


def _physical_name(field: pa.Field) -> str:
    """Return the key of a column: with column mapping, a renamed column keeps its first key."""
    text = (field.metadata or {}).get(_PHYSICAL_NAME)
    if text is None:
        return str(field.name)
    return str(json.loads(text)) if text.startswith(b'"') else text.decode()


# --- The JSON as one Arrow struct


def _stats_type(leaves: Iterable[_Leaf]) -> pa.StructType:
    """Return the Arrow type of the part of the statistics that these leaves need."""
    ordered = _nested({leaf.keys: leaf.json_type for leaf in leaves if leaf.json_type != UNORDERED})
    counts = _nested({leaf.keys: INT for leaf in leaves})
    parts = {"numRecords": INT, "tightBounds": BOOL, "nullCount": counts}
    return pa.struct({**parts, "minValues": ordered, "maxValues": ordered})


def _nested(leaves: Mapping[ColumnPath, pa.DataType]) -> pa.DataType:
    if () in leaves:
        return leaves[()]
    heads = dict.fromkeys(keys[0] for keys in leaves)
    return pa.struct(
        {head: _nested({keys[1:]: leaf for keys, leaf in leaves.items() if keys[0] == head}) for head in heads}
    )


def _read(texts: pa.Array | pa.ChunkedArray, type: pa.StructType) -> pa.ChunkedArray:
    whole = texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([texts])
    pieces: list[pa.Array] = []
    for start in range(0, len(whole), _PIECE_ROWS):
        piece = whole.slice(start, _PIECE_ROWS).cast(STRING).combine_chunks()
        pieces += _by_halves(piece, lambda t: _read_at_once(t, type), lambda t: _read_one_by_one(t, type))
    return pa.chunked_array(pieces, type)


def _by_halves(
    values: pa.Array, fast: Callable[[pa.Array], pa.Array | None], slow: Callable[[pa.Array], pa.Array]
) -> list[pa.Array]:
    """Return the result in pieces: `fast`, which returns None if any value is bad, except near bad values."""
    found = fast(values)
    if found is None and len(values) > _SLOW_ROWS:
        half = len(values) // 2
        return _by_halves(values[:half], fast, slow) + _by_halves(values[half:], fast, slow)
    return [slow(values) if found is None else found]


def _read_at_once(texts: pa.Array, type: pa.StructType) -> pa.Array | None:
    """Parse each text inside an object on a separate line, so that malformed texts cannot shift rows."""
    lines = pc.binary_join_element_wise(_OPEN, texts.fill_null(_NO_STATS), _CLOSE, _NOTHING)
    longest = pc.max(pc.binary_length(lines)).as_py()
    try:
        table = pj.read_json(
            pa.BufferReader(_joined(lines)),
            read_options=pj.ReadOptions(block_size=max(_MIN_BLOCK, 2 * longest)),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema({"stats": type}), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return None
    return table["stats"].combine_chunks() if len(table) == len(texts) else None


def _joined(lines: pa.StringArray) -> pa.Buffer:
    """Return the bytes of all texts: those of a new array are contiguous."""
    _, offsets, data = lines.buffers()
    return data.slice(0, int(np.frombuffer(offsets, np.int32)[len(lines)]))


def _read_one_by_one(texts: pa.Array, type: pa.StructType) -> pa.Array:
    clean = _cleaner(type)
    return pa.array([clean(_loads(text)) for text in texts.to_pylist()], type)


def _loads(text: str | None) -> Any:
    try:
        return json.loads(text or "null", parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _cleaner(type: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that returns a JSON value if it has the type, else None."""
    if not pa.types.is_struct(type):
        return _CLEANERS[type]
    inner = [(field.name, _cleaner(field.type)) for field in type]

    def clean(value: Any) -> Any:
        return {name: each(value.get(name)) for name, each in inner} if isinstance(value, dict) else None

    return clean


def _clean_int(value: Any) -> int | None:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return value if is_int and -(2**63) <= value < 2**63 else None


def _clean_double(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        return None


_CLEANERS: dict[pa.DataType, Callable[[Any], Any]] = {
    BOOL: lambda value: value if isinstance(value, bool) else None,
    INT: _clean_int,
    DOUBLE: _clean_double,
    STRING: lambda value: value if isinstance(value, str) and _is_utf8(value) else None,
}


def _is_utf8(text: str) -> bool:
    """Return whether a text can be encoded: escapes in JSON can produce half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- One column


def _leaf_bounds(stats: pa.ChunkedArray, leaf: _Leaf) -> Bounds:
    def part(*names: str) -> pa.Array:
        return pc.struct_field(stats, names).combine_chunks()

    nulls, records, tight = part("nullCount", *leaf.keys), part("numRecords"), part("tightBounds")
    if leaf.json_type == UNORDERED:
        low = high = pa.nulls(len(stats))
    else:
        low = _typed(part("minValues", *leaf.keys), leaf.type, upper=False)
        high = _typed(part("maxValues", *leaf.keys), leaf.type, upper=True)
        contradiction = pc.fill_null(pc.greater(low, high), _FALSE)
        low, high = _without(contradiction, low), _without(contradiction, high)
    return Bounds(low, high, pc.not_equal(nulls, _ZERO), _all_null(nulls, records, tight))


def _without(bad: pa.BooleanArray, values: pa.Array) -> pa.Array:
    return pc.if_else(bad, pa.scalar(None, values.type), values) if pc.any(bad).as_py() else values


def _all_null(nulls: pa.Array, records: pa.Array, tight: pa.Array) -> pa.BooleanArray:
    """Return whether all values are null; unknown for loose bounds (deleted rows) with some nulls."""
    equal = pc.equal(nulls, records)
    loose = pc.and_(pc.fill_null(pc.invert(tight), _FALSE), pc.not_equal(nulls, _ZERO))
    return _without(pc.and_(pc.fill_null(loose, _FALSE), pc.fill_null(pc.invert(equal), _FALSE)), equal)


def _typed(raw: pa.Array, type: pa.DataType, *, upper: bool) -> pa.Array:
    """Return JSON values as bounds of the column's type, widened by the writer's possible rounding."""
    target = bounds_type(type)
    if target == DOUBLE:
        finite = _without(pc.fill_null(pc.invert(pc.is_finite(raw)), _FALSE), raw)
        return finite if pa.types.is_float64(type) else single_precision(finite, upper=upper)
    if pa.types.is_decimal(target):
        return _decimals(raw, target, upper=upper)
    if target == DATE or pa.types.is_timestamp(target):
        return _temporal(raw, target, upper=upper)
    return raw


def _temporal(texts: pa.Array, type: pa.DataType, *, upper: bool) -> pa.Array:
    pieces = _by_halves(texts, lambda t: _cast(t, type), lambda t: _parse(t, type, upper=upper))
    values = pa.concat_arrays(pieces)
    # Writers truncate timestamps to milliseconds, in minima and maxima alike.
    return pc.add(values, _MILLISECOND) if upper and type != DATE else values


def _cast(texts: pa.Array, type: pa.DataType) -> pa.Array | None:
    if type == TIMESTAMP and not _all(pc.ends_with(texts, "Z")) and not _all(_matches(texts)):
        return None
    try:
        return pc.cast(texts, type)
    except pa.ArrowInvalid:
        return None


def _all(flags: pa.BooleanArray) -> bool:
    return bool(pc.all(flags).as_py())


def _matches(texts: pa.Array) -> pa.BooleanArray:
    return pc.match_substring_regex(texts, _ZONES)


def _parse(texts: pa.Array, type: pa.DataType, *, upper: bool) -> pa.Array:
    known = [None if text is None else _parse_one(text, type, upper) for text in texts.to_pylist()]
    return pa.array(known, type)


def _parse_one(text: str, type: pa.DataType, upper: bool) -> int | None:
    if type == DATE:
        return parse_plain_date(text)
    found = parse_plain_timestamp(text)
    if found is None or (found.zone and type != TIMESTAMP):
        return None
    slack = 0 if found.zone or type != TIMESTAMP else ZONE_SLACK
    return found.micros + (slack if upper else -slack)


def _decimals(raw: pa.Array, type: pa.Decimal128Type, *, upper: bool) -> pa.Array:
    """Return the multiples of the scale's unit next to the doubles, widened by the possible error of a double.

    Exact up to 14 digits. Parsing long decimals exactly would not be safer: the writer may have truncated them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        units = raw.to_numpy(zero_copy_only=False) * 10.0**type.scale
        error = np.abs(units) * _DECIMAL_ERROR
        bound = np.floor(units + error) if upper else np.ceil(units - error)
    valid = np.abs(bound) < 10.0**type.precision
    size = np.where(valid, np.abs(bound), 0.0)
    words = np.empty((len(size), 2), np.uint64)
    words[:, 1] = size // 2.0**64
    words[:, 0] = size - words[:, 1] * 2.0**64
    negative = valid & (bound < 0)
    words[negative] = ~words[negative]
    words[negative, 0] += np.uint64(1)
    words[negative, 1] += words[negative, 0] == 0
    values = pa.Array.from_buffers(type, len(size), [None, pa.py_buffer(words)])
    return pc.if_else(pa.array(valid, BOOL), values, pa.scalar(None, type))


def num_records(stats: str | None) -> int | None:
    """Return the number of rows of a file, if its statistics have it and can be read."""
    try:
        decoded: Any = msgspec.json.decode(stats) if stats else {}
    except (msgspec.DecodeError, UnicodeEncodeError, TypeError, RecursionError):
        return None
    return decoded.get("numRecords") if isinstance(decoded, dict) else None
