"""Values that a statement gives to columns, in the columns' types."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from deltasql.core.fit import assignable, shown
from deltasql.core.schema import DeltaType, Json
from deltasql.errors import ValidationError
from deltasql.spark.frames import alike, ddl, shaped


def assigned(value: Column, given: DeltaType, field: Json, table: str) -> tuple[Column, Column | None]:
    """A value as its column has it, and what is wrong with it, null if nothing is; None if nothing can be.

    Numbers, times and texts become each other. A value that the column cannot hold is found, never changed."""
    wanted, name = field["type"], field["name"]
    if alike(given, wanted):
        return value, None
    if given in ("void", "null"):
        return value.cast(ddl(wanted)), None
    if not isinstance(given, str) or not isinstance(wanted, str):
        if isinstance(given, str) or isinstance(wanted, str) or given["type"] != wanted["type"]:
            raise _refused(table, name, given, wanted)
        return shaped(value, given, wanted), None
    if not assignable(given, wanted):
        raise _refused(table, name, given, wanted)
    cast = value.try_cast(ddl(wanted))
    text = F.concat(F.lit(f"column {name!r} is {shown(wanted)} and cannot hold "), value.cast("string"))
    return cast, F.when(value.isNotNull() & cast.isNull(), text)


def _refused(table: str, name: str, given: DeltaType, wanted: DeltaType) -> ValidationError:
    return ValidationError(
        f"table {table}: column {name!r} is {shown(wanted)}, and the value for it is {shown(given)}: cast it",
        table=table,
        value=name,
    )
