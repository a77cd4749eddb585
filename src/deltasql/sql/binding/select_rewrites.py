"""Write parts of SELECT that Spark does not have as subqueries: DISTINCT ON, and functions that return rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.binding.row_sources import side_by_side
from deltasql.sql.binding.scopes import TypedColumn
from deltasql.sql.functions.templates import Template, Typed

Tree = Any
_MOVED = ("from_", "joins", "laterals", "where", "group", "having", "windows")
_ROWS, _NUMBER = "__deltasql_rows", "__deltasql_number"


def _inner(tree: Tree, items: Sequence[Tree]) -> Tree:
    """Move the clauses of a SELECT below its list into a new one, and return that."""
    inner = exp.Select(expressions=list(items))
    for clause in _MOVED:
        value = tree.args.get(clause)
        if value:
            inner.set(clause, value)
            tree.set(clause, None)
    return inner


def _named(tree: Tree, name: str) -> Tree:
    return exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True))


def _reference(name: str) -> Tree:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(_ROWS, quoted=True))


def _from(inner: Tree) -> Tree:
    alias = exp.TableAlias(this=exp.to_identifier(_ROWS, quoted=True))
    return exp.From(this=exp.Subquery(this=inner, alias=alias))


def spread(tree: Tree, items: Sequence[Tree], arrays: Sequence[Typed | None], columns: Sequence[TypedColumn]) -> None:
    """Return the items of arrays as rows, side by side with the other columns; aggregates are computed before."""
    values = [array.tree if array is not None else item for item, array in zip(items, arrays, strict=True)]
    values = [value.this if isinstance(value, exp.Alias) else value for value in values]
    inner = _inner(tree, [_named(value, f"c{n}") for n, value in enumerate(values)])
    given = [(n, array) for n, array in enumerate(arrays) if array is not None]
    generator = side_by_side([Typed(_reference(f"c{n}"), array.type) for n, array in given])
    names = [exp.to_identifier(f"r{n}", quoted=True) for n, _ in given]
    lateral = exp.Lateral(
        this=generator, alias=exp.TableAlias(this=exp.to_identifier("__deltasql_items"), columns=names)
    )
    tree.set("from_", _from(inner))
    tree.set("joins", [exp.Join(this=lateral, kind="CROSS")])
    found = [
        exp.column(exp.to_identifier(f"r{n}", quoted=True)) if array is not None else _reference(f"c{n}")
        for n, array in enumerate(arrays)
    ]
    tree.set("expressions", [_named(one, column.name) for one, column in zip(found, columns, strict=True)])


def distinct_on(
    tree: Tree, items: Sequence[Tree], columns: Sequence[TypedColumn], keys: Sequence[Tree], order: Sequence[Tree]
) -> None:
    """Keep the first row of each group of equal keys, in the order of ORDER BY, before LIMIT."""
    values = [item.this if isinstance(item, exp.Alias) else item for item in items]
    text = f"row_number() OVER (PARTITION BY {', '.join(f'{{{n}}}' for n in range(len(keys)))} ORDER BY "
    sort = [key.copy() for key in order] or [exp.Ordered(this=exp.Null())]
    text += ", ".join(f"{{{len(keys) + n}}}" for n in range(len(sort))) + ")"
    number = Template(this=text, expressions=[*(key.copy() for key in keys), *sort])
    inner = _inner(
        tree,
        [
            *(_named(value.copy(), f"c{n}") for n, value in enumerate(values)),
            *(_named(key.this.copy(), f"o{n}") for n, key in enumerate(order)),
            _named(number, _NUMBER),
        ],
    )
    tree.set("from_", _from(inner))
    tree.set("where", exp.Where(this=exp.EQ(this=_reference(_NUMBER), expression=exp.Literal.number(1))))
    tree.set("distinct", None)
    for n, key in enumerate(order):
        key.set("this", _reference(f"o{n}"))
    tree.set("expressions", [_named(_reference(f"c{n}"), column.name) for n, column in enumerate(columns)])
