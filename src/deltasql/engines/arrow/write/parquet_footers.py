"""Check Parquet footers against a table's schema, and build `add.stats` from them.

No I/O: the functions work on pyarrow's metadata objects. A `FooterPlan` walks a Parquet schema once and then serves
every file with that schema. Column names are those of the files (under column mapping, the physical ones).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.engines.arrow.write.parquet_types import (
    FLOAT,
    NARROW,
    READABLE_AS,
    BoundFormat,
    FloatBounds,
    LeafStats,
    orders_nan,
    quote,
    stored_type,
)
from deltasql.protocol.actions import CHANGE_TYPE
from deltasql.protocol.schema import is_list, primitive_name

Path = tuple[str, ...]


# --- which columns get statistics

_COLUMN_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def indexed_columns(
    schema: pa.Schema,
    partition_columns: Collection[str],
    num_indexed_cols: int = 32,
    stats_columns: Collection[str] | None = None,
) -> frozenset[Path]:
    """Return the leaf columns that get statistics: `stats_columns`, or else the first `num_indexed_cols` (-1: all).

    A name includes all fields inside it; a list or a map counts as one leaf, as in Spark.
    """
    leaves = [path for path in _leaf_paths(schema) if path[0] not in partition_columns]
    if stats_columns is not None:
        named = {_parse_column(name) for name in stats_columns}
        return frozenset(path for path in leaves if any(_lower(path)[: len(name)] == name for name in named))
    return frozenset(leaves if num_indexed_cols < 0 else leaves[:num_indexed_cols])


def _leaf_paths(fields: Any, parent: Path = ()) -> Iterator[Path]:
    for field in fields:
        path = (*parent, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaf_paths(field.type, path)
        else:
            yield path


def _parse_column(name: str) -> Path:
    """Parse a column name: `a.b` is field b of column a; in backticks it is a column of that name."""
    parts = _COLUMN_PART.findall(name.strip())
    return _lower(tuple(quoted.replace("``", "`") or plain.strip() for quoted, plain in parts))


def _lower(path: Path) -> Path:
    return tuple(name.lower() for name in path)


# --- the plan


@dataclass(frozen=True, slots=True)
class _Leaf:
    index: int
    bounds: BoundFormat | None
    path: Path = ()


@dataclass(frozen=True, slots=True)
class _Node:
    """A key of the statistics objects: of a leaf, or of a struct, which has `fields`."""

    key: str
    leaf: int = -1
    fields: tuple[_Node, ...] = ()


@dataclass(frozen=True, slots=True)
class FooterPlan:
    """How to read the footers of all files with one Parquet schema, and how that schema misfits the table."""

    schema: pq.ParquetSchema
    problems: tuple[str, ...]
    leaves: tuple[_Leaf, ...]
    tree: tuple[_Node, ...]
    required: tuple[tuple[str, int], ...]
    narrow: tuple[tuple[str, int, range], ...]
    """Columns that are stored as a wider type than the table's: their bounds must fit."""
    nested: pa.Schema | None

    def serves(self, meta: pq.FileMetaData) -> bool:
        """Return whether the plan is for the schema of a file."""
        schema = meta.schema
        if not self.schema.equals(schema):
            return False
        # Parquet's equality compares leaf columns only; Arrow's compares the names of structs too.
        return self.nested is None or bool(self.nested.equals(schema.to_arrow_schema()))

    def nulls(self, meta: pq.FileMetaData) -> list[str]:
        """Return the NOT NULL columns that hold nulls."""
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)] if self.required else []
        return [name for name, index in self.required if any(_null_count(group, index) for group in groups)]

    def too_wide(self, meta: pq.FileMetaData) -> list[str]:
        """Return the columns that are stored as a wider type, and hold or may hold values that do not fit."""
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)] if self.narrow else []
        return [name for name, index, fits in self.narrow if not all(_fits(group, index, fits) for group in groups)]

    def stats(self, meta: pq.FileMetaData, floats: Mapping[Path, FloatBounds] | None = None) -> str:
        """Return the `add.stats` of a file; `floats` are bounds that the writer collected."""
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        has_nan = orders_nan(meta.created_by)
        leaves = [_leaf_stats(leaf, groups, has_nan, (floats or {}).get(leaf.path)) for leaf in self.leaves]
        parts = [f'{{"numRecords":{meta.num_rows}']
        for part, key in enumerate(("minValues", "maxValues", "nullCount")):
            text = _object(self.tree, leaves, part)
            if text:
                parts.append(f'"{key}":{text}')
        return ",".join(parts) + "}"


def _object(nodes: tuple[_Node, ...], leaves: list[LeafStats], part: int) -> str:
    """Return one of the statistics objects; an empty string if no leaf has that statistic."""
    members = []
    for node in nodes:
        text = _object(node.fields, leaves, part) if node.leaf < 0 else leaves[node.leaf][part]
        if text:
            members.append(node.key + text)
    return "{" + ",".join(members) + "}" if members else ""


def _fits(group: pq.RowGroupMetaData, index: int, fits: range) -> bool:
    """Return whether the bounds of a column are in a range; a column of nulls has none."""
    statistics = group.column(index).statistics
    if statistics is None:
        return bool(group.num_rows == 0)
    if not statistics.has_min_max:
        return bool(statistics.null_count == group.num_rows)
    return statistics.min_raw in fits and statistics.max_raw in fits


def _null_count(group: pq.RowGroupMetaData, index: int) -> int:
    statistics = group.column(index).statistics
    return (statistics.null_count or 0) if statistics else 0


def _leaf_stats(leaf: _Leaf, groups: list[pq.RowGroupMetaData], has_nan: bool, floats: FloatBounds | None) -> LeafStats:
    """Return the statistics of a leaf over all row groups."""
    if floats is not None:
        return floats.to_json()
    nulls: int | None = 0
    bounds = None if leaf.bounds is FLOAT and not has_nan else leaf.bounds
    lowest = highest = None
    for group in groups:
        statistics = group.column(leaf.index).statistics
        if statistics is None:
            return None, None, None
        count = statistics.null_count
        nulls = None if nulls is None or count is None else nulls + count
        if bounds is None:
            continue
        if not statistics.has_min_max:
            # A row group that holds only nulls has no bounds.
            if count != group.num_rows:
                bounds = None
            continue
        low, high = statistics.min_raw, statistics.max_raw
        if bounds is FLOAT and (math.isnan(low) or math.isnan(high)):
            bounds = None
            continue
        if bounds.order is not None:
            low, high = bounds.order(low), bounds.order(high)
        if lowest is None or low < lowest:
            lowest = low
        if highest is None or high > highest:
            highest = high
    text = None if nulls is None else str(nulls)
    # If a writer stores only one bound, pyarrow reports bounds in the wrong order.
    if bounds is None or lowest is None or highest is None or lowest > highest:
        return None, None, text
    return bounds.lower(lowest), bounds.upper(highest), text


def plan_footers(
    file_schema: pq.ParquetSchema,
    schema: pa.Schema,
    partition_columns: Collection[str],
    indexed: Collection[Path],
) -> FooterPlan:
    """Compare a file's schema with the table's, and find the columns that get statistics."""
    try:
        columns = file_schema.to_arrow_schema()
    except pa.ArrowException as error:
        return FooterPlan(file_schema, (f"the schema cannot be read ({error})",), (), (), (), (), None)
    walk = _Walk(file_schema, indexed, partition_columns)
    tree = walk.fields(schema, columns, 0, (), certain=True)
    flat = not any(pa.types.is_nested(_storage(column.type)) for column in columns)
    return FooterPlan(
        file_schema,
        tuple(walk.problems),
        tuple(walk.leaves),
        tree,
        tuple(walk.required),
        tuple(walk.narrow),
        None if flat else columns,
    )


# Spark writes this column, all null, to data files of tables with a change data feed.
_IGNORED = CHANGE_TYPE


def _storage(type_: pa.DataType) -> pa.DataType:
    return _storage(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else type_


def _width(type_: pa.DataType) -> int:
    """Return the number of Parquet leaf columns of an Arrow type."""
    type_ = _storage(type_)
    if not pa.types.is_nested(type_):
        return 1
    return sum(_width(type_.field(i).type) for i in range(type_.num_fields))


class _Walk:
    """A parallel walk through the table's schema and the file's.

    Leaves are found by counting, because in Parquet's dotted paths a column `a.b` equals field b of column a.
    """

    def __init__(self, schema: pq.ParquetSchema, indexed: Collection[Path], partition_columns: Collection[str]) -> None:
        self.schema, self.indexed, self.partition_columns = schema, indexed, partition_columns
        self.problems: list[str] = []
        self.leaves: list[_Leaf] = []
        self.required: list[tuple[str, int]] = []
        self.narrow: list[tuple[str, int, range]] = []

    def fields(self, table: Any, file: Any, first: int, parent: Path, *, certain: bool) -> tuple[_Node, ...]:
        """Match the fields of a struct, or the columns of the table; `certain` if no parent can be null."""
        columns = {}
        for field in file:
            if field.name in columns:
                self.problems.append(f"column {_dotted(parent, field.name)} occurs twice in the file")
            columns[field.name] = _storage(field.type), first
            first += _width(field.type)
        nodes = []
        for field in table:
            if field.name in columns:
                file_type, index = columns.pop(field.name)
                known = certain and not field.nullable
                node = self.column(field.type, file_type, index, (*parent, field.name), certain=known)
                nodes += [node] if node else []
            elif not (field.nullable or (not parent and field.name in self.partition_columns)):
                self.problems.append(f"column {_dotted(parent, field.name)} is NOT NULL but missing in the file")
        self._check_extra(columns, [field.name for field in table], parent)
        return tuple(nodes)

    def column(
        self, table: pa.DataType, file: pa.DataType, index: int, path: Path, *, certain: bool = False
    ) -> _Node | None:
        """Match one column, and return the node of its statistics if it gets any."""
        types = pa.types
        key = quote(path[-1]) + ":"
        if types.is_struct(table) and types.is_struct(file):
            fields = self.fields(table, file, index, path, certain=certain)
            return _Node(key, fields=fields) if fields else None
        if types.is_map(table) and types.is_map(file):
            key_type, item_type = _storage(file.key_type), _storage(file.item_type)
            self.column(table.key_type, key_type, index, (*path, "key"))
            self.column(table.item_type, item_type, index + _width(key_type), (*path, "value"))
        elif types.is_list(table) and is_list(file):
            self.column(table.value_type, _storage(file.value_type), index, (*path, "element"))
        elif types.is_nested(table) or types.is_nested(file):
            self._differs(path, str(file), str(table))
        else:
            return self.leaf(table, index, path, key, certain=certain)
        return None

    def leaf(self, table: pa.DataType, index: int, path: Path, key: str, *, certain: bool) -> _Node | None:
        column = self.schema.column(index)
        stored, expected = stored_type(column), primitive_name(table) or str(table)
        if stored.name != expected and stored.name not in READABLE_AS.get(expected, ()):
            self._differs(path, stored.name, expected)
        if (expected, stored.name) in (("byte", "short"), ("byte", "integer"), ("short", "integer")):
            self.narrow.append((_dotted(path[:-1], path[-1]), index, NARROW[expected]))
        if certain and column.max_definition_level:
            self.required.append((_dotted(path[:-1], path[-1]), index))
        if path not in self.indexed:
            return None
        self.leaves.append(_Leaf(index, stored.bounds, path))
        return _Node(key, len(self.leaves) - 1)

    def _differs(self, path: Path, file: str, table: str) -> None:
        hint = " (write it in microseconds)" if file.endswith("nanoseconds") else ""
        name = _dotted(path[:-1], path[-1])
        self.problems.append(f"column {name} is {file} in the file{hint} and {table} in the table")

    def _check_extra(self, names: Collection[str], known: list[str], parent: Path) -> None:
        by_case = {name.lower(): name for name in known}
        for name in names:
            if not parent and name == _IGNORED:
                continue
            twin = by_case.get(name.lower())
            hint = f" (the table has {twin!r})" if twin else ""
            self.problems.append(f"column {_dotted(parent, name)} is not in the table{hint}")


def _dotted(parent: Path, name: str) -> str:
    return repr(".".join((*parent, name)))
