"""Values that a statement gives to columns, in the columns' types."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltasql.engines.spark.row_shape import alike, ddl, rounds, shaped
from deltasql.errors import ValidationError
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import DeltaType, Json, struct_type
from deltasql.protocol.schema_fit import assignable, fit, type_text

_PROBLEM = "__deltasql_problem"


def assigned(value: Column, given: DeltaType, field: Json, table: str) -> tuple[Column, Column | None]:
    """A value as its column has it, and what is wrong with it, null if nothing is; None if nothing can be.

    Numbers, times and texts become each other, fractions are rounded for whole numbers. A value that the column cannot
    hold is found. Nested values must fit as they are."""
    wanted, name = field["type"], field["name"]
    if alike(given, wanted):
        return value, None
    if given in ("void", "null"):
        return value.cast(ddl(wanted)), None
    if not isinstance(given, str) or not isinstance(wanted, str):
        if isinstance(given, str) or isinstance(wanted, str) or given["type"] != wanted["type"]:
            raise _refused(table, name, given, wanted)
        fit(struct_type([{**field, "type": given}]), struct_type([field]), name=table)
        return shaped(value, given, wanted), None
    if not assignable(given, wanted):
        raise _refused(table, name, given, wanted)
    cast = (F.round(value) if rounds(given, wanted) else value).try_cast(ddl(wanted))
    lost = cast.isNull()
    if wanted == "float":
        lost = lost | ((F.abs(cast) == float("inf")) & (F.abs(value.try_cast("double")) != float("inf")))
    text = F.concat(F.lit(f"column {name!r} is {type_text(wanted)} and cannot hold "), value.cast("string"))
    return cast, F.when(value.isNotNull() & lost, text)


def typed_rows(frame: DataFrame, fields: Sequence[Json], table: str) -> DataFrame:
    """Rows as the columns of a table have them, computed once; a value that does not fit is refused."""
    types = {f.name: f.dataType.jsonValue() for f in frame.schema.fields}
    values, problems = [], []
    for field in fields:
        value, problem = assigned(F.col(quoted(field["name"])), types[field["name"]], field, table)
        values.append(value.alias(field["name"]))
        problems += [] if problem is None else [problem]
    whole = frame.select(*values, *([F.coalesce(*problems).alias(_PROBLEM)] if problems else []))
    held = whole.localCheckpoint()
    if not problems:
        return held
    row = held.agg(F.min(_PROBLEM)).first()
    if row is not None and row[0] is not None:
        raise ValidationError(f"table {table}: {row[0]}, so nothing was changed: give a value that fits", table=table)
    return held.drop(_PROBLEM)


def _refused(table: str, name: str, given: DeltaType, wanted: DeltaType) -> ValidationError:
    return ValidationError(
        f"table {table}: column {name!r} is {type_text(wanted)}, and the value for it is {type_text(given)}: cast it",
        table=table,
        value=name,
    )
