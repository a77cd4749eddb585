"""Lower the description of a row change to a Spark frame with one row per changed row.

A row of the frame has the row id of a table row that is removed (`FILE`, `ROW`), the new row (`NEW`), or both, its
`ACTION`, and as needed the old row (`OLD`) and the returned values (`OUT`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltasql.engines.row_change import (
    ACTION,
    DELETE,
    FILE,
    INSERT,
    MATCHED,
    NEW_ROW,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    NOTHING,
    OLD_ROW,
    ROW,
    UPDATE,
    Clause,
    Output,
    RowChange,
    Source,
    TableFields,
)
from deltasql.engines.spark.dml.apply_changes import BY_SOURCE, NEW, OLD, OUT, PROBLEM
from deltasql.engines.spark.dml.assignment import assigned
from deltasql.engines.spark.dml.merge_pairs import NUMBER, MergeSource, Pairing
from deltasql.engines.spark.row_shape import ddl
from deltasql.engines.spark.sql_text import expression
from deltasql.errors import ValidationError
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import Json
from deltasql.protocol.schema_fit import DEFAULT, GENERATED

_CLAUSE = "__deltasql_clause"
"""The column with the index of the clause that applies, where there are several kinds of rows."""
_TARGET_ROW = "__deltasql_target"
"""The table row as a struct; null where there is none. `_Lowering.source_rows` names those of the sources."""
_WHOLE = "__deltasql_whole"


def change_frame(
    change: RowChange,
    target: DataFrame,
    fields: TableFields,
    table: str,
    merge_source: MergeSource | None = None,
    *,
    matched: bool = False,
    keep_old: bool = False,
) -> DataFrame:
    """Return the frame of changed rows for table rows with row ids.

    A merge brings its source. With `matched` all table rows are known to match; with `keep_old` the frame has `OLD`.
    """
    return _Lowering(change, fields, table, merge_source, matched, keep_old).frame(target)


def matching_row_ids(change: RowChange, target: DataFrame) -> DataFrame:
    """Return the row ids of the table rows that match, for a change without source."""
    return target.alias(change.target).where(column(change.condition)).select(FILE, ROW)


def column(value: Any) -> Column:
    """Return an expression as a Column; a plain value becomes a literal."""
    if isinstance(value, Column):
        return value
    return expression(value) if isinstance(value, str) else F.lit(_fitting(value))


def _fitting(value: Any) -> Any:
    """Return a whole number that Spark's long cannot hold as a decimal."""
    if not isinstance(value, int) or -(2**63) <= value < 2**63:
        return value
    if abs(value) >= 10**38:
        raise ValidationError("a whole number has at most 38 digits", value=value)
    return Decimal(value)


@dataclass(frozen=True, slots=True)
class _Lowering:
    change: RowChange
    fields: TableFields
    table: str
    merge_source: MergeSource | None
    matched: bool
    keep_old: bool

    @property
    def source_rows(self) -> dict[str, str]:
        """The column with the source row as a struct, by alias."""
        aliases = () if self.change.source is None else self.change.source.columns
        return {alias: f"__deltasql_source_{index}" for index, alias in enumerate(aliases)}

    def frame(self, target: DataFrame) -> DataFrame:
        rows = self._rows(target)
        several = _CLAUSE in rows.columns
        clauses = self.change.clauses
        rows = rows.withColumn(ACTION, _of_clause([F.lit(clause.action) for clause in clauses], several=several))
        if any(clause.action in (UPDATE, INSERT) for clause in clauses):
            new, problems = self._new_rows(rows)
            rows = rows.withColumn(NEW, _of_clause(new, several=several))
            if problems:
                rows = rows.withColumn(PROBLEM, F.coalesce(*problems))
        if self.change.reads_unmatched_rows:
            by_source = [index for index, clause in enumerate(clauses) if clause.of == NOT_MATCHED_BY_SOURCE]
            rows = rows.withColumn(BY_SOURCE, F.col(_CLAUSE).isin(by_source))
        if self.keep_old:
            rows = rows.withColumn(OLD, F.col(_TARGET_ROW))
        if self.change.returning is not None:
            rows = self._with_output(rows, self.change.returning)
        return rows.select(*(c for c in (FILE, ROW, ACTION, BY_SOURCE, OLD, NEW, PROBLEM, OUT) if c in rows.columns))

    # --- Which rows change

    def _rows(self, target: DataFrame) -> DataFrame:
        """The rows that change, with the values that each clause gives them."""
        source = self.change.source
        if self.merge_source is not None:
            scope = self._paired(self.merge_source, target)
        elif self.change.inserts and source is not None:
            scope = self._inserted(source, target)
        else:
            scope = self._joined(source, target)
        number = self._clause_number()
        chosen = scope if number is None else scope.withColumn(_CLAUSE, number).where(F.col(_CLAUSE).isNotNull())
        raw = [
            _in_clause(index, column(value), several=number is not None).alias(_raw(index, name))
            for index, clause in enumerate(self.change.clauses)
            for name, value in clause.values.items()
        ]
        clause_number = [] if number is None else [_CLAUSE]
        return chosen.select(FILE, ROW, _TARGET_ROW, *self.source_rows.values(), *clause_number, *raw)

    def _joined(self, source: Source | None, target: DataFrame) -> DataFrame:
        """The table rows that match, joined with the source."""
        rows = target.alias(self.change.target)
        if source is not None:
            rows = rows.join(_aliased(source))
        if self.change.condition is not None and not self.matched:
            rows = rows.where(column(self.change.condition))
        row = _struct(self.change.target, self.fields.names).alias(_TARGET_ROW)
        return rows.select("*", row, *self._source_structs(source))

    def _inserted(self, source: Source, target: DataFrame) -> DataFrame:
        """The source rows, all of which are inserted."""
        row = target.select(FILE, ROW, F.struct(*map(quoted, self.fields.names)).alias(_TARGET_ROW)).schema
        nulls = [F.lit(None).cast(row[name].dataType).alias(name) for name in row.names]
        return _aliased(source).select("*", *nulls, *self._source_structs(source))

    def _source_structs(self, source: Source | None) -> list[Column]:
        columns = {} if source is None else source.columns
        return [_struct(alias, names).alias(self.source_rows[alias]) for alias, names in columns.items()]

    def _paired(self, held: MergeSource, target: DataFrame) -> DataFrame:
        """All pairs that match, and the rows of either side without a match as far as a clause needs them."""
        [(alias, source_row)] = self.source_rows.items()
        change, names = self.change, self.fields.names
        pairing = Pairing(held, str(change.condition), whole=change.reads_unmatched_rows, inserts=change.inserts)
        joined = target.alias(change.target).join(pairing.side.alias(alias), column(change.condition), pairing.how)
        number = F.col(f"{quoted(alias)}.{NUMBER}")
        row = F.when(number.isNotNull(), _struct(alias, held.columns)).alias(source_row)
        pairs = joined.select(FILE, ROW, _struct(change.target, names).alias(_TARGET_ROW), row, number.alias(NUMBER))
        complete = pairing.complete(pairs, _TARGET_ROW, source_row)
        columns = {name: F.col(f"{_TARGET_ROW}.{quoted(name)}") for name in names}
        return self._scope(complete, columns, F.col(_TARGET_ROW))

    def _clause_number(self) -> Column | None:
        """The index of the first clause that applies to a row; None if the only clause applies to all rows."""
        source, clauses = self.change.source, self.change.clauses
        if source is None or (len(clauses) == 1 and clauses[0].of == MATCHED and clauses[0].condition is None):
            return None
        in_table, in_source = F.col(ROW).isNotNull(), F.col(next(iter(self.source_rows.values()))).isNotNull()
        kinds = {MATCHED: in_table & in_source, NOT_MATCHED: ~in_table, NOT_MATCHED_BY_SOURCE: ~in_source}
        case: Any = F
        for index, clause in enumerate(clauses):
            applies = kinds[clause.of]
            if clause.condition is not None:
                applies = applies & column(clause.condition)
            case = case.when(applies, F.lit(None if clause.action == NOTHING else index).cast("int"))
        number: Column = case
        return number

    # --- Names in expressions

    def _scope(self, frame: DataFrame, columns: Mapping[str, Column], target_row: Column) -> DataFrame:
        """Add the names that expressions may use: the aliases of the rows, and the columns of the table.

        A table column that has the alias of the table hides it, as in SQL: then the alias qualifies the columns. It
        cannot where a column has the alias of a source as well, because only a qualified name tells these apart.
        """
        taken, target = {name.lower() for name in columns}, self.change.target
        by_alias = target.lower() in taken and not taken.intersection(alias.lower() for alias in self.source_rows)
        rows = {alias: F.col(name) for alias, name in self.source_rows.items()}
        rows |= {} if by_alias else {target: target_row}
        hidden = {name.lower() for name in rows}
        flat = {name: value for name, value in columns.items() if name.lower() not in hidden}
        scope = frame.select("*", *(value.alias(name) for name, value in (rows | flat).items()))
        return scope.alias(target) if by_alias else scope

    # --- The new rows

    def _new_rows(self, rows: DataFrame) -> tuple[list[Column], list[Column]]:
        """The new row of each clause in the types of the table, null for DELETE; and the problems of its values."""
        types = {f.name: f.dataType.jsonValue() for f in rows.schema.fields}
        written = [one for one in self.fields.all if _is_written(one, self.change.clauses)]
        new: list[Column] = []
        problems: list[Column] = []
        for index, clause in enumerate(self.change.clauses):
            if clause.action in (DELETE, NOTHING):
                new.append(F.lit(None))
                continue
            values = []
            for one in written:
                raw = _raw(index, one["name"])
                value, problem = _unassigned(clause, one), None
                if one["name"] in clause.values:
                    replaces = clause.action == UPDATE
                    value, problem = assigned(F.col(quoted(raw)), types[raw], one, self.table, replaces=replaces)
                if one["name"] in self.fields.partitions and one["type"] == "string":
                    value = F.when(value != "", value)  # partition directories cannot tell an empty text from null
                values.append(value.alias(one["name"]))
                problems += [] if problem is None else [problem]
            new.append(F.struct(*values))
        return new, problems

    # --- RETURNING

    def _with_output(self, rows: DataFrame, returning: Sequence[Output]) -> DataFrame:
        """Add `OUT`: computed from the new values, or from the old values of deleted rows."""
        names = self.fields.names
        old = {name: F.col(f"{_TARGET_ROW}.{quoted(name)}") for name in names}
        written = [f.name for f in rows.schema[NEW].dataType] if NEW in rows.columns else []
        deleted = F.col(ACTION) == DELETE
        current = {
            name: F.when(deleted, old[name]).otherwise(F.col(f"{NEW}.{quoted(name)}")) if name in written else old[name]
            for name in names
        }
        whole = rows.select("*", *(value.alias(_current(name)) for name, value in current.items()))
        computed = [one for one in self.fields.all if written and one["name"] not in written]
        if computed:
            whole = self._with_generated(whole, computed)
        columns = {name: F.col(quoted(_current(name))) for name in names}
        row = F.struct(*(value.alias(name) for name, value in columns.items()))
        if any(name in str(output.expression) for output in returning for name in (OLD_ROW, NEW_ROW)):
            new = F.when(~deleted, row)
            whole = whole.select("*", F.col(_TARGET_ROW).alias(OLD_ROW), new.alias(NEW_ROW))
        return self._scope(whole, columns, row).withColumn(OUT, F.struct(*map(_output, returning)))

    def _with_generated(self, rows: DataFrame, computed: Sequence[Json]) -> DataFrame:
        """Compute generated columns in a scope that has the columns of the table and no other names."""
        columns = (F.col(quoted(_current(name))).alias(name) for name in self.fields.names)
        scope = rows.select(F.struct("*").alias(_WHOLE), *columns)
        deleted = F.col(f"{_WHOLE}.{ACTION}") == DELETE
        values = []
        for one in computed:
            value = expression(one["metadata"][GENERATED]).cast(ddl(one["type"]))
            values.append(F.when(deleted, F.col(quoted(one["name"]))).otherwise(value).alias(_current(one["name"])))
        carried = [name for name in rows.columns if name not in {_current(one["name"]) for one in computed}]
        return scope.select(*(F.col(f"{_WHOLE}.{quoted(name)}").alias(name) for name in carried), *values)


def _aliased(source: Source) -> DataFrame:
    rows: DataFrame = source.rows
    return rows if len(source.columns) > 1 else rows.alias(next(iter(source.columns)))


def _struct(alias: str, names: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"{quoted(alias)}.{quoted(name)}").alias(name) for name in names))


def _raw(index: int, name: str) -> str:
    """The column with the value of a table column in one clause, before it is cast."""
    return f"__deltasql_{index}_{name}"


def _current(name: str) -> str:
    return f"__deltasql_current_{name}"


def _output(output: Output) -> Column:
    value = column(output.expression)
    return value if output.name is None else value.alias(output.name)


def _in_clause(index: int, value: Column, *, several: bool) -> Column:
    """Compute a value for the rows of its clause alone: it may fail for other rows."""
    return F.when(F.col(_CLAUSE) == index, value) if several else value


def _of_clause(values: Sequence[Column], *, several: bool) -> Column:
    """The value of the clause that applies to a row."""
    if not several:
        return values[0]
    start: Any = F
    case: Column = reduce(lambda case, pair: case.when(F.col(_CLAUSE) == pair[0], pair[1]), enumerate(values), start)
    return case


def _is_written(field: Json, clauses: Sequence[Clause]) -> bool:
    """Return whether a column is part of new rows; generated columns are only if a value is given."""
    if GENERATED not in (field.get("metadata") or {}):
        return True
    return any(field["name"] in clause.values for clause in clauses)


def _unassigned(clause: Clause, field: Json) -> Column:
    """The value of a column without an assignment: the old value, or for an INSERT the default."""
    if clause.action != INSERT:
        return F.col(f"{_TARGET_ROW}.{quoted(field['name'])}")
    default = (field.get("metadata") or {}).get(DEFAULT)
    return (F.lit(None) if default is None else expression(default)).cast(ddl(field["type"]))
