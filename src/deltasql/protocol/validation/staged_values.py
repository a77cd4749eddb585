"""Checks of values in staged file actions: labels, unknown fields, and deletion vectors that are part of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pyroaring import BitMap64

from deltasql.errors import ValidationError, shown
from deltasql.protocol.action_types import check_extra
from deltasql.protocol.actions import Add, Cdc, DeletionVector, Remove
from deltasql.protocol.deletion_vectors import INLINE, checked, file_of, inline_bytes
from deltasql.protocol.statistics import num_records
from deltasql.protocol.table_changes import Changes, TableState

_MOST = 2**31 - 1
"""The largest size and offset of a deletion vector, which Delta stores in 32 bits."""


def check_labels(changes: Changes, table: str) -> None:
    """Raise for tags, clustering providers and unknown fields of a wrong type."""
    files: list[Remove | Cdc] = [*changes.removes, *changes.cdc]
    check_maps("tags", [*changes.of_adds("tags"), *(file.tags for file in files)], table)
    providers = changes.of_adds("clustering_provider")
    for provider in providers if providers.count(None) < len(providers) else ():
        if provider is not None and type(provider) is not str:
            raise _invalid(table, f"clustering_provider must be a string, got {shown(provider)}", provider)
    extras = [*changes.of_adds("extra"), *(file.extra for file in files)]
    for file in (*changes.adds, *files) if any(extras) or set(map(type, extras)) - {dict} else ():
        _check_extra(file, table)


def check_maps(what: str, values: Sequence[Any], table: str) -> None:
    """Raise for a value that is neither None nor a map of texts."""
    for value in values if values.count(None) < len(values) else ():
        if value is not None and not _is_text_map(value):
            raise _invalid(table, f"{what} must map strings to strings or None, got {shown(value)}", value)


def _check_extra(file: Add | Remove | Cdc, table: str) -> None:
    if file.extra != {}:
        check_extra(file, file.kind, table)
        if b"\\u0000" in msgspec.json.encode(file.extra):
            raise _invalid(table, "extra must not contain NUL characters", file.extra)


def _is_text_map(values: Any) -> bool:
    return isinstance(values, dict) and all(
        type(key) is str and (value is None or type(value) is str) and "\x00" not in f"{key}{value}"
        for key, value in values.items()
    )


def check_vectors(changes: Changes, state: TableState) -> None:
    """Raise for deletion vectors that cannot be decoded, or have more or other rows than their files."""
    for add in changes.adds:
        if add.deletion_vector is not None:
            _check_vector(add, add.deletion_vector, state)


def _check_vector(add: Add, vector: DeletionVector, state: TableState) -> None:
    numbers: Sequence[tuple[str, Any, int]] = (
        ("size_in_bytes", vector.size_in_bytes, _MOST),
        ("cardinality", vector.cardinality, 2**63 - 1),
        ("offset", 0 if vector.offset is None else vector.offset, _MOST),
    )
    for name, value, most in numbers:
        if type(value) is not int or not 0 <= value <= most:
            problem = f"{name} of the deletion vector of {add.path!r} must be a whole number from 0, got {shown(value)}"
            raise _invalid(state.name, problem, value)
    for name, text in (("storage_type", vector.storage_type), ("path_or_inline_dv", vector.path_or_inline_dv)):
        if type(text) is not str:
            problem = f"{name} of the deletion vector of {add.path!r} must be a string, got {shown(text)}"
            raise _invalid(state.name, problem, text)
    file_of(vector, state.location, state.name)
    records = num_records(add.stats)
    if type(records) is int and vector.cardinality > records:
        problem = f"the deletion vector of {add.path!r} has {vector.cardinality} rows, and the file only {records}"
        raise _invalid(state.name, problem, vector.cardinality)
    if vector.storage_type == INLINE:
        try:
            rows = checked(inline_bytes(vector), vector)
        except ValueError as error:
            problem = f"the deletion vector of {add.path!r} cannot be decoded: {error}"
            raise _invalid(state.name, problem, vector.path_or_inline_dv) from None
        check_rows(add, rows, state.name)


def check_rows(add: Add, rows: BitMap64, table: str) -> None:
    """Raise if a deletion vector has rows that its file does not have."""
    records = num_records(add.stats)
    if rows and type(records) is int and rows.max() >= records:
        problem = f"the deletion vector of {add.path!r} deletes row {rows.max()}, and the file has {records} rows"
        raise _invalid(table, problem, rows.max())


def _invalid(table: str, problem: str, value: Any) -> ValidationError:
    return ValidationError(f"table {table}: {problem}", table=table, value=value)
