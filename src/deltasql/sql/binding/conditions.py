"""Bind conditions: comparisons, AND, OR and NOT, IS, IN, BETWEEN, ANY and ALL, and comparisons of rows."""

from __future__ import annotations

from functools import reduce
from typing import Any

from sqlglot import exp

from deltasql.sql.binding.binder import HANDLERS, Binder
from deltasql.sql.binding.operators import SYMBOLS, applied, operand
from deltasql.sql.binding.scopes import Scope
from deltasql.sql.catalog.pg_types import BOOL, TEXT, UNKNOWN, array_of
from deltasql.sql.functions.operator_table import COMPARISONS
from deltasql.sql.functions.templates import Typed, filled
from deltasql.sql.parameters import name_for_item

Tree = Any
_ITEM = "__deltasql_item"
_MOST_ITEMS = 50
"""The most items of an array that are compared one by one."""


def binary(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return a binary operator."""
    symbol = f"{'!' if tree.args.get('negate') else ''}{SYMBOLS[type(tree)]}"
    if _is_quantified(tree.expression):
        return _quantified(binder, tree, symbol, scope)
    if symbol in COMPARISONS and _row(tree.this) is not None:
        return _rows_compared(binder, tree, symbol, scope)
    left, right = binder.expression(tree.this, scope), binder.expression(tree.expression, scope)
    return applied(binder, symbol, [left, right], tree)


# --- AND, OR, NOT, IS


def logical(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return AND or OR."""
    kind = type(tree)
    loose = (exp.Or,) if kind is exp.And else ()
    parts = [binder.condition(part, scope) for part in (tree.this, tree.expression)]
    left, right = (exp.Paren(this=part) if isinstance(part, loose) else part for part in parts)
    return Typed(kind(this=left, expression=right), BOOL)


def negation(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return NOT."""
    if isinstance(tree.this, exp.RegexpLike | exp.RegexpILike):
        symbol = "!~" if isinstance(tree.this, exp.RegexpLike) else "!~*"
        if _is_quantified(tree.this.expression):
            # `a !~ ALL(…)` and `NOT a ~ ALL(…)` are the same tree, and do not mean the same.
            why = "ambiguous negation, write NOT (a ~ ANY(…)) or NOT (a ~ ALL(…))"
            raise binder.rejected(why, tree.this)
        operands = [binder.expression(part, scope) for part in (tree.this.this, tree.this.expression)]
        return applied(binder, symbol, operands, tree)
    return Typed(exp.Not(this=operand(binder.condition(tree.this, scope))), BOOL)


def test_of(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return IS NULL, IS TRUE and the like."""
    value = binder.expression(tree.this, scope)
    if isinstance(tree.expression, exp.Boolean):
        value = binder.coerced(value, BOOL, tree.this)
    elif not isinstance(tree.expression, exp.Null):
        raise binder.rejected("IS is followed by NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", tree)
    if value.type.name == "record":
        raise binder.rejected(
            "a struct is null in Spark although PostgreSQL asks for its fields: test the fields", tree
        )
    found = exp.Is(this=operand(value.tree), expression=tree.expression.copy())
    return Typed(exp.Not(this=found) if tree.args.get("negate") else found, BOOL)


def distinct_from(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return IS [NOT] DISTINCT FROM."""
    operands = [binder.expression(part, scope) for part in (tree.this, tree.expression)]
    if all(value.type == UNKNOWN for value in operands):
        operands = [binder.coerced(value, TEXT, tree) for value in operands]
    same = applied(binder, "=", operands, tree).tree
    found = exp.NullSafeEQ(this=same.this, expression=same.expression)
    return Typed(exp.Not(this=exp.Paren(this=found)) if isinstance(tree, exp.NullSafeNEQ) else found, BOOL)


# --- IN, BETWEEN, ANY and ALL


def contained(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return IN with values or a query."""
    query = tree.args.get("query")
    if query is not None:
        return _in_query(binder, tree, query, scope)
    if _row(tree.this) is not None:
        parts = [exp.EQ(this=tree.this.copy(), expression=item.copy()) for item in tree.expressions]
        return Typed(exp.Paren(this=reduce(_or, (binder.expression(part, scope).tree for part in parts))), BOOL)
    value = binder.expression(tree.this, scope)
    pairs = [applied(binder, "=", [value, binder.expression(item, scope)], item).tree for item in tree.expressions]
    if len({pair.this for pair in pairs}) == 1:
        return Typed(exp.In(this=pairs[0].this, expressions=[pair.expression for pair in pairs]), BOOL)
    return Typed(exp.Paren(this=reduce(_or, pairs)), BOOL)


def _or(left: Tree, right: Tree) -> Tree:
    return exp.Or(this=left, expression=right)


def _in_query(binder: Binder, tree: Tree, query: Tree, scope: Scope) -> Typed:
    row = _row(tree.this)
    copy = query.copy()
    types = binder.query(copy, scope)
    given = row if row is not None else [tree.this]
    if len(types) != len(given):
        raise binder.rejected(f"the subquery has {len(types)} columns for {len(given)} values", tree)
    left = [binder.expression(item, scope) for item in given]
    values = []
    for value, type_ in zip(left, types, strict=True):
        item = Typed(exp.column("x"), type_)
        values.append(applied(binder, "=", [value, item], tree).tree.this)
    this = exp.Tuple(expressions=values) if row is not None else values[0]
    found = exp.In(this=this, query=copy if isinstance(copy, exp.Subquery) else exp.Subquery(this=copy))
    return Typed(found, BOOL)


def between(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return BETWEEN."""
    value, low, high = (binder.expression(tree.args[part], scope) for part in ("this", "low", "high"))
    above = applied(binder, ">=", [value, low], tree).tree
    below = applied(binder, "<=", [value, high], tree).tree
    if tree.args.get("symmetric"):
        least = applied(binder, ">=", [value, high], tree).tree
        most = applied(binder, "<=", [value, low], tree).tree
        pairs = [exp.And(this=above, expression=below), exp.And(this=least, expression=most)]
        return Typed(exp.Paren(this=exp.Or(this=pairs[0], expression=pairs[1])), BOOL)
    if above.this == below.this:
        return Typed(exp.Between(this=above.this, low=above.expression, high=below.expression), BOOL)
    return Typed(exp.Paren(this=exp.And(this=above, expression=below)), BOOL)


def _is_quantified(tree: Tree) -> bool:
    if isinstance(tree, exp.Any | exp.All):
        return True
    return (
        isinstance(tree, exp.Anonymous) and tree.name.upper() in ("SOME", "ALL", "ANY") and len(tree.expressions) == 1
    )


def _quantified(binder: Binder, tree: Tree, symbol: str, scope: Scope) -> Typed:
    """Return a comparison with ANY or ALL items of an array, or rows of a query."""
    right = tree.expression
    is_any = isinstance(right, exp.Any) or (isinstance(right, exp.Anonymous) and right.name.upper() in ("SOME", "ANY"))
    of = right.expressions[0] if isinstance(right, exp.Anonymous) else right.this
    while isinstance(of, exp.Paren):
        of = of.this
    if isinstance(of, exp.Query):
        if symbol != ("=" if is_any else "<>"):
            raise binder.rejected(
                "ANY of a query is compared by =, and ALL by <>: write a subquery with max or min", tree
            )
        found = _in_query(binder, exp.In(this=tree.this.copy()), of, scope).tree
        return Typed(found if is_any else exp.Paren(this=exp.Not(this=found)), BOOL)
    items = _items(binder, of)
    if items == []:
        return Typed(exp.Boolean(this=not is_any), BOOL)
    if items is not None and symbol == ("=" if is_any else "<>"):
        found = contained(binder, exp.In(this=tree.this.copy(), expressions=items), scope).tree
        return Typed(found if is_any else exp.Paren(this=exp.Not(this=exp.Paren(this=found))), BOOL)
    if items is not None and len(items) <= _MOST_ITEMS:
        left = binder.expression(tree.this, scope)
        parts = [applied(binder, symbol, [left, binder.expression(item, scope)], tree).tree for item in items]
        kind = exp.Or if is_any else exp.And
        return Typed(exp.Paren(this=reduce(lambda a, b: kind(this=a, expression=b), parts)), BOOL)
    return _of_each(binder, tree, symbol, binder.expression(of, scope), scope, is_any=is_any)


def _items(binder: Binder, tree: Tree) -> list[Tree] | None:
    """Return the items of an array that is written out, or a parameter; else None."""
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Array | exp.Placeholder):
        items = _items(binder, tree.this)
        kinds = tree.to.expressions
        return [exp.cast(item, kinds[0].copy()) for item in items] if items is not None and kinds else items
    if isinstance(tree, exp.Array):
        return [item.copy() for item in tree.expressions] if not tree.find(exp.Query) else None
    if not isinstance(tree, exp.Placeholder) or not isinstance(binder.values[tree.name], list | tuple):
        return None
    values: dict[str, Any] = binder.values  # type: ignore[assignment]
    names = [name_for_item(tree.name, number) for number, _ in enumerate(values[tree.name], 1)]
    values.update(zip(names, values[tree.name], strict=True))
    return [exp.Placeholder(this=name) for name in names]


def _of_each(binder: Binder, tree: Tree, symbol: str, array: Typed, scope: Scope, *, is_any: bool) -> Typed:
    if array.type == UNKNOWN and isinstance(array.tree, exp.Literal):
        left = binder.typed(binder.expression(tree.this, scope), tree)
        array = binder.coerced(array, array_of(left.type), tree)
    if array.type.name != "array":
        raise binder.rejected(f"ANY and ALL need an array or a query, got {array.type}", tree)
    item = Typed(exp.to_identifier(_ITEM), array.type.element)
    compared = applied(binder, symbol, [binder.expression(tree.this, scope), item], tree)
    name = "exists" if is_any else "forall"
    each = exp.Lambda(this=compared.tree, expressions=[exp.to_identifier(_ITEM)])
    return Typed(filled(f"{name}({{0}}, {{1}})", [array.tree, each]), BOOL)


# --- Rows


def _row(tree: Tree) -> list[Tree] | None:
    is_call = isinstance(tree, exp.Anonymous) and tree.name.upper() == "ROW"
    return list(tree.expressions) if is_call or isinstance(tree, exp.Tuple) else None


def _rows_compared(binder: Binder, tree: Tree, symbol: str, scope: Scope) -> Typed:
    left, right = _row(tree.this), _row(tree.expression)
    if left is None or right is None:
        raise binder.rejected("a row is compared with a row", tree)
    if len(left) != len(right):
        raise binder.rejected(f"a row of {len(left)} is compared with one of {len(right)}", tree)
    pairs = [[binder.expression(part, scope) for part in pair] for pair in zip(left, right, strict=True)]
    equal = [applied(binder, "=", pair, tree).tree for pair in pairs]
    if symbol in ("=", "<>"):
        same = reduce(lambda a, b: exp.And(this=a, expression=b), equal)
        return Typed(exp.Paren(this=same if symbol == "=" else exp.Not(this=exp.Paren(this=same))), BOOL)
    found = applied(binder, symbol, pairs[-1], tree).tree
    for pair, same in zip(pairs[-2::-1], equal[-2::-1], strict=True):
        strict = applied(binder, symbol[0], pair, tree).tree
        rest = exp.And(this=same, expression=exp.Paren(this=found))
        found = exp.Or(this=strict, expression=exp.Paren(this=rest))
    return Typed(exp.Paren(this=found), BOOL)


HANDLERS |= {
    **dict.fromkeys(SYMBOLS, binary),
    exp.And: logical,
    exp.Or: logical,
    exp.Not: negation,
    exp.Is: test_of,
    exp.NullSafeEQ: distinct_from,
    exp.NullSafeNEQ: distinct_from,
    exp.In: contained,
    exp.Between: between,
}
