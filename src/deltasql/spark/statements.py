"""UPDATE, DELETE and MERGE as frames of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltasql.core.constraints import quoted
from deltasql.core.fit import DEFAULT, GENERATED
from deltasql.core.schema import Json
from deltasql.data.statements import (
    DELETE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    SOURCE,
    TARGET,
    Clause,
    Statement,
)
from deltasql.spark.assignment import assigned
from deltasql.spark.frames import ddl
from deltasql.spark.places import FILE, ROW
from deltasql.spark.row_changes import ACTION, NEW, OUT, PROBLEM

MERGE_ACTION = "merge_action()"
_CLAUSE = "__deltasql_clause"


def changes_of(statement: Statement, target: DataFrame, fields: Sequence[Json], table: str) -> DataFrame:
    """The frame of changes that a statement makes of a table's rows, which come with their places."""
    return _Changes(statement).changes(target, fields, table)


@dataclass(frozen=True, slots=True)
class _Changes:
    asked: Statement

    def changes(self, target: DataFrame, fields: Sequence[Json], table: str) -> DataFrame:
        names = [f["name"] for f in fields]
        joined = self._joined(target.alias(TARGET))
        number = self._number()
        chosen = joined if number is None else joined.withColumn(_CLAUSE, number).where(F.col(_CLAUSE).isNotNull())
        raw = [
            _only(number, place, column(value)).alias(_raw(place, name))
            for place, clause in enumerate(self.asked.clauses)
            for name, value in clause.values.items()
        ]
        old = F.struct(*(F.col(f"{TARGET}.{quoted(name)}").alias(name) for name in names)).alias(TARGET)
        kept = [F.col(FILE), F.col(ROW), old, *map(F.col, self._source_names())]
        rows = chosen.select(*kept, *([] if number is None else [F.col(_CLAUSE)]), *raw)
        actions = [F.lit(clause.action) for clause in self.asked.clauses]
        rows = rows.withColumn(ACTION, _choice(number, actions))
        if any(clause.action != DELETE for clause in self.asked.clauses):
            new, problems = self._new_rows(rows, fields, table)
            rows = rows.withColumn(NEW, _choice(number, new))
            if problems:
                rows = rows.withColumn(PROBLEM, F.coalesce(*problems))
        out = self._out(rows, fields)
        shown = [FILE, ROW, ACTION, *(name for name in (NEW, PROBLEM) if name in rows.columns)]
        return rows.select(*shown) if out is None else out.select(*shown, OUT)

    def _source_names(self) -> list[str]:
        return [] if self.asked.source is None else self.asked.source.columns

    def _joined(self, target: DataFrame) -> DataFrame:
        condition = F.lit(True) if self.asked.condition is None else column(self.asked.condition)
        if self.asked.source is None:
            return target if self.asked.condition is None else target.where(condition)
        inserts = any(clause.of == NOT_MATCHED for clause in self.asked.clauses)
        others = any(clause.of == NOT_MATCHED_BY_SOURCE for clause in self.asked.clauses)
        how = {(False, False): "inner", (True, False): "right", (False, True): "left", (True, True): "full"}
        return target.join(self.asked.source, condition, how[inserts, others])

    def _number(self) -> Column | None:
        """Which clause is the first to apply to a row; None if one applies to all that are left."""
        if self.asked.source is None or (len(self.asked.clauses) == 1 and self._is_plain(self.asked.clauses[0])):
            return None
        there, given = F.col(f"{TARGET}.{ROW}").isNotNull(), F.col(self._source_names()[0]).isNotNull()
        which = {MATCHED: there & given, NOT_MATCHED: ~there, NOT_MATCHED_BY_SOURCE: ~given}
        found: Any = F
        for place, clause in enumerate(self.asked.clauses):
            applies = which[clause.of]
            if clause.condition is not None:
                applies = applies & F.coalesce(column(clause.condition), F.lit(False))
            found = found.when(applies, F.lit(place))
        chosen: Column = found
        return chosen

    def _is_plain(self, clause: Clause) -> bool:
        return clause.of == MATCHED and clause.condition is None

    def _new_rows(self, rows: DataFrame, fields: Sequence[Json], table: str) -> tuple[list[Column], list[Column]]:
        """The row that comes, for each clause, all of the table's types; null for one that deletes. And what values
        may be wrong."""
        types = {f.name: f.dataType.jsonValue() for f in rows.schema.fields}
        written = [f for f in fields if _is_written(f, self.asked.clauses)]
        found: list[Column] = []
        problems: list[Column] = []
        for place, clause in enumerate(self.asked.clauses):
            if clause.action == DELETE:
                found.append(F.lit(None))
                continue
            values = []
            for one in written:
                raw = _raw(place, one["name"])
                value, problem = _left_out(clause, one), None
                if one["name"] in clause.values:
                    value, problem = assigned(F.col(quoted(raw)), types[raw], one, table)
                values.append(value.alias(one["name"]))
                problems += [] if problem is None else [problem]
            found.append(F.struct(*values))
        return found, problems

    def _out(self, rows: DataFrame, fields: Sequence[Json]) -> DataFrame | None:
        """With what the user wants to see: of a row that comes the new values, of one that goes the old ones."""
        if self.asked.returning is None:
            return None
        names = [f["name"] for f in fields]
        old = {name: F.col(f"{TARGET}.{quoted(name)}") for name in names}
        written = [f.name for f in rows.schema[NEW].dataType] if NEW in rows.columns else []
        new = {name: F.col(f"{NEW}.{quoted(name)}") for name in written}
        gone = F.col(ACTION) == DELETE
        flat = {n: F.when(gone, old[n]).otherwise(new[n]) if n in new else old[n] for n in names}
        scope = rows.select(*(F.col(c) for c in rows.columns if c not in names), *(v.alias(n) for n, v in flat.items()))
        for one in fields:
            if written and one["name"] not in written:  # a generated column
                value = F.expr(one["metadata"][GENERATED]).cast(ddl(one["type"]))
                scope = scope.withColumn(one["name"], F.when(gone, F.col(quoted(one["name"]))).otherwise(value))
        row = F.struct(*(F.col(quoted(name)) for name in names))
        if TARGET not in names:
            scope = scope.withColumn(TARGET, row)
        return scope.withColumn(OUT, F.struct(*self._shown(names)))

    def _shown(self, names: Sequence[str]) -> list[Column]:
        found: list[Column] = []
        for one in self.asked.returning or ():
            if isinstance(one, str) and one.strip() in ("*", f"{TARGET}.*"):
                found += [F.col(quoted(name)) for name in names]
            elif isinstance(one, str) and one.strip().lower() == MERGE_ACTION:
                found.append(F.col(ACTION).alias("merge_action"))
            else:
                found.append(column(one))
        return found


def column(value: Any) -> Column:
    """An expression of the user's: a text in Spark's SQL, a Column, or any other value, which stands for itself."""
    return value if isinstance(value, Column) else F.expr(value) if isinstance(value, str) else F.lit(value)


def as_source(frame: DataFrame, name: str = SOURCE) -> DataFrame:
    """A frame as a source of one name."""
    return frame.select(F.struct(*(F.col(quoted(c)) for c in frame.columns)).alias(name))


def _raw(place: int, name: str) -> str:
    return f"__deltasql_{place}_{name}"


def _only(number: Column | None, place: int, value: Column) -> Column:
    """A value is computed for the rows of its clause alone: for others it may be an error."""
    return value if number is None else F.when(F.col(_CLAUSE) == place, value)


def _choice(number: Column | None, values: Sequence[Column]) -> Column:
    if number is None:
        return values[0]
    start: Any = F
    found: Column = reduce(lambda f, pair: f.when(F.col(_CLAUSE) == pair[0], pair[1]), enumerate(values), start)
    return found


def _is_written(field: Json, clauses: Sequence[Clause]) -> bool:
    """Generated columns are computed from the others, unless they are given."""
    if GENERATED not in (field.get("metadata") or {}):
        return True
    return any(field["name"] in clause.values for clause in clauses)


def _left_out(clause: Clause, field: Json) -> Column:
    if clause.action != INSERT:
        return F.col(f"{TARGET}.{quoted(field['name'])}")
    default = (field.get("metadata") or {}).get(DEFAULT)
    return (F.lit(None) if default is None else F.expr(default)).cast(ddl(field["type"]))
