"""Convert the columns of a file to the types of the table.

A file may be older than the table's schema, or written by another engine: nested fields that it lacks are null,
narrower numbers are widened as Delta allows, and Arrow's variants of strings, lists and timestamps are unified.
Buffers are shared where the bytes are equal. Ambiguous conversions raise `Misfit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from deltasql.protocol.schema import is_list, join_path, primitive_name

Leaf = Callable[[pa.Array, pa.DataType, str], pa.Array]


class Misfit(Exception):
    """A column of a file cannot be converted to the table's type."""


class FieldIndex:
    """The indexes of a schema's or struct's fields by name, ignoring case as Spark does."""

    def __init__(self, parent: pa.Schema | pa.StructType) -> None:
        names = [field.name for field in parent]
        self._exact = {name: index for index, name in enumerate(names)}
        self._any_case = {name.lower(): index for index, name in enumerate(names)}

    def find(self, name: str) -> int | None:
        """Return the index of a field; an exact match comes first."""
        index = self._exact.get(name)
        return self._any_case.get(name.lower()) if index is None else index


def conform(array: pa.Array, type: pa.DataType, path: str, leaf: Leaf | None = None) -> pa.Array:
    """Convert an array to the table's type. `leaf` converts arrays that are not nested; by default, like a reader."""
    return _Conversion(leaf or _read).array(array, type, path)


def _stored(array: pa.Array) -> pa.Array:
    """Return the storage of extension arrays and the values of dictionary arrays."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        else:
            return array


def _read(array: pa.Array, type: pa.DataType, path: str) -> pa.Array:
    if not _is_readable(array.type, type):
        raise Misfit(f"column {path!r} is {array.type} in the file and {type} in the table")
    return _cast(array, type, path)


def _cast(array: pa.Array, type: pa.DataType, path: str) -> pa.Array:
    try:
        return array.cast(type)
    except pa.ArrowInvalid as error:
        raise Misfit(
            f"column {path!r} is {array.type} in the file, and a value does not fit {type}: {error}"
        ) from error


class _Conversion:
    """A recursive conversion: containers keep their validity and offsets, their children are converted."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf

    def array(self, array: pa.Array, type: pa.DataType, path: str) -> pa.Array:
        if array.type.equals(type):
            return array
        array = _stored(array)
        if pa.types.is_null(array.type) or pa.types.is_null(type):
            return pa.nulls(len(array), type)
        if pa.types.is_struct(type) and pa.types.is_struct(array.type):
            return self._struct(array, type, path)
        if pa.types.is_map(type) and pa.types.is_map(array.type):
            return self._map(array, type, path)
        if pa.types.is_list(type) and is_list(array.type):
            return self._list(array, type, path)
        return self._leaf(array, type, path)

    def _struct(self, array: pa.StructArray, type: pa.StructType, path: str) -> pa.Array:
        fields = FieldIndex(array.type)
        children = [self._child(array, fields.find(field.name), field, join_path(path, field.name)) for field in type]
        # Children come without the offset of their parent, so the validity must have none either.
        validity = array.is_valid().buffers()[1] if array.null_count else None
        return pa.Array.from_buffers(type, len(array), [validity], children=children)

    def _child(self, array: pa.StructArray, index: int | None, field: pa.Field, path: str) -> pa.Array:
        if index is None:
            return pa.nulls(len(array), field.type)
        return self.array(array.field(index), field.type, path)

    def _list(self, array: pa.Array, type: pa.ListType, path: str) -> pa.Array:
        if not pa.types.is_list(array.type):
            array = _cast(array, pa.list_(array.type.value_field), path)
        values = self.array(array.values, type.value_type, join_path(path, "element"))
        return _with_offsets(array, type, values)

    def _map(self, array: pa.MapArray, type: pa.MapType, path: str) -> pa.Array:
        entries = array.values
        keys = self.array(entries.field(0), type.key_type, join_path(path, "key"))
        items = self.array(entries.field(1), type.item_type, join_path(path, "value"))
        pairs = pa.struct([type.key_field, type.item_field])
        return _with_offsets(array, type, pa.Array.from_buffers(pairs, len(entries), [None], children=[keys, items]))


def _with_offsets(array: pa.Array, type: pa.DataType, values: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(type, len(array), array.buffers()[:2], offset=array.offset, children=[values])


# --- allowed conversions

# Old Parquet files have timestamps as INT96, in UTC and without a zone; unannotated strings are binary.
# Trino stores byte and short as plain 32-bit integers.
_READ_AS: Mapping[str, tuple[str, ...]] = {
    "byte": ("short", "integer"),
    "short": ("byte", "integer"),
    "integer": ("byte", "short"),
    "long": ("byte", "short", "integer"),
    "double": ("byte", "short", "integer", "float"),
    "timestamp": ("timestamp_ntz",),
    "timestamp_ntz": ("date",),
    "string": ("binary",),
    "binary": ("string",),
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def _is_readable(source: pa.DataType, target: pa.DataType) -> bool:
    stored, expected = primitive_name(source), primitive_name(target)
    if stored is None or expected is None:
        return False
    return (
        stored == expected
        or stored in _READ_AS.get(expected, ())
        or (pa.types.is_decimal(target) and _holds(target, source))
    )


def _holds(target: Any, source: pa.DataType) -> bool:
    """Return whether a decimal type holds all values of another type."""
    if pa.types.is_decimal(source):
        whole, scale = source.precision - source.scale, source.scale
    else:
        whole, scale = _DIGITS.get(primitive_name(source) or "", target.precision + 1), 0
    return bool(target.scale >= scale and target.precision - target.scale >= whole)
