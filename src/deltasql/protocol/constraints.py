"""The constraints of a table as named conditions in Spark SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deltasql.errors import ValidationError
from deltasql.expressions.stored_expressions import problem_of
from deltasql.protocol.schema import DeltaType, Json
from deltasql.protocol.schema_fit import DEFAULT, GENERATED

_INVARIANT = "delta.invariants"
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
_LENGTH = re.compile(r"(?:var)?char\(\s*(\d+)\s*\)")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named condition that must be true for every row. False and null violate it, as in Delta."""

    name: str
    sql: str


def not_null(schema: Json) -> list[Constraint]:
    """Return the NOT NULL constraints of a schema."""
    return list(_not_null(schema["fields"], "", ""))


def conditions(schema: Json, checks: Mapping[str, str]) -> list[Constraint]:
    """Return the constraints other than NOT NULL: invariants, lengths of CHAR and VARCHAR, and CHECK constraints."""
    of_columns = [constraint for field in schema["fields"] for constraint in _of_column(field)]
    return of_columns + [Constraint(name, condition) for name, condition in checks.items()]


@dataclass(frozen=True, slots=True)
class StoredExpression:
    """An expression of a table that runs in the process of every writer.

    Attributes:
        name: What it is, for errors.
        sql: The expression in Spark SQL.
        is_default: Whether it is the default of a column.
    """

    name: str
    sql: str
    is_default: bool = False

    @property
    def problem(self) -> str | None:
        """Why it must not be stored or run, None if it may be."""
        return problem_of(self.sql, is_default=self.is_default)

    def check(self, table: str) -> None:
        """Raise ValidationError if it must not be stored in a table."""
        if (problem := self.problem) is not None:
            text = f"table {table}: the {self.name} cannot be stored: {problem}: {self.sql}"
            raise ValidationError(text, table=table, value=self.sql)


def stored_expressions(schema: Json, checks: Mapping[str, str]) -> Iterator[StoredExpression]:
    """Yield all expressions that a table stores."""
    yield from (StoredExpression(f"constraint {name}", sql) for name, sql in checks.items())
    for field in _all_fields(schema):
        name, metadata = field["name"], field.get("metadata") or {}
        if _INVARIANT in metadata:
            yield StoredExpression(f"invariant of column {name!r}", _invariant(metadata[_INVARIANT]))
        if GENERATED in metadata:
            yield StoredExpression(f"generated column {name!r}", str(metadata[GENERATED]))
        if DEFAULT in metadata:
            yield StoredExpression(f"default of column {name!r}", str(metadata[DEFAULT]), is_default=True)


def _all_fields(type_: DeltaType) -> Iterator[Json]:
    """Yield the fields of a schema, at any depth."""
    if isinstance(type_, str):
        return
    for field in type_.get("fields", ()):
        yield field
        yield from _all_fields(field["type"])
    for key, inner in type_.items():
        if key.endswith("Type"):
            yield from _all_fields(inner)


def replacing(where: str) -> Constraint:
    """Return the constraint of an overwrite with a condition: the new rows must match the condition too."""
    return Constraint(f"overwrite where {where}", where)


def has_generated(schema: Json) -> bool:
    """Return whether a schema has a generated column."""
    return any(GENERATED in (field.get("metadata") or {}) for field in schema["fields"])


def quoted(name: str) -> str:
    """Return a column name quoted for Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def _of_column(field: Json) -> Iterator[Constraint]:
    metadata = field.get("metadata") or {}
    name = quoted(field["name"])
    if _INVARIANT in metadata:
        yield Constraint(f"invariant of {field['name']}", _invariant(metadata[_INVARIANT]))
    limit = _LENGTH.fullmatch(str(metadata.get(_CHAR_METADATA, "")))
    if limit:
        yield Constraint(f"{field['name']} {limit[0].upper()}", f"{name} IS NULL OR length({name}) <= {limit[1]}")


def _invariant(text: str) -> str:
    return str(json.loads(text)["expression"]["expression"])


def _not_null(fields: list[Json], parent: str, path: str) -> Iterator[Constraint]:
    """Yield NOT NULL constraints. A field of a struct is only checked where the struct is not null."""
    for field in fields:
        sql = f"{parent}{quoted(field['name'])}"
        name = f"{path}{field['name']}"
        absent = f"{parent.removesuffix('.')} IS NULL OR " if parent else ""
        if not field.get("nullable", True):
            yield Constraint(f"{name} NOT NULL", f"{absent}{sql} IS NOT NULL")
        yield from _inside(field["type"], sql, name, absent)


def _inside(type_: DeltaType, sql: str, name: str, absent: str) -> Iterator[Constraint]:
    if isinstance(type_, str):
        return
    if type_["type"] == "struct":
        for inner in _not_null(type_["fields"], f"{sql}.", f"{name}."):
            yield Constraint(inner.name, f"{absent}{inner.sql}")
    elif not type_.get("containsNull", True):
        yield Constraint(f"elements of {name} NOT NULL", f"{sql} IS NULL OR NOT exists({sql}, x -> x IS NULL)")
    elif not type_.get("valueContainsNull", True):
        yield Constraint(
            f"values of {name} NOT NULL", f"{sql} IS NULL OR NOT exists(map_values({sql}), x -> x IS NULL)"
        )
