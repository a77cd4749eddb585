"""The rows that VALUES gives to the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from deltasql.sql.dml.statement_target import StatementTarget, default_of, is_default, is_generated
from deltasql.sql.functions.templates import SparkText
from deltasql.sql.parse import Tree

_VOLATILE = {"rand", "randn", "random", "shuffle", "uuid", "gen_random_uuid", "monotonically_increasing_id"}
"""Functions that Spark rejects in VALUES."""


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
    """Return VALUES as a query, with the defaults of columns."""
    for row in _rows(values):
        for item, name in zip(row, columns, strict=False):
            value = default_of(target.column(name), item)
            if value is not item:
                item.replace(exp.Null() if value is None else value)
    if values.find(exp.Query) is not None or any(is_volatile(call) for call in values.find_all(exp.Func)):
        return _as_selects(values)
    return values


def is_volatile(call: Tree) -> bool:
    """Return whether Spark rejects a function in VALUES, because it gives another value for each row."""
    if isinstance(call, SparkText):  # a stored default
        return any(f"{name}(" in call.this.lower() for name in _VOLATILE)
    return str(call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower() in _VOLATILE


def _as_selects(values: Tree) -> Tree:
    selects = [exp.select(*(item.copy() for item in row)) for row in _rows(values)]
    return exp.union(*selects, distinct=False) if len(selects) > 1 else selects[0]


def _rows(values: Tree) -> list[list[Tree]]:
    return [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
