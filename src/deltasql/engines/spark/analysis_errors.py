"""Shorten Spark's query errors: keep the subject, drop plans, positions and deltasql's internal names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
    UnsupportedOperationException,
)

from deltasql.engines.spark.error_logs import without_error_logs
from deltasql.errors import DeltaSqlError, ValidationError

_QUERY_ERRORS = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
    UnsupportedOperationException,
)
_QUERY_STATES, _FILE_STATES = ("0A", "21", "22", "23", "42"), ("KD",)
"""Prefixes of the SQLSTATEs of invalid queries, and of invalid files."""
_HEAD = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_TAIL = re.compile(r"\s*(SQLSTATE: \w+|; line \d+ pos \d+|== SQL|== DataFrame|\n'|\n\+-).*", re.DOTALL)
_ADVICE = re.compile(r"\s*(\n|Use [`']try_|Correct the value|If necessary set|Please,? ).*", re.DOTALL)
_INTERNAL_NAME = re.compile(r"`?(?:_pyspark_[0-9a-f]+|__deltasql_\w+)`?\.")
_NAME = re.compile(r"`((?:[^`]|``)*)`")
_MAX_LENGTH = 400
_MAX_CAUSES = 20


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """A problem of a query, and the name that it concerns, if any."""

    message: str
    name: tuple[str, ...] = ()
    kind: str = ""
    """Spark's error condition."""


@dataclass(frozen=True, slots=True)
class _SparkError:
    condition: str
    state: str
    message: str
    parameters: Mapping[str, str]


def query_problem(error: Exception, tables: Collection[str] = (), *, files: bool = False) -> QueryProblem | None:
    """Return the problem of a query that an error reports, or None if the error has another cause.

    Args:
        error: An error raised by Spark.
        tables: Names of the query's tables, which are no columns to suggest.
        files: Whether problems of files that the query reads count too.
    """
    errors = list(_spark_errors(error, (*_QUERY_STATES, *(_FILE_STATES if files else ()))))
    for cause in reversed(errors):  # the innermost is the most specific
        kind = cause.condition.partition(".")[0]
        if kind in _MESSAGES:
            return QueryProblem(_MESSAGES[kind](cause.parameters, tables), _subject(cause.parameters), kind)
    if not errors:
        return None
    message = ": ".join(dict.fromkeys(_short(cause.message) for cause in errors if cause.message))
    return QueryProblem(message[:_MAX_LENGTH], _subject(errors[-1].parameters), errors[-1].condition.partition(".")[0])


def _cause_of(error: Exception) -> Exception | None:
    """Return an error to be shown as a cause: not one of Py4J, whose text is a stack trace of the JVM."""
    return error if isinstance(error, PySparkException) else None


@contextmanager
def translated_query_errors(
    translate: Callable[[QueryProblem, Exception], Exception], tables: Collection[str] = (), *, files: bool = False
) -> Iterator[None]:
    """Raise the problems of queries that Spark reports as other errors, with the cause chained, and keep them out of
    PySpark's log. `translate` makes the error; `tables` and `files` are those of `query_problem`."""
    try:
        with without_error_logs():
            yield
    except DeltaSqlError:
        raise
    except Exception as error:
        problem = query_problem(error, tables, files=files)
        if problem is None:
            raise
        raise translate(problem, error) from _cause_of(error)


def computed_rows(table: str) -> AbstractContextManager[None]:
    """Raise Spark's errors about rows that are written to a table as a ValidationError."""

    def translate(problem: QueryProblem, _: Exception) -> ValidationError:
        text = f"table {table}: the rows cannot be computed, so nothing was written: {problem.message}"
        return ValidationError(text, table=table)

    return translated_query_errors(translate)


def _spark_errors(error: Exception, states: tuple[str, ...]) -> Iterator[_SparkError]:
    """Yield an error's causes, the outermost first."""
    if isinstance(error, _QUERY_ERRORS) and isinstance(error, PySparkException):
        condition = error.getCondition()
        text = error.getMessage() or str(error)
        if condition or isinstance(error, AnalysisException):
            yield _SparkError(condition or "", error.getSqlState() or "", text, error.getMessageParameters() or {})
    elif hasattr(error, "java_exception"):  # an error of Py4J, which Spark Connect does not need
        causes = list(_java_errors(error.java_exception))
        yield from causes if any(cause.state.startswith(states) for cause in causes) else []


def _java_errors(error: Any) -> Iterator[_SparkError]:
    from py4j.protocol import Py4JError

    depth = 0
    while error is not None and depth < _MAX_CAUSES:
        try:
            condition, state = error.getCondition(), error.getSqlState()
            yield _SparkError(
                str(condition or ""), str(state or ""), error.getMessage() or "", error.getMessageParameters()
            )
        except Py4JError:  # not an exception of Spark, so it lacks these methods
            pass
        error, depth = error.getCause(), depth + 1


def _subject(parameters: Mapping[str, str]) -> tuple[str, ...]:
    kind = (parameters.get("typeName") or "").strip('"') or (parameters.get("error") or "").strip("'")
    names = (_name(parameters.get(key) or "") for key in ("routineName", "objectName", "fieldName", "name"))
    return next(filter(None, names), (kind,) if kind else ())


def _name(text: str) -> tuple[str, ...]:
    """Return the parts of a name in Spark's notation: `t`.`id`."""
    return tuple(part.replace("``", "`") for part in _NAME.findall(_INTERNAL_NAME.sub("", text)))


def _short(message: str) -> str:
    return _INTERNAL_NAME.sub("", _ADVICE.sub("", _TAIL.sub("", _HEAD.sub("", message)))).strip().rstrip(".")


def _column(parameters: Mapping[str, str], tables: Collection[str]) -> str:
    close = [".".join(_name(part)) for part in parameters.get("proposal", "").split(", ")]
    shown = [name for name in close if name and name not in tables and "__deltasql_" not in name]
    hint = f" (existing columns: {', '.join(dict.fromkeys(shown))})" if shown else ""
    return f'column "{".".join(_subject(parameters))}" does not exist{hint}'


def _field(parameters: Mapping[str, str], _: Collection[str]) -> str:
    known = ", ".join(".".join(_name(part)) for part in parameters.get("fields", "").split(", "))
    return f'field "{".".join(_subject(parameters))}" does not exist (existing fields: {known})'


def _ambiguous(parameters: Mapping[str, str], _: Collection[str]) -> str:
    ways = [".".join(_name(part)) for part in parameters.get("referenceNames", "").split(", ")]
    shown = " or ".join(dict.fromkeys(way for way in ways if way))
    return f'column "{".".join(_subject(parameters))}" is ambiguous: write {shown}'


def _routine(parameters: Mapping[str, str], _: Collection[str]) -> str:
    return f"function {'.'.join(_subject(parameters)).lower()} does not exist"


def _path(parameters: Mapping[str, str], _: Collection[str]) -> str:
    return f"path {parameters.get('path', '')} does not exist"


def _record(parameters: Mapping[str, str], _: Collection[str]) -> str:
    row = parameters.get("badRecord") or ""
    shown = "" if row.startswith("_") else f": {row[:_MAX_LENGTH]}"
    return f"the file has a row that cannot be parsed, or whose columns differ from the expected ones{shown}"


_MESSAGES = {
    "UNRESOLVED_COLUMN": _column,
    "FIELD_NOT_FOUND": _field,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "UNRESOLVED_ROUTINE": _routine,
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": _routine,
    "PATH_NOT_FOUND": _path,
    "MALFORMED_CSV_RECORD": _record,
    "MALFORMED_RECORD_IN_PARSING": _record,
}
