"""The rows that VALUES gives to the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from sqlglot import exp

from deltasql.sql.dml.statement_target import StatementTarget, default_of, is_default, is_generated
from deltasql.sql.parse import Tree

_COMPUTED = (exp.Query, exp.Rand, exp.Randn, exp.Shuffle, exp.Uuid)
"""Expressions that Spark rejects in VALUES: subqueries and nondeterministic functions."""


def default_values(columns: Sequence[str]) -> Tree:
    """Return VALUES with one row of DEFAULT for each column."""
    return exp.Values(expressions=[exp.Tuple(expressions=[exp.Var(this="DEFAULT") for _ in columns])])


def without_generated(values: Tree, target: StatementTarget, columns: list[str]) -> list[str]:
    """Drop generated columns whose values are DEFAULT in all rows, and return the other columns."""
    rows = _rows(values)
    dropped = [
        index
        for index, name in enumerate(columns)
        if is_generated(target.column(name)) and all(index < len(row) and is_default(row[index]) for row in rows)
    ]
    for row in values.expressions if dropped else ():
        row.set("expressions", [item for index, item in enumerate(row.expressions) if index not in dropped])
    return [name for index, name in enumerate(columns) if index not in dropped]


def values_query(values: Tree, target: StatementTarget, columns: Sequence[str]) -> Tree:
    """Return VALUES as a query, with the defaults of columns.

    Literals have no type in PostgreSQL: in a column that has texts among numbers all become texts.
    """
    for row in _rows(values):
        for item, name in zip(row, columns, strict=False):
            value = default_of(target.column(name), item)
            if value is not item:
                item.replace(exp.Null() if value is None else value)
    for items in zip_longest(*_rows(values), fillvalue=exp.Null()):
        texts = [isinstance(item, exp.Literal) and item.is_string for item in items]
        for item, is_text in zip(items, texts, strict=True):
            if any(texts) and not is_text and not isinstance(item, exp.Null):
                item.replace(exp.cast(item.copy(), "text"))
    if values.find(*_COMPUTED) is not None:
        return _as_selects(values)
    return exp.select("*").from_(exp.alias_(values, "v", table=True) if not values.alias else values)


def _as_selects(values: Tree) -> Tree:
    selects = [exp.select(*(item.copy() for item in row)) for row in _rows(values)]
    return exp.union(*selects, distinct=False) if len(selects) > 1 else selects[0]


def _rows(values: Tree) -> list[list[Tree]]:
    return [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
