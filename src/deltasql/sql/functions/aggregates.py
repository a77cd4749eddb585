"""The table of aggregates and window functions. `{d}` is DISTINCT, `{after}` stands for FILTER and OVER."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from deltasql.sql.catalog.pg_types import INT4, INT8, INTEGER_DIGITS, array_of, as_numeric, numeric
from deltasql.sql.functions.aggregate_calls import AggregateCall
from deltasql.sql.functions.numeric_arithmetic import TooManyDigits, quotient
from deltasql.sql.functions.templates import Typed, filled

BuildAggregate = Callable[[AggregateCall], Typed]
_COUNT = numeric(12, 0)
"""The type of a count in an average."""
_DECIMALS, _DECIMALS_OF_BIGINT = 24, 20
"""The most decimals of an average; that of bigint has more digits before the point."""
_INFINITY = "CAST('Infinity' AS DOUBLE)"


def _sum(call: AggregateCall) -> Typed:
    size = as_numeric(call.values[0].type)
    precision, scale = size.size
    text = "sum({d}{0}){after}" if size == call.values[0].type else f"sum({{d}}CAST({{0}} AS {size.ddl})){{after}}"
    return call.filled(text, numeric(precision + 10, scale, padded=size.padded))


def _average(call: AggregateCall) -> Typed:
    """Return the sum divided by the count: as a numeric, with the decimals of a quotient."""
    name = call.values[0].type.name
    size = as_numeric(call.values[0].type)
    if size.padded:
        raise TooManyDigits("the average of quotients has too many decimals: round them, or use double precision")
    total = _sum(call)
    count = call.filled("count({d}{0}){after}", INT8)
    divisor = filled(f"CAST(nullif({{0}}, 0) AS {_COUNT.ddl})", [count.tree])
    return quotient(total, Typed(divisor, _COUNT), _DECIMALS_OF_BIGINT if name == "int8" else _DECIMALS)


def _count_rows(call: AggregateCall) -> Typed:
    one = Typed(exp.Literal.number(1), INT4)
    return replace(call, values=[one]).filled("count({0}){after}")


def _float_total(spark: str) -> str:
    """Return a sum or an average of floats, which fails where it is infinite and no value is."""
    infinite = f"NOT bool_or(abs({{0}}) = {_INFINITY}){{after}}"
    overflow = "raise_error('value out of range: overflow')"
    return f"CASE WHEN abs({spark}) = {_INFINITY} AND {infinite} THEN {overflow} ELSE {spark} END"


def _array_agg(call: AggregateCall) -> Typed:
    """Return all values, with nulls; no rows give null."""
    item = call.values[0].type
    found = call.sorted_items("s.v")
    return Typed(filled("nullif({0}, array())", [found.tree]), array_of(item))


def _string_agg(call: AggregateCall) -> Typed:
    """Return the values that are not null as one text."""
    if call.values[1].tree.find(exp.Column) is not None:
        raise TooManyDigits("the separator must be a constant")
    items = replace(call, values=call.values[:1]).sorted_items("s.v")
    text = "CASE WHEN exists({0}, x -> x IS NOT NULL) THEN array_join({0}, coalesce({1}, '')) END"
    return Typed(filled(text, [items.tree, call.values[1].tree]), call.result)


def _same_type(text: str) -> BuildAggregate:
    """Return an aggregate whose result has the type of its argument."""
    return lambda call: call.filled(text, call.values[0].type)


_MIN_MAX = ("int2", "int4", "int8", "float4", "float8", "text", "date", "timestamp", "timestamptz", "bytea")
_STATISTICS = {
    "stddev": "stddev_samp", "stddev_samp": "stddev_samp", "stddev_pop": "stddev_pop", "variance": "var_samp",
    "var_samp": "var_samp", "var_pop": "var_pop",
}  # fmt: skip

_BITS = ("bit_and", "bit_or", "bit_xor")
_REGRESSIONS = ("regr_count", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy")
_SXX, _SYY, _SXY = (f"{name}({{d}}{{0}}, {{1}}){{after}}" for name in ("regr_sxx", "regr_syy", "regr_sxy"))
_SLOPE = f"({_SXY} / nullif({_SXX}, 0))"

AGGREGATES: Mapping[str, str | BuildAggregate] = {
    "count()": _count_rows,
    "count(any)": "count({d}{0}){after}",
    **{f"sum({name})": "sum({d}{0}){after}" for name in ("int2", "int4")},
    "sum(float8)": _float_total("sum({d}{0}){after}"),
    "sum(float4)": _float_total("CAST(sum({d}{0}){after} AS FLOAT)"),
    "sum(int8)": _sum,
    "sum(numeric)": _sum,
    **{f"avg({name})": _average for name in (*INTEGER_DIGITS, "numeric")},
    **{f"avg({name})": _float_total("avg({d}{0}){after}") for name in ("float4", "float8")},
    **{f"{name}({kind})": f"{name}({{0}}){{after}}" for name in ("min", "max") for kind in _MIN_MAX},
    "min(numeric)": _same_type("min({0}){after}"),
    "max(numeric)": _same_type("max({0}){after}"),
    "bool_and(bool)": "bool_and({0}){after}",
    "bool_or(bool)": "bool_or({0}){after}",
    "every(bool)": "bool_and({0}){after}",
    **{f"{name}({kind})": f"{name}({{d}}{{0}}){{after}}" for name in _BITS for kind in INTEGER_DIGITS},
    **{
        f"{name}({kind})": f"{spark}({{d}}{{0}}){{after}}"
        for kind in ("float4", "float8")
        for name, spark in _STATISTICS.items()
    },
    "corr(float8,float8)": f"({_SXY} / nullif(sqrt({_SXX} * {_SYY}), 0))",
    **{f"{name}(float8,float8)": f"{name}({{d}}{{0}}, {{1}}){{after}}" for name in _REGRESSIONS},
    "regr_slope(float8,float8)": _SLOPE,
    "regr_intercept(float8,float8)": (
        f"(regr_avgy({{d}}{{0}}, {{1}}){{after}} - regr_avgx({{d}}{{0}}, {{1}}){{after}} * {_SLOPE})"
    ),
    "regr_r2(float8,float8)": (
        f"CASE WHEN {_SXX} = 0 THEN NULL WHEN {_SYY} = 0 THEN CAST(1 AS DOUBLE) "
        f"ELSE {_SXY} * {_SXY} / nullif({_SXX} * {_SYY}, 0) END"
    ),
    "covar_pop(float8,float8)": "covar_pop({d}{0}, {1}){after}",
    "covar_samp(float8,float8)": "covar_samp({d}{0}, {1}){after}",
    "any_value(anyelement)": "any_value({0}, true){after}",
    "array_agg(anynonarray)": _array_agg,
    "string_agg(text,text)": _string_agg,
}  # fmt: skip
WINDOWS: Mapping[str, str | BuildAggregate] = {
    **{f"{name}()": f"CAST({name}() {{after}} AS BIGINT)" for name in ("row_number", "rank", "dense_rank")},
    **{f"{name}()": f"{name}() {{after}}" for name in ("percent_rank", "cume_dist")},
    "ntile(int4)": "ntile({0}){after}",
    **{f"{name}(anyelement)": f"{name}({{0}}){{after}}" for name in ("lag", "lead", "first_value", "last_value")},
    **{f"{name}(anyelement,int4)": f"{name}({{0}}, {{1}}){{after}}" for name in ("lag", "lead")},
    "lag(anycompatible,int4,anycompatible)": "lag({0}, {1}, {2}){after}",
    "lead(anycompatible,int4,anycompatible)": "lead({0}, {1}, {2}){after}",
    "nth_value(anyelement,int4)": "nth_value({0}, {1}){after}",
}  # fmt: skip
