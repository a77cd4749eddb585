"""What a Parquet footer says about a file of a table: does it fit the schema, and which statistics to keep.

Pure: works on pyarrow's metadata objects and opens nothing. A `FooterPlan` walks a Parquet schema once and
then serves every file of that schema. Column names are those in the files (under column mapping, physical).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.protocol.schema import is_list, primitive_name

Path = tuple[str, ...]


def stats_json(
    meta: pq.FileMetaData,
    schema: pa.Schema,
    partition_columns: Collection[str],
    *,
    num_indexed_cols: int = 32,
    stats_columns: Collection[str] | None = None,
) -> str:
    """The `add.stats` of a file: exact row count, bounds that hold, null counts where they are known."""
    indexed = indexed_columns(schema, partition_columns, num_indexed_cols, stats_columns)
    return plan_footers(meta.schema, schema, partition_columns, indexed).stats(meta)


# --- which columns get statistics

_COLUMN_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def indexed_columns(
    schema: pa.Schema,
    partition_columns: Collection[str],
    num_indexed_cols: int = 32,
    stats_columns: Collection[str] | None = None,
) -> frozenset[Path]:
    """The leaf columns that get statistics: those named, else the first so many (-1: all) in schema order.

    A name stands for all fields inside it; a list or a map counts as one leaf, as in Spark.
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
    """`a.b` is field b of column a; in backticks it is a column of that name."""
    parts = _COLUMN_PART.findall(name.strip())
    return _lower(tuple(quoted.replace("``", "`") or plain.strip() for quoted, plain in parts))


def _lower(path: Path) -> Path:
    return tuple(name.lower() for name in path)


# --- bounds: from Parquet's physical values to JSON


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How the raw minimum and maximum of a column compare and are written; None if one cannot be."""

    lower: Callable[[Any], str | None]
    upper: Callable[[Any], str | None]
    order: Callable[[Any], Any] | None = None


MAX_STRING = 32
"""Characters kept of a string bound: Delta's default prefix length."""

_ASCII_TIE, _UNICODE_TIE = "\x7f", "\U0010ffff"
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_quote = json.JSONEncoder(ensure_ascii=False).encode


def _lower_string(raw: bytes) -> str | None:
    try:
        return _quote(raw.decode()[:MAX_STRING])
    except UnicodeDecodeError:
        return None


def _upper_string(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(text) > MAX_STRING:
        cut = _cut_above(text)
        return None if cut is None else _quote(cut)
    return _quote(text)


def _cut_above(text: str) -> str | None:
    """A shorter string that is not less: the prefix and a character above the first one that was cut off."""
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
    """Truncates down to milliseconds; readers allow for that by adding one to the maximum."""

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


# To Delta readers NaN is the largest value. parquet-cpp leaves it out of the bounds; parquet-mr has it as the maximum,
# and used to leave it out.
_FLOAT = _Bounds(_float, _float)
_PARQUET_MR = re.compile(r"parquet-mr version (\d+)\.(\d+)")
_ORDERS_NAN_SINCE = (1, 12)


def _orders_nan(created_by: str | None) -> bool:
    """Would the maximum of a column with NaN say so?"""
    match = _PARQUET_MR.match(created_by or "")
    return match is not None and (int(match[1]), int(match[2])) >= _ORDERS_NAN_SINCE


_STRING = _Bounds(_lower_string, _upper_string)
_INTEGER = _Bounds(str, str)
_DATE = _Bounds(_day, _day)


# --- how a leaf column is stored


@dataclass(frozen=True, slots=True)
class _Stored:
    """The type of a Parquet leaf column in Delta's words, or in Parquet's where Delta has none."""

    name: str
    bounds: _Bounds | None = None


_PLAIN: Mapping[str, _Stored] = {
    "BOOLEAN": _Stored("boolean"),
    "INT32": _Stored("integer", _INTEGER),
    "INT64": _Stored("long", _INTEGER),
    "INT96": _Stored("int96"),
    "FLOAT": _Stored("float", _FLOAT),
    "DOUBLE": _Stored("double", _FLOAT),
    "BYTE_ARRAY": _Stored("binary"),
    "FIXED_LEN_BYTE_ARRAY": _Stored("fixed size binary"),
}
_LOGICAL: Mapping[str, _Stored] = {
    "String": _Stored("string", _STRING),
    "JSON": _Stored("string", _STRING),
    "Date": _Stored("date", _DATE),
    "Null": _Stored("void"),
}
_INTEGERS: Mapping[tuple[int, bool], _Stored] = {
    (8, True): _Stored("byte", _INTEGER),
    (16, True): _Stored("short", _INTEGER),
    (32, True): _Stored("integer", _INTEGER),
    (64, True): _Stored("long", _INTEGER),
    (8, False): _Stored("uint8", _INTEGER),
    (16, False): _Stored("uint16", _INTEGER),
    (32, False): _Stored("uint32", _Bounds(str, str, _unsigned)),
    (64, False): _Stored("uint64"),
}
# Beside its own type, what every Delta reader takes for a column of this type.
_READ_AS: Mapping[str, Collection[str]] = {
    "short": ("byte", "uint8"),
    "integer": ("byte", "short", "uint8", "uint16"),
    "long": ("uint32",),
    "timestamp": ("int96",),
}


def _stored(column: pq.ColumnSchema) -> _Stored:
    logical = json.loads(column.logical_type.to_json())
    kind = logical["Type"]
    if kind == "Int":
        return _INTEGERS[logical["bitWidth"], logical["isSigned"]]
    if kind == "Timestamp":
        return _stored_timestamp(logical["timeUnit"], utc=logical["isAdjustedToUTC"])
    if kind == "Decimal":
        text = _decimal(logical["scale"])
        order = None if column.physical_type.startswith("INT") else _big_endian
        return _Stored(f"decimal({logical['precision']},{logical['scale']})", _Bounds(text, text, order))
    return _PLAIN[column.physical_type] if kind == "None" else _LOGICAL.get(kind, _Stored(kind.lower()))


def _stored_timestamp(unit: str, *, utc: bool) -> _Stored:
    name = "timestamp" if utc else "timestamp_ntz"
    if unit == "nanoseconds":
        return _Stored(f"{name} in nanoseconds")
    text = _instant(1000 if unit == "microseconds" else 1, "Z" if utc else "")
    return _Stored(name, _Bounds(text, text))


# --- the plan


@dataclass(frozen=True, slots=True)
class _Leaf:
    index: int
    bounds: _Bounds | None
    path: Path = ()


@dataclass(frozen=True, slots=True)
class _Node:
    """A key of the statistics objects: of a leaf's value, or of an object for the fields of a struct."""

    key: str
    leaf: int = -1
    fields: tuple[_Node, ...] = ()


@dataclass(frozen=True, slots=True)
class FooterPlan:
    """How to read the footers of all files of one Parquet schema, and what is wrong with that schema."""

    schema: pq.ParquetSchema
    problems: tuple[str, ...]
    leaves: tuple[_Leaf, ...]
    tree: tuple[_Node, ...]
    required: tuple[tuple[str, int], ...]
    nested: pa.Schema | None

    def serves(self, meta: pq.FileMetaData) -> bool:
        """Is this the plan for the file?"""
        schema = meta.schema
        if not self.schema.equals(schema):
            return False
        # Parquet's equality looks at leaf columns alone: the names of structs are seen by Arrow's.
        return self.nested is None or bool(self.nested.equals(schema.to_arrow_schema()))

    def nulls(self, meta: pq.FileMetaData) -> list[str]:
        """The NOT NULL columns that hold nulls."""
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)] if self.required else []
        return [name for name, index in self.required if any(_null_count(group, index) for group in groups)]

    def stats(self, meta: pq.FileMetaData, floats: Mapping[Path, FloatBounds] | None = None) -> str:
        """The `add.stats` of a file of this schema. A writer that has seen the values gives the bounds of floats."""
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        orders_nan = _orders_nan(meta.created_by)
        leaves = [_leaf_stats(leaf, groups, orders_nan, (floats or {}).get(leaf.path)) for leaf in self.leaves]
        parts = [f'{{"numRecords":{meta.num_rows}']
        for part, key in enumerate(("minValues", "maxValues", "nullCount")):
            text = _object(self.tree, leaves, part)
            if text:
                parts.append(f'"{key}":{text}')
        return ",".join(parts) + "}"


_LeafStats = tuple[str | None, str | None, str | None]


@dataclass(slots=True)
class FloatBounds:
    """What a writer has seen of a column of floats. To Delta readers NaN is the largest value, and no bound says so:
    a file with one has none."""

    lowest: float = math.inf
    highest: float = -math.inf
    nulls: int = 0
    has_nan: bool = False

    def see(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Take more values into account."""
        self.nulls += values.null_count
        if values.null_count == len(values):
            return
        self.has_nan = self.has_nan or bool(pc.any(pc.is_nan(values)).as_py())
        if not self.has_nan:
            ends = pc.min_max(values).as_py()
            self.lowest, self.highest = min(self.lowest, ends["min"]), max(self.highest, ends["max"])

    def texts(self) -> _LeafStats:
        """As JSON, which has no infinity."""
        if self.has_nan or not (math.isfinite(self.lowest) and math.isfinite(self.highest)):
            return None, None, str(self.nulls)
        return repr(self.lowest), repr(self.highest), str(self.nulls)


def _object(nodes: tuple[_Node, ...], leaves: list[_LeafStats], part: int) -> str:
    """One of the statistics objects; empty when no leaf has that statistic."""
    members = []
    for node in nodes:
        text = _object(node.fields, leaves, part) if node.leaf < 0 else leaves[node.leaf][part]
        if text:
            members.append(node.key + text)
    return "{" + ",".join(members) + "}" if members else ""


def _null_count(group: pq.RowGroupMetaData, index: int) -> int:
    statistics = group.column(index).statistics
    return (statistics.null_count or 0) if statistics else 0


def _leaf_stats(
    leaf: _Leaf, groups: list[pq.RowGroupMetaData], orders_nan: bool, floats: FloatBounds | None
) -> _LeafStats:
    """Lower bound, upper bound and null count over all row groups, as JSON; None where one is unknown."""
    if floats is not None:
        return floats.texts()
    nulls: int | None = 0
    bounds = None if leaf.bounds is _FLOAT and not orders_nan else leaf.bounds
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
            # A group of nothing but nulls has no bounds and needs none.
            if count != group.num_rows:
                bounds = None
            continue
        low, high = statistics.min_raw, statistics.max_raw
        if bounds is _FLOAT and (math.isnan(low) or math.isnan(high)):
            bounds = None
            continue
        if bounds.order is not None:
            low, high = bounds.order(low), bounds.order(high)
        if lowest is None or low < lowest:
            lowest = low
        if highest is None or high > highest:
            highest = high
    text = None if nulls is None else str(nulls)
    # A writer that stores one bound only shows up as bounds in the wrong order.
    if bounds is None or lowest is None or highest is None or lowest > highest:
        return None, None, text
    return bounds.lower(lowest), bounds.upper(highest), text


def plan_footers(
    file_schema: pq.ParquetSchema,
    schema: pa.Schema,
    partition_columns: Collection[str],
    indexed: Collection[Path],
) -> FooterPlan:
    """Compare a file's schema with the table's, and find the columns whose statistics are kept."""
    try:
        columns = file_schema.to_arrow_schema()
    except pa.ArrowException as error:
        return FooterPlan(file_schema, (f"its schema cannot be read ({error})",), (), (), (), None)
    walk = _Walk(file_schema, indexed, partition_columns)
    tree = walk.fields(schema, columns, 0, (), certain=True)
    flat = not any(pa.types.is_nested(_storage(column.type)) for column in columns)
    return FooterPlan(
        file_schema,
        tuple(walk.problems),
        tuple(walk.leaves),
        tree,
        tuple(walk.required),
        None if flat else columns,
    )


# Spark leaves this column, all null, in data files that it writes beside a change data feed.
_CHANGE_TYPE = "_change_type"


def _storage(type_: pa.DataType) -> pa.DataType:
    return _storage(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else type_


def _width(type_: pa.DataType) -> int:
    """How many Parquet columns an Arrow type takes."""
    type_ = _storage(type_)
    if not pa.types.is_nested(type_):
        return 1
    return sum(_width(type_.field(i).type) for i in range(type_.num_fields))


class _Walk:
    """One walk down the table's schema and the file's, side by side.

    Parquet names its columns by dotted paths, in which a column `a.b` and a field b of a look the same, so
    columns are found by counting leaves instead.
    """

    def __init__(self, schema: pq.ParquetSchema, indexed: Collection[Path], partition_columns: Collection[str]) -> None:
        self.schema, self.indexed, self.partition_columns = schema, indexed, partition_columns
        self.problems: list[str] = []
        self.leaves: list[_Leaf] = []
        self.required: list[tuple[str, int]] = []

    def fields(self, table: Any, file: Any, first: int, parent: Path, *, certain: bool) -> tuple[_Node, ...]:
        """Match the fields of a struct (or the columns of the table); `certain`: no parent can be null."""
        places = {}
        for field in file:
            if field.name in places:
                self.problems.append(f"column {_dotted(parent, field.name)} is in the file twice")
            places[field.name] = _storage(field.type), first
            first += _width(field.type)
        nodes = []
        for field in table:
            if field.name in places:
                file_type, index = places.pop(field.name)
                known = certain and not field.nullable
                node = self.column(field.type, file_type, index, (*parent, field.name), certain=known)
                nodes += [node] if node else []
            elif not (field.nullable or (not parent and field.name in self.partition_columns)):
                self.problems.append(f"column {_dotted(parent, field.name)} is NOT NULL and not in the file")
        self._extra(places, [field.name for field in table], parent)
        return tuple(nodes)

    def column(
        self, table: pa.DataType, file: pa.DataType, index: int, path: Path, *, certain: bool = False
    ) -> _Node | None:
        """Match one column; the node for its statistics if it gets any."""
        types = pa.types
        key = _quote(path[-1]) + ":"
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
        stored, wanted = _stored(column), primitive_name(table) or str(table)
        if stored.name != wanted and stored.name not in _READ_AS.get(wanted, ()):
            self._differs(path, stored.name, wanted)
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

    def _extra(self, names: Collection[str], known: list[str], parent: Path) -> None:
        by_case = {name.lower(): name for name in known}
        for name in names:
            if not parent and name == _CHANGE_TYPE:
                continue
            twin = by_case.get(name.lower())
            hint = f", which has {twin!r}" if twin else ""
            self.problems.append(f"column {_dotted(parent, name)} is not in the table{hint}")


def _dotted(parent: Path, name: str) -> str:
    return repr(".".join((*parent, name)))
