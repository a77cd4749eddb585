"""Cast the values that a statement assigns to the types of the columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltasql.engines.spark.held_rows import hold
from deltasql.engines.spark.row_shape import alike, ddl, rounds, shaped
from deltasql.errors import ValidationError
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import DeltaType, Json, struct_type
from deltasql.protocol.schema_fit import assignable, fit, missing_field, type_text

_PROBLEM = "__deltasql_problem"


def assigned(
    value: Column, given: DeltaType, field: Json, table: str, *, replaces: bool = False
) -> tuple[Column, Column | None]:
    """Return a value cast to the type of its column, and a text with its problem, or None if every value fits.

    Numbers, times and texts are cast to each other; fractions are rounded for integer columns. Nested values must have
    the type of the column; a field that is left out is null, unless the value `replaces` one that may have the field.
    """
    expected, name = field["type"], field["name"]
    if alike(given, expected):
        return value, None
    if given in ("void", "null"):
        return value.cast(ddl(expected)), None
    if not isinstance(given, str) or not isinstance(expected, str):
        if isinstance(given, str) or isinstance(expected, str) or given["type"] != expected["type"]:
            raise _mismatch(table, name, given, expected)
        if replaces and (path := missing_field(given, expected)) is not None:
            raise ValidationError(
                f"table {table}: the value of column {name!r} has no field {path!r}, whose old values would be lost: "
                f"give the field a value, or assign to single fields: SET {name}.field = …",
                table=table,
                value=name,
            )
        fit(struct_type([{**field, "type": given}]), struct_type([field]), name=table)
        return shaped(value, given, expected), None
    if not assignable(given, expected):
        raise _mismatch(table, name, given, expected)
    cast = (F.round(value) if rounds(given, expected) else value).try_cast(ddl(expected))
    lost = cast.isNull()
    if expected == "float":
        lost = lost | ((F.abs(cast) == float("inf")) & (F.abs(value.try_cast("double")) != float("inf")))
    text = F.concat(F.lit(f"column {name!r} is {type_text(expected)} and cannot hold "), value.cast("string"))
    return cast, F.when(value.isNotNull() & lost, text)


def typed_rows(frame: DataFrame, fields: Sequence[Json], table: str) -> DataFrame:
    """Return rows cast to the types of a table, computed once; reject a value that does not fit."""
    types = {f.name: f.dataType.jsonValue() for f in frame.schema.fields}
    values, problems = [], []
    for field in fields:
        value, problem = assigned(F.col(quoted(field["name"])), types[field["name"]], field, table)
        values.append(value.alias(field["name"]))
        problems += [] if problem is None else [problem]
    whole = frame.select(*values, *([F.coalesce(*problems).alias(_PROBLEM)] if problems else []))
    held = hold(whole)
    if not problems:
        return held
    row = held.agg(F.min(_PROBLEM)).first()
    if row is not None and row[0] is not None:
        raise ValidationError(f"table {table}: {row[0]}; nothing was changed", table=table)
    return held.drop(_PROBLEM)


def _mismatch(table: str, name: str, given: DeltaType, expected: DeltaType) -> ValidationError:
    return ValidationError(
        f"table {table}: column {name!r} is {type_text(expected)}, and its value is {type_text(given)}: cast the value",
        table=table,
        value=name,
    )
