"""What Spark finds wrong with the expressions of a statement, said of these and of the columns that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deltasql.engines.row_change import MERGE, SOURCE, TARGET, WRITE, Statement
from deltasql.engines.spark.analysis_errors import QueryProblem, query_problem
from deltasql.errors import DeltaSqlError, ValidationError

_OURS = re.compile(r"__deltasql_(?:\d+_|seen_)?")
_MOST = 300


@contextmanager
def blamed(operation: str, statement: Statement, table: str, columns: Sequence[str]) -> Iterator[None]:
    """Let what Spark complains about be an error of the statement; the cause is chained. One that is made of queries
    has a text of its own, and is explained by that."""
    try:
        yield
    except DeltaSqlError:
        raise
    except Exception as error:
        found = query_problem(error, (TARGET, SOURCE)) if statement.queries is None else None
        if found is None:
            raise
        texts = _blamed(list(_texts(operation, statement)), found, str(error))
        lines = "".join(f"\n  {label}: {text[:_MOST]}" for label, text in texts)
        problem = _OURS.sub("", _problem(found, statement, columns))
        value = texts[0][1] if texts else None
        raise ValidationError(f"table {table}: {problem}{lines}", table=table, value=value) from error


def _problem(found: QueryProblem, statement: Statement, columns: Sequence[str]) -> str:
    if found.kind not in ("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND"):
        return found.message
    known = f"the table ({TARGET}) has {', '.join(columns)}"
    if statement.source is not None:
        known += f"; the source ({SOURCE}) has {', '.join(statement.source.columns)}"
    if found.kind == "FIELD_NOT_FOUND":  # of a struct, which may be a row
        return f"{found.message}; {known}"
    return f'column "{".".join(found.name)}" does not exist: {known}'


def _blamed(texts: list[tuple[str, str]], found: QueryProblem, error: str) -> list[tuple[str, str]]:
    """The expressions that a problem is about: those with the name that it has, else those that Spark shows, else
    all."""
    name = re.compile(rf"(?<!\w){re.escape(found.name[-1])}(?!\w)", re.IGNORECASE) if found.name else None
    named = [pair for pair in texts if name is not None and name.search(pair[1])]
    return named or [pair for pair in texts if pair[1] in error] or texts


def _texts(operation: str, statement: Statement) -> Iterator[tuple[str, str]]:
    """The expressions of a statement, each with what it is for."""
    if statement.condition is not None and operation != WRITE:
        yield "on" if operation == MERGE else "where", str(statement.condition)
    for clause in statement.clauses:
        if clause.condition is not None:
            yield "condition", str(clause.condition)
        yield from ((name, str(value)) for name, value in clause.values.items())
    yield from (("returning", str(one)) for one in statement.returning or ())
