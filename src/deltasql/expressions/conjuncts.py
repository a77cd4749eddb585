"""The part of a statement's condition that only uses columns of the changed table, and so prunes its files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError


def own_part(condition: Any, names: Collection[str], columns: Iterable[str]) -> str | None:
    """Return the top-level conditions that only use columns of the table, joined by AND; None if there are none.

    Args:
        condition: A text in Spark SQL, or a syntax tree.
        names: The names of the table in the condition.
        columns: The columns of the table.
    """
    tree = _tree(condition)
    if tree is None:
        return None
    called = {name.lower() for name in names}
    known = {column.lower() for column in columns}
    parts = [part.sql(dialect="spark") for part in _conjuncts(tree) if _is_own(part, called, known)]
    own = [_bare(part) for part in parts]
    return " AND ".join(f"({part})" for part in own) or None


def is_own(condition: Any, names: Collection[str], columns: Iterable[str]) -> bool:
    """Return whether a condition only uses columns of the table."""
    tree = _tree(condition)
    return tree is not None and _is_own(tree, {name.lower() for name in names}, {column.lower() for column in columns})


def _tree(condition: Any) -> Any:
    if not isinstance(condition, str):
        return condition
    try:
        return parse_one(condition, read="spark")
    except SqlglotError:
        return None  # Spark reports the error


def _conjuncts(tree: Any) -> Iterable[Any]:
    return tree.flatten() if isinstance(tree, exp.And) else [tree]


def _is_own(part: Any, called: Collection[str], known: Collection[str]) -> bool:
    if part.find(exp.Query, exp.Placeholder, exp.Parameter, exp.AggFunc, exp.Window):
        return False
    return all(_belongs(column, called, known) for column in part.find_all(exp.Column))


def _belongs(column: Any, called: Collection[str], known: Collection[str]) -> bool:
    qualifier = ".".join(part.name for part in column.parts[:-1]).lower()
    return column.name.lower() in known and qualifier in called if qualifier else column.name.lower() in known


def _bare(text: str) -> str:
    """Return a condition without the table names of its columns."""
    holder = exp.Paren(this=parse_one(text, read="spark"))
    for column in list(holder.find_all(exp.Column)):
        column.replace(exp.column(column.this.copy()))
    return str(holder.this.sql(dialect="spark"))
