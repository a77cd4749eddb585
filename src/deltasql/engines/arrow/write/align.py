"""Align rows with their table: the same columns, in the same order, of the same types."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engines.arrow.read.conform import conform
from deltasql.errors import ConstraintViolation, ValidationError
from deltasql.protocol.schema_fit import Fit

MAX_SHOWN = 3
"""The number of rows that an error shows."""
_INTEGER_DIGITS = 19


def aligned(batch: pa.RecordBatch, fit: Fit, schema: pa.Schema, table: str) -> pa.RecordBatch:
    """Return rows with the table's columns; columns that the input lacks are null."""
    names = batch.schema.names
    arrays = []
    for field in schema:
        source = fit.sources.get(field.name)
        if source is None:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(conformed(batch.column(names.index(source)), field, table))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def conformed(values: pa.Array, field: pa.Field, table: str) -> pa.Array:
    """Convert values to a column's type without loss. Raise ValidationError if a value does not fit."""
    if values.type.equals(field.type):
        return values
    try:
        return conform(values, field.type, field.name, _cast_exactly)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValidationError(
            f"table {table}: column {field.name!r} has a value that {field.type} cannot represent exactly: {error}. "
            f"Cast or round it first",
            table=table,
            value=field.name,
        ) from error


def _cast_exactly(values: pa.Array, kind: pa.DataType, _path: str) -> pa.Array:
    if pa.types.is_integer(values.type) and pa.types.is_decimal(kind):
        # Arrow requires a precision for the largest integer, whatever the values are.
        values = values.cast(pa.decimal256(_INTEGER_DIGITS + kind.scale, kind.scale))
    return values.cast(kind)


def check_not_null(batch: pa.RecordBatch, schema: pa.Schema, table: str) -> None:
    """Raise ConstraintViolation if a NOT NULL column holds a null."""
    for name, bad in _nulls(batch, schema):
        if pc.any(bad).as_py():
            rows = batch.filter(bad).slice(0, MAX_SHOWN)
            raise violation(f"{name} NOT NULL", table, pc.sum(bad).as_py(), rows.to_pylist())


def _nulls(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[str, pa.BooleanArray]]:
    for field, values in zip(schema, batch.columns, strict=True):
        if not field.nullable and values.null_count:
            yield field.name, values.is_null()
        if pa.types.is_struct(field.type):
            yield from _nested_nulls(values, field.type, field.name)


def _nested_nulls(values: pa.StructArray, kind: pa.StructType, path: str) -> Iterator[tuple[str, pa.BooleanArray]]:
    for field, part in zip(kind, values.flatten(), strict=True):
        name = f"{path}.{field.name}"
        if not field.nullable:
            yield name, pc.and_(part.is_null(), values.is_valid())
        if pa.types.is_struct(field.type):
            yield from _nested_nulls(part, field.type, name)


def violation(constraint: str, table: str, count: int, rows: list[dict[str, object]]) -> ConstraintViolation:
    """Return the error for rows that violate a constraint, with the first of them."""
    shown = "\n".join(f"  {_row(row)}" for row in rows[:MAX_SHOWN])
    subject = f"{count} rows violate" if count != 1 else "one row violates"
    return ConstraintViolation(
        f"table {table}: {subject} the constraint {constraint}, so nothing was written:\n{shown}",
        constraint=constraint,
        table=table,
    )


def _row(row: dict[str, object]) -> str:
    texts = [f"{name}={_short(value)}" for name, value in row.items()]
    return ", ".join(texts[:8]) + (", …" if len(texts) > 8 else "")


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) or value is None else str(value)
    text = "NULL" if value is None else text
    return text if len(text) <= 40 else text[:39] + "…"
