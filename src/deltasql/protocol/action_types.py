"""Checks that the fields of staged actions have the types of the Delta protocol. Python does not check them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from deltasql.errors import ValidationError, shown
from deltasql.protocol.actions import Action, DeletionVector, Format

_INT64 = range(-(2**63), 2**63)
_DEEPEST = 100
"""The most levels of lists and objects in each other; some readers of the log accept 128."""


def check_field_types(action: Action, table: str) -> None:
    """Raise for the first field of an action that has another type than the protocol gives it."""
    names = dict(zip(action.__struct_fields__, action.__struct_encode_fields__, strict=True))
    values = {names[name]: getattr(action, name) for name in names}
    check_extra(action, action.kind, table)
    for name, value in values.items():
        if isinstance(value, Format):
            check_extra(value, "format", table)
            values[name] = {"provider": value.provider, "options": value.options, "extra": value.extra}
        elif type(value) is int and value not in _INT64:
            raise _invalid(f"{name} of {action.kind} must be a 64-bit integer, got {shown(value)}", value, table)
    for name, value in values.items():
        if isinstance(value, dict):
            check_json(f"{name} of {action.kind}", value, table)
    try:
        msgspec.convert(values, type(action))
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:
        problem, _, path = str(error).partition(" - at `$")
        name = path.strip("`.") or "a field"
        raise _invalid(f"{name} of {action.kind}: {problem[:1].lower()}{problem[1:]}", action, table) from None


def check_file_keys(paths: Sequence[Any], vectors: Sequence[Any], table: str) -> None:
    """Raise if a path or a deletion vector of files, which identify them, has another type."""
    for path in paths if set(map(type, paths)) - {str} else ():
        if type(path) is not str:
            raise _invalid(f"the path of a file must be a string, got {shown(path)}", path, table)
    for vector in vectors if set(map(type, vectors)) - {type(None)} else ():
        if vector is not None:
            _check_vector(vector, table)


def _check_vector(vector: Any, table: str) -> None:
    if not isinstance(vector, DeletionVector):
        raise _invalid(f"deletion_vector must be a DeletionVector, got {shown(vector)}", vector, table)
    for name in ("storage_type", "path_or_inline_dv"):
        if type(value := getattr(vector, name)) is not str:
            raise _invalid(f"{name} of a deletion vector must be a string, got {shown(value)}", value, table)
    check_extra(vector, "a deletion vector", table)


def check_extra(fields: Action | DeletionVector | Format, what: str, table: str) -> None:
    """Raise if the unknown fields of an action are not JSON, or have the name of a field that the action has."""
    extra: Any = fields.extra  # type: ignore[union-attr]
    if not isinstance(extra, dict) or not all(type(name) is str for name in extra):
        raise _invalid(f"extra of {what} must be a dict of unknown fields by name, got {shown(extra)}", extra, table)
    for name in extra.keys() & (set(fields.__struct_encode_fields__) - {"extra"}):
        raise _invalid(f"extra of {what} has {name!r}, which is not an unknown field: give it as such", name, table)
    check_json(f"extra of {what}", extra, table)


def check_json(what: str, value: Any, table: str) -> None:
    """Raise if a value cannot be written as JSON, or is nested so deeply that readers of the log reject it."""
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        if depth > _DEEPEST:
            raise _invalid(f"{what} is nested more than {_DEEPEST} levels deep", value, table)
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        waiting += ((each, depth + 1) for each in inner)
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _invalid(f"{what} must hold values of JSON, got {shown(value)} ({error})", value, table) from None


def _invalid(problem: str, value: Any, table: str) -> ValidationError:
    return ValidationError(f"table {table}: {problem}", table=table, value=value)
