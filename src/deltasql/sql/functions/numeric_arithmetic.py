"""Arithmetic of numeric: exact as in PostgreSQL, within the 38 digits of Spark's decimals.

Spark drops decimals silently if the type of a result would have more than 38 digits. The operands are cast to fewer
digits before, so that a number that does not fit is an error instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import MOST_DIGITS, SqlType, as_numeric, numeric
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
_SIGNIFICANT = 16
"""The significant digits that PostgreSQL computes at least for a quotient."""
_MOST_DECIMALS = 24
"""The most decimals of a quotient, so that it can be multiplied."""
_GROUP = 4
"""PostgreSQL stores a numeric in groups of four digits."""
_LEAST_OF_SPARK = 6
_SHIFT = 8
_KEYS = 10**_GROUP
_TOO_SMALL = "raise_error('the quotient has more decimals than fit into 38 digits')"


class TooManyDigits(ValueError):
    """The exact result has more digits than a decimal of Spark."""


def _whole(type_: SqlType) -> int:
    return type_.size[0] - type_.size[1]


def _cut(value: Typed, precision: int) -> Tree:
    """Return a number with at most so many digits; a larger one is an error."""
    size = as_numeric(value.type)
    if size.size[0] <= precision:
        return value.tree
    return filled(f"CAST({{0}} AS DECIMAL({precision}, {size.size[1]}))", [value.tree])


def add(arguments: Sequence[Typed]) -> Typed:
    """Return a sum."""
    return _sum("({0} + {1})", *arguments)


def subtract(arguments: Sequence[Typed]) -> Typed:
    """Return a difference."""
    return _sum("({0} - {1})", *arguments)


def _sum(text: str, left: Typed, right: Typed) -> Typed:
    one, other = as_numeric(left.type), as_numeric(right.type)
    scale = max(one.size[1], other.size[1])
    whole = min(max(_whole(one), _whole(other)), MOST_DIGITS - 1 - scale)
    trees = [_cut(value, whole + as_numeric(value.type).size[1]) for value in (left, right)]
    return Typed(filled(text, trees), numeric(whole + scale + 1, scale, padded=one.padded or other.padded))


def multiply(arguments: Sequence[Typed]) -> Typed:
    """Return a product."""
    left, right = arguments
    one, other = as_numeric(left.type), as_numeric(right.type)
    scale = one.size[1] + other.size[1]
    room = MOST_DIGITS - 1 - scale
    if room < 1:
        raise TooManyDigits(f"the product has {scale} decimals, and at most {MOST_DIGITS} digits are possible")
    first, second = _shared(room, _whole(one), _whole(other))
    trees = [_cut(left, first + one.size[1]), _cut(right, second + other.size[1])]
    return Typed(
        filled("({0} * {1})", trees), numeric(first + second + scale + 1, scale, padded=one.padded or other.padded)
    )


def _shared(room: int, one: int, other: int) -> tuple[int, int]:
    """Share digits before the point between two factors."""
    if one + other <= room:
        return one, other
    half = room // 2
    if one <= half:
        return one, room - one
    return (room - other, other) if other <= half else (half, room - half)


def remainder(arguments: Sequence[Typed]) -> Typed:
    """Return a remainder, which has the sign of the dividend."""
    left, right = arguments
    one, other = as_numeric(left.type), as_numeric(right.type)
    scale = max(one.size[1], other.size[1])
    if max(_whole(one), _whole(other)) + scale > MOST_DIGITS:
        raise TooManyDigits(f"the operands of % have more than {MOST_DIGITS} digits together")
    size = numeric(min(_whole(one), _whole(other)) + scale, scale, padded=one.padded or other.padded)
    return Typed(filled("({0} % {1})", [left.tree, right.tree]), size)


def divide(arguments: Sequence[Typed]) -> Typed:
    """Return a quotient with the decimals of PostgreSQL: at least 16 significant digits, in groups of four.

    The number of decimals depends on the values; a value of Spark's type has them all, with zeros at the end.
    """
    left, right = arguments
    if left.type.padded or right.type.padded:
        raise TooManyDigits("a quotient is divided again: round it first, or use double precision")
    return quotient(left, right)


def quotient(left: Typed, right: Typed, most_decimals: int = _MOST_DECIMALS) -> Typed:
    """Return a quotient that is rounded once, to the decimals of PostgreSQL; one with too many digits is an error."""
    one, other = as_numeric(left.type), as_numeric(right.type)
    least = max(one.size[1], other.size[1])
    highest = _weights(one)[0] - _weights(other)[-1]
    lowest = _weights(one)[-1] - _weights(other)[0] - 1
    most = min(most_decimals, _decimals(lowest, 0), MOST_DIGITS - 1 - other.size[1])
    scale = max(least, most)
    if most < _SIGNIFICANT or scale + other.size[1] >= MOST_DIGITS:
        raise TooManyDigits(f"the quotient of {one.ddl} and {other.ddl} has too many digits: cast them to fewer digits")
    known = {weight: _decimals(weight, least) for weight in range(lowest, highest + 1)}
    texts = {decimals: _divided(one, other, decimals, scale) for decimals in known.values() if decimals <= scale}
    fewest = known[highest]
    zero = f"CASE WHEN {{0}} = 0 THEN CAST({{0}} / {{1}} AS DECIMAL({MOST_DIGITS}, {scale})) ELSE {_TOO_SMALL} END"
    branches = "".join(f" WHEN {weight} THEN {texts.get(n, zero)}" for weight, n in known.items() if n != fewest)
    trees = [_sized(left, one), _sized(right, other)]
    text = texts[fewest]
    if branches:
        keys = [_key(f"{{{index}}}", value, as_numeric(value.type)) for index, value in enumerate((left, right))]
        # DIV rounds towards zero, so the number before it must not be negative
        weight = f"({keys[0]} - {keys[1]} + {-lowest * _KEYS - 1}) DIV {_KEYS} - {-lowest}"
        text = f"CASE {weight}{branches} ELSE {text} END"
    return Typed(filled(text, trees), numeric(MOST_DIGITS, scale, padded=True))


def _sized(value: Typed, size: SqlType) -> Tree:
    """Return a number with the type that is known of it: Spark derives the type of a quotient from it."""
    is_sized = value.type.name == "numeric" and not isinstance(value.tree, exp.Literal)
    return value.tree if is_sized else filled(f"CAST({{0}} AS {size.ddl})", [value.tree])


def _divided(one: SqlType, other: SqlType, decimals: int, scale: int) -> str:
    """Return a quotient with a number of decimals.

    Spark derives the decimals from the types of the operands, such that the digits before the point have room: with
    this size of the dividend it has as many as are asked for. Spark computes six decimals at least; if fewer are asked
    for, the quotient is shifted.
    """
    shift = _SHIFT if decimals < _LEAST_OF_SPARK else 0
    precision, below = other.size
    if shift and precision + shift + 2 > MOST_DIGITS and below > _LEAST_OF_SPARK:
        return "raise_error('the quotient has too many digits')"
    before = MOST_DIGITS - decimals - shift - below
    after = max(one.size[1], decimals + shift - 1 - min(precision + (shift + 2 if shift else 0), MOST_DIGITS))
    power = f"{10**shift}BD"
    dividend = f"CAST({{0}} AS DECIMAL({before + after}, {after}))"
    divided = f"{dividend} / ({{1}} * {power}) * {power}" if shift else f"{dividend} / {{1}}"
    return f"CAST({divided} AS DECIMAL({MOST_DIGITS}, {scale}))"


def _decimals(weight: int, least: int) -> int:
    """Return the number of decimals that PostgreSQL gives a quotient; `weight` is the place of its first group."""
    return max(_SIGNIFICANT - _GROUP * weight, least)


def _weights(type_: SqlType) -> range:
    """Return the places that the first group of a number of a type can have, the largest first."""
    most = (_whole(type_) - 1) // _GROUP if _whole(type_) else -1
    return range(most, -type_.size[1] // _GROUP - 1, -1)


def _key(value: str, typed: Typed, type_: SqlType) -> str:
    """Return a number for the first group of a number and its place: 10,000 times the place, plus the group."""
    if isinstance(typed.tree, exp.Literal) and Decimal(typed.tree.name):
        number = Decimal(typed.tree.name)
        weight = number.adjusted() // _GROUP
        return str(weight * _KEYS + int(number.scaleb(-_GROUP * weight)))
    *above, last = _weights(type_)
    texts = {w: f"{w * _KEYS} + abs({value}) DIV {_power(w)}" if w else f"abs({value}) DIV 1BD" for w in (*above, last)}
    branches = "".join(f"WHEN abs({value}) >= {_power(weight)} THEN {texts[weight]} " for weight in above)
    return f"CASE {branches}ELSE {texts[last]} END" if branches else f"({texts[last]})"


def _power(weight: int) -> str:
    """Return a power of 10,000 as a decimal."""
    return f"{10 ** (_GROUP * weight)}BD" if weight >= 0 else f"0.{'0' * (-_GROUP * weight - 1)}1BD"


def negate(arguments: Sequence[Typed]) -> Typed:
    """Return the number with the other sign."""
    [value] = arguments
    return Typed(filled("(- {0})", [value.tree]), value.type)


def comparable(left: SqlType, right: SqlType) -> bool:
    """Return whether Spark compares two numbers without a loss of digits."""
    one, other = as_numeric(left), as_numeric(right)
    return max(_whole(one), _whole(other)) + max(one.size[1], other.size[1]) <= MOST_DIGITS
