"""Build row changes from the arguments of `Table.insert`, `update`, `delete` and `merge`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltasql.engines.arrow.write.input_rows import arrow_rows, is_spark_frame
from deltasql.engines.row_change import (
    ACTION,
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
    Output,
    RowChange,
    Source,
    unreachable,
)
from deltasql.errors import UsageError, ValidationError, unknown_column
from deltasql.operations.dml import Change, history_parameters
from deltasql.operations.overwrite import metadata_of
from deltasql.operations.write import fields_of
from deltasql.protocol.table_changes import TableState

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession

ChangeBuilder = Callable[["SourceFrames", TableState], Change]
"""Builds a change for the current state of a table; a retry builds the change again for the latest state."""

_MERGE_ACTION = "merge_action()"
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

    def source(self, data: Any) -> Source | None:
        """Return `data` as the source of a change, or None without data."""
        return None if data is None else Source.of(self.frame(data))

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
        return Change(WRITE, RowChange((clause,), None, Source.of(frame), _outputs(returning, state)), None, parameters)

    return build


def update(values: Mapping[str, Expression], where: Expression | None, source: Any, returning: Any) -> ChangeBuilder:
    """Return a builder that sets columns of the rows for which `where` is true."""

    def build(sources: SourceFrames, state: TableState) -> Change:
        if not values:
            raise UsageError(f"table {state.name}: an update needs a column and its value", table=state.name)
        clause = Clause(UPDATE, values=_named(values, state))
        return _change(RowChange((clause,), where, sources.source(source), _outputs(returning, state)), state)

    return build


def delete(where: Expression | None, source: Any, returning: Any) -> ChangeBuilder:
    """Return a builder that deletes the rows for which `where` is true."""

    def build(sources: SourceFrames, state: TableState) -> Change:
        return _change(RowChange((Clause(DELETE),), where, sources.source(source), _outputs(returning, state)), state)

    return build


def _change(rows: RowChange, state: TableState) -> Change:
    where = rows.condition
    pruning, exact = _pruning(where, state)
    action = rows.clauses[0].action
    parameters = history_parameters(action, None if where is None else str(where))
    return Change(action, rows, pruning, parameters, pruning_is_exact=exact)


def merge(source: Any, on: Expression, clauses: Sequence[Clause], returning: Any) -> ChangeBuilder:
    """Return a builder that merges source rows into a table."""
    if on is None:
        raise UsageError("a merge needs a condition by which rows match: on='t.id = s.id'")
    if (index := unreachable(clauses)) is not None:
        clause = f"{clauses[index].action.lower()} of rows {clauses[index].of}"
        raise UsageError(
            f"a merge has a clause that no row reaches ({clause}): an earlier clause of its kind has no condition",
            value=clause,
        )

    def build(sources: SourceFrames, state: TableState) -> Change:
        frame = sources.frame(source)
        named = tuple(replace(c, values=_clause_values(c, frame.columns, state)) for c in clauses)
        rows = RowChange(named, on, Source.of(frame), _outputs(returning, state))
        pruning, _ = _pruning(on, state)
        return Change(MERGE, rows, pruning, merge_parameters(on, named))

    return build


def merge_parameters(on: Expression, clauses: Sequence[Clause]) -> dict[str, str]:
    """Return the operation parameters of a MERGE, in the format of Delta Lake."""
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


def _clause_values(clause: Clause, given: Sequence[str], state: TableState) -> Mapping[str, Expression]:
    if clause.values is not SAME_NAMES:
        return _named(clause.values, state)
    return _same_names(given, state)


def _same_names(given: Sequence[str], state: TableState) -> dict[str, Expression]:
    """Return the source columns as values of the table columns of the same name."""
    from deltasql.protocol.constraints import quoted

    fields = fields_of(state)
    sources = {name.lower(): name for name in given}
    unknown = sources.keys() - {f["name"].lower() for f in fields}
    if unknown:
        names = ", ".join(sorted(sources[name] for name in unknown))
        raise ValidationError(
            f"table {state.name} has no column for {names} of the source: name the columns and their values",
            table=state.name,
            value=names,
        )
    return {f["name"]: f"{SOURCE}.{quoted(sources[f['name'].lower()])}" for f in fields if f["name"].lower() in sources}


def _named(values: Mapping[str, Expression], state: TableState) -> dict[str, Expression]:
    """Return the values with the column names in the table's case."""
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


def _pruning(condition: Expression | None, state: TableState) -> tuple[str | None, bool]:
    """Return the part of a condition that reads only the table, and whether that is the whole condition."""
    if not isinstance(condition, str):
        return None, False
    from deltasql.expressions.conjuncts import is_own, own_part  # imports sqlglot, which is slow

    columns = [f["name"] for f in fields_of(state)]
    return own_part(condition, {TARGET}, columns), is_own(condition, {TARGET}, columns)


def _outputs(returning: Any, state: TableState) -> list[Output] | None:
    """Return the values to return for each row: `*` becomes all columns, and column names get the table's case."""
    if returning is None:
        return None
    names = [f["name"] for f in fields_of(state)]
    own = {way: name for name in names for way in (name.lower(), f"{TARGET}.{name}".lower())}
    outputs: list[Output] = []
    for item in returning if isinstance(returning, list | tuple) else [returning]:
        text = item.strip() if isinstance(item, str) else ""
        if text in ("*", f"{TARGET}.*"):
            outputs += [_column_output(name) for name in names]
        elif text.lower() == _MERGE_ACTION:
            outputs.append(Output(ACTION, "merge_action"))
        elif text.lower() in own:
            outputs.append(_column_output(own[text.lower()]))
        else:
            outputs.append(Output(item))
    return outputs


def _column_output(name: str) -> Output:
    from deltasql.protocol.constraints import quoted

    return Output(f"{TARGET}.{quoted(name)}", name)
