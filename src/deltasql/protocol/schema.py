"""Delta schemas: DDL, Spark or Arrow to Delta's `schemaString`, that to Arrow, and whether one is legal.

A schema is handled as the JSON that Delta stores, so field metadata this release does not know survives.
Nothing here knows pyspark (a StructType is whatever has `jsonValue()`), files or tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from deltasql.errors import UnsupportedFeature, ValidationError, did_you_mean

Json = dict[str, Any]
DeltaType = str | Json


class StructTypeLike(Protocol):
    """What this module asks of a pyspark StructType."""

    def jsonValue(self) -> Any: ...


_ARROW: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "null": pa.null(),
}
_VOID = ("void", "null")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MAX_PRECISION = 38
_DECIMAL_RANGE = f"the precision goes from 1 to {_MAX_PRECISION}, the scale from 0 to the precision"
_CHAR = re.compile(r"(?:var)?char\(\s*\d+\s*\)")
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def schema_string(schema: str | pa.Schema | StructTypeLike, *, table: str | None = None) -> str:
    """The schemaString of a DDL column list, a schemaString, a pyspark StructType or a pyarrow.Schema."""
    if isinstance(schema, str):
        is_json = schema.lstrip().startswith("{")
        struct = _loads(schema, table) if is_json else _from_ddl(schema, table)
    elif isinstance(schema, pa.Schema):
        struct = struct_type([_from_arrow_field(field, "", table) for field in schema])
    elif hasattr(schema, "jsonValue"):
        struct = schema.jsonValue()
    else:
        raise invalid(
            f"a schema is DDL such as 'id BIGINT NOT NULL, day DATE', a pyarrow.Schema or a pyspark "
            f"StructType, got {type(schema).__name__}",
            table,
            schema,
        )
    _check_type(struct, "", table)
    return _dumps(struct_type([_without_char(field) for field in struct["fields"]]))


def _from_ddl(text: str, table: str | None) -> Json:
    from deltasql.protocol.schema_ddl import Ddl

    return struct_type(Ddl(text, table).columns())


@lru_cache(maxsize=256)
def arrow_schema(schema_string: str) -> pa.Schema:
    """The Arrow schema of a Delta table; Delta's field metadata becomes Arrow's, each value as JSON."""
    return pa.schema([_arrow_field(field) for field in _parse(schema_string)["fields"]])


def schema_types(schema_string: str) -> set[str]:
    """The names of the primitive types used anywhere, decimals without their precision."""
    return {name.partition("(")[0] for name in _primitives(_parse(schema_string))}


def schema_metadata_keys(schema_string: str) -> set[str]:
    """The keys of field metadata used anywhere: some of them switch table features on."""
    return {key for field in _fields(_parse(schema_string)) for key in field.get("metadata") or ()}


def has_required_fields(schema_string: str) -> bool:
    """Is there a field that must not be null?"""
    return any(not field.get("nullable", True) for field in _fields(_parse(schema_string)))


def invalid(problem: str, table: str | None, value: Any) -> ValidationError:
    return ValidationError(f"table {table}: {problem}" if table else problem, table=table, value=value)


def unsupported(problem: str, table: str | None, feature: str) -> UnsupportedFeature:
    text = f"table {table}: {problem}" if table else problem
    return UnsupportedFeature(text, features=(feature,), table=table)


# --- schemaString


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def struct_type(fields: list[Json]) -> Json:
    return {"type": "struct", "fields": fields}


def array_type(element: DeltaType, contains_null: bool = True) -> Json:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def map_type(key: DeltaType, value: DeltaType, contains_null: bool = True) -> Json:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": contains_null}


def struct_field(name: str, type_: DeltaType, nullable: bool, metadata: Json) -> Json:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def _parse(text: str, table: str | None = None) -> Json:
    """The JSON of a schemaString, known to be well formed and to hold only types this release knows."""
    struct = _loads(text, table)
    _check_type(struct, "", table)
    return struct


def _loads(text: str, table: str | None) -> Json:
    try:
        struct = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise invalid(f"the schemaString is not JSON ({error}): {str(text)[:120]!r}", table, text) from None
    if not isinstance(struct, dict) or struct.get("type") != "struct":
        raise invalid(f'a schemaString is a JSON object of "type":"struct", got {text[:120]!r}', table, text)
    return struct


def _check_type(type_: Any, path: str, table: str | None) -> None:
    match type_:
        case str():
            _check_primitive(type_, path, table)
        case {"type": "struct", "fields": [*fields]}:
            for field in fields:
                _check_field(field, path, table)
        case {"type": "array", "elementType": element, "containsNull": bool()}:
            _check_type(element, join_path(path, "element"), table)
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": bool()}:
            _check_type(key, join_path(path, "key"), table)
            _check_type(value, join_path(path, "value"), table)
            if key in _VOID:
                raise invalid(f"column {path!r}: the keys of a map cannot be void", table, type_)
        case _:
            where = f"the type of column {path!r}" if path else "the schema"
            raise invalid(f"malformed schemaString: {where} reads {_dumps(type_)[:120]}", table, type_)


def _check_field(field: Any, path: str, table: str | None) -> None:
    match field:
        case {"name": str(name), "type": type_} if isinstance(field.get("nullable", True), bool) and isinstance(
            field.get("metadata") or {}, dict
        ):
            _check_type(type_, join_path(path, name), table)
        case _:
            where = f"a field of column {path!r}" if path else "a field"
            raise invalid(f"malformed schemaString: {where} reads {_dumps(field)[:120]}", table, field)


def _check_primitive(name: str, path: str, table: str | None) -> None:
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = map(int, decimal.groups())
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise invalid(f"column {path!r}: {name} is out of range: {_DECIMAL_RANGE}", table, name)
    elif name not in _ARROW and not _CHAR.fullmatch(name):
        raise unsupported(
            f"column {path!r} has type {name}, which this release of deltasql does not know: "
            f"leave the column out, or store it as string or binary",
            table,
            name,
        )


def changed_types(before: str, after: str) -> list[str]:
    """The columns, nested ones included, that two schemas share and give different types: what each was and became."""
    return list(_changed("", _parse(before), _parse(after)))


def _changed(path: str, before: DeltaType, after: DeltaType) -> Iterator[str]:
    was, became = _kind(before), _kind(after)
    if was != became:
        yield f"{path} from {was} to {became}"
        return
    names = {name.lower(): child for name, child in _children(after)}
    for name, child in _children(before):
        if name.lower() in names:
            yield from _changed(join_path(path, name), child, names[name.lower()])


def dropped_columns(before: str, after: str) -> list[str]:
    """The columns, nested ones included, that the first of two schemas has and the second has not."""
    return list(_dropped("", _parse(before), _parse(after)))


def _dropped(path: str, before: DeltaType, after: DeltaType) -> Iterator[str]:
    names = {name.lower(): child for name, child in _children(after)}
    for name, child in _children(before):
        if name.lower() in names:
            yield from _dropped(join_path(path, name), child, names[name.lower()])
        else:
            yield join_path(path, name)


def tightened(before: str, after: str) -> list[str]:
    """The columns, fields of structs included, that may be null in the first of two schemas and not in the second."""
    return list(_tightened("", _parse(before), _parse(after)))


def _tightened(path: str, before: DeltaType, after: DeltaType) -> Iterator[str]:
    if isinstance(before, str) or isinstance(after, str):
        return
    known = {field["name"].lower(): field for field in before.get("fields", ())}
    for field in after.get("fields", ()):
        was = known.get(field["name"].lower())
        place = join_path(path, field["name"])
        if not field.get("nullable", True) and (was is None or was.get("nullable", True)):
            yield place
        if was is not None:
            yield from _tightened(place, was["type"], field["type"])


def _kind(type_: DeltaType) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _children(type_: DeltaType) -> list[tuple[str, DeltaType]]:
    """The types right inside a type, each with the name its column path gets."""
    if isinstance(type_, str):
        return []
    named = [(field["name"], field["type"]) for field in type_.get("fields", ())]
    return named + [(name, type_[name + "Type"]) for name in ("element", "key", "value") if name + "Type" in type_]


def _primitives(type_: DeltaType) -> Iterator[str]:
    if isinstance(type_, str):
        yield type_
    for _, child in _children(type_):
        yield from _primitives(child)


def _fields(type_: DeltaType) -> Iterator[Json]:
    """Every field of every struct."""
    if not isinstance(type_, str):
        yield from type_.get("fields", ())
    for _, child in _children(type_):
        yield from _fields(child)


# --- CHAR and VARCHAR: Delta stores strings, and Spark finds the declared type in the column's metadata


def _without_char(field: Json) -> Json:
    if not any(map(_CHAR.fullmatch, _primitives(field["type"]))):
        return field
    metadata = {**(field.get("metadata") or {}), _CHAR_METADATA: _catalog_string(field["type"])}
    return {**field, "type": _char_to_string(field["type"]), "metadata": metadata}


def _char_to_string(type_: DeltaType) -> DeltaType:
    if isinstance(type_, str):
        return "string" if _CHAR.fullmatch(type_) else type_
    if "fields" in type_:
        return struct_type([{**field, "type": _char_to_string(field["type"])} for field in type_["fields"]])
    return {key: _char_to_string(value) if key.endswith("Type") else value for key, value in type_.items()}


_CATALOG = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def _catalog_string(type_: DeltaType) -> str:
    """A type as Spark's catalog writes it."""
    if isinstance(type_, str):
        return _CATALOG.get(type_, type_)
    named = type_["type"] == "struct"
    inside = [(f"{name}:" if named else "") + _catalog_string(child) for name, child in _children(type_)]
    return f"{type_['type']}<{','.join(inside)}>"


# --- Delta to Arrow


def _arrow_field(field: Json) -> pa.Field:
    metadata = {key: _dumps(value) for key, value in (field.get("metadata") or {}).items()}
    return _nullable(field["name"], field["type"], field.get("nullable", True), metadata)


def _nullable(name: str, type_: DeltaType, nullable: bool, metadata: Mapping[str, str] | None = None) -> pa.Field:
    # Arrow has no field of nulls that is not nullable.
    return pa.field(name, _arrow_type(type_), nullable or type_ in _VOID, metadata or None)


def _arrow_type(type_: DeltaType) -> pa.DataType:
    if isinstance(type_, str):
        decimal = _DECIMAL.fullmatch(type_)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        return pa.string() if _CHAR.fullmatch(type_) else _ARROW[type_]
    if type_["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in type_["fields"]])
    if type_["type"] == "array":
        return pa.list_(_nullable("element", type_["elementType"], type_["containsNull"]))
    value = _nullable("value", type_["valueType"], type_["valueContainsNull"])
    return pa.map_(_nullable("key", type_["keyType"], False), value)


def loose_schema(schema: pa.Schema, without: Collection[str] = ()) -> pa.Schema:
    """Columns as data files have them: names and types alone. What may be null is the table's to say."""
    return pa.schema([_loose_field(field) for field in schema if field.name not in without])


def _loose_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _loose_type(field.type))


def _loose_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_loose_field(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_loose_type(type_.key_type), _loose_type(type_.item_type))
    return pa.list_(pa.field("element", _loose_type(type_.value_type))) if pa.types.is_list(type_) else type_


# --- Arrow to Delta


def inverted(words: Mapping[str, str]) -> dict[str, str]:
    return {word: name for name, many in words.items() for word in many.split("|")}


_FROM_ARROW = inverted(
    {
        "byte": "int8",
        "short": "int16|uint8",
        "integer": "int32|uint16",
        "long": "int64|uint32",
        "float": "float|halffloat",
        "double": "double",
        "boolean": "bool",
        "string": "string|large_string|string_view",
        "binary": "binary|large_binary|binary_view",
        "date": "date32[day]|date64[ms]",
        "void": "null",
    }
)
_WAY_OUT: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (pa.types.is_uint64, "cast it to int64, or to decimal128(20, 0) when values reach 2^63"),
    (pa.types.is_time, "cast it to int64 or string"),
    (pa.types.is_duration, "cast it to int64"),
    (pa.types.is_interval, "cast it to string, or keep its parts in columns of their own"),
    (pa.types.is_union, "make it a struct with one nullable field per member"),
    (pa.types.is_decimal, f"cast it to a decimal where {_DECIMAL_RANGE}"),
    (lambda type_: isinstance(type_, pa.BaseExtensionType), "cast it to its storage type"),
)
# Spark reads these values as text, so they stay text even where they look like JSON.
_TEXT_METADATA = {"comment", "CURRENT_DEFAULT", "EXISTS_DEFAULT", _CHAR_METADATA, _PHYSICAL_NAME}
_TEXT_METADATA |= {"delta.generationExpression", "delta.invariants"}
# What pyarrow itself adds to fields: true of one file or one process, not of a table.
_ARROW_METADATA = ("PARQUET:", "ARROW:")
_LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")


def _from_arrow_field(field: pa.Field, path: str, table: str | None) -> Json:
    type_ = _from_arrow(field.type, join_path(path, field.name), table)
    texts = {key.decode(): value.decode(errors="replace") for key, value in (field.metadata or {}).items()}
    metadata = {k: _metadata_value(k, v) for k, v in texts.items() if not k.startswith(_ARROW_METADATA)}
    return struct_field(field.name, type_, field.nullable, metadata)


def _metadata_value(key: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if key in _TEXT_METADATA and not isinstance(value, str) else value


def _from_arrow(type_: pa.DataType, path: str, table: str | None) -> DeltaType:
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _from_arrow(type_.value_type, path, table)
    delta = primitive_name(type_) or _nested_from_arrow(type_, path, table)
    if delta is None:
        hint = next((hint for test, hint in _WAY_OUT if test(type_)), "cast it to a type that Delta has")
        raise unsupported(
            f"column {path!r} is {type_} in Arrow, a type that Delta does not have: {hint}", table, str(type_)
        )
    return delta


def primitive_name(type_: pa.DataType) -> str | None:
    """Delta's name for an Arrow type, if it is one of Delta's primitive types."""
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= _MAX_PRECISION:
        return f"decimal({type_.precision},{type_.scale})"
    return "binary" if pa.types.is_fixed_size_binary(type_) else _FROM_ARROW.get(str(type_))


def is_list(type_: pa.DataType) -> bool:
    """Is this one of Arrow's many kinds of list?"""
    return any(getattr(pa.types, f"is_{kind}")(type_) for kind in _LISTS)


def _nested_from_arrow(type_: pa.DataType, path: str, table: str | None) -> Json | None:
    if pa.types.is_struct(type_):
        return struct_type([_from_arrow_field(field, path, table) for field in type_])
    if pa.types.is_map(type_):
        key = _from_arrow(type_.key_type, join_path(path, "key"), table)
        value = _from_arrow(type_.item_type, join_path(path, "value"), table)
        return map_type(key, value, type_.item_field.nullable)
    if is_list(type_):
        return array_type(_from_arrow(type_.value_type, join_path(path, "element"), table), type_.value_field.nullable)
    return None


# --- is it legal?

_ILLEGAL_IN_NAME = re.compile(r"[ ,;{}()\n\t=]")


def validate_schema(schema_string: str, partition_columns: Sequence[str], table: str) -> None:
    """Refuse a schema, or a partitioning of it, that Delta readers would refuse."""
    struct = _parse(schema_string, table)
    if not struct["fields"]:
        raise invalid("a table needs at least one column", table, schema_string)
    _check_names(struct, "", table)
    _check_partitioning(struct, partition_columns, table)


def refuse_unchecked(schema_string: str, table: str) -> None:
    """NOT NULL of a field inside an array or a map is checked by no writer, Delta's included, which then refuse to
    write: so no table is made with one."""
    for path in _unchecked(_parse(schema_string, table), "", collected=False):
        raise invalid(
            f"field {path!r} is NOT NULL inside an array or a map, which nothing checks: leave NOT NULL out, or add a "
            f"CHECK constraint",
            table,
            path,
        )


def _unchecked(type_: DeltaType, path: str, *, collected: bool) -> Iterator[str]:
    if isinstance(type_, dict) and type_["type"] == "struct":
        for field in type_["fields"]:
            inner = join_path(path, field["name"])
            if collected and not field.get("nullable", True):
                yield inner
            yield from _unchecked(field["type"], inner, collected=collected)
    else:
        for name, inside in _children(type_):
            yield from _unchecked(inside, join_path(path, name), collected=True)


def _check_names(type_: DeltaType, path: str, table: str) -> None:
    seen: dict[str, str] = {}
    for field in [] if isinstance(type_, str) else type_.get("fields", ()):
        name = field["name"]
        _check_name(name, path, field.get("metadata") or {}, table)
        if name.lower() in seen:
            twin = join_path(path, seen[name.lower()])
            raise invalid(
                f"the columns {twin!r} and {join_path(path, name)!r} differ at most in case: "
                f"Delta column names ignore case, so rename one",
                table,
                name,
            )
        seen[name.lower()] = name
    for name, child in _children(type_):
        _check_names(child, join_path(path, name), table)


def _check_name(name: str, path: str, metadata: Json, table: str) -> None:
    if not name:
        raise invalid(f"a column{f' inside {path!r}' if path else ''} has an empty name: give it one", table, name)
    if _ILLEGAL_IN_NAME.search(name) and _PHYSICAL_NAME not in metadata:
        raise invalid(
            f"column {join_path(path, name)!r}: a column name in a Delta table cannot hold any of "
            f"' ,;{{}}()\\n\\t=': call it {_ILLEGAL_IN_NAME.sub('_', name).strip('_') or 'column'!r}",
            table,
            name,
        )


def _check_partitioning(struct: Json, partition_columns: Sequence[str], table: str) -> None:
    types = {field["name"]: field["type"] for field in struct["fields"]}
    for index, name in enumerate(partition_columns):
        if name not in types:
            raise invalid(f'partition column "{name}" does not exist{did_you_mean(str(name), types)}', table, name)
        if name in partition_columns[:index]:
            raise invalid(f"partition column {name!r} is given twice", table, name)
        if isinstance(types[name], dict):
            kind = types[name]["type"]
            raise invalid(f"partition column {name!r} is of type {kind}: partition by a simple type", table, name)
    if len(partition_columns) == len(types):
        raise invalid("every column is a partition column: leave at least one for the files to hold", table, None)
