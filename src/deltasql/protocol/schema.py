"""Conversions of schemas: from DDL, Spark or Arrow to Delta's `schemaString`, and from there to Arrow.

A schema is handled as the JSON that Delta stores, so that unknown field metadata is preserved. pyspark is not imported:
a StructType is anything with a method `jsonValue()`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from deltasql.errors import UnsupportedFeature, ValidationError

Json = dict[str, Any]
DeltaType = str | Json


class StructTypeLike(Protocol):
    """The part of a pyspark StructType that is used here."""

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
_DEEPEST = 100
_DECIMAL_RANGE = f"the precision is from 1 to {_MAX_PRECISION}, the scale from 0 to the precision"
_CHAR = re.compile(r"(?:var)?char\(\s*\d+\s*\)")
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
PHYSICAL_NAME = "delta.columnMapping.physicalName"


def schema_string(schema: str | pa.Schema | StructTypeLike, *, table: str | None = None) -> str:
    """Return the schemaString of a DDL column list, a schemaString, a pyspark StructType or a pyarrow.Schema."""
    try:
        struct = _struct(schema, table)
        _check_type(struct, "", table)
        text = _dumps(struct_type([_without_char(field) for field in struct["fields"]]))
        _check_unicode(text, table)
    except RecursionError:
        raise invalid(f"the schema is nested too deeply: {_DEEPEST} levels at most", table, schema) from None
    return text


def _struct(schema: Any, table: str | None) -> Any:
    """Return the JSON of a schema in any of its forms, not checked."""
    if isinstance(schema, str):
        return _loads(schema, table) if schema.lstrip().startswith("{") else _from_ddl(schema, table)
    if isinstance(schema, pa.Schema):
        _check_arrow_depth(schema, table)
        return struct_type([_from_arrow_field(field, "", table) for field in schema])
    if hasattr(schema, "jsonValue"):
        return schema.jsonValue()
    raise invalid(
        f"a schema must be DDL such as 'id BIGINT NOT NULL, day DATE', a pyarrow.Schema or a pyspark "
        f"StructType, got {type(schema).__name__}",
        table,
        schema,
    )


def _check_unicode(text: str, table: str | None) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"the schema is not valid Unicode: {error}", table, text) from None


def _from_ddl(text: str, table: str | None) -> Json:
    from deltasql.protocol.schema_ddl import Ddl

    return struct_type(Ddl(text, table).columns())


@lru_cache(maxsize=256)
def arrow_schema(schema_string: str) -> pa.Schema:
    """Return the Arrow schema of a schemaString. Field metadata is kept, each value as JSON."""
    return pa.schema([_arrow_field(field) for field in parse_schema(schema_string)["fields"]])


def invalid(problem: str, table: str | None, value: Any) -> ValidationError:
    """Return the error for an invalid schema, with the table if it is known."""
    return ValidationError(f"table {table}: {problem}" if table else problem, table=table, value=value)


def unsupported(problem: str, table: str | None, feature: str) -> UnsupportedFeature:
    """Return the error for an unsupported type or clause, with the table if it is known."""
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


def parse_schema(text: str, table: str | None = None) -> Json:
    """Return the JSON of a schemaString; raise if it is malformed or has an unsupported type."""
    struct = _loads(text, table)
    _check_type(struct, "", table)
    if not text.isascii() or "\\u" in text:
        _check_unicode(_dumps(struct), table)
    return struct


def _loads(text: str, table: str | None) -> Json:
    try:
        struct = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise invalid(f"the schemaString is not JSON ({error}): {str(text)[:120]!r}", table, text) from None
    if not isinstance(struct, dict) or struct.get("type") != "struct":
        raise invalid(f'a schemaString must be a JSON object with "type":"struct", got {text[:120]!r}', table, text)
    return struct


def _check_type(type_: Any, path: str, table: str | None, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise invalid(f"column {path[:80]!r}… is nested more than {_DEEPEST} levels deep", table, type_)
    match type_:
        case str():
            _check_primitive(type_, path, table)
        case {"type": "struct", "fields": [*fields]}:
            for field in fields:
                _check_field(field, path, table, depth)
        case {"type": "array", "elementType": element, "containsNull": bool()}:
            _check_type(element, join_path(path, "element"), table, depth + 1)
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": bool()}:
            _check_type(key, join_path(path, "key"), table, depth + 1)
            _check_type(value, join_path(path, "value"), table, depth + 1)
            if key in _VOID:
                raise invalid(f"column {path!r}: the keys of a map must not be void", table, type_)
        case _:
            where = f"the type of column {path!r}" if path else "the schema"
            raise invalid(f"malformed schemaString: {where} is {_dumps(type_)[:120]}", table, type_)


def _check_field(field: Any, path: str, table: str | None, depth: int) -> None:
    match field:
        case {"name": str(name), "type": type_} if isinstance(field.get("nullable", True), bool) and isinstance(
            field.get("metadata") or {}, dict
        ):
            _check_type(type_, join_path(path, name), table, depth + 1)
        case _:
            where = f"a field of column {path!r}" if path else "a field"
            raise invalid(f"malformed schemaString: {where} is {_dumps(field)[:120]}", table, field)


def _check_primitive(name: str, path: str, table: str | None) -> None:
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = map(int, decimal.groups())
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise invalid(f"column {path!r}: {name} is out of range: {_DECIMAL_RANGE}", table, name)
    elif name not in _ARROW and not _CHAR.fullmatch(name):
        raise unsupported(
            f"column {path!r} has type {name}, which this release of deltasql does not support: "
            f"leave the column out, or store it as string or binary",
            table,
            name,
        )


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def child_types(type_: DeltaType) -> list[tuple[str, DeltaType]]:
    """Return the types directly inside a type, each with its name in a column path."""
    if isinstance(type_, str):
        return []
    named = [(field["name"], field["type"]) for field in type_.get("fields", ())]
    return named + [(name, type_[name + "Type"]) for name in ("element", "key", "value") if name + "Type" in type_]


def primitive_types(type_: DeltaType) -> Iterator[str]:
    """Yield the names of all primitive types in a type."""
    if isinstance(type_, str):
        yield type_
    for _, child in child_types(type_):
        yield from primitive_types(child)


def all_fields(type_: DeltaType) -> Iterator[Json]:
    """Yield every field of every struct in a type."""
    if not isinstance(type_, str):
        yield from type_.get("fields", ())
    for _, child in child_types(type_):
        yield from all_fields(child)


# --- CHAR and VARCHAR: Delta stores strings, and Spark reads the declared type from the field metadata


def _without_char(field: Json) -> Json:
    if not any(map(_CHAR.fullmatch, primitive_types(field["type"]))):
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
    """Return a type as Spark's catalog writes it."""
    if isinstance(type_, str):
        return _CATALOG.get(type_, type_)
    named = type_["type"] == "struct"
    inside = [(f"{name}:" if named else "") + _catalog_string(child) for name, child in child_types(type_)]
    return f"{type_['type']}<{','.join(inside)}>"


# --- Delta to Arrow


def _arrow_field(field: Json) -> pa.Field:
    metadata = {key: _dumps(value) for key, value in (field.get("metadata") or {}).items()}
    return _nullable(field["name"], field["type"], field.get("nullable", True), metadata)


def _nullable(name: str, type_: DeltaType, nullable: bool, metadata: Mapping[str, str] | None = None) -> pa.Field:
    # Arrow requires fields of type null to be nullable.
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
    """Return the columns of data files: names and types, all nullable, without metadata."""
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


def by_alias(aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each alias, from names with their aliases joined by `|`."""
    return {alias: name for name, joined in aliases.items() for alias in joined.split("|")}


_FROM_ARROW = by_alias(
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
_HINTS: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (pa.types.is_uint64, "cast it to int64, or to decimal128(20, 0) when values reach 2^63"),
    (pa.types.is_time, "cast it to int64 or string"),
    (pa.types.is_duration, "cast it to int64"),
    (pa.types.is_interval, "cast it to string, or store its parts in separate columns"),
    (pa.types.is_union, "make it a struct with one nullable field per member"),
    (pa.types.is_decimal, f"cast it to a decimal where {_DECIMAL_RANGE}"),
    (lambda type_: isinstance(type_, pa.BaseExtensionType), "cast it to its storage type"),
)
# Spark reads these values as text, so they stay text even if they are valid JSON.
_TEXT_METADATA = {"comment", "CURRENT_DEFAULT", "EXISTS_DEFAULT", _CHAR_METADATA, PHYSICAL_NAME}
_TEXT_METADATA |= {"delta.generationExpression", "delta.invariants"}
# Metadata that pyarrow adds to fields of one file or process, and that does not belong to the table.
_ARROW_METADATA = ("PARQUET:", "ARROW:")
_LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")


def _check_arrow_depth(schema: pa.Schema, table: str | None) -> None:
    """Raise for types that are nested too deeply, before anything else looks at them: each look takes all levels."""
    waiting = [(field.type, 0) for field in schema]
    while waiting:
        type_, depth = waiting.pop()
        if depth > _DEEPEST:
            raise invalid(f"the schema is nested more than {_DEEPEST} levels deep", table, None)
        waiting += ((type_.field(i).type, depth + 1) for i in range(type_.num_fields))


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
        hint = next((hint for test, hint in _HINTS if test(type_)), "cast it to a type that Delta supports")
        raise unsupported(
            f"column {path!r} is {type_} in Arrow, which Delta does not support: {hint}", table, str(type_)
        )
    return delta


def primitive_name(type_: pa.DataType) -> str | None:
    """Return Delta's name of a primitive Arrow type, or None if Delta has no such type."""
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= _MAX_PRECISION:
        return f"decimal({type_.precision},{type_.scale})"
    return "binary" if pa.types.is_fixed_size_binary(type_) else _FROM_ARROW.get(str(type_))


def is_list(type_: pa.DataType) -> bool:
    """Return whether an Arrow type is any kind of list."""
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
