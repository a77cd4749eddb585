"""Typed bounds of one leaf column over many files: their types, their encoding, and their concatenation.

Null stands for unknown, and an unknown bound never prunes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ColumnPath = tuple[str, ...]

INT = pa.int64()
DOUBLE = pa.float64()
STRING = pa.string()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
BOOL = pa.bool_()
UNORDERED = pa.null()
MAX_PRECISION = 38

_BOUNDS_TYPES: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_signed_integer, INT),
    (pa.types.is_floating, DOUBLE),
    (pa.types.is_string, STRING),
    (pa.types.is_large_string, STRING),
    (pa.types.is_string_view, STRING),
    (pa.types.is_date, DATE),
    (pa.types.is_boolean, BOOL),
)
_NAMES = ("min", "max", "has_nulls", "all_null")
_IPC = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one leaf column over n files: no value is below `min` or above `max`.

    `has_nulls` is whether a file may have nulls, `all_null` whether all its values are null.
    """

    min: pa.Array
    max: pa.Array
    has_nulls: pa.BooleanArray
    all_null: pa.BooleanArray


def leaf_columns(schema: pa.Schema) -> dict[ColumnPath, pa.DataType]:
    """Return the primitive columns with their types, including fields of structs, not those inside lists and maps."""
    return {tuple(field.name for field in chain): chain[-1].type for chain in leaf_fields(schema)}


def leaf_fields(parent: pa.Schema | pa.StructType, above: tuple[pa.Field, ...] = ()) -> Iterator[tuple[pa.Field, ...]]:
    """Yield each leaf as the chain of fields that leads to it, with their Delta metadata."""
    for field in parent:
        if pa.types.is_struct(field.type):
            yield from leaf_fields(field.type, (*above, field))
        elif not pa.types.is_nested(field.type):
            yield (*above, field)


def bounds_type(type: pa.DataType) -> pa.DataType:
    """Return the type of the bounds of a column type; UNORDERED if Delta has no bounds for it."""
    if pa.types.is_timestamp(type):
        return TIMESTAMP if type.tz else TIMESTAMP_NTZ
    if pa.types.is_decimal(type) and type.precision <= MAX_PRECISION:
        return pa.decimal128(type.precision, type.scale)
    return next((bounds for is_such, bounds in _BOUNDS_TYPES if is_such(type)), UNORDERED)


def unknown_bounds(n: int, type: pa.DataType) -> Bounds:
    """Return unknown bounds of n files."""
    values, flags = pa.nulls(n, bounds_type(type)), pa.nulls(n, BOOL)
    return Bounds(values, values, flags, flags)


def single_precision(values: pa.DoubleArray, *, upper: bool) -> pa.DoubleArray:
    """Return bounds of 32-bit floats, widened by one float: the value that is printed as 0.1 is 0.10000000149."""
    doubles = values.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.nextafter(doubles.astype(np.float32), np.float32(np.inf if upper else -np.inf))
    return pa.array(moved.astype(np.float64), DOUBLE, from_pandas=True)


def encode_bounds(bounds: Bounds) -> bytes:
    """Encode bounds as compressed Arrow IPC."""
    batch = pa.record_batch([getattr(bounds, name) for name in _NAMES], names=_NAMES)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_IPC) as writer:
        writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def decode_bounds(data: bytes) -> Bounds:
    """Decode the bytes of `encode_bounds`."""
    batch = pa.ipc.open_stream(data).read_next_batch()
    return Bounds(*(batch.column(name) for name in _NAMES))


def concat_bounds(parts: Sequence[Bounds]) -> Bounds:
    """Concatenate bounds; a part whose type does not widen to the common type becomes unknown."""
    type = reduce(_wider, (part.min.type for part in parts), UNORDERED)
    same = [retyped(part, type) for part in parts]
    if len(same) == 1:
        return same[0]
    if not same:
        return unknown_bounds(0, UNORDERED)
    return Bounds(*(pa.concat_arrays([getattr(part, name) for part in same]) for name in _NAMES))


def retyped(bounds: Bounds, type: pa.DataType) -> Bounds:
    """Return bounds after the column was widened to a type; unknown if the type is not wider."""
    if bounds.min.type == type:
        return bounds
    low, high = (_widened(values, type) for values in (bounds.min, bounds.max))
    return Bounds(low, high, bounds.has_nulls, bounds.all_null)


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if _widens(right, left):
        return left
    if pa.types.is_decimal(left) and pa.types.is_decimal(right):
        scale = max(left.scale, right.scale)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        return pa.decimal128(min(whole + scale, MAX_PRECISION), scale)
    return right


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    if source in (target, UNORDERED):
        return True
    if pa.types.is_decimal(target):
        return source == INT or (pa.types.is_decimal(source) and _holds(target, source))
    return (source, target) in ((INT, DOUBLE), (DATE, TIMESTAMP_NTZ))


def _holds(target: pa.Decimal128Type, source: pa.Decimal128Type) -> bool:
    more = target.scale - source.scale
    return bool(more >= 0 and target.precision - source.precision >= more)


def _widened(values: pa.Array, target: pa.DataType) -> pa.Array:
    if _widens(values.type, target):
        try:
            return _cast(values, target)
        except pa.ArrowInvalid:  # a value does not fit: the statistics are older than the type
            pass
    return pa.nulls(len(values), target)


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == INT and pa.types.is_decimal(target):
        # Arrow requires room for any int64, while the column had narrower integers that fit.
        values = pc.cast(values, pa.decimal128(MAX_PRECISION, 0))
    return pc.cast(values, target)
