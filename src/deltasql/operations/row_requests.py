"""What users ask of a table's rows, as changes: names are checked, sources become frames."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

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
from deltasql.errors import CommitConflict, UsageError, ValidationError, unknown_column
from deltasql.operations.dml import Change, told_of
from deltasql.operations.write import fields_of, metadata_of
from deltasql.protocol.table_changes import TableState

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PAUSE = 0.05
Request = Callable[[TableState], Change]
"""A change of a table as it is now: one that is run again finds another table."""


def insert(data: Any, returning: Any, session: Session) -> Request:
    """Add rows, and see what they became: defaults and generated columns included."""
    frame = session.frame(data)

    def request(state: TableState) -> Change:
        clause = Clause(INSERT, NOT_MATCHED, None, _same_names(frame.columns, state))
        parameters = {"mode": "Append", "partitionBy": json.dumps(list(metadata_of(state).partition_columns))}
        return Change(WRITE, Statement((clause,), "false", frame, _listed(returning)), None, parameters)

    return request


def update(
    values: Mapping[str, Expression], where: Expression | None, source: Any, returning: Any, session: Session
) -> Request:
    """Give columns of some rows other values."""
    given = session.kept(source)

    def request(state: TableState) -> Change:
        if not values:
            raise UsageError(f"table {state.name}: an update needs a column and its value", table=state.name)
        clause = Clause(UPDATE, values=_named(values, state))
        return _change(Statement((clause,), where, session.source(given), _listed(returning)), state)

    return request


def delete(where: Expression | None, source: Any, returning: Any, session: Session) -> Request:
    """Take rows out."""
    given = session.kept(source)
    clauses = (Clause(DELETE),)
    return lambda state: _change(Statement(clauses, where, session.source(given), _listed(returning)), state)


def _change(statement: Statement, state: TableState) -> Change:
    where = statement.condition
    own, whole = _own(where, state)
    action = statement.clauses[0].action
    told = told_of(action, None if where is None else str(where))
    return Change(action, statement, own, told, own_is_all=whole)


@dataclass(frozen=True, slots=True)
class Session:
    """Where sources become frames."""

    spark: Callable[[], SparkSession]
    read: Callable[[Any], DataFrame]
    """The rows of a table of the lake, which may be given by its name."""

    def kept(self, data: Any) -> Any:
        """Rows of any kind so that they can be read again; a table of the lake is read anew each time."""
        return data if data is None or is_table(data) else self.frame(data)

    def source(self, data: Any) -> DataFrame | None:
        """Rows of any kind as a frame, if there are any."""
        return None if data is None else self.frame(data)

    def frame(self, data: Any) -> DataFrame:
        """Rows of any kind as a frame."""
        if is_spark_frame(data):
            frame: DataFrame = data
            return frame
        if is_table(data):
            return self.read(data)
        return self.spark().createDataFrame(arrow_rows(data).reader.read_all())


Asked = Callable[[Session], Request]
"""A change, once it is known where sources become frames."""


@dataclass(frozen=True)
class Merge:
    """A merge that is being put together: clauses apply in the order in which they were named, each row to the first
    that fits. `execute` runs it."""

    source: Any
    on: Expression
    run: Callable[[Asked], Any] = field(repr=False)
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(
        self, values: Mapping[str, Expression] | None = None, condition: Expression | None = None
    ) -> Self:
        """Rows that match get other values; without any, all columns that the source has by the same name."""
        return self._with(Clause(UPDATE, MATCHED, condition, _all_if_none(values)))

    def when_matched_delete(self, condition: Expression | None = None) -> Self:
        """Rows that match go."""
        return self._with(Clause(DELETE, MATCHED, condition))

    def when_not_matched_insert(
        self, values: Mapping[str, Expression] | None = None, condition: Expression | None = None
    ) -> Self:
        """Rows of the source that match none come in; without values, by columns of the same name."""
        return self._with(Clause(INSERT, NOT_MATCHED, condition, _all_if_none(values)))

    def when_not_matched_by_source_update(
        self, values: Mapping[str, Expression], condition: Expression | None = None
    ) -> Self:
        """Rows that no row of the source matches get other values."""
        return self._with(Clause(UPDATE, NOT_MATCHED_BY_SOURCE, condition, dict(values)))

    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> Self:
        """Rows that no row of the source matches go."""
        return self._with(Clause(DELETE, NOT_MATCHED_BY_SOURCE, condition))

    def execute(self, returning: Any = None) -> Any:
        """Run it: where it landed, or with `returning` a DataFrame of what became of each row."""
        if not self.clauses:
            raise UsageError("a merge needs a clause: when_matched_update(…), when_not_matched_insert(…), …")
        return self.run(lambda session: merge(self.source, self.on, self.clauses, returning, session))

    def _with(self, clause: Clause) -> Self:
        return replace(self, clauses=(*self.clauses, clause))


def is_table(data: Any) -> bool:
    """Is it a table of a lake, or the name of one?"""
    return isinstance(data, str) or (hasattr(data, "df") and hasattr(data, "history"))


_ALL: Mapping[str, Expression] = {"*": f"{SOURCE}.*"}


def _all_if_none(values: Mapping[str, Expression] | None) -> Mapping[str, Expression]:
    return _ALL if values is None else dict(values)


def merge(source: Any, on: Expression, clauses: Sequence[Clause], returning: Any, session: Session) -> Request:
    """Bring rows of a source into a table."""
    if on is None:
        raise UsageError("a merge needs a condition by which rows match: on='t.id = s.id'")
    if (dead := unreachable(clauses)) is not None:
        which = f"{clauses[dead].action.lower()} of rows {clauses[dead].of}"
        raise UsageError(
            f"a merge has a clause that no row reaches ({which}): one of its kind without a condition comes before",
            value=which,
        )
    kept = session.kept(source)

    def request(state: TableState) -> Change:
        given = session.frame(kept)
        named = tuple(replace(c, values=_values(c, given.columns, state)) for c in clauses)
        statement = Statement(named, on, given, _listed(returning))
        own, _ = _own(on, state)
        return Change(MERGE, statement, own, merge_parameters(on, named))

    return request


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
    if clause.values is not _ALL:
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


def run_again(attempt: Callable[[], T], retries: Callable[[CommitConflict], int]) -> T:
    """Run a statement; if others changed the same rows meanwhile, again on what is there then, as often as is asked for
    in such a case."""
    number = 0
    while True:
        try:
            return attempt()
        except CommitConflict as conflict:
            most, number = retries(conflict), number + 1
            if number > most:
                raise
            pause = random.uniform(0.5, 1.5) * _PAUSE * 2 ** (number - 1)  # noqa: S311 - jitter
            _log.warning("run again in %.2f s (%d of %d): %s", pause, number, most, conflict)
            time.sleep(pause)


def _listed(returning: Any) -> Sequence[Expression] | None:
    if returning is None or isinstance(returning, list | tuple):
        return returning
    return [returning]
