"""ALTER TABLE: change the properties, constraints, columns and defaults of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from deltasql.config import Config
from deltasql.engines.arrow.write.align import violation
from deltasql.engines.spark.sql_text import verbatim
from deltasql.errors import ValidationError, unknown_column
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.overwrite import metadata_of
from deltasql.operations.write import fields_of
from deltasql.protocol.actions import CommitInfo, Metadata
from deltasql.protocol.constraints import StoredExpression
from deltasql.protocol.features import grown, needed_features
from deltasql.protocol.properties import CONSTRAINT_PREFIX, canonical_properties, constraint_key
from deltasql.protocol.schema import Json, schema_string, struct_type
from deltasql.protocol.schema_fit import DEFAULT, GENERATED
from deltasql.protocol.schema_rules import reject_unchecked_not_null, validate_schema
from deltasql.protocol.table_changes import Reads, TableState

_SHOWN = 3


def set_properties(txn: MultiTableTransaction, state: TableState, properties: Mapping[str, str]) -> None:
    """Stage new values of properties."""
    Config({}, {}).override(properties)
    given = canonical_properties(state.name, properties)
    _reject_constraints(state, given)
    metadata = metadata_of(state)
    after = _with(metadata, {**metadata.configuration, **given})
    _stage(txn, state, after, CommitInfo("SET TBLPROPERTIES", {"properties": json.dumps(given)}))


def add_constraint(txn: MultiTableTransaction, state: TableState, name: str, condition: str, rows: Any) -> None:
    """Stage a CHECK constraint; raise `ConstraintViolation` if an existing row violates it. `rows` is a Spark frame."""
    metadata = metadata_of(state)
    key = constraint_key(name)
    if key in metadata.configuration:
        raise ValidationError(f"table {state.name} already has a constraint {name!r}: drop it first", table=state.name)
    StoredExpression(f"constraint {name}", condition).check(state.name)
    broken = rows.where(verbatim(f"NOT coalesce(({condition}), false)"))
    found = broken.limit(_SHOWN).collect()
    if found:
        raise violation(name, state.name, broken.count(), [row.asDict() for row in found])
    after = _with(metadata, {**metadata.configuration, key: condition})
    _stage(txn, state, after, CommitInfo("ADD CONSTRAINT", {"name": name, "expr": condition}), Reads(whole_table=True))


def drop_constraint(txn: MultiTableTransaction, state: TableState, name: str) -> None:
    """Stage the removal of a constraint."""
    metadata = metadata_of(state)
    key = constraint_key(name)
    if key not in metadata.configuration:
        known = metadata.table_properties.constraints
        hint = f"the table has {', '.join(known)}" if known else "the table has no constraints"
        raise ValidationError(
            f"table {state.name}: constraint {name!r} does not exist ({hint})", table=state.name, value=name
        )
    after = _with(metadata, {k: v for k, v in metadata.configuration.items() if k != key})
    _stage(txn, state, after, CommitInfo("DROP CONSTRAINT", {"name": name}))


def has_constraint(state: TableState, name: str) -> bool:
    """Return whether a table has a constraint."""
    return constraint_key(name) in metadata_of(state).configuration


def unused_constraint_name(state: TableState) -> str:
    """Return a name that no constraint of the table has."""
    return next(name for name in (f"check_{n}" for n in count(1)) if not has_constraint(state, name))


def check_default(state: TableState, column: str, text: str) -> None:
    """Raise `ValidationError` for a default that must not be stored, before it runs for the first time."""
    StoredExpression(f"default of column {column!r}", text, is_default=True).check(state.name)


def set_default(txn: MultiTableTransaction, state: TableState, column: str, text: str | None) -> None:
    """Stage a default value of a column; None removes it."""
    metadata, fields = metadata_of(state), fields_of(state)
    field = next((one for one in fields if one["name"].lower() == column.lower()), None)
    if field is None:
        problem = unknown_column(column, [one["name"] for one in fields])
        raise ValidationError(f"table {state.name}: {problem}", table=state.name, value=column)
    if GENERATED in (field.get("metadata") or {}):
        raise ValidationError(
            f"table {state.name}: generated column {column!r} cannot have a default", table=state.name, value=column
        )
    if text is not None:
        check_default(state, column, text)
    others = {key: value for key, value in (field.get("metadata") or {}).items() if key != DEFAULT}
    field["metadata"] = others if text is None else {**others, DEFAULT: text}
    after = msgspec.structs.replace(
        metadata, schema_string=schema_string(json.dumps({"type": "struct", "fields": fields}), table=state.name)
    )
    validate_schema(after.schema_string, metadata.partition_columns, state.name)
    _stage(txn, state, after, CommitInfo("CHANGE COLUMN", {"column": json.dumps(field)}))


def add_columns(txn: MultiTableTransaction, state: TableState, columns: Sequence[Json]) -> None:
    """Stage new columns, which are null in existing rows."""
    reject_unchecked_not_null(json.dumps(struct_type(list(columns))), state.name)
    for one in columns:
        if not one.get("nullable", True):
            raise ValidationError(
                f"table {state.name}: the new column {one['name']!r} cannot be NOT NULL, because existing rows "
                f"have no value for it: add it without NOT NULL",
                table=state.name,
                value=one["name"],
            )
    evolve(txn, state, [*fields_of(state), *columns])
    info = CommitInfo("ADD COLUMNS", {"columns": json.dumps([{"column": one} for one in columns])})
    txn.stage_on(state, [info])


def evolve(txn: MultiTableTransaction, state: TableState, fields: Sequence[Json]) -> None:
    """Stage all columns of a table, some of which are new. The caller stages what history shows."""
    metadata = metadata_of(state)
    text = schema_string(json.dumps(struct_type(list(fields))), table=state.name)
    validate_schema(text, metadata.partition_columns, state.name)
    _stage_metadata(txn, state, msgspec.structs.replace(metadata, schema_string=text))


def _with(metadata: Metadata, configuration: Mapping[str, str]) -> Metadata:
    return msgspec.structs.replace(metadata, configuration=dict(configuration))


def _reject_constraints(state: TableState, properties: Mapping[str, str]) -> None:
    for key in properties:
        if key.startswith(CONSTRAINT_PREFIX):
            raise ValidationError(
                f"table {state.name}: {key} cannot be set as a property, because existing rows must be checked: "
                f"use ADD CONSTRAINT",
                table=state.name,
                value=key,
            )


def _stage(
    txn: MultiTableTransaction, state: TableState, metadata: Metadata, info: CommitInfo, reads: Reads | None = None
) -> None:
    _stage_metadata(txn, state, metadata)
    txn.stage_on(state, [info], reads=reads)


def _stage_metadata(txn: MultiTableTransaction, state: TableState, metadata: Metadata) -> None:
    """Stage metadata, and the protocol if it needs more features."""
    needed = needed_features(metadata.table_properties, metadata.schema_string)
    txn.stage_metadata(state, metadata, grown(state.protocol, needed, state.name))
