"""Functions that return rows: in FROM, and in the list of SELECT, where several of them run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.binding.binder import Binder
from deltasql.sql.binding.calls import adapted, chosen, key_of, polymorphic
from deltasql.sql.binding.scopes import Scope, TypedColumn
from deltasql.sql.catalog.pg_catalog import catalog
from deltasql.sql.catalog.pg_types import INT8, SqlType, array_of
from deltasql.sql.catalog.types_by_name import type_of_name
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.row_functions import ROW_FUNCTIONS
from deltasql.sql.functions.templates import Typed, filled

Tree = Any


def returns_rows(tree: Tree) -> bool:
    """Return whether a tree is a call of a function that returns rows in PostgreSQL."""
    if not isinstance(tree, exp.Anonymous):
        return False
    overloads = catalog().functions.get(tree.name.lower(), ())
    return any(overload.returns_rows for overload in overloads)


def rows_of(binder: Binder, name: str, arguments: Sequence[Tree], scope: Scope, at: Tree) -> Typed:
    """Return the rows of a function as an array."""
    values = [binder.expression(argument, scope) for argument in arguments]
    match = chosen(binder, name, values, at)
    values = adapted(binder, match, values, arguments, at)
    spark = ROW_FUNCTIONS.get(key_of(match))
    if spark is None:
        raise binder.rejected(f"function {match.overload} is not supported", at)
    try:
        if callable(spark):
            return spark(values)
    except InvalidLiteral as error:
        raise binder.rejected(f"{name}: {error}", at) from None
    item = polymorphic(match, values).get(match.overload.result) or type_of_name(match.overload.result)
    return Typed(filled(spark, [value.tree for value in values]), array_of(item or SqlType("text")))


def side_by_side(arrays: Sequence[Typed]) -> Tree:
    """Return a generator whose rows have one item of each array; shorter arrays are filled with nulls."""
    if len(arrays) == 1:
        return filled("explode({0})", [arrays[0].tree])
    filled_up = [filled(f"coalesce({{0}}, CAST(array() AS {one.type.ddl}))", [one.tree]) for one in arrays]
    return filled("inline(arrays_zip({*}))", filled_up)


def source_of(binder: Binder, tree: Tree, scope: Scope, names: Sequence[str]) -> list[TypedColumn] | None:
    """Bind a function in FROM in place and return its columns; None if only Spark has the function."""
    inner = tree.this if isinstance(tree, exp.Lateral) else tree
    if isinstance(inner, exp.Unnest):
        name, arguments = "unnest", inner.expressions
    elif isinstance(inner if isinstance(inner, exp.Anonymous) else inner.this, exp.Anonymous):
        call = inner if isinstance(inner, exp.Anonymous) else inner.this
        name, arguments = call.name.lower(), call.expressions
    else:
        return None
    if name not in catalog().functions:
        return None
    several = name == "unnest" and len(arguments) > 1
    arrays = (
        [rows_of(binder, name, [one], scope, tree) for one in arguments]
        if several
        else [rows_of(binder, name, arguments, scope, tree)]
    )
    offset = inner.args.get("offset") or tree.args.get("ordinality")
    alias = tree.args.get("alias")
    table = alias.this if alias is not None and alias.this else exp.to_identifier(name)
    given = [*names, *([offset.name] if isinstance(offset, exp.Identifier) else [])]
    columns = _columns(arrays, name if several else table.name, offset is not None and offset is not False, given)
    generator = side_by_side(arrays) if not offset else _numbered(binder, arrays, tree)
    _replace(tree, generator, table, columns)
    return columns


def _columns(arrays: Sequence[Typed], name: str, numbered: bool, given: Sequence[str]) -> list[TypedColumn]:
    found = [TypedColumn(name, array.type.element) for array in arrays] + (
        [TypedColumn("ordinality", INT8)] if numbered else []
    )
    return [TypedColumn(given[n] if n < len(given) else one.name, one.type) for n, one in enumerate(found)]


def _numbered(binder: Binder, arrays: Sequence[Typed], at: Tree) -> Tree:
    if len(arrays) > 1:
        raise binder.rejected("WITH ORDINALITY is supported for one array", at)
    return filled("inline(transform({0}, (x, i) -> struct(x, i + 1L)))", [arrays[0].tree])


def _replace(tree: Tree, generator: Tree, table: Tree, columns: Sequence[TypedColumn]) -> None:
    names = [exp.to_identifier(column.name, quoted=True) for column in columns]
    alias = exp.TableAlias(this=table.copy(), columns=names)
    if isinstance(tree.parent, exp.Join):  # the arguments may be columns of a table before
        tree.replace(exp.Lateral(this=generator, alias=alias))
        return
    joins = [join.copy() for join in tree.args.get("joins") or ()]
    tree.replace(exp.Table(this=generator, alias=alias, joins=joins or None))
