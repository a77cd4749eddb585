"""Align Spark rows with their table, and build the constraints that they must satisfy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltasql.engines.spark.sql_text import expression
from deltasql.protocol.constraints import Constraint, conditions, not_null, quoted, replacing
from deltasql.protocol.schema import DeltaType, Json
from deltasql.protocol.schema_fit import DEFAULT, GENERATED, Fit


def struct_of(frame: DataFrame) -> Json:
    """Return the columns of a DataFrame as a Delta struct type."""
    struct: Json = frame.schema.jsonValue()
    return struct


def aligned(frame: DataFrame, fit: Fit) -> DataFrame:
    """Return rows with the table's columns, in its order and types. Absent columns get their default or null, generated
    columns are computed."""
    given = {field.name: field.dataType.jsonValue() for field in frame.schema.fields}
    generated = [f for f in fit.absent if GENERATED in (f.get("metadata") or {})]
    computed = {f["name"] for f in generated}
    columns = [
        _column(fit, field, given.get(fit.sources.get(field["name"], "")))
        for field in fit.schema["fields"]
        if field["name"] not in computed
    ]
    rows = frame.select(*columns)
    for field in generated:
        rows = rows.withColumn(field["name"], expression(field["metadata"][GENERATED]).cast(ddl(field["type"])))
    return rows.select(*(F.col(quoted(f["name"])) for f in fit.schema["fields"])) if generated else rows


def _column(fit: Fit, field: Json, given: DeltaType | None) -> Column:
    name, target = field["name"], ddl(field["type"])
    if given is None:
        default = (field.get("metadata") or {}).get(DEFAULT)
        value = expression(default) if default is not None else F.lit(None)
        return value.cast(target).alias(name)
    source = F.col(quoted(fit.sources[name]))
    if name in fit.narrowed:
        # A value that does not fit becomes null here; the constraint of `narrowing` reports it.
        return F.expr(f"try_cast({quoted(fit.sources[name])} AS {target})").alias(name)
    if name in fit.assigned:
        return F.expr(assigned_sql(quoted(fit.sources[name]), given, field["type"])).alias(name)
    return shaped(source, given, field["type"]).alias(name)


def shaped(value: Column, given: DeltaType, target: DeltaType) -> Column:
    """Cast a value to a type that can hold it, with fields of structs matched by name, ignoring case."""
    if alike(given, target):
        return value
    if isinstance(given, str) or isinstance(target, str):
        return value.cast(ddl(target))
    if target["type"] == "struct":
        by_name = {f["name"].lower(): f for f in given["fields"]}
        fields = [_field(value, by_name.get(f["name"].lower()), f) for f in target["fields"]]
        return F.when(value.isNotNull(), F.struct(*fields))
    if target["type"] == "array":
        return F.transform(value, lambda x: shaped(x, given["elementType"], target["elementType"]))
    keyed = F.transform_keys(value, lambda k, _: shaped(k, given["keyType"], target["keyType"]))
    return F.transform_values(keyed, lambda _, v: shaped(v, given["valueType"], target["valueType"]))


def _field(value: Column, given: Json | None, target: Json) -> Column:
    if given is None:
        return F.lit(None).cast(ddl(target["type"])).alias(target["name"])
    return shaped(value.getField(given["name"]), given["type"], target["type"]).alias(target["name"])


def alike(given: DeltaType, target: DeltaType) -> bool:
    """Return whether types are equal apart from nullability and comments."""
    if isinstance(given, str) or isinstance(target, str):
        return given == target
    if given["type"] != target["type"]:
        return False
    if given["type"] == "struct":
        pairs = list(zip(given["fields"], target["fields"], strict=False))
        same = len(given["fields"]) == len(target["fields"])
        return same and all(g["name"] == w["name"] and alike(g["type"], w["type"]) for g, w in pairs)
    return all(alike(given[k], target[k]) for k in given if k.endswith("Type"))


_SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "timestamp": "timestamp_ltz"}
"""The Delta types with another name in Spark's SQL, where the meaning of `timestamp` depends on the session."""


def ddl(type_: DeltaType) -> str:
    """Return a type in Spark's SQL."""
    if isinstance(type_, str):
        return _SQL_NAMES.get(type_, type_)
    if type_["type"] == "struct":
        fields = [f"{quoted(f['name'])}: {ddl(f['type'])}" for f in type_["fields"]]
        return f"struct<{', '.join(fields)}>"
    if type_["type"] == "array":
        return f"array<{ddl(type_['elementType'])}>"
    return f"map<{ddl(type_['keyType'])}, {ddl(type_['valueType'])}>"


_WHOLE = ("byte", "short", "integer", "long")


def rounds(given: DeltaType, target: DeltaType) -> bool:
    """Return whether assigning a value to a column rounds fractions."""
    return target in _WHOLE and given not in (*_WHOLE, "string")


def assigned_sql(value: str, given: DeltaType, target: DeltaType) -> str:
    """Return the SQL of an assignment cast: fractions are rounded, and values that do not fit become null."""
    return f"try_cast({f'round({value})' if rounds(given, target) else value} AS {ddl(target)})"


def rules(fit: Fit, constraints: Mapping[str, str], where: str | None) -> list[Constraint]:
    """Return the constraints of the aligned rows: the table's, those of generated columns that are given, and the
    condition of `overwrite(where=...)`."""
    row_rules = not_null(fit.schema) + conditions(fit.schema, constraints)
    if where is not None:
        row_rules.append(replacing(where))
    for field in fit.schema["fields"]:
        name, expression = field["name"], (field.get("metadata") or {}).get(GENERATED)
        if expression is not None and name in fit.sources:
            row_rules.append(
                Constraint(f"{name} GENERATED ALWAYS AS ({expression})", f"{quoted(name)} <=> ({expression})")
            )
    return row_rules


def narrowing(fit: Fit, given: Json) -> list[Constraint]:
    """Return the constraints, on the input rows, that values of wider types fit their columns."""
    types = {f["name"]: f["type"] for f in fit.schema["fields"]}
    wide = {f["name"]: f["type"] for f in given["fields"]}
    constraints = []
    for name in fit.narrowed:
        source = fit.sources[name]
        cast = f"CAST(try_cast({quoted(source)} AS {ddl(types[name])}) AS {ddl(wide[source])})"
        constraints.append(Constraint(f"{name} fits {_sql_name(types[name])}", f"{cast} <=> {quoted(source)}"))
    for name in fit.assigned:
        source = quoted(fit.sources[name])
        cast = assigned_sql(source, wide[fit.sources[name]], types[name])
        holds = f"{source} IS NULL OR {cast} IS NOT NULL"
        if types[name] == "float":
            infinite = "float('inf')"
            lost = f"abs({cast}) = {infinite} AND abs(try_cast({source} AS DOUBLE)) <> {infinite}"
            holds = f"({holds}) AND NOT coalesce({lost}, false)"
        constraints.append(Constraint(f"{name} fits {_sql_name(types[name])}", holds))
    return constraints


def _sql_name(type_: DeltaType) -> str:
    return ddl(type_).upper().replace("TIMESTAMP_LTZ", "TIMESTAMP")


def violation_counts(rules: Sequence[Constraint]) -> list[Column]:
    """Return aggregates that count the rows that violate each constraint."""
    return [
        F.sum(expression(f"CASE WHEN coalesce(({rule.sql}), false) THEN 0L ELSE 1L END")).alias(f"c{n}")
        for n, rule in enumerate(rules)
    ]
