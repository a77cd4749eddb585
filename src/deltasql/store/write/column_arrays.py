"""Columns as arrays in PostgreSQL's binary format, built without a Python object per value.

psycopg encodes an array value by value, which takes longer than the server takes to insert the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_NULL = -1
"""The length of a null in an array."""


class _EncodedArray(bytes):
    """An array that is already encoded."""


class _BoolArray(_EncodedArray):
    pass


class _Int2Array(_EncodedArray):
    pass


class _Int4Array(_EncodedArray):
    pass


class _Int8Array(_EncodedArray):
    pass


class _TextArray(_EncodedArray):
    pass


class _Encoded(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        return bytes(obj)


_KINDS: dict[str, tuple[type[_EncodedArray], int, int, str]] = {
    "bool": (_BoolArray, 16, 1000, "u1"),
    "int2": (_Int2Array, 21, 1005, ">i2"),
    "int4": (_Int4Array, 23, 1007, ">i4"),
    "int8": (_Int8Array, 20, 1016, ">i8"),
    "text": (_TextArray, 25, 1009, ""),
}
"""For each element type: the class of its arrays, the OIDs of the element and of the array, and numpy's type."""

for _class, _element, _oid, _number in _KINDS.values():
    psycopg.adapters.register_dumper(_class, type(f"{_class.__name__}Dumper", (_Encoded,), {"oid": _oid}))


def encode_array(kind: str, values: Sequence[Any]) -> bytes | None:
    """Return values as an array that psycopg sends as it is, None if all of them are None.

    Args:
        kind: The element type: bool, int2, int4, int8 or text.
        values: The values, which may be None.
    """
    nulls = values.count(None)
    if nulls == len(values):
        return None
    array, element, _, number = _KINDS[kind]
    header = np.array([1, int(nulls > 0), element, len(values), 1], ">i4").tobytes()
    if nulls or not number:
        return array(b"".join((header, _with_lengths(_binary(number, values)))))
    items = np.empty(len(values), np.dtype([("length", ">i4"), ("value", number)]))
    items["length"] = np.dtype(number).itemsize
    items["value"] = values
    return array(header + items.tobytes())


def _binary(number: str, values: Sequence[Any]) -> pa.Array:
    """Return the encoded values, without their lengths."""
    if not number:
        return pa.array(values, pa.string()).cast(pa.binary())
    return pa.array([None if v is None else np.array(v, number).tobytes() for v in values], pa.binary())


def _with_lengths(values: pa.Array) -> memoryview:
    """Return the values one after the other, each after its length."""
    lengths = pc.fill_null(pc.binary_length(values), _NULL).to_numpy().astype(">i4")
    prefixes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(lengths.itemsize), len(lengths), [None, pa.py_buffer(lengths.tobytes())]
    )
    joined = pc.binary_join_element_wise(prefixes.cast(pa.binary()), pc.fill_null(values, b""), b"")
    _, offsets, data = joined.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[joined.offset, joined.offset + len(joined)]]
    return memoryview(data)[first:last]
