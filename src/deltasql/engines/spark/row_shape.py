"""Spark's rows in the shape of their table, and the conditions that they must meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltasql.protocol.constraints import Constraint, conditions, not_null, quoted, replacing
from deltasql.protocol.schema import DeltaType, Json
from deltasql.protocol.schema_fit import DEFAULT, GENERATED, Fit


def struct_of(frame: DataFrame) -> Json:
    """A frame's columns in Delta's words."""
    struct: Json = frame.schema.jsonValue()
    return struct


def aligned(frame: DataFrame, fit: Fit) -> DataFrame:
    """Given rows as the table has them: its columns, in its order, of its types. Absent columns get their default, or
    are null; generated ones are computed from the others."""
    given = {field.name: field.dataType.jsonValue() for field in frame.schema.fields}
    generated = [f for f in fit.absent if GENERATED in (f.get("metadata") or {})]
    late = {f["name"] for f in generated}
    columns = [
        _column(fit, field, given.get(fit.sources.get(field["name"], "")))
        for field in fit.schema["fields"]
        if field["name"] not in late
    ]
    whole = frame.select(*columns)
    for field in generated:
        whole = whole.withColumn(field["name"], F.expr(field["metadata"][GENERATED]).cast(ddl(field["type"])))
    return whole.select(*(F.col(quoted(f["name"])) for f in fit.schema["fields"])) if generated else whole


def _column(fit: Fit, field: Json, given: DeltaType | None) -> Column:
    name, wanted = field["name"], ddl(field["type"])
    if given is None:
        default = (field.get("metadata") or {}).get(DEFAULT)
        value = F.expr(default) if default is not None else F.lit(None)
        return value.cast(wanted).alias(name)
    source = F.col(quoted(fit.sources[name]))
    if name in fit.narrowed:
        # A value that does not fit becomes null here and is found by its condition.
        return F.expr(f"try_cast({quoted(fit.sources[name])} AS {wanted})").alias(name)
    if name in fit.assigned:
        return F.expr(assigned_sql(quoted(fit.sources[name]), given, field["type"])).alias(name)
    return shaped(source, given, field["type"]).alias(name)


def shaped(value: Column, given: DeltaType, wanted: DeltaType) -> Column:
    """A value in another type that holds it: fields of structs by name, whatever their case."""
    if alike(given, wanted):
        return value
    if isinstance(given, str) or isinstance(wanted, str):
        return value.cast(ddl(wanted))
    if wanted["type"] == "struct":
        found = {f["name"].lower(): f for f in given["fields"]}
        fields = [_field(value, found.get(f["name"].lower()), f) for f in wanted["fields"]]
        return F.when(value.isNotNull(), F.struct(*fields))
    if wanted["type"] == "array":
        return F.transform(value, lambda x: shaped(x, given["elementType"], wanted["elementType"]))
    keyed = F.transform_keys(value, lambda k, _: shaped(k, given["keyType"], wanted["keyType"]))
    return F.transform_values(keyed, lambda _, v: shaped(v, given["valueType"], wanted["valueType"]))


def _field(value: Column, given: Json | None, wanted: Json) -> Column:
    if given is None:
        return F.lit(None).cast(ddl(wanted["type"])).alias(wanted["name"])
    return shaped(value.getField(given["name"]), given["type"], wanted["type"]).alias(wanted["name"])


def alike(given: DeltaType, wanted: DeltaType) -> bool:
    """Are they the same but for what may be null, and comments?"""
    if isinstance(given, str) or isinstance(wanted, str):
        return given == wanted
    if given["type"] != wanted["type"]:
        return False
    if given["type"] == "struct":
        pairs = list(zip(given["fields"], wanted["fields"], strict=False))
        same = len(given["fields"]) == len(wanted["fields"])
        return same and all(g["name"] == w["name"] and alike(g["type"], w["type"]) for g, w in pairs)
    return all(alike(given[k], wanted[k]) for k in given if k.endswith("Type"))


_WORDS = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "timestamp": "timestamp_ltz"}
"""What Spark's SQL calls types otherwise. There `timestamp` is what the session takes it for."""


def ddl(type_: DeltaType) -> str:
    """A type in Spark's SQL."""
    if isinstance(type_, str):
        return _WORDS.get(type_, type_)
    if type_["type"] == "struct":
        fields = [f"{quoted(f['name'])}: {ddl(f['type'])}" for f in type_["fields"]]
        return f"struct<{', '.join(fields)}>"
    if type_["type"] == "array":
        return f"array<{ddl(type_['elementType'])}>"
    return f"map<{ddl(type_['keyType'])}, {ddl(type_['valueType'])}>"


_WHOLE = ("byte", "short", "integer", "long")


def rounds(given: DeltaType, wanted: DeltaType) -> bool:
    """Is a fraction rounded when a column of another type takes it?"""
    return wanted in _WHOLE and given not in (*_WHOLE, "string")


def assigned_sql(value: str, given: DeltaType, wanted: DeltaType) -> str:
    """A value that a column of another type takes, as SQL casts it: fractions are rounded, and what the column cannot
    hold is null."""
    return f"try_cast({f'round({value})' if rounds(given, wanted) else value} AS {ddl(wanted)})"


def rules(fit: Fit, constraints: Mapping[str, str], where: str | None) -> list[Constraint]:
    """What is to hold for the aligned rows: the table's constraints, that generated columns are what they say, and the
    condition that the rows take the place of others by."""
    found = not_null(fit.schema) + conditions(fit.schema, constraints)
    if where is not None:
        found.append(replacing(where))
    for field in fit.schema["fields"]:
        name, expression = field["name"], (field.get("metadata") or {}).get(GENERATED)
        if expression is not None and name in fit.sources:
            found.append(Constraint(f"{name} GENERATED ALWAYS AS ({expression})", f"{quoted(name)} <=> ({expression})"))
    return found


def narrowing(fit: Fit, given: Json) -> list[Constraint]:
    """That each value of a wider type is one of the column's; asked of the given rows."""
    types = {f["name"]: f["type"] for f in fit.schema["fields"]}
    wide = {f["name"]: f["type"] for f in given["fields"]}
    found = []
    for name in fit.narrowed:
        source = fit.sources[name]
        cast = f"CAST(try_cast({quoted(source)} AS {ddl(types[name])}) AS {ddl(wide[source])})"
        found.append(Constraint(f"{name} fits {_called(types[name])}", f"{cast} <=> {quoted(source)}"))
    for name in fit.assigned:
        source = quoted(fit.sources[name])
        cast = assigned_sql(source, wide[fit.sources[name]], types[name])
        holds = f"{source} IS NULL OR {cast} IS NOT NULL"
        if types[name] == "float":
            infinite = "float('inf')"
            lost = f"abs({cast}) = {infinite} AND abs(try_cast({source} AS DOUBLE)) <> {infinite}"
            holds = f"({holds}) AND NOT coalesce({lost}, false)"
        found.append(Constraint(f"{name} fits {_called(types[name])}", holds))
    return found


def _called(type_: DeltaType) -> str:
    return ddl(type_).upper().replace("TIMESTAMP_LTZ", "TIMESTAMP")


def broken(rules: Sequence[Constraint]) -> list[Column]:
    """For each rule, how many rows break it."""
    return [
        F.sum(F.expr(f"CASE WHEN coalesce(({rule.sql}), false) THEN 0L ELSE 1L END")).alias(f"c{n}")
        for n, rule in enumerate(rules)
    ]
