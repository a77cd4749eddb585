"""Rules for schemas: which types and field metadata a schema uses, how two schemas differ, which schemas are legal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from deltasql.errors import did_you_mean
from deltasql.protocol.schema import (
    PHYSICAL_NAME,
    DeltaType,
    Json,
    all_fields,
    child_types,
    invalid,
    join_path,
    parse_schema,
    primitive_types,
)

_ILLEGAL_IN_NAME = re.compile(r"[ ,;{}()\n\t=]")


def schema_types(schema_string: str) -> set[str]:
    """Return the names of all primitive types, decimals without their precision."""
    return {name.partition("(")[0] for name in primitive_types(parse_schema(schema_string))}


def schema_metadata_keys(schema_string: str) -> set[str]:
    """Return all keys of field metadata. Some of them need table features."""
    return {key for field in all_fields(parse_schema(schema_string)) for key in field.get("metadata") or ()}


def has_required_fields(schema_string: str) -> bool:
    """Return whether any field is NOT NULL."""
    return any(not field.get("nullable", True) for field in all_fields(parse_schema(schema_string)))


# --- Differences between two schemas


def changed_types(before: str, after: str) -> list[str]:
    """Describe the columns, nested ones included, whose types differ between two schemas."""
    return list(_changed("", parse_schema(before), parse_schema(after)))


def _changed(path: str, before: DeltaType, after: DeltaType) -> Iterator[str]:
    was, became = _kind(before), _kind(after)
    if was != became:
        yield f"{path} from {was} to {became}"
        return
    names = {name.lower(): child for name, child in child_types(after)}
    for name, child in child_types(before):
        if name.lower() in names:
            yield from _changed(join_path(path, name), child, names[name.lower()])


def dropped_columns(before: str, after: str) -> list[str]:
    """Return the columns, nested ones included, that only the first of two schemas has."""
    return list(_dropped("", parse_schema(before), parse_schema(after)))


def _dropped(path: str, before: DeltaType, after: DeltaType) -> Iterator[str]:
    names = {name.lower(): child for name, child in child_types(after)}
    for name, child in child_types(before):
        if name.lower() in names:
            yield from _dropped(join_path(path, name), child, names[name.lower()])
        else:
            yield join_path(path, name)


def tightened(before: str, after: str) -> list[str]:
    """Return the columns, fields of structs included, that are NOT NULL only in the second of two schemas."""
    return list(_tightened("", parse_schema(before), parse_schema(after)))


def _tightened(path: str, before: DeltaType, after: DeltaType) -> Iterator[str]:
    if isinstance(before, str) or isinstance(after, str):
        return
    known = {field["name"].lower(): field for field in before.get("fields", ())}
    for field in after.get("fields", ()):
        was = known.get(field["name"].lower())
        column = join_path(path, field["name"])
        if not field.get("nullable", True) and (was is None or was.get("nullable", True)):
            yield column
        if was is not None:
            yield from _tightened(column, was["type"], field["type"])


def _kind(type_: DeltaType) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


# --- Legal schemas


def validate_schema(schema_string: str, partition_columns: Sequence[str], table: str) -> None:
    """Raise if Delta readers would reject a schema or its partition columns."""
    struct = parse_schema(schema_string, table)
    if not struct["fields"]:
        raise invalid("a table must have at least one column", table, schema_string)
    _check_names(struct, "", table)
    _check_partitioning(struct, partition_columns, table)


def reject_unchecked_not_null(schema_string: str, table: str) -> None:
    """Raise if a field inside an array or a map is NOT NULL: no writer checks it, and Delta's writer rejects it."""
    for path in _unchecked(parse_schema(schema_string, table), "", collected=False):
        raise invalid(
            f"field {path!r}: NOT NULL is not supported inside an array or a map: leave NOT NULL out, or add a CHECK "
            f"constraint",
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
        for name, inside in child_types(type_):
            yield from _unchecked(inside, join_path(path, name), collected=True)


def _check_names(type_: DeltaType, path: str, table: str) -> None:
    names: dict[str, str] = {}
    for field in [] if isinstance(type_, str) else type_.get("fields", ()):
        name = field["name"]
        _check_name(name, path, field.get("metadata") or {}, table)
        if name.lower() in names:
            twin = join_path(path, names[name.lower()])
            raise invalid(
                f"columns {twin!r} and {join_path(path, name)!r} differ at most in case: "
                f"column names are not case-sensitive, so rename one",
                table,
                name,
            )
        names[name.lower()] = name
    for name, child in child_types(type_):
        _check_names(child, join_path(path, name), table)


def _check_name(name: str, path: str, metadata: Json, table: str) -> None:
    if not name:
        raise invalid(f"a column{f' inside {path!r}' if path else ''} has an empty name: give it a name", table, name)
    if _ILLEGAL_IN_NAME.search(name) and PHYSICAL_NAME not in metadata:
        raise invalid(
            f"column {join_path(path, name)!r}: a column name must not contain any of "
            f"' ,;{{}}()\\n\\t=': name it {_ILLEGAL_IN_NAME.sub('_', name).strip('_') or 'column'!r}",
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
            raise invalid(f"partition column {name!r} has type {kind}: partition by a primitive type", table, name)
    if len(partition_columns) == len(types):
        raise invalid(
            "every column is a partition column: at least one column must be stored in the files", table, None
        )
