"""Checks of values in staged file actions: labels, unknown fields, and deletion vectors that are part of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pyroaring import BitMap64

from deltasql.errors import ValidationError
from deltasql.protocol.actions import Add, Cdc, DeletionVector, Remove
from deltasql.protocol.deletion_vectors import INLINE, checked, file_of, inline_bytes
from deltasql.protocol.statistics import num_records
from deltasql.protocol.table_changes import Changes, TableState

_MOST = 2**31 - 1
"""The largest size and offset of a deletion vector, which Delta stores in 32 bits."""


def check_labels(changes: Changes, table: str) -> None:
    """Raise for tags, clustering providers and unknown fields of a wrong type."""
    files: list[Remove | Cdc] = [*changes.removes, *changes.cdc]
    all_tags = [*changes.of_adds("tags"), *(file.tags for file in files)]
    for tags in all_tags if all_tags.count(None) < len(all_tags) else ():
        if tags is not None and not _is_text_map(tags):
            raise _invalid(table, f"tags must map strings to strings or None, got {tags!r}", tags)
    providers = changes.of_adds("clustering_provider")
    for provider in providers if providers.count(None) < len(providers) else ():
        if provider is not None and type(provider) is not str:
            raise _invalid(table, f"clustering_provider must be a string, got {provider!r}", provider)
    extras = [*changes.of_adds("extra"), *(file.extra for file in files)]
    for extra in extras if any(extras) or set(map(type, extras)) - {dict} else ():
        _check_extra(extra, table)


def _check_extra(extra: Any, table: str) -> None:
    if not isinstance(extra, dict) or not all(type(key) is str for key in extra):
        raise _invalid(table, f"extra must be a dict of unknown fields by name, got {extra!r}", extra)
    try:
        text = msgspec.json.encode(extra) if extra else b""
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _invalid(table, f"extra must hold values of JSON, got {extra!r} ({error})", extra) from None
    if b"\\u0000" in text:
        raise _invalid(table, "extra must not contain NUL characters", extra)


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
            problem = f"{name} of the deletion vector of {add.path!r} must be a whole number from 0, got {value!r}"
            raise _invalid(state.name, problem, value)
    for name, text in (("storage_type", vector.storage_type), ("path_or_inline_dv", vector.path_or_inline_dv)):
        if type(text) is not str:
            problem = f"{name} of the deletion vector of {add.path!r} must be a string, got {text!r}"
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
