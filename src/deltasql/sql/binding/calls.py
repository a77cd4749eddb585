"""Bind calls of functions, aggregates and window functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.binding.binder import HANDLERS, Binder
from deltasql.sql.binding.operators import applied
from deltasql.sql.binding.scopes import Scope
from deltasql.sql.catalog.pg_catalog import catalog
from deltasql.sql.catalog.pg_types import (
    INTERVAL,
    TEXT,
    UNKNOWN,
    SqlType,
    of_spark,
)
from deltasql.sql.catalog.types_by_name import type_of_name
from deltasql.sql.functions.aggregate_calls import AggregateCall
from deltasql.sql.functions.casts import as_interval
from deltasql.sql.functions.function_table import AGGREGATES, FUNCTIONS, WINDOWS
from deltasql.sql.functions.numeric_arithmetic import TooManyDigits
from deltasql.sql.functions.overloads import Match, choose, polymorphic_types
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
_KEYWORDS = {"coalesce", "nullif", "greatest", "least", "row", "grouping"}
"""Functions that are part of PostgreSQL's grammar, not of its catalog."""


def call(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return a call by name: PostgreSQL's function, or Spark's if PostgreSQL has none of this name."""
    return called(binder, str(tree.name), list(tree.expressions), scope, tree)


def called(binder: Binder, name: str, arguments: Sequence[Tree], scope: Scope, at: Tree) -> Typed:
    """Return a call of a function."""
    lower = name.lower()
    if lower in _KEYWORDS:
        return _KEYWORD_CALLS[lower](binder, arguments, scope, at)
    if any(isinstance(argument, exp.Query) for argument in arguments):
        raise binder.rejected("ARRAY(SELECT …) is not supported: write (SELECT array_agg(x ORDER BY …) FROM …)", at)
    overloads = catalog().functions.get(lower)
    if overloads is None:
        return spark_call(binder, name, arguments, scope, at)
    if overloads[0].kind != "f":
        return aggregate(binder, lower, arguments, scope, at)
    values = [binder.expression(argument, scope) for argument in _in_order(binder, lower, arguments, at)]
    match = chosen(binder, lower, values, at)
    return translated(binder, match, adapted(binder, match, values, arguments, at), at)


def chosen(binder: Binder, name: str, values: Sequence[Typed], at: Tree) -> Match:
    """Return the overload that PostgreSQL calls for the types of the arguments."""
    found = choose(catalog().functions[name], [value.type for value in values])
    if len(found) == 1:
        return found[0]
    shown = f"{name}({', '.join(str(value.type) for value in values)})"
    why = "is not unique: add casts" if found else "does not exist: add casts, or look for the right arguments"
    raise binder.rejected(f"function {shown} {why}", at)


def _in_order(binder: Binder, name: str, arguments: Sequence[Tree], at: Tree) -> list[Tree]:
    """Return arguments by name, `make_interval(days => 3)`, in the order of the parameters."""
    named = {
        argument.this.name.lower(): argument.expression for argument in arguments if isinstance(argument, exp.Kwarg)
    }
    if not named:
        if any(isinstance(argument, exp.Variadic) for argument in arguments):
            raise binder.rejected("VARIADIC is not supported: write the arguments one by one", at)
        return list(arguments)
    plain = [argument for argument in arguments if not isinstance(argument, exp.Kwarg)]
    for overload in catalog().functions[name]:
        if named.keys() <= set(overload.names[len(plain) :]):
            last = max(overload.names.index(one) for one in named)
            return plain + [named.get(one, exp.Literal.number(0)) for one in overload.names[len(plain) : last + 1]]
    raise binder.rejected(f"function {name} has no argument {', '.join(named)}", at)


def adapted(binder: Binder, match: Match, values: Sequence[Typed], ats: Sequence[Tree], at: Tree) -> list[Typed]:
    """Return the arguments with the types of the parameters."""
    known = polymorphic(match, values)
    found = []
    for index, (value, wanted) in enumerate(zip(values, match.parameters, strict=True)):
        target = known.get(wanted) or type_of_name(wanted)
        where = ats[index] if index < len(ats) else at
        if wanted == "any":
            found.append(binder.typed(value, where))
        elif target is None:
            raise binder.rejected(f"function {match.overload} is not supported", at)
        elif target.name == "interval" and value.type.name == "interval":
            found.append(Typed(as_interval(value), INTERVAL))
        else:
            found.append(binder.coerced(value, target, where))
    return found


def polymorphic(match: Match, values: Sequence[Typed]) -> dict[str, SqlType]:
    """Return the types for which anyelement and the like stand; literals without a type are texts."""
    return polymorphic_types(match, [value.type for value in values], TEXT)


def key_of(match: Match) -> str:
    """Return the key of an overload in the table."""
    return f"{match.overload.name}({','.join(match.overload.parameters)})"


def translated(binder: Binder, match: Match, values: Sequence[Typed], at: Tree) -> Typed:
    """Return a function in Spark SQL."""
    spark = FUNCTIONS.get(key_of(match))
    if spark is None:
        shown = ", ".join(str(type_of_name(name) or name) for name in match.overload.parameters)
        by_floats = key_of(match).replace("numeric", "float8") in FUNCTIONS
        hint = ": cast its arguments to double precision" if by_floats else ""
        raise binder.rejected(f"function {match.overload.name}({shown}) is not supported{hint}", at)
    try:
        if callable(spark):
            return spark(values)
    except (TooManyDigits, InvalidLiteral) as error:
        raise binder.rejected(f"{match.overload.name}: {error}", at) from None
    result = polymorphic(match, values).get(match.overload.result) or type_of_name(match.overload.result)
    return Typed(filled(spark, [value.tree for value in values]), result or UNKNOWN)


# --- Spark's own functions

_LAMBDAS = {
    "transform": ("item", "index"), "filter": ("item", "index"), "exists": ("item",), "forall": ("item",),
    "array_sort": ("item", "item"), "aggregate": ("start", "item"), "reduce": ("start", "item"),
    "zip_with": ("item", "item2"), "transform_keys": ("key", "value"), "transform_values": ("key", "value"),
    "map_filter": ("key", "value"),
}  # fmt: skip


def spark_call(binder: Binder, name: str, arguments: Sequence[Tree], scope: Scope, at: Tree) -> Typed:
    """Return a call of a function that only Spark has; Spark says what its type is."""
    first: list[Typed] = []
    for argument in arguments:
        if isinstance(argument, exp.Lambda):
            first.append(_lambda(binder, name, argument, first, scope))
        elif isinstance(argument, exp.Distinct | exp.Order | exp.Star):
            raise binder.rejected(f"{name} is a function of Spark: its arguments are expressions", at)
        elif isinstance(argument, exp.Alias):  # struct(1 AS a)
            value = binder.expression(argument.this, scope)
            first.append(Typed(exp.Alias(this=value.tree, alias=argument.args["alias"].copy()), value.type))
        else:
            first.append(binder.expression(argument, scope))
    text = f"{name}({{*}})"
    tree = filled(text, [value.tree for value in first])
    return Typed(tree, _spark_type(binder, name, first))


def _lambda(binder: Binder, name: str, tree: Tree, before: Sequence[Typed], scope: Scope) -> Typed:
    names = [variable.name for variable in tree.expressions]
    kinds = _LAMBDAS.get(name.lower())
    if kinds is None or len(names) > len(kinds):
        raise binder.rejected(f"{name} does not take a lambda of {len(names)} arguments", tree)
    types = {one.lower(): _variable(kind, before) for one, kind in zip(names, kinds, strict=False)}
    body = binder.expression(tree.this, scope.with_variables(types))
    return Typed(exp.Lambda(this=body.tree, expressions=[v.copy() for v in tree.expressions]), body.type)


def _variable(kind: str, before: Sequence[Typed]) -> SqlType:
    match kind:
        case "item":
            return before[0].type.items[0] if before[0].type.items else UNKNOWN
        case "item2":
            return before[1].type.items[0] if before[1].type.items else UNKNOWN
        case "start":
            return before[1].type
        case "key" | "value":
            return before[0].type.items[kind == "value"]
    return SqlType("int4")


def _spark_type(binder: Binder, name: str, values: Sequence[Typed]) -> SqlType:
    from deltasql.sql.spark_text import spark_sql

    def sample(value: Typed) -> str:
        constant = isinstance(value.tree, exp.Literal | exp.Null | exp.Boolean | exp.Lambda) or value.type == UNKNOWN
        name = f" AS `{value.tree.alias}`" if isinstance(value.tree, exp.Alias) else ""
        return spark_sql(value.tree) if constant else f"CAST(NULL AS {value.type.ddl}){name}"

    return of_spark(binder.session.type_of(f"{name}({', '.join(map(sample, values))})"))


# --- Functions of the grammar


def _coalesce(binder: Binder, arguments: Sequence[Tree], scope: Scope, _: Tree) -> Typed:
    return _of_common_type(binder, "coalesce", arguments, scope)


def _greatest(binder: Binder, arguments: Sequence[Tree], scope: Scope, _: Tree) -> Typed:
    return _of_common_type(binder, "greatest", arguments, scope)


def _least(binder: Binder, arguments: Sequence[Tree], scope: Scope, _: Tree) -> Typed:
    return _of_common_type(binder, "least", arguments, scope)


def _of_common_type(binder: Binder, name: str, arguments: Sequence[Tree], scope: Scope) -> Typed:
    values = binder.unified([binder.expression(one, scope) for one in arguments], arguments, name.upper())
    if len(values) == 1:
        return values[0]
    return Typed(filled(f"{name}({{*}})", [value.tree for value in values]), values[0].type)


def _nullif(binder: Binder, arguments: Sequence[Tree], scope: Scope, at: Tree) -> Typed:
    if len(arguments) != 2:
        raise binder.rejected("NULLIF has two arguments", at)
    left, right = (binder.expression(one, scope) for one in arguments)
    same = applied(binder, "=", [left, right], at).tree
    value = binder.typed(left, arguments[0])
    return Typed(exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=value.tree), value.type)


def _rejected_row(binder: Binder, _arguments: Sequence[Tree], _scope: Scope, at: Tree) -> Typed:
    raise binder.rejected("a row can only be compared: a struct is made by named_struct('name', value, …)", at)


def _grouping(binder: Binder, arguments: Sequence[Tree], scope: Scope, _: Tree) -> Typed:
    values = [binder.expression(one, scope) for one in arguments]
    name = "grouping" if len(values) == 1 else "grouping_id"
    return Typed(filled(f"CAST({name}({{*}}) AS INT)", [value.tree for value in values]), SqlType("int4"))


_KEYWORD_CALLS = {
    "coalesce": _coalesce, "greatest": _greatest, "least": _least, "nullif": _nullif, "row": _rejected_row,
    "grouping": _grouping,
}  # fmt: skip


# --- Aggregates and window functions


def aggregate(
    binder: Binder,
    name: str,
    arguments: Sequence[Tree],
    scope: Scope,
    at: Tree,
    *,
    condition: Tree | None = None,
    over: Tree | None = None,
) -> Typed:
    """Return an aggregate or a window function."""
    distinct, order, plain = _parts(arguments)
    star = bool(plain) and isinstance(plain[0], exp.Star)
    values = [] if star else [binder.expression(one, scope) for one in plain]
    match = chosen(binder, name, values, at)
    if not plain and match.overload.kind == "a":
        raise binder.rejected(f"{name}(*) must be used to call an aggregate without parameters", at)
    if star and match.overload.kind == "w":
        raise binder.rejected(f"{name}(*) is written, but {name} is not an aggregate", at)
    values = adapted(binder, match, values, plain, at)
    table = WINDOWS if match.overload.kind == "w" else AGGREGATES
    spark = table.get(key_of(match))
    if spark is None:
        raise binder.rejected(f"function {match.overload} is not supported", at)
    if match.overload.kind == "w" and over is None:
        raise binder.rejected(f"window function {name} requires an OVER clause", at)
    if over is not None and (distinct or (condition is not None and match.overload.kind == "w")):
        raise binder.rejected("DISTINCT is not possible with OVER, and FILTER only for aggregates", at)
    where = binder.condition(condition, scope) if condition is not None else None
    keys = [(binder.expression(one.this, scope), one) for one in order]
    result = polymorphic(match, values).get(match.overload.result) or type_of_name(match.overload.result) or UNKNOWN
    request = AggregateCall(values, distinct, keys, where, over, result)
    try:
        return spark(request) if callable(spark) else request.filled(spark)
    except TooManyDigits as error:
        raise binder.rejected(f"{name}: {error}", at) from None


def _parts(arguments: Sequence[Tree]) -> tuple[bool, list[Tree], list[Tree]]:
    """Return whether the arguments are DISTINCT, their ORDER BY, and the arguments."""
    order: list[Tree] = []
    plain = []
    for argument in arguments:
        inner = argument
        if isinstance(inner, exp.Order):
            order = list(inner.expressions)
            inner = inner.this
        plain.append(inner)
    distinct = bool(plain) and isinstance(plain[0], exp.Distinct)
    return distinct, order, list(plain[0].expressions) + plain[1:] if distinct else plain


HANDLERS |= {exp.Anonymous: call}
