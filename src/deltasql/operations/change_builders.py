"""Build row changes from the arguments of `Table.insert`, `update`, `delete` and `merge`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltasql.engines.arrow.write.input_rows import arrow_rows, is_spark_frame
from deltasql.engines.row_change import (
    DELETE,
    INSERT,
    MATCHED,
    MERGE,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    SOURCE,
    TARGET,
    UPDATE,
    WRITE,
    Clause,
    Expression,
    Statement,
    unreachable,
)
from deltasql.errors import UsageError, ValidationError, unknown_column
from deltasql.operations.dml import Change, history_parameters
from deltasql.operations.write import fields_of, metadata_of
from deltasql.protocol.table_changes import TableState

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession

ChangeBuilder = Callable[["SourceFrames", TableState], Change]
"""Builds a change for the current state of a table; a retry builds the change again for the latest state."""

SAME_NAMES: Mapping[str, Expression] = {"*": f"{SOURCE}.*"}
"""The values of a clause that takes every source column for the table column of the same name."""


@dataclass(frozen=True, slots=True)
class SourceFrames:
    """Converts the sources of changes to Spark frames."""

    spark: Callable[[], SparkSession]
    read: Callable[[Any], DataFrame]
    """Reads a table of the lake, given as a Table or by its name."""

    def rereadable(self, data: Any) -> Any:
        """Return `data` so that it can be read several times. Tables stay: every attempt reads their latest rows."""
        return data if data is None or is_table(data) else self.frame(data)

    def source(self, data: Any) -> DataFrame | None:
        """Return `data` as a frame, or None without data."""
        return None if data is None else self.frame(data)

    def frame(self, data: Any) -> DataFrame:
        """Return rows of any supported kind as a frame."""
        if is_spark_frame(data):
            frame: DataFrame = data
            return frame
        if is_table(data):
            return self.read(data)
        return self.spark().createDataFrame(arrow_rows(data).reader.read_all())


def is_table(data: Any) -> bool:
    """Return whether `data` is a table of a lake or the name of one."""
    return isinstance(data, str) or (hasattr(data, "df") and hasattr(data, "history"))


def insert(data: Any, returning: Any) -> ChangeBuilder:
    """Return a builder that inserts rows and returns them with defaults and generated columns."""

    def build(sources: SourceFrames, state: TableState) -> Change:
        frame = sources.frame(data)
        clause = Clause(INSERT, NOT_MATCHED, None, _same_names(frame.columns, state))
        parameters = {"mode": "Append", "partitionBy": json.dumps(list(metadata_of(state).partition_columns))}
        return Change(WRITE, Statement((clause,), "false", frame, _listed(returning)), None, parameters)

    return build


def update(values: Mapping[str, Expression], where: Expression | None, source: Any, returning: Any) -> ChangeBuilder:
    """Return a builder that sets columns of the rows for which `where` is true."""

    def build(sources: SourceFrames, state: TableState) -> Change:
        if not values:
            raise UsageError(f"table {state.name}: an update needs a column and its value", table=state.name)
        clause = Clause(UPDATE, values=_named(values, state))
        return _change(Statement((clause,), where, sources.source(source), _listed(returning)), state)

    return build


def delete(where: Expression | None, source: Any, returning: Any) -> ChangeBuilder:
    """Return a builder that deletes the rows for which `where` is true."""

    def build(sources: SourceFrames, state: TableState) -> Change:
        return _change(Statement((Clause(DELETE),), where, sources.source(source), _listed(returning)), state)

    return build


def _change(statement: Statement, state: TableState) -> Change:
    where = statement.condition
    own, whole = _own(where, state)
    action = statement.clauses[0].action
    parameters = history_parameters(action, None if where is None else str(where))
    return Change(action, statement, own, parameters, own_is_all=whole)


def merge(source: Any, on: Expression, clauses: Sequence[Clause], returning: Any) -> ChangeBuilder:
    """Return a builder that merges source rows into a table."""
    if on is None:
        raise UsageError("a merge needs a condition by which rows match: on='t.id = s.id'")
    if (dead := unreachable(clauses)) is not None:
        which = f"{clauses[dead].action.lower()} of rows {clauses[dead].of}"
        raise UsageError(
            f"a merge has a clause that no row reaches ({which}): one of its kind without a condition comes before",
            value=which,
        )

    def build(sources: SourceFrames, state: TableState) -> Change:
        given = sources.frame(source)
        named = tuple(replace(c, values=_values(c, given.columns, state)) for c in clauses)
        statement = Statement(named, on, given, _listed(returning))
        own, _ = _own(on, state)
        return Change(MERGE, statement, own, merge_parameters(on, named))

    return build


def merge_parameters(on: Expression, clauses: Sequence[Clause]) -> dict[str, str]:
    """What history shows of a merge, as Delta's own Spark writes it."""
    lists: dict[str, list[dict[str, str]]] = {MATCHED: [], NOT_MATCHED: [], NOT_MATCHED_BY_SOURCE: []}
    for clause in clauses:
        shown = {} if clause.condition is None else {"predicate": str(clause.condition)}
        lists[clause.of].append({**shown, "actionType": clause.action.lower()})
    return {
        "predicate": json.dumps([str(on)], ensure_ascii=False),
        "matchedPredicates": json.dumps(lists[MATCHED], ensure_ascii=False),
        "notMatchedPredicates": json.dumps(lists[NOT_MATCHED], ensure_ascii=False),
        "notMatchedBySourcePredicates": json.dumps(lists[NOT_MATCHED_BY_SOURCE], ensure_ascii=False),
    }


def _values(clause: Clause, given: Sequence[str], state: TableState) -> Mapping[str, Expression]:
    if clause.values is not SAME_NAMES:
        return _named(clause.values, state)
    return _same_names(given, state)


def _same_names(given: Sequence[str], state: TableState) -> dict[str, Expression]:
    """Columns of a source for the table's columns of the same name."""
    from deltasql.protocol.constraints import quoted

    fields = fields_of(state)
    sources = {name.lower(): name for name in given}
    unknown = sources.keys() - {f["name"].lower() for f in fields}
    if unknown:
        names = ", ".join(sorted(sources[name] for name in unknown))
        raise ValidationError(
            f"table {state.name} has no column for {names} of the source: name the columns and their values",
            value=names,
        )
    return {f["name"]: f"{SOURCE}.{quoted(sources[f['name'].lower()])}" for f in fields if f["name"].lower() in sources}


def _named(values: Mapping[str, Expression], state: TableState) -> dict[str, Expression]:
    """Values by the names that the table's columns have."""
    fields = fields_of(state)
    known = {f["name"].lower(): f for f in fields}
    found: dict[str, Expression] = {}
    for name, value in values.items():
        one = known.get(name.lower()) or known.get(name.removeprefix(f"{TARGET}.").lower())
        if one is None:
            problem = unknown_column(name, [f["name"] for f in fields])
            raise ValidationError(f"table {state.name}: {problem}", table=state.name, value=name)
        if one["name"] in found:
            raise ValidationError(f"table {state.name}: column {one['name']!r} gets two values", value=name)
        found[one["name"]] = value
    return found


def _own(condition: Expression | None, state: TableState) -> tuple[str | None, bool]:
    """The part of a condition that speaks of the table alone, and whether that is all of it."""
    if not isinstance(condition, str):
        return None, False
    from deltasql.expressions.conjuncts import is_own, own_part  # brings sqlglot, which is slow to import

    columns = [f["name"] for f in fields_of(state)]
    return own_part(condition, {TARGET}, columns), is_own(condition, {TARGET}, columns)


def _listed(returning: Any) -> Sequence[Expression] | None:
    if returning is None or isinstance(returning, list | tuple):
        return returning
    return [returning]
