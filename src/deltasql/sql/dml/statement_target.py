"""The table that a statement changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from deltasql.errors import unknown_column
from deltasql.operations.write import fields_of
from deltasql.protocol.schema_fit import DEFAULT, GENERATED
from deltasql.protocol.table_changes import TableState
from deltasql.sql.functions.templates import SparkText
from deltasql.sql.parse import Parsed, Tree


@dataclass(frozen=True, slots=True)
class StatementTarget:
    """The table that a statement changes, and its name in the statement."""

    state: TableState
    name: str
    parsed: Parsed

    @property
    def fields(self) -> list[dict[str, Any]]:
        return fields_of(self.state)

    @property
    def columns(self) -> list[str]:
        return [f["name"] for f in self.fields]

    @property
    def names(self) -> set[str]:
        """The names by which columns of the table may be qualified."""
        return {self.name, self.state.name}

    def column(self, name: str, at: Tree | None = None) -> dict[str, Any]:
        """Return the field of a column by its name in any case; `at` is the part of the statement that names it."""
        known = {f["name"].lower(): f for f in self.fields}
        if name.lower() not in known:
            raise self.parsed.rejected(f"table {self.state.name}: {unknown_column(name, self.columns)}", at)
        return known[name.lower()]


def target_of(table: Tree, state: TableState, parsed: Parsed) -> StatementTarget:
    """Return the table of a statement under its alias or name."""
    return StatementTarget(state, table.alias or table.name, parsed)


def is_generated(field: dict[str, Any]) -> bool:
    """Return whether a column is computed from other columns."""
    return GENERATED in (field.get("metadata") or {})


def is_default(value: Tree) -> bool:
    """Return whether a value is the keyword DEFAULT."""
    word = value.this if isinstance(value, exp.Column) and not value.args.get("table") else value
    is_word = isinstance(word, exp.Var) or (isinstance(word, exp.Identifier) and not word.quoted)
    return is_word and word.name.upper() == "DEFAULT"


def default_of(field: dict[str, Any], value: Tree) -> Tree | None:
    """Return the value, or for the keyword DEFAULT the default of the column; None if the column has none."""
    if not is_default(value):
        return value
    text = (field.get("metadata") or {}).get(DEFAULT)
    return None if text is None else SparkText(this=text)
