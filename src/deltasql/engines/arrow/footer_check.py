"""Check that the column chunks in a Parquet footer agree with its schema.

pyarrow ends the whole process if it is asked for a column chunk or for statistics that contradict the schema, because
the C++ exception is not caught there. Only the bytes of the footer tell in advance. They are read as parquet-cpp reads
them: a field of an unexpected type is skipped, and numbers are cut to their width.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from deltasql.engines.arrow.usual_chunks import usual_chunk

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_FIXED = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}

# Field numbers in parquet.thrift, and the types of the elements of lists, which parquet-cpp does not look at.
_SCHEMA, _ROW_GROUPS, _COLUMNS, _CHUNK_METADATA = 2, 4, 1, 3
_TYPE, _STATISTICS, _SIZE_STATISTICS = 1, 12, 16
_BYTE_ARRAY_SIZE, _REPETITION_LEVELS = 1, 2
_FILE_LISTS = {_SCHEMA: _STRUCT, _ROW_GROUPS: _STRUCT, 5: _STRUCT, 7: _STRUCT}
_GROUP_LISTS = {_COLUMNS: _STRUCT, 4: _STRUCT}
_CHUNK_LISTS = {2: _I32, 3: _BINARY, 8: _STRUCT, 13: _STRUCT}
_SIZE_LISTS = {_REPETITION_LEVELS: _I64, 3: _I64}

# What stands in the list of column orders for every column.
_COLUMN_ORDER = b"\x1c\x00\x00"

_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


class DamagedFooter(ValueError):
    """The column chunks of a Parquet footer contradict its schema."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf column of the schema: its physical type, the bytes of a value (None: any), and its highest levels."""

    type: str
    width: int | None
    repetition: int
    definition: int
    usual: re.Pattern[bytes]


def check_footer(footer: bytes, schema: pq.ParquetSchema) -> None:
    """Raise DamagedFooter if a column chunk or its statistics contradict the schema.

    Args:
        footer: The Thrift bytes, of which pyarrow has read the schema.
        schema: The schema of the footer.
    """
    try:
        _check_file(footer, schema)
    except IndexError as error:
        raise DamagedFooter("the footer ends too early") from error


def _leaf(column: pq.ColumnSchema) -> _Leaf:
    type_ = column.physical_type
    width = column.length if type_ == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(type_)
    levels = column.max_repetition_level, column.max_definition_level
    return _Leaf(type_, width, *levels, usual_chunk(_TYPES.index(type_), width, *levels))


def _check_file(data: bytes, schema: pq.ParquetSchema) -> None:
    leaves: Sequence[_Leaf] | None = None
    at = field = 0
    while head := data[at]:
        field, at = _field(data, at, field)
        kind = _checked_kind(data, at, head, field, _FILE_LISTS)
        if field == _SCHEMA and kind == _LIST and leaves is None:
            leaves, at = _leaves(data, at, schema)
        elif field == _ROW_GROUPS and kind == _LIST and leaves is not None:
            groups, at = _list_length(data, at)
            for group in range(groups):
                at = _check_group(data, at, leaves, group)
        elif field in (_SCHEMA, _ROW_GROUPS):
            raise DamagedFooter("the footer has two schemas, or none before its row groups")
        else:
            at = _skip(data, at, kind)


# The bytes of the latest schemas, with their leaves: many files have the same schema.
_latest_schemas: deque[tuple[bytes, list[_Leaf]]] = deque(maxlen=8)


def _leaves(data: bytes, at: int, schema: pq.ParquetSchema) -> tuple[Sequence[_Leaf], int]:
    """Return the leaf columns, and where the schema ends."""
    for known, leaves in tuple(_latest_schemas):
        if data.startswith(known, at):
            return leaves, at + len(known)
    leaves, end = [_leaf(schema.column(index)) for index in range(len(schema))], _skip(data, at, _LIST)
    _latest_schemas.appendleft((data[at:end], leaves))
    return leaves, end


def _check_group(data: bytes, at: int, leaves: Sequence[_Leaf], group: int) -> int:
    chunks = field = 0
    while head := data[at]:
        field, at = _field(data, at, field)
        kind = _checked_kind(data, at, head, field, _GROUP_LISTS)
        if field == _COLUMNS and kind == _LIST:
            chunks, at = _list_length(data, at)
            if chunks != len(leaves):
                break
            for number, leaf in enumerate(leaves):
                usual = leaf.usual.match(data, at)
                at = usual.end() if usual else _check_chunk(data, at, leaf, f"column {number} of row group {group}")
        else:
            at = _skip(data, at, kind)
    if chunks != len(leaves):
        raise DamagedFooter(f"row group {group} has {chunks} columns, the schema has {len(leaves)}")
    return at + 1


def _check_chunk(data: bytes, at: int, leaf: _Leaf, name: str) -> int:
    described = False
    field = 0
    while head := data[at]:
        field, at = _field(data, at, field)
        if field == _CHUNK_METADATA and head & 15 == _STRUCT:
            described = True
            at = _check_metadata(data, at, leaf, name)
        else:
            at = _skip(data, at, head & 15)
    if not described:
        raise DamagedFooter(f"{name} has no metadata: is it encrypted?")
    return at + 1


def _check_metadata(data: bytes, at: int, leaf: _Leaf, name: str) -> int:
    field = 0
    while head := data[at]:
        field, at = _field(data, at, field)
        kind = _checked_kind(data, at, head, field, _CHUNK_LISTS)
        if field == _TYPE and kind == _I32:
            type_, at = _integer(data, at)
            if not 0 <= type_ < len(_TYPES) or _TYPES[type_] != leaf.type:
                raise DamagedFooter(f"{name} has a physical type that differs from the schema's, {leaf.type}")
        elif field == _STATISTICS and kind == _STRUCT:
            at = _check_statistics(data, at, leaf, name)
        elif field == _SIZE_STATISTICS and kind == _STRUCT:
            at = _check_sizes(data, at, leaf, name)
        else:
            at = _skip(data, at, kind)
    return at + 1


def _check_statistics(data: bytes, at: int, leaf: _Leaf, name: str) -> int:
    while head := data[at]:
        _, at = _field(data, at, 0)
        if head & 15 == _BINARY and leaf.width is not None:
            length, at = _unsigned(data, at)
            if length != leaf.width:
                raise DamagedFooter(f"{name} has a bound of {length} bytes, its values have {leaf.width}")
            at += length
        else:
            at = _skip(data, at, head & 15)
    return at + 1


def _check_sizes(data: bytes, at: int, leaf: _Leaf, name: str) -> int:
    field = 0
    while head := data[at]:
        field, at = _field(data, at, field)
        kind = _checked_kind(data, at, head, field, _SIZE_LISTS)
        if field == _BYTE_ARRAY_SIZE and kind == _I64 and leaf.type != "BYTE_ARRAY":
            raise DamagedFooter(f"{name} has the size of byte arrays, but is {leaf.type}")
        if field in _SIZE_LISTS and kind == _LIST:
            highest = leaf.repetition if field == _REPETITION_LEVELS else leaf.definition
            length = _list_length(data, at)[0]
            if length not in (0, highest + 1):
                raise DamagedFooter(f"{name} has a histogram of {length} levels instead of {highest + 1}")
        at = _skip(data, at, kind)
    return at + 1


# --- Thrift's compact protocol


def _checked_kind(data: bytes, at: int, head: int, field: int, lists: Mapping[int, int]) -> int:
    """Return the type of a field; raise if it is a list whose elements are not what the format says."""
    kind = head & 15
    if kind == _LIST and data[at] & 15 != lists.get(field, data[at] & 15):
        raise DamagedFooter(f"field {field} of the footer is a list of another type")
    return kind


def _field(data: bytes, at: int, previous: int) -> tuple[int, int]:
    """Return the number of the field at a position, and where its value begins."""
    step = data[at] >> 4
    if step:
        return previous + step, at + 1
    number, at = _integer(data, at + 1)
    return (number + 0x8000) % 0x10000 - 0x8000, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number of 32 bits."""
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return (value | byte << shift) & 0xFFFFFFFF, at + 1


def _list_length(data: bytes, at: int) -> tuple[int, int]:
    length = data[at] >> 4
    return (length, at + 1) if length < 15 else _unsigned(data, at + 1)


def _skip(data: bytes, at: int, kind: int) -> int:
    """Return where a value of a type ends."""
    if _I16 <= kind <= _I64:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _unsigned(data, at)
        return at + length
    if kind == _STRUCT:
        while head := data[at]:
            at = _skip(data, at + 1 if head >> 4 else _integer(data, at + 1)[1], head & 15)
        return at + 1
    if kind in (_LIST, _SET):
        return _skip_list(data, at)
    if kind == _MAP:
        return _skip_map(data, at)
    if kind not in _FIXED:
        raise DamagedFooter(f"the footer has a value of the unknown type {kind}")
    return at + _FIXED[kind]


def _skip_list(data: bytes, at: int) -> int:
    inner = data[at] & 15
    length, at = _list_length(data, at)
    if inner == _STRUCT and length <= len(data) and data.startswith(_COLUMN_ORDER * length, at):
        return at + len(_COLUMN_ORDER) * length
    for _ in range(length):
        at = _skip_element(data, at, inner)
    return at


def _skip_map(data: bytes, at: int) -> int:
    length, at = _unsigned(data, at)
    if not length:
        return at
    kinds, at = data[at], at + 1
    for _ in range(length):
        at = _skip_element(data, _skip_element(data, at, kinds >> 4), kinds & 15)
    return at


def _skip_element(data: bytes, at: int, kind: int) -> int:
    """Return where an element of a list or map ends; there, booleans take a byte."""
    return at + 1 if kind in (_TRUE, _FALSE) else _skip(data, at, kind)
