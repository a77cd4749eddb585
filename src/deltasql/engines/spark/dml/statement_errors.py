"""Translate Spark's errors about the expressions of a row change that methods described."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from deltasql.engines.row_change import MERGE, RowChange
from deltasql.engines.spark.analysis_errors import QueryProblem, translated_query_errors
from deltasql.errors import ValidationError

_INTERNAL_PREFIX = re.compile(r"__deltasql_(?:\d+_|current_)?")
_MAX_SHOWN = 300


def translated_errors(
    operation: str, change: RowChange, table: str, columns: Sequence[str]
) -> AbstractContextManager[None]:
    """Raise Spark's errors as a ValidationError that shows the expressions."""

    def translate(problem: QueryProblem, error: Exception) -> ValidationError:
        texts = _concerned(list(_expressions(operation, change)), problem, str(error))
        lines = "".join(f"\n  {label}: {text[:_MAX_SHOWN]}" for label, text in texts)
        message = _INTERNAL_PREFIX.sub("", _message(problem, change, columns))
        value = texts[0][1] if texts else None
        return ValidationError(f"table {table}: {message}{lines}", table=table, value=value)

    return translated_query_errors(translate, (change.target, *(change.source.columns if change.source else ())))


def _message(problem: QueryProblem, change: RowChange, columns: Sequence[str]) -> str:
    if problem.kind not in ("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND"):
        return problem.message
    known = f"the table ({change.target}) has {', '.join(columns)}"
    for alias, names in change.source.columns.items() if change.source else ():
        known += f"; the source ({alias}) has {', '.join(names)}"
    if problem.kind == "FIELD_NOT_FOUND":  # rows are structs in a merge
        return f"{problem.message}; {known}"
    return f'column "{".".join(problem.name)}" does not exist: {known}'


def _concerned(texts: list[tuple[str, str]], problem: QueryProblem, error: str) -> list[tuple[str, str]]:
    """Return the expressions with the name that the problem has, else those that Spark quotes, else all."""
    name = re.compile(rf"(?<!\w){re.escape(problem.name[-1])}(?!\w)", re.IGNORECASE) if problem.name else None
    named = [pair for pair in texts if name is not None and name.search(pair[1])]
    return named or [pair for pair in texts if pair[1] in error] or texts


def _expressions(operation: str, change: RowChange) -> Iterator[tuple[str, str]]:
    """Yield the expressions of a change, each with its role."""
    if change.condition is not None:
        yield "on" if operation == MERGE else "where", str(change.condition)
    for clause in change.clauses:
        if clause.condition is not None:
            yield "condition", str(clause.condition)
        yield from ((name, str(value)) for name, value in clause.values.items())
    yield from (("returning", str(output.expression)) for output in change.returning or ())
