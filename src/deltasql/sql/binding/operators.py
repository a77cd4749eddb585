"""Apply operators to operands: choose the one that PostgreSQL means by their types, and write it in Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.binding.binder import HANDLERS, Binder
from deltasql.sql.binding.scopes import Scope
from deltasql.sql.catalog.pg_catalog import Overload, catalog
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
    as_numeric,
    numeric,
)
from deltasql.sql.catalog.types_by_name import type_of_name
from deltasql.sql.functions.casts import as_interval, with_days
from deltasql.sql.functions.numeric_arithmetic import TooManyDigits, comparable
from deltasql.sql.functions.operator_table import COMPARISONS, OPERATORS
from deltasql.sql.functions.overloads import Match, choose, polymorphic_types
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Template, Typed, filled

Tree = Any
SYMBOLS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.Pow: "^",
    exp.DPipe: "||", exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>",
    exp.Like: "~~", exp.ILike: "~~*", exp.RegexpLike: "~", exp.RegexpILike: "~*",
    exp.ArrayContainsAll: "@>", exp.ArrayContainedBy: "<@", exp.ArrayOverlaps: "&&",
}  # fmt: skip
_NODES = {symbol: kind for kind, symbol in SYMBOLS.items()}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_PREFIXES: dict[type, str] = {exp.Neg: "-", exp.BitwiseNot: "~", exp.Sqrt: "|/", exp.Cbrt: "||/", exp.Abs: "@"}
_SMALLEST = {"2147483648": INT4, "9223372036854775808": INT8}
"""The smallest integers without their sign."""
_TIGHT = (
    exp.Column, exp.Literal, exp.Paren, exp.Func, exp.Cast, exp.Null, exp.Boolean, exp.Placeholder, exp.Dot,
    exp.Subquery, exp.Identifier,
)  # fmt: skip
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)


def operand(tree: Tree) -> Tree:
    """Return an operand in parentheses, unless it binds tighter than every operator."""
    return tree if isinstance(tree, _TIGHT) else exp.Paren(this=tree)


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
    why = "is not unique: add casts" if found else "does not exist: add casts"
    raise binder.rejected(f"operator {_shown(symbol, operands)} {why}", at)


def _shown(symbol: str, operands: Sequence[Typed]) -> str:
    types = f" {symbol} ".join(str(value.type) for value in operands)
    return types if len(operands) > 1 else f"{symbol} {types}"


def _adapted(binder: Binder, match: Match, operands: Sequence[Typed], at: Tree) -> list[Typed]:
    """Return the operands with the types of the operator. Casts that Spark does by itself are left out."""
    polymorphic = polymorphic_types(match, [value.type for value in operands])
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
    return polymorphic_types(match, [value.type for value in values]).get(name) or type_of_name(name) or UNKNOWN


def _compared(binder: Binder, symbol: str, values: Sequence[Typed], at: Tree) -> Typed:
    left, right = values
    names = {left.type.name, right.type.name}
    if names & {"record", "map", "other"}:
        raise binder.rejected(f"values of type {left.type} cannot be compared: compare their parts", at)
    if "array" in names and symbol not in ("=", "<>"):
        raise binder.rejected("arrays can only be compared with = and <>: Spark orders null items otherwise", at)
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


HANDLERS |= dict.fromkeys(_PREFIXES, prefix)
