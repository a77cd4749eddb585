"""Rewrite PostgreSQL expressions that Spark lacks: ANY and ALL, row comparisons, case-insensitive patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.parameters import name_for_item
from deltasql.sql.positions import rejected, start_of

Tree = Any
_ITEM = "__deltasql_item"


def reshaped(text: str, tree: Tree, values: dict[str, Any]) -> Tree:
    """Return the rewritten tree; the items of a list parameter become parameters."""
    for node in reversed(list(tree.find_all(exp.Any, exp.All, exp.Anonymous))):  # the innermost first
        if isinstance(node.parent, exp.Binary) and node.arg_key == "expression" and _quantifier(node):
            node.parent.replace(_quantified(text, node, values))
    _type_nulls(tree, values)
    for node in list(tree.find_all(exp.RegexpILike)):
        pattern = exp.Concat(expressions=[exp.Literal.string("(?i)"), node.expression.copy()])
        node.replace(exp.RegexpLike(this=node.this.copy(), expression=pattern))
    for node in reversed(list(tree.find_all(exp.EQ, exp.NEQ, exp.In))):
        if isinstance(node.this, exp.Tuple) and not _assigns(node):
            found = _row_comparison(text, node)
            if found is not None:
                node.replace(found)
    for node in tree.find_all(exp.LT, exp.LTE, exp.GT, exp.GTE):
        if isinstance(node.this, exp.Tuple):
            raise rejected(text, "cannot be run: rows can only be compared with = and <>", start_of(node))
    return tree


# --- ANY, SOME and ALL


def _quantifier(node: Tree) -> str | None:
    if isinstance(node, exp.Any | exp.All):
        return "ANY" if isinstance(node, exp.Any) else "ALL"
    name = str(node.name).upper()
    return {"SOME": "ANY", "ALL": "ALL"}.get(name) if len(node.expressions) == 1 else None


def _quantified(text: str, node: Tree, values: dict[str, Any]) -> Tree:
    """Rewrite `x = ANY(ARRAY[1, 2])` to `x IN (1, 2)`, or to a comparison with each item of the array."""
    comparison, is_any = node.parent, _quantifier(node) == "ANY"
    is_pattern = isinstance(comparison, exp.RegexpLike | exp.RegexpILike | exp.SimilarTo)
    if is_pattern and isinstance(comparison.parent, exp.Not):
        # `a !~ ALL(…)` and `NOT a ~ ALL(…)` are the same tree, and do not mean the same.
        why = "cannot be run: ambiguous negation, write NOT (a ~ ANY(…)) or NOT (a ~ ALL(…))"
        raise rejected(text, why, start_of(comparison))
    array = (node.expressions[0] if isinstance(node, exp.Anonymous) else node.this).unnest()
    equal = exp.EQ if is_any else exp.NEQ
    if isinstance(array, exp.Query):
        if not isinstance(comparison, equal):
            raise rejected(text, "cannot be run: ANY of a query is compared by =, and ALL by <>", start_of(comparison))
        query = array if isinstance(array, exp.Subquery) else exp.Subquery(this=array)
        return _in(comparison, is_any=is_any, query=query.copy())
    if isinstance(array, exp.Literal):
        raise rejected(text, "cannot be run: an array is written ARRAY[1, 2]", start_of(array))
    items = _items(array, values)
    if items == []:
        return exp.Boolean(this=not is_any)
    if items is None or not isinstance(comparison, equal):
        return _of_each(comparison, array, is_any=is_any)
    return _in(comparison, is_any=is_any, expressions=items)


def _in(comparison: Tree, *, is_any: bool, **items: Any) -> Tree:
    found = exp.In(this=comparison.this.copy(), **items)
    return found if is_any else exp.paren(exp.not_(found))


def _items(array: Tree, values: dict[str, Any]) -> list[Tree] | None:
    """Return the items of an array literal or list parameter, else None."""
    if isinstance(array, exp.Cast) and isinstance(array.this, exp.Array | exp.Placeholder):
        kinds = array.to.expressions
        items = _items(array.this, values)
        return [exp.cast(item, kinds[0].copy()) for item in items] if items is not None and kinds else items
    if isinstance(array, exp.Array):
        return [item.copy() for item in array.expressions] if not array.find(exp.Query) else None
    if not isinstance(array, exp.Placeholder) or not isinstance(values[array.name], list | tuple):
        return None
    names = [name_for_item(array.name, number) for number, _ in enumerate(values[array.name], 1)]
    values |= dict(zip(names, values[array.name], strict=True))
    return [exp.Placeholder(this=name) for name in names]


def _of_each(comparison: Tree, array: Tree, *, is_any: bool) -> Tree:
    item, compared = exp.to_identifier(_ITEM), comparison.copy()
    compared.set("expression", item)  # the rest of it stays, such as the NOT of NOT LIKE
    each = exp.Lambda(this=compared, expressions=[item.copy()])
    if is_any:
        return exp.Exists(this=array.copy(), expression=each)
    return exp.Anonymous(this="forall", expressions=[array.copy(), each])


# --- Rows


def _assigns(node: Tree) -> bool:
    """Return whether a node is an assignment of SET, such as `(a, b) = (1, 2)`."""
    return isinstance(node.parent, exp.Update | exp.OnConflict) and node.arg_key == "expressions"


def _row_comparison(text: str, node: Tree) -> Tree | None:
    """Rewrite `(a, b) IN ((1, 2), (3, 4))` to comparisons of columns; None for a query, which Spark supports."""
    left = node.this.expressions
    if not isinstance(node, exp.In):
        right = _row(node.expression)
        if right is None:
            return None
        same = _equal(text, node, left, right)
        return exp.paren(same if isinstance(node, exp.EQ) else exp.not_(exp.paren(same)))
    rows = [_row(item) for item in node.expressions]
    if node.args.get("query") or not rows or not all(row is not None for row in rows):
        return None
    return exp.paren(exp.or_(*(_equal(text, node, left, row) for row in rows if row is not None)))


def _row(node: Tree) -> Sequence[Tree] | None:
    is_call = isinstance(node, exp.Anonymous) and node.name.upper() == "ROW"
    return list(node.expressions) if is_call or isinstance(node, exp.Tuple) else None


def _equal(text: str, node: Tree, left: Sequence[Tree], right: Sequence[Tree]) -> Tree:
    if len(left) != len(right):
        raise rejected(
            text, f"cannot be run: a row of {len(left)} is compared with one of {len(right)}", start_of(node)
        )
    pairs = zip(left, right, strict=True)
    return exp.and_(*(exp.EQ(this=one.copy(), expression=other.copy()) for one, other in pairs))


def by_column(query: Tree) -> list[Tree]:
    """Return one scalar subquery per column of a query, or nothing if the query might return another row each time.

    Each subquery returns the whole row as a struct, so that aggregates and plain columns come from the same row.
    """
    select = query.this if isinstance(query, exp.Subquery) else query
    if not isinstance(select, exp.Select) or any(select.args.get(a) for a in ("distinct", "limit", "offset", "fetch")):
        return []
    items = [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]
    if any(item.is_star for item in items):
        return []
    names = [f"c{number}" for number in range(len(items))]
    parts = [part for name, item in zip(names, items, strict=True) for part in (exp.Literal.string(name), item.copy())]
    row = select.copy()
    row.set("expressions", [exp.alias_(exp.Anonymous(this="named_struct", expressions=parts), "row")])
    return [exp.Dot(this=exp.Subquery(this=row.copy()), expression=exp.to_identifier(name)) for name in names]


# --- NULL


def _type_nulls(tree: Tree, values: dict[str, Any]) -> None:
    """Cast NULL conditions to BOOLEAN, as Spark requires."""
    for node in list(tree.find_all(exp.Null, exp.Placeholder)):
        top = node
        while isinstance(top.parent, exp.Paren):
            top = top.parent
        if (isinstance(node, exp.Null) or values[node.name] is None) and _is_condition(top):
            node.replace(exp.cast(node.copy(), "boolean"))


def _is_condition(node: Tree) -> bool:
    match node.parent, node.arg_key:
        case (exp.Where() | exp.Having(), "this") | (exp.Join() | exp.Merge(), "on") | (exp.When(), "condition"):
            return True
        case exp.If(), "this":
            return not (isinstance(node.parent.parent, exp.Case) and node.parent.parent.this)
        case exp.OnConflict(), "where":
            return True
    return False
