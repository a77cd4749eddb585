"""Columns as a file holds them, in the table's types and shape.

A file may be older than the table's schema, or written by another engine: columns and nested fields that it lacks are
null, narrower numbers are widened as Delta allows, and Arrow's many kinds of strings, lists and times become the
table's. Buffers are shared wherever the bytes are the same. What would need a guess does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from deltasql.protocol.schema import is_list, join_path, primitive_name

Leaf = Callable[[pa.Array, pa.DataType, str], pa.Array]


class Misfit(Exception):
    """A column of a file that cannot be read as the table's."""


class Places:
    """Where the fields of a schema or a struct are. Names differ at most in case, as in Spark."""

    def __init__(self, parent: pa.Schema | pa.StructType) -> None:
        names = [field.name for field in parent]
        self._exact = {name: place for place, name in enumerate(names)}
        self._any_case = {name.lower(): place for place, name in enumerate(names)}

    def find(self, name: str) -> int | None:
        place = self._exact.get(name)
        return self._any_case.get(name.lower()) if place is None else place


def conform(array: pa.Array, type: pa.DataType, path: str, leaf: Leaf | None = None) -> pa.Array:
    """The same values as an array of the table's type. `leaf` converts what is not nested; by default as a reader does,
    which knows what files may hold."""
    return _Conforming(leaf or _read).array(array, type, path)


def _stored(array: pa.Array) -> pa.Array:
    """Without the types that only say how values are kept or shown."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        else:
            return array


def _read(array: pa.Array, type: pa.DataType, path: str) -> pa.Array:
    if not _reads(array.type, type):
        raise Misfit(f"column {path!r} is {array.type} in the file and {type} in the table")
    return _cast(array, type, path)


def _cast(array: pa.Array, type: pa.DataType, path: str) -> pa.Array:
    try:
        return array.cast(type)
    except pa.ArrowInvalid as error:
        raise Misfit(f"column {path!r} is {array.type} in the file, and not all of it is {type}: {error}") from error


class _Conforming:
    """A container keeps its validity and offsets, what it holds is conformed."""

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
        places = Places(array.type)
        children = [self._child(array, places.find(field.name), field, join_path(path, field.name)) for field in type]
        # A child comes without the offset of its parent, so the validity has to as well.
        validity = array.is_valid().buffers()[1] if array.null_count else None
        return pa.Array.from_buffers(type, len(array), [validity], children=children)

    def _child(self, array: pa.StructArray, place: int | None, field: pa.Field, path: str) -> pa.Array:
        if place is None:
            return pa.nulls(len(array), field.type)
        return self.array(array.field(place), field.type, path)

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


# --- Which types are read as which

# A time without a zone is that of old Parquet files (INT96), which is in UTC; text without a mark is binary.
_READ_AS: Mapping[str, tuple[str, ...]] = {
    "short": ("byte",),
    "integer": ("byte", "short"),
    "long": ("byte", "short", "integer"),
    "double": ("byte", "short", "integer", "float"),
    "timestamp": ("timestamp_ntz",),
    "timestamp_ntz": ("date",),
    "string": ("binary",),
    "binary": ("string",),
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def _reads(source: pa.DataType, target: pa.DataType) -> bool:
    have, want = primitive_name(source), primitive_name(target)
    if have is None or want is None:
        return False
    return have == want or have in _READ_AS.get(want, ()) or (pa.types.is_decimal(target) and _holds(target, source))


def _holds(target: Any, source: pa.DataType) -> bool:
    """Has a decimal room for all values of another type?"""
    if pa.types.is_decimal(source):
        whole, scale = source.precision - source.scale, source.scale
    else:
        whole, scale = _DIGITS.get(primitive_name(source) or "", target.precision + 1), 0
    return bool(target.scale >= scale and target.precision - target.scale >= whole)
