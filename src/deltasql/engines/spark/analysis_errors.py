"""Spark's errors about a query in few words: what it is about, without plans, positions and names that are ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
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

_ABOUT_QUERIES = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
    UnsupportedOperationException,
)
_OF_STATEMENTS, _OF_FILES = ("0A", "21", "22", "23", "42"), ("KD",)
"""SQLSTATEs that say that a query is wrong, and that a file is."""
_HEAD = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_TAIL = re.compile(r"\s*(SQLSTATE: \w+|; line \d+ pos \d+|== SQL|== DataFrame|\n'|\n\+-).*", re.DOTALL)
_ADVICE = re.compile(r"\s*(\n|Use `try_|Correct the value|If necessary set|Please,? ).*", re.DOTALL)
_OURS = re.compile(r"`?(?:_pyspark_[0-9a-f]+|__deltasql_\w+)`?\.")
_NAME = re.compile(r"`((?:[^`]|``)*)`")
_MOST = 400
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """What is wrong, and the name that it is about, if there is one."""

    message: str
    name: tuple[str, ...] = ()
    kind: str = ""
    """Spark's word for it."""


@dataclass(frozen=True, slots=True)
class _Told:
    condition: str
    state: str
    message: str
    parameters: Mapping[str, str]


def query_problem(error: Exception, tables: Collection[str] = (), *, files: bool = False) -> QueryProblem | None:
    """What an error says about a query of some tables, or with `files` about those that it reads; None if it is about
    neither."""
    told = list(_told(error, (*_OF_STATEMENTS, *(_OF_FILES if files else ()))))
    for one in reversed(told):  # the innermost says most
        kind = one.condition.partition(".")[0]
        if kind in _WORDS:
            return QueryProblem(_WORDS[kind](one.parameters, tables), _about(one.parameters), kind)
    if not told:
        return None
    message = ": ".join(dict.fromkeys(_short(one.message) for one in told if one.message))
    return QueryProblem(message[:_MOST], _about(told[-1].parameters), told[-1].condition.partition(".")[0])


def _told(error: Exception, states: tuple[str, ...]) -> Iterator[_Told]:
    """What each of an error's causes says, the outermost first."""
    if isinstance(error, _ABOUT_QUERIES) and isinstance(error, PySparkException):
        condition = error.getCondition()
        text = error.getMessage() or str(error)
        if condition or isinstance(error, AnalysisException):
            yield _Told(condition or "", error.getSqlState() or "", text, error.getMessageParameters() or {})
    elif hasattr(error, "java_exception"):  # of Py4J, which Spark Connect does not need
        found = list(_told_by_java(error.java_exception))
        yield from found if any(told.state.startswith(states) for told in found) else []


def _told_by_java(error: Any) -> Iterator[_Told]:
    from py4j.protocol import Py4JError

    depth = 0
    while error is not None and depth < _DEEPEST:
        try:
            condition, state = error.getCondition(), error.getSqlState()
            yield _Told(str(condition or ""), str(state or ""), error.getMessage() or "", error.getMessageParameters())
        except Py4JError:  # an error of Java's that is none of Spark's, and has no such methods
            pass
        error, depth = error.getCause(), depth + 1


def _about(parameters: Mapping[str, str]) -> tuple[str, ...]:
    kind = (parameters.get("typeName") or "").strip('"') or (parameters.get("error") or "").strip("'")
    names = (_name(parameters.get(key) or "") for key in ("routineName", "objectName", "fieldName", "name"))
    return next(filter(None, names), (kind,) if kind else ())


def _name(text: str) -> tuple[str, ...]:
    """The parts of a name as Spark writes it: `t`.`id`."""
    return tuple(part.replace("``", "`") for part in _NAME.findall(_OURS.sub("", text)))


def _short(message: str) -> str:
    return _OURS.sub("", _ADVICE.sub("", _TAIL.sub("", _HEAD.sub("", message)))).strip().rstrip(".")


def _column(parameters: Mapping[str, str], tables: Collection[str]) -> str:
    near = [".".join(_name(part)) for part in parameters.get("proposal", "").split(", ")]
    shown = [name for name in near if name and name not in tables and "__deltasql_" not in name]
    hint = f": there are {', '.join(dict.fromkeys(shown))}" if shown else ""
    return f"there is no column {'.'.join(_about(parameters))}{hint}"


def _field(parameters: Mapping[str, str], _: Collection[str]) -> str:
    known = ", ".join(".".join(_name(part)) for part in parameters.get("fields", "").split(", "))
    return f"there is no field {'.'.join(_about(parameters))}: there are {known}"


def _ambiguous(parameters: Mapping[str, str], _: Collection[str]) -> str:
    ways = [".".join(_name(part)) for part in parameters.get("referenceNames", "").split(", ")]
    shown = " or ".join(dict.fromkeys(way for way in ways if way))
    return f"column {'.'.join(_about(parameters))} may be {shown}: say which"


def _routine(parameters: Mapping[str, str], _: Collection[str]) -> str:
    return f"there is no function {'.'.join(_about(parameters)).lower()}"


def _path(parameters: Mapping[str, str], _: Collection[str]) -> str:
    return f"there is no file at {parameters.get('path', '')}"


def _record(parameters: Mapping[str, str], _: Collection[str]) -> str:
    row = parameters.get("badRecord") or ""
    shown = "" if row.startswith("_") else f": {row[:_MOST]}"
    return f"the file has a row that cannot be read, or of other columns than are asked for{shown}"


_WORDS = {
    "UNRESOLVED_COLUMN": _column,
    "FIELD_NOT_FOUND": _field,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "UNRESOLVED_ROUTINE": _routine,
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": _routine,
    "PATH_NOT_FOUND": _path,
    "MALFORMED_CSV_RECORD": _record,
    "MALFORMED_RECORD_IN_PARSING": _record,
}
