"""UPDATE, DELETE and MERGE as frames of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltasql.engines.row_change import (
    ACTION,
    ALONE,
    CLAUSE,
    DELETE,
    FILE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    NOTHING,
    ROW,
    SOURCE,
    TARGET,
    UPDATE,
    Clause,
    Fields,
    Statement,
    raw_name,
)
from deltasql.engines.spark.dml.apply_changes import NEW, OLD, OUT, PROBLEM
from deltasql.engines.spark.dml.assignment import assigned
from deltasql.engines.spark.dml.merge_pairs import NUMBER, MergeSource, Pairing
from deltasql.engines.spark.row_shape import ddl
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import Json
from deltasql.protocol.schema_fit import DEFAULT, GENERATED

MERGE_ACTION = "merge_action()"
_OLD, _GIVEN = "__deltasql_old", "__deltasql_given"
"""The table's row and the source's, as structs; null where there is none."""
_WHOLE = "__deltasql_whole"


def changes_of(
    statement: Statement,
    target: DataFrame,
    fields: Fields,
    table: str,
    source: MergeSource | None = None,
    *,
    found: bool = False,
    old: bool = False,
) -> DataFrame:
    """The frame of changes that a statement makes of a table's rows, which come with their places; a merge brings the
    rows of its source. With `found` all of them match; with `old` rows that go are in the frame as well."""
    asked = replace(statement, condition=None) if found else statement
    return _Changes(asked, frozenset(fields.partitions), source, found, old).changes(target, fields.all, table)


def places_of(statement: Statement, target: DataFrame) -> DataFrame:
    """Where the rows lie that a statement changes, which has no source."""
    queries = statement.queries
    if queries is not None and queries.places is not None:
        found: DataFrame = queries.places(target)
        return found
    return target.alias(TARGET).where(column(statement.condition)).select(FILE, ROW)


@dataclass(frozen=True, slots=True)
class _Changes:
    asked: Statement
    partitions: frozenset[str]
    merged: MergeSource | None
    found: bool
    old: bool

    def changes(self, target: DataFrame, fields: Sequence[Json], table: str) -> DataFrame:
        queries = self.asked.queries
        rows = self._rows(target, fields) if queries is None else queries.rows(target, self.merged, found=self.found)
        many = CLAUSE in rows.columns
        rows = rows.withColumn(ACTION, _choice([F.lit(clause.action) for clause in self.asked.clauses], many=many))
        if any(clause.action in (UPDATE, INSERT) for clause in self.asked.clauses):
            new, problems = self._new_rows(rows, fields, table)
            rows = rows.withColumn(NEW, _choice(new, many=many))
            if problems:
                rows = rows.withColumn(PROBLEM, F.coalesce(*problems))
        if self.asked.takes_whole:
            alone = [place for place, clause in enumerate(self.asked.clauses) if clause.of == NOT_MATCHED_BY_SOURCE]
            rows = rows.withColumn(ALONE, F.col(CLAUSE).isin(alone))
        if self.old:
            rows = rows.withColumn(OLD, F.col(quoted(self._target)))
        if self.asked.returns:
            rows = self._seen(rows, fields)
        return rows.select(*(c for c in (FILE, ROW, ACTION, ALONE, OLD, NEW, PROBLEM, OUT) if c in rows.columns))

    @property
    def _target(self) -> str:
        return TARGET if self.asked.queries is None else self.asked.queries.target

    def _rows(self, target: DataFrame, fields: Sequence[Json]) -> DataFrame:
        """The rows that change, with the values that they get."""
        names = [f["name"] for f in fields]
        if self.merged is not None:
            joined = self._paired(self.merged, target, names)
        elif self.asked.inserts:
            joined = self._alone(target, names)
        else:
            joined = self._joined(target.alias(TARGET), names)
        number = self._number()
        chosen = joined if number is None else joined.withColumn(CLAUSE, number).where(F.col(CLAUSE).isNotNull())
        raw = [
            _only(number, place, column(value)).alias(raw_name(place, name))
            for place, clause in enumerate(self.asked.clauses)
            for name, value in clause.values.items()
        ]
        kept = [FILE, ROW, _OLD, *([_GIVEN] if self.asked.source is not None else [])]
        rows = chosen.select(*kept, *([] if number is None else [F.col(CLAUSE)]), *raw)
        return rows.withColumnsRenamed({_OLD: TARGET, _GIVEN: SOURCE})

    def _joined(self, target: DataFrame, names: Sequence[str]) -> DataFrame:
        """The table's rows that match, by their own names and as structs."""
        condition = F.lit(True) if self.asked.condition is None else column(self.asked.condition)
        old = _struct(TARGET, names).alias(_OLD)
        if self.asked.source is None:
            return (target if self.asked.condition is None else target.where(condition)).select("*", old)
        given = _struct(SOURCE, self.asked.source.columns).alias(_GIVEN)
        return target.join(self.asked.source.alias(SOURCE), condition).select("*", old, given)

    def _alone(self, target: DataFrame, names: Sequence[str]) -> DataFrame:
        """The rows of the source, which match none."""
        row = target.select(FILE, ROW, F.struct(*map(quoted, names)).alias(_OLD)).schema
        nothing = [F.lit(None).cast(row[c].dataType).alias(c) for c in row.names]
        source = self.asked.source.alias(SOURCE)
        return source.select("*", *nothing, _struct(SOURCE, self.asked.source.columns).alias(_GIVEN))

    def _paired(self, source: MergeSource, target: DataFrame, names: Sequence[str]) -> DataFrame:
        """All pairs, and the rows of either side that are in none as far as a clause may want them."""
        pairing = Pairing(source, str(self.asked.condition), whole=self.asked.takes_whole, inserts=self.asked.inserts)
        joined = target.alias(TARGET).join(pairing.side.alias(SOURCE), column(self.asked.condition), pairing.how)
        number = F.col(f"{SOURCE}.{NUMBER}")
        row = F.when(number.isNotNull(), _struct(SOURCE, source.columns)).alias(_GIVEN)
        pairs = joined.select(FILE, ROW, _struct(TARGET, names).alias(_OLD), row, number.alias(NUMBER))
        found = pairing.complete(pairs, _OLD, _GIVEN)
        columns = {name: F.col(f"{_OLD}.{quoted(name)}") for name in names}
        return _named(found, columns, {TARGET: F.col(_OLD), SOURCE: F.col(_GIVEN)})

    def _number(self) -> Column | None:
        """Which clause is the first to apply to a row; None if one applies to all that are left."""
        if self.asked.source is None or (len(self.asked.clauses) == 1 and self._is_plain(self.asked.clauses[0])):
            return None
        there, given = F.col(ROW).isNotNull(), F.col(_GIVEN).isNotNull()
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
            if clause.action in (DELETE, NOTHING):
                found.append(F.lit(None))
                continue
            values = []
            for one in written:
                raw = raw_name(place, one["name"])
                value, problem = _left_out(clause, one, self._target), None
                if one["name"] in clause.values:
                    value, problem = assigned(F.col(quoted(raw)), types[raw], one, table)
                if one["name"] in self.partitions and one["type"] == "string":
                    value = F.when(value != "", value)  # no directory tells an empty text from null
                values.append(value.alias(one["name"]))
                problems += [] if problem is None else [problem]
            found.append(F.struct(*values))
        return found, problems

    def _seen(self, rows: DataFrame, fields: Sequence[Json]) -> DataFrame:
        """With what the user wants to see: of a row that comes the new values, of one that goes the old ones."""
        names, target = [f["name"] for f in fields], self._target
        old = {name: F.col(f"{quoted(target)}.{quoted(name)}") for name in names}
        written = [f.name for f in rows.schema[NEW].dataType] if NEW in rows.columns else []
        gone = F.col(ACTION) == DELETE
        flat = {
            name: F.when(gone, old[name]).otherwise(F.col(f"{NEW}.{quoted(name)}")) if name in written else old[name]
            for name in names
        }
        whole = rows.select("*", *(value.alias(_seen(name)) for name, value in flat.items()))
        computed = [f for f in fields if written and f["name"] not in written]
        if computed:
            whole = self._with_generated(whole, computed, names)
        seen = {name: F.col(quoted(_seen(name))) for name in names}
        row = F.struct(*(value.alias(name) for name, value in seen.items()))
        queries = self.asked.queries
        if queries is not None and queries.seen is not None:
            whole = whole.withColumn(target, row)
            known = {name.lower() for name in whole.columns}
            others = (value.alias(name) for name, value in seen.items() if name.lower() not in known)
            found: DataFrame = queries.seen(whole.select("*", *others), OUT)
            return found
        given = {SOURCE: F.col(_GIVEN)} if self.asked.source is not None else {}
        hidden = whole.withColumnsRenamed({TARGET: _OLD, SOURCE: _GIVEN})
        scope = _named(hidden, seen, {TARGET: row, **given})
        return scope.withColumn(OUT, F.struct(*self._shown(names)))

    def _with_generated(self, rows: DataFrame, computed: Sequence[Json], names: Sequence[str]) -> DataFrame:
        """With the values of generated columns, which follow from the others: nothing else has a name there."""
        columns = (F.col(quoted(_seen(name))).alias(name) for name in names)
        scope = rows.select(F.struct("*").alias(_WHOLE), *columns)
        gone = F.col(f"{_WHOLE}.{ACTION}") == DELETE
        values = []
        for one in computed:
            value = F.expr(one["metadata"][GENERATED]).cast(ddl(one["type"]))
            values.append(F.when(gone, F.col(quoted(one["name"]))).otherwise(value).alias(_seen(one["name"])))
        kept = [n for n in rows.columns if n not in {_seen(one["name"]) for one in computed}]
        return scope.select(*(F.col(f"{_WHOLE}.{quoted(n)}").alias(n) for n in kept), *values)

    def _shown(self, names: Sequence[str]) -> list[Column]:
        own = {way: name for name in names for way in (name.lower(), f"{TARGET}.{name}".lower())}
        found: list[Column] = []
        for one in self.asked.returning or ():
            if isinstance(one, str) and one.strip() in ("*", f"{TARGET}.*"):
                found += [F.col(quoted(_seen(name))).alias(name) for name in names]
            elif isinstance(one, str) and one.strip().lower() == MERGE_ACTION:
                found.append(F.col(ACTION).alias("merge_action"))
            elif isinstance(one, str) and one.strip().lower() in own:
                name = own[one.strip().lower()]
                found.append(F.col(quoted(_seen(name))).alias(name))
            else:
                found.append(column(one))
        return found


def _named(frame: DataFrame, columns: Mapping[str, Column], rows: Mapping[str, Column]) -> DataFrame:
    """With the names that expressions of users have: `t` and `s` for rows, and those of the table's columns. One of
    these that is called `t` is meant by that, as in SQL, and the others are `t.…` all the same; unless there is one
    called `s` as well, which only `t.s` can tell from the source."""
    taken = {name.lower() for name in columns}
    by_alias = TARGET in taken and not (SOURCE in taken and SOURCE in rows)
    structs = {name: row for name, row in rows.items() if name != TARGET or not by_alias}
    others = {name: value for name, value in columns.items() if name.lower() not in structs}
    found = frame.select("*", *(value.alias(name) for name, value in (structs | others).items()))
    return found.alias(TARGET) if by_alias else found


def column(value: Any) -> Column:
    """An expression of the user's: a text in Spark's SQL, a Column, or any other value, which stands for itself."""
    return value if isinstance(value, Column) else F.expr(value) if isinstance(value, str) else F.lit(value)


def _struct(table: str, names: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"{table}.{quoted(name)}").alias(name) for name in names))


def _seen(name: str) -> str:
    return f"__deltasql_seen_{name}"


def _only(number: Column | None, place: int, value: Column) -> Column:
    """A value is computed for the rows of its clause alone: for others it may be an error."""
    return value if number is None else F.when(F.col(CLAUSE) == place, value)


def _choice(values: Sequence[Column], *, many: bool) -> Column:
    """The value of the clause that applies."""
    if not many:
        return values[0]
    start: Any = F
    found: Column = reduce(lambda f, pair: f.when(F.col(CLAUSE) == pair[0], pair[1]), enumerate(values), start)
    return found


def _is_written(field: Json, clauses: Sequence[Clause]) -> bool:
    """Generated columns are computed from the others, unless they are given."""
    if GENERATED not in (field.get("metadata") or {}):
        return True
    return any(field["name"] in clause.values for clause in clauses)


def _left_out(clause: Clause, field: Json, target: str) -> Column:
    if clause.action != INSERT:
        return F.col(f"{quoted(target)}.{quoted(field['name'])}")
    default = (field.get("metadata") or {}).get(DEFAULT)
    return (F.lit(None) if default is None else F.expr(default)).cast(ddl(field["type"]))
