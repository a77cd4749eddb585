"""The table of functions of numbers. `{0}`, `{1}` … are the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import FLOAT8, INT4, MOST_DIGITS, SqlType, numeric
from deltasql.sql.catalog.types_by_name import type_of_name
from deltasql.sql.functions import numeric_arithmetic
from deltasql.sql.functions.casts import cast
from deltasql.sql.functions.operator_table import OPERATORS, Build
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
_INFINITY = "CAST('Infinity' AS DOUBLE)"
_LARGEST_FACTORIAL = 33
"""The largest number whose factorial has at most 38 digits."""
_STEPS = {"int4": 47, "int8": 93}
"""The most steps of Euclid's algorithm."""


def constant_integer(tree: Tree) -> int | None:
    """Return the integer that a tree writes, or None if it is not a constant."""
    if isinstance(tree, exp.Paren):
        return constant_integer(tree.this)
    if isinstance(tree, exp.Neg):
        value = constant_integer(tree.this)
        return -value if value is not None else None
    is_number = isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdigit()
    return int(tree.name) if is_number else None


# --- Rounding


def _same_type(text: str) -> Build:
    """Return a function whose result has the type of its argument."""
    return lambda arguments: Typed(filled(text, [arguments[0].tree]), arguments[0].type)


def _to_whole(text: str) -> Build:
    """Return a function that rounds a numeric to a whole number."""

    def build(arguments: Sequence[Typed]) -> Typed:
        [value] = arguments
        precision, scale = value.type.size
        if scale == 0:
            return value
        target = numeric(precision - scale + 1, 0)
        return Typed(filled(f"CAST({text} AS {target.ddl})", [value.tree]), target)

    return build


_TRUNCATED = "CASE WHEN {0} < 0 THEN ceil({0}) ELSE floor({0}) END"


def _to_digits(text: str) -> Build:
    """Return a function that rounds a numeric to a number of decimals; `#` in its text stands for the number."""

    def build(arguments: Sequence[Typed]) -> Typed:
        value, digits = arguments
        wanted = constant_integer(digits.tree)
        if wanted is None:
            raise InvalidLiteral("the number of decimals must be a constant, such as 2")
        precision, scale = value.type.size
        whole = precision - scale
        if wanted > MOST_DIGITS - 1:
            raise InvalidLiteral(f"a numeric has at most {MOST_DIGITS} digits")
        target = numeric(whole + 1 + max(wanted, 0), max(wanted, 0))
        if wanted >= scale:
            return Typed(filled(f"CAST({{0}} AS {target.ddl})", [value.tree]), target)
        wanted = max(wanted, -whole - 1)
        rounded = text.replace("#", str(wanted))
        return Typed(filled(f"CAST({rounded} AS {target.ddl})", [value.tree]), target)

    return build


_ROUNDED_UP = "CASE WHEN rint({0}) < {0} THEN rint({0}) + 1 ELSE rint({0}) END"
_ROUNDED_DOWN = "CASE WHEN rint({0}) > {0} THEN rint({0}) - 1 ELSE rint({0}) END"
_CUT = "CASE WHEN abs(rint({0})) > abs({0}) THEN rint({0}) - signum({0}) ELSE rint({0}) END"
_SIGN = "CASE WHEN isnan({0}) THEN CAST(0 AS DOUBLE) ELSE signum({0}) END"
_ROUNDING: dict[str, str | Build] = {
    "ceil(float8)": _ROUNDED_UP,
    "ceil(numeric)": _to_whole("ceil({0})"),
    "ceiling(float8)": _ROUNDED_UP,
    "ceiling(numeric)": _to_whole("ceil({0})"),
    "floor(float8)": _ROUNDED_DOWN,
    "floor(numeric)": _to_whole("floor({0})"),
    "round(float8)": "rint({0})",
    "round(numeric)": _to_whole("round({0})"),
    "round(numeric,int4)": _to_digits("round({0}, #)"),
    "trunc(float8)": _CUT,
    "trunc(numeric)": _to_whole(_TRUNCATED),
    "trunc(numeric,int4)": _to_digits("CASE WHEN {0} < 0 THEN ceil({0}, #) ELSE floor({0}, #) END"),
    **{f"abs({name})": "abs({0})" for name in ("int2", "int4", "int8", "float4", "float8")},
    "abs(numeric)": _same_type("abs({0})"),
    "sign(float8)": _SIGN,
    "sign(numeric)": lambda arguments: Typed(
        filled("CAST(signum({0}) AS DECIMAL(1, 0))", [arguments[0].tree]), numeric(1, 0)
    ),
}


# --- Whole numbers and exact numbers


def _div(arguments: Sequence[Typed]) -> Typed:
    """Return the whole part of a quotient: the dividend without its remainder is a multiple of the divisor."""
    numeric_arithmetic.remainder(arguments)  # checks the number of digits
    (precision, scale), divisor = arguments[0].type.size, arguments[1].type
    most = MOST_DIGITS - 1 - max(scale, divisor.size[1])
    left = filled(f"CAST({{0}} AS DECIMAL({min(precision, most + scale)}, {scale}))", [arguments[0].tree])
    target = numeric(precision - scale + divisor.size[1], 0)
    text = f"CAST(({{0}} - {{0}} % {{1}}) / {{1}} AS {target.ddl})"
    return Typed(filled(text, [left, arguments[1].tree]), target)


def _gcd(kind: str) -> str:
    """Return the greatest common divisor by Euclid's algorithm."""
    ddl = "INT" if kind == "int4" else "BIGINT"
    step = "IF(__s.b = 0, __s, named_struct('a', __s.b, 'b', __s.a % __s.b))"
    start = "named_struct('a', {0}, 'b', {1})"
    steps = f"aggregate(array_repeat(0, {_STEPS[kind]}), {start}, (__s, __n) -> {step}, __s -> abs(__s.a))"
    return f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN CAST({steps} AS {ddl}) END"


def _lcm(kind: str) -> str:
    ddl = "INT" if kind == "int4" else "BIGINT"
    divisor = _gcd(kind)
    product = f"CAST({{0}} DIV ({divisor}) AS {ddl}) * {{1}}"
    return f"CASE WHEN {{0}} = 0 OR {{1}} = 0 THEN {{0}} * {{1}} ELSE abs({product}) END"


def _factorial(arguments: Sequence[Typed]) -> Typed:
    products = accumulate(range(1, _LARGEST_FACTORIAL + 1), lambda product, factor: product * factor, initial=1)
    items = ", ".join(f"CAST('{product}' AS DECIMAL({MOST_DIGITS}, 0))" for product in products)
    text = (
        "CASE WHEN {0} < 0 THEN raise_error('factorial of a negative number is undefined') "
        f"WHEN {{0}} > {_LARGEST_FACTORIAL} THEN raise_error('the factorial has more than {MOST_DIGITS} digits') "
        f"ELSE get(array({items}), CAST({{0}} AS INT)) END"
    )
    return Typed(filled(text, [arguments[0].tree]), numeric(MOST_DIGITS, 0))


_MIN_SCALE = r"length(regexp_replace(CAST({0} AS STRING), '^[^.]*(\\.|$)|0*$', ''))"


def _scale(arguments: Sequence[Typed]) -> Typed:
    [value] = arguments
    if value.type.padded:
        raise InvalidLiteral("the number of decimals of this numeric is not known: round it")
    return Typed(filled(f"CASE WHEN {{0}} IS NOT NULL THEN {value.type.size[1]} END", [value.tree]), INT4)


def _trim_scale(arguments: Sequence[Typed]) -> Typed:
    """Return the number as it is: Spark's decimals have zeros at the end."""
    [value] = arguments
    return Typed(value.tree, numeric(*value.type.size, padded=value.type.size[1] > 0))


_WRONG_BUCKETS = (
    "CASE WHEN {3} <= 0 THEN raise_error('count must be greater than zero') "
    "WHEN {1} = {2} THEN raise_error('lower bound cannot equal upper bound') "
)


def _bucket(place: str) -> str:
    """Return the number of a bucket; `place` is the place of the value between the bounds, rounded down."""
    inside = "least({3} - 1, CAST(" + place + " AS INT)) + 1"
    return (
        _WRONG_BUCKETS + "WHEN {0} IS NULL THEN NULL "
        "WHEN {1} < {2} AND {0} < {1} OR {1} > {2} AND {0} > {1} THEN 0 "
        "WHEN {1} < {2} AND {0} >= {2} OR {1} > {2} AND {0} <= {2} THEN {3} + 1 "
        f"WHEN {{1}} <> {{2}} THEN {inside} END"
    )


_FLOAT_BUCKET = (
    "CASE WHEN isnan({0}) OR isnan({1}) OR isnan({2}) OR abs({1}) = #I OR abs({2}) = #I "
    "THEN raise_error('the bounds must be finite, and nothing can be NaN') "
    "WHEN abs({1}) > 1e307 OR abs({2}) > 1e307 THEN raise_error('the bounds are too large') "
    "ELSE " + _bucket("floor({3} * (({0} - {1}) / ({2} - {1})))") + " END"
).replace("#I", _INFINITY)


def _numeric_bucket(arguments: Sequence[Typed]) -> Typed:
    value, low, high, count = arguments
    size = numeric_arithmetic.subtract([value, low])
    width = numeric_arithmetic.subtract([high, low])
    times = numeric_arithmetic.multiply([size, Typed(count.tree, numeric(10, 0))])
    place = filled("({0} DIV {1})", [times.tree, width.tree])
    text = _bucket("{4}")
    return Typed(filled(text, [*(one.tree for one in arguments), place]), INT4)


_BITS_OF_BYTES = (
    "aggregate(filter(split(hex({0}), ''), __c -> __c <> ''), CAST(0 AS BIGINT), "
    "(__s, __c) -> __s + bit_count(CAST(conv(__c, 16, 10) AS INT)))"
)
_EXACT: dict[str, str | Build] = {
    **{f"mod({name},{name})": "({0} % {1})" for name in ("int2", "int4", "int8")},
    "mod(numeric,numeric)": numeric_arithmetic.remainder,
    "div(numeric,numeric)": _div,
    **{f"gcd({name},{name})": _gcd(name) for name in _STEPS},
    **{f"lcm({name},{name})": _lcm(name) for name in _STEPS},
    "factorial(int8)": _factorial,
    "scale(numeric)": _scale,
    "min_scale(numeric)": _MIN_SCALE,
    "trim_scale(numeric)": _trim_scale,
    "width_bucket(float8,float8,float8,int4)": _FLOAT_BUCKET,
    "width_bucket(numeric,numeric,numeric,int4)": _numeric_bucket,
    "bit_count(bytea)": _BITS_OF_BYTES,
}


# --- Functions of floats


def _within(condition: str, error: str, result: str) -> str:
    """Return a function that fails for some arguments."""
    return f"CASE WHEN {condition} THEN raise_error('{error}') ELSE {result} END"


def _finite(result: str, *, never_zero: bool = False) -> str:
    """Return a function that fails where the result is infinite, or zero, and the argument is not."""
    large = _within(
        f"abs({result}) = {_INFINITY} AND abs({{0}}) <> {_INFINITY}", "value out of range: overflow", result
    )
    if not never_zero:
        return large
    return _within(f"{result} = 0 AND abs({{0}}) <> {_INFINITY} AND {{0}} <> 0", "value out of range: underflow", large)


def _logarithm(result: str) -> str:
    return (
        "CASE WHEN {0} = 0 THEN raise_error('cannot take logarithm of zero') "
        f"WHEN {{0}} < 0 THEN raise_error('cannot take logarithm of a negative number') ELSE {result} END"
    )


_ENDLESS = f"abs({{0}}) = {_INFINITY}"
_ABOVE_ONE = "abs({0}) > 1 AND NOT isnan({0})"
_OUT = "input is out of range"
_POWER = str(OPERATORS["^(float8,float8)"])
_FLOATS: dict[str, str | Build] = {
    "power(float8,float8)": _POWER,
    "pow(float8,float8)": _POWER,
    "sqrt(float8)": str(OPERATORS["|/(float8)"]),
    "cbrt(float8)": "cbrt({0})",
    "exp(float8)": (
        f"CASE WHEN exp({{0}}) = 0 AND {{0}} <> -{_INFINITY} THEN raise_error('value out of range: underflow') "
        f"ELSE {_finite('exp({0})')} END"
    ),
    "ln(float8)": _logarithm("ln({0})"),
    "log(float8)": _logarithm("log10({0})"),
    "log10(float8)": _logarithm("log10({0})"),
    "degrees(float8)": _finite("degrees({0})"),
    "radians(float8)": _finite("radians({0})", never_zero=True),
    "pi()": "pi()",
    **{f"{name}(float8)": _within(_ENDLESS, _OUT, f"{name}({{0}})") for name in ("sin", "cos", "tan", "cot")},
    **{f"{name}(float8)": _within(_ABOVE_ONE, _OUT, f"{name}({{0}})") for name in ("asin", "acos", "atanh")},
    "atan(float8)": "atan({0})",
    "atan2(float8,float8)": "atan2({0}, {1})",
    **{f"{name}(float8)": f"{name}({{0}})" for name in ("sinh", "cosh", "tanh")},
    "asinh(float8)": (
        "CASE WHEN abs({0}) > 1e8 THEN signum({0}) * (ln(abs({0})) + ln(2)) "
        "ELSE signum({0}) * log1p(abs({0}) + {0} * {0} / (1 + sqrt({0} * {0} + 1))) END"
    ),
    "acosh(float8)": (
        f"CASE WHEN {{0}} < 1 THEN raise_error('{_OUT}') WHEN {{0}} > 1e8 THEN ln({{0}}) + ln(2) "
        "ELSE log1p({0} - 1 + sqrt(2 * ({0} - 1) + ({0} - 1) * ({0} - 1))) END"
    ),
}  # fmt: skip


# --- Random numbers, numbers of nulls, casts by name


def _random_normal(arguments: Sequence[Typed]) -> Typed:
    mean = arguments[0].tree if arguments else exp.Literal.number(0)
    spread = arguments[1].tree if len(arguments) > 1 else exp.Literal.number(1)
    return Typed(filled("(randn() * {1} + {0})", [mean, spread]), FLOAT8)


def _counted(text: str) -> Build:
    def build(arguments: Sequence[Typed]) -> Typed:
        texts = (f"CAST({{{index}}} {text} AS INT)" for index in range(len(arguments)))
        return Typed(filled(f"({' + '.join(texts)})", [value.tree for value in arguments]), INT4)

    return build


def _cast_to(target: SqlType) -> Callable[[Sequence[Typed]], Typed]:
    return lambda arguments: cast(arguments[0], target)


_CASTS = {
    "int2": ("float4", "float8", "int4", "int8", "numeric"),
    "int4": ("bool", "float4", "float8", "int2", "int8", "numeric"),
    "int8": ("float4", "float8", "int2", "int4", "numeric"),
    "float4": ("float8", "int2", "int4", "int8", "numeric"),
    "float8": ("float4", "int2", "int4", "int8", "numeric"),
    "bool": ("int4",),
    "text": ("bool",),
    "date": ("timestamp", "timestamptz"),
    "timestamptz": ("date", "timestamp"),
}
"""The functions named as a type, and the types of their arguments; numeric(…) and timestamp(…) are syntax errors."""
_OTHER: dict[str, str | Build] = {
    "random()": "rand()",
    "random(int4,int4)": (
        "CASE WHEN {0} > {1} THEN raise_error('lower bound must be less than or equal to upper bound') "
        "ELSE CAST({0} + floor(rand() * (CAST({1} AS BIGINT) - {0} + 1)) AS INT) END"
    ),
    "random_normal(float8,float8)": _random_normal,
    "num_nulls(any)": _counted("IS NULL"),
    "num_nonnulls(any)": _counted("IS NOT NULL"),
    **{
        f"{target}({source})": _cast_to(type_of_name(target) or FLOAT8)
        for target, sources in _CASTS.items()
        for source in sources
    },
}

NUMBER_FUNCTIONS: Mapping[str, str | Build] = {**_ROUNDING, **_EXACT, **_FLOATS, **_OTHER}
