"""Bind operators: comparisons, arithmetic, AND and OR, IN, BETWEEN, ANY and ALL, and comparisons of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from sqlglot import exp

from deltasql.sql.binding.binder import HANDLERS, Binder
from deltasql.sql.binding.scopes import Scope
from deltasql.sql.catalog.common_types import common_type
from deltasql.sql.catalog.overloads import Match, choose
from deltasql.sql.catalog.pg_catalog import Overload, catalog
from deltasql.sql.catalog.pg_literals import InvalidLiteral
from deltasql.sql.catalog.pg_types import (
    BOOL,
    DURATION,
    INT4,
    INT8,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
    array_of,
    as_numeric,
    numeric,
)
from deltasql.sql.catalog.types_by_name import type_of_name
from deltasql.sql.functions.casts import as_interval, with_days
from deltasql.sql.functions.numeric_arithmetic import TooManyDigits, comparable
from deltasql.sql.functions.operator_table import COMPARISONS, OPERATORS
from deltasql.sql.functions.templates import Template, Typed, filled
from deltasql.sql.parameters import name_for_item

Tree = Any
_SYMBOLS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.Pow: "^",
    exp.DPipe: "||", exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>",
    exp.Like: "~~", exp.ILike: "~~*", exp.RegexpLike: "~", exp.RegexpILike: "~*",
    exp.ArrayContainsAll: "@>", exp.ArrayContainedBy: "<@", exp.ArrayOverlaps: "&&",
}  # fmt: skip
_NODES = {symbol: kind for kind, symbol in _SYMBOLS.items()}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_PREFIXES: dict[type, str] = {exp.Neg: "-", exp.BitwiseNot: "~", exp.Sqrt: "|/", exp.Cbrt: "||/", exp.Abs: "@"}
_SMALLEST = {"2147483648": INT4, "9223372036854775808": INT8}
"""The smallest integers without their sign."""
_ITEM = "__deltasql_item"
_MOST_ITEMS = 50
"""The most items of an array that are compared one by one."""
_TIGHT = (exp.Column, exp.Literal, exp.Paren, exp.Func, exp.Cast, exp.Null, exp.Boolean, exp.Placeholder, exp.Dot, exp.Subquery, exp.Identifier)  # fmt: skip
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)


def operand(tree: Tree) -> Tree:
    """Return an operand in parentheses, unless it binds tighter than every operator."""
    return tree if isinstance(tree, _TIGHT) else exp.Paren(this=tree)


def binary(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return a binary operator."""
    symbol = f"{'!' if tree.args.get('negate') else ''}{_SYMBOLS[type(tree)]}"
    if _is_quantified(tree.expression):
        return _quantified(binder, tree, symbol, scope)
    if symbol in COMPARISONS and _row(tree.this) is not None:
        return _rows_compared(binder, tree, symbol, scope)
    left, right = binder.expression(tree.this, scope), binder.expression(tree.expression, scope)
    return applied(binder, symbol, [left, right], tree)


def prefix(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return an operator before its operand; a minus before a number is part of the number."""
    if isinstance(tree, exp.Neg) and isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        value = binder.expression(tree.this, scope)
        smallest = _SMALLEST.get(tree.this.name)
        if smallest is not None:  # PostgreSQL reads the number with its sign
            return Typed(Template(this=f"CAST('-{tree.this.name}' AS {smallest.ddl})", expressions=[]), smallest)
        return Typed(exp.Paren(this=exp.Neg(this=value.tree)), value.type)
    return applied(binder, _PREFIXES[type(tree)], [binder.expression(tree.this, scope)], tree)


def applied(binder: Binder, symbol: str, operands: Sequence[Typed], at: Tree) -> Typed:
    """Return an operator for its operands, as PostgreSQL chooses it by their types."""
    overloads = [one for one in catalog().operators[symbol] if len(one.parameters) == len(operands)]
    if symbol == "*" and len(operands) == 2 and (times := _interval_times(operands)) is not None:
        return times
    match = _chosen(binder, symbol, overloads, operands, at)
    values = _adapted(binder, match, operands, at)
    if symbol in COMPARISONS:
        return _compared(binder, symbol, values, at)
    if "interval" in match.parameters and not all(value.type == DURATION for value in values):
        values = [Typed(as_interval(v), INTERVAL) if v.type.name == "interval" else v for v in values]
    key = f"{symbol}({','.join(match.overload.parameters)})"
    spark = OPERATORS.get(key)
    if spark is None:
        shown = (
            f" {symbol} ".join(str(value.type) for value in operands)
            if len(operands) > 1
            else f"{symbol} {operands[0].type}"
        )
        raise binder.rejected(f"the operator {shown} is not supported", at)
    if callable(spark):
        try:
            return spark(values)
        except (TooManyDigits, InvalidLiteral) as error:
            raise binder.rejected(str(error), at) from None
    result = _result(match, values)
    trees = [operand(value.tree) for value in values]
    if spark == f"({{0}} {symbol} {{1}})" and symbol in _NODES:
        tree = _NODES[symbol](this=trees[0], expression=trees[1])
    else:
        tree = filled(spark, trees)
    if all(value.type == DURATION for value in values):
        with_days(tree, filled(str(spark), [as_interval(value) for value in values]))
    return Typed(tree, result)


def _interval_times(operands: Sequence[Typed]) -> Typed | None:
    """Return an interval times an integer; PostgreSQL spreads fractions over days and hours, which is not supported."""
    for value, factor in (operands, operands[::-1]):
        if value.type.name == "interval" and factor.type.name in ("int2", "int4"):
            tree = filled("({0} * {1})", [operand(value.tree), operand(factor.tree)])
            return Typed(with_days(tree, filled("({0} * {1})", [as_interval(value), operand(factor.tree)])), value.type)
    return None


def _chosen(binder: Binder, symbol: str, overloads: Sequence[Overload], operands: Sequence[Typed], at: Tree) -> Match:
    found = choose(overloads, [value.type for value in operands])
    if len(found) == 1:
        return found[0]
    shown = f" {symbol} ".join(str(value.type) for value in operands)
    shown = shown if len(operands) > 1 else f"{symbol} {shown}"
    why = "is not unique: add casts" if found else "does not exist: add casts"
    raise binder.rejected(f"operator {shown} {why}", at)


def _adapted(binder: Binder, match: Match, operands: Sequence[Typed], at: Tree) -> list[Typed]:
    """Return the operands with the types of the operator. Casts that Spark does by itself are left out."""
    polymorphic = _polymorphic(match, operands)
    values = []
    for value, wanted in zip(operands, match.parameters, strict=True):
        target = polymorphic.get(wanted) or type_of_name(wanted)
        if wanted in ("anynonarray", "anyelement") and match.overload.name == "||":
            target = TEXT
            if value.type.padded:
                raise binder.rejected(
                    "round this numeric before it becomes a text: its number of decimals is not known", at
                )
            values.append(binder.coerced(value, target, at, "assignment"))
            continue
        values.append(_operand(binder, value, target or UNKNOWN, operands, at))
    return values


def _polymorphic(match: Match, operands: Sequence[Typed]) -> dict[str, SqlType]:
    """Return the types for which anyarray and the like stand."""
    items = []
    for value, wanted in zip(operands, match.parameters, strict=True):
        if wanted.startswith("any") and value.type != UNKNOWN:
            items.append(value.type.element if wanted.endswith("array") and "non" not in wanted else value.type)
    if not items:
        return {}
    item = common_type(items) or items[0]
    return {
        "anyarray": array_of(item), "anycompatiblearray": array_of(item), "anyelement": item, "anycompatible": item,
        "anynonarray": item, "anycompatiblenonarray": item,
    }  # fmt: skip


def _operand(binder: Binder, value: Typed, target: SqlType, operands: Sequence[Typed], at: Tree) -> Typed:
    if target.name == "numeric" and value.type.name in ("int2", "int4", "int8", "numeric"):
        return Typed(value.tree, _size_of(value))
    is_number = value.type.name in ("int2", "int4", "int8", "numeric", "float4")
    if target.name == "float8" and is_number and any(one.type.name == "float8" for one in operands):
        return Typed(value.tree, target)
    if target.name == "interval" and value.type != UNKNOWN:
        return value
    return binder.coerced(value, target, at)


def _size_of(value: Typed) -> SqlType:
    """Return the numeric type of a number; a literal has as many digits as it is written with."""
    if isinstance(value.tree, exp.Literal):
        return numeric(len(value.tree.name), 0) if value.type.name != "numeric" else value.type
    return as_numeric(value.type)


def _result(match: Match, values: Sequence[Typed]) -> SqlType:
    name = match.overload.result
    if name == "interval":
        is_difference = match.overload.parameters in (("timestamp", "timestamp"), ("timestamptz", "timestamptz"))
        return DURATION if is_difference or all(value.type == DURATION for value in values) else INTERVAL
    return _polymorphic(match, values).get(name) or type_of_name(name) or UNKNOWN


def _compared(binder: Binder, symbol: str, values: Sequence[Typed], at: Tree) -> Typed:
    left, right = values
    names = {left.type.name, right.type.name}
    if names & {"record", "map", "other"}:
        raise binder.rejected(f"values of type {left.type} cannot be compared: compare their parts", at)
    if names == {"numeric"} and not comparable(left.type, right.type):
        raise binder.rejected("the operands have more than 38 digits together: cast them to fewer digits", at)
    if len(names) > 1 and names <= {"date", "timestamp", "timestamptz"}:
        wider = TIMESTAMPTZ if "timestamptz" in names else TIMESTAMP
        left, right = (binder.coerced(value, wider, at) for value in values)
    if names == {"interval"}:
        left, right = (_duration(binder, value, at) for value in values)
    trees = [value.tree if isinstance(value.tree, _ARITHMETIC) else operand(value.tree) for value in (left, right)]
    return Typed(_NODES[symbol](this=trees[0], expression=trees[1]), BOOL)


def _duration(binder: Binder, value: Typed, at: Tree) -> Typed:
    """Return an interval without months as a duration, in which a day has 24 hours, as in comparisons."""
    if value.type == DURATION:
        return value
    parts = value.tree.meta.get("interval")
    if parts is None or parts[0]:
        raise binder.rejected("only intervals without months can be compared", at)
    _, days, micros = parts
    return Typed(filled(f"make_dt_interval({days}, 0, 0, {micros // 10**6}.{micros % 10**6:06})", []), DURATION)


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
        placeholder = Typed(exp.column("x"), type_)
        values.append(applied(binder, "=", [value, placeholder], tree).tree.this)
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
    return _of_each(binder, tree, symbol, of, is_any, scope)


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


def _of_each(binder: Binder, tree: Tree, symbol: str, of: Tree, is_any: bool, scope: Scope) -> Typed:
    array = binder.expression(of, scope)
    if array.type == UNKNOWN and isinstance(array.tree, exp.Literal):
        left = binder.typed(binder.expression(tree.this, scope), tree)
        array = binder.coerced(array, array_of(left.type), of)
    if array.type.name != "array":
        raise binder.rejected(f"ANY and ALL need an array or a query, got {array.type}", of)
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
    **dict.fromkeys(_SYMBOLS, binary),
    **dict.fromkeys(_PREFIXES, prefix),
    exp.And: logical,
    exp.Or: logical,
    exp.Not: negation,
    exp.Is: test_of,
    exp.NullSafeEQ: distinct_from,
    exp.NullSafeNEQ: distinct_from,
    exp.In: contained,
    exp.Between: between,
}
