"""The table of functions of arrays. `{0}`, `{1}` … are the arguments.

The variables of lambdas have names that no column has, because arguments stand inside of lambdas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import INT4, TEXT, SqlType, array_of
from deltasql.sql.functions.casts import ASSIGNMENT, cast, castable
from deltasql.sql.functions.operator_table import OPERATORS, Build
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
_ITEM = "__i"
_PLAIN_ITEMS = {"text", "varchar", "int2", "int4", "int8", "numeric", "date", "timestamp", "timestamptz", "bytea"}


def _is_array(value: Typed) -> bool:
    return value.type.name == "array"


def _check_flat(arguments: Sequence[Typed]) -> None:
    """Refuse arrays of arrays, which are arrays of several dimensions in PostgreSQL."""
    if any(_is_array(value) and value.type.element.name == "array" for value in arguments):
        raise InvalidLiteral("arrays of arrays are not supported here: PostgreSQL has arrays of several dimensions")


def _number(text: str) -> Build:
    """Return a function of arrays that returns an integer."""
    return _build(text, INT4)


def _build(text: str, result: SqlType | None = None) -> Build:
    """Return a function of arrays; its result is the array's type if none is given."""

    def build(arguments: Sequence[Typed]) -> Typed:
        _check_flat(arguments)
        array = next((value.type for value in arguments if _is_array(value)), TEXT)
        return Typed(filled(text, [value.tree for value in arguments]), result or array)

    return build


def _joined(arguments: Sequence[Typed]) -> Typed:
    """Return the items as one text; nulls are left out, or stand as the third argument."""
    _check_flat(arguments)
    array, separator, *null = arguments
    item = _item_text(array.type.element)
    if null:
        item = filled("coalesce({0}, {1})", [item, null[0].tree])
    text = f"array_join(transform({{0}}, {_ITEM} -> {{1}}), {{2}})"
    return Typed(filled(text, [array.tree, item, separator.tree]), TEXT)


def _item_text(item: SqlType) -> Tree:
    """Return an item of an array as a text, as PostgreSQL prints it."""
    variable = exp.to_identifier(_ITEM)
    if item.name == "bool":
        return filled("CASE {0} WHEN true THEN 't' WHEN false THEN 'f' END", [variable])
    if item.padded:
        raise InvalidLiteral("round the numbers before they become texts: their number of decimals is not known")
    if item.name not in _PLAIN_ITEMS or not castable(item, TEXT, ASSIGNMENT):
        raise InvalidLiteral(f"values of type {item} cannot become texts: use transform(array, x -> …) before")
    return cast(Typed(variable, item), TEXT).tree


def _fill(arguments: Sequence[Typed]) -> Typed:
    """Return an array of one value: the second argument is the array of its sizes."""
    value, sizes = arguments
    if value.type.name == "array":
        raise InvalidLiteral("arrays of arrays are not supported")
    text = (
        "CASE WHEN {1} IS NULL OR exists({1}, __n -> __n IS NULL) THEN raise_error('dimension values cannot be null') "
        "WHEN array_size({1}) > 1 THEN raise_error('only arrays of one dimension are supported') "
        "WHEN get({1}, 0) < 0 THEN raise_error('array size must not be negative') "
        "ELSE array_repeat({0}, coalesce(get({1}, 0), 0)) END"
    )
    return Typed(filled(text, [value.tree, sizes.tree]), array_of(value.type))


_LENGTH = "CASE WHEN {1} = 1 THEN nullif(array_size({0}), 0) END"
_FIND = (
    "CAST(nullif(CASE WHEN {1} IS NULL THEN array_position(transform({0}, __i -> __i IS NULL), true) "
    "ELSE array_position({0}, {1}) END, 0) AS INT)"
)
_FIND_FROM = (
    "CASE WHEN {0} IS NOT NULL AND {2} IS NULL THEN raise_error('initial position must not be null') ELSE "
    "CAST(nullif(array_position(transform({0}, (__i, __n) -> __n + 1 >= {2} AND __i <=> {1}), true), 0) AS INT) END"
)
_FIND_ALL = "filter(transform({0}, (__i, __n) -> CASE WHEN __i <=> {1} THEN __n + 1 END), __n -> __n IS NOT NULL)"
_UP, _DOWN = "array_sort({0})", "reverse(array_sort({0}))"
_UP_NULLS_FIRST, _DOWN_NULLS_LAST = "sort_array({0}, true)", "sort_array({0}, false)"
_TOO_MANY = "CASE WHEN {1} NOT BETWEEN 0 AND array_size({0}) THEN raise_error('%s') ELSE %s END"
_BUCKET = (
    "CASE WHEN {0} IS NULL THEN NULL "
    "WHEN exists({1}, __i -> __i IS NULL) THEN raise_error('thresholds array must not contain NULLs') "
    "WHEN {1} <> array_sort({1}) THEN raise_error('thresholds must be sorted') "
    "ELSE array_size(filter({1}, __i -> __i <= {0})) END"
)

ARRAY_FUNCTIONS: Mapping[str, str | Build] = {
    "array_length(anyarray,int4)": _number(_LENGTH),
    "array_upper(anyarray,int4)": _number(_LENGTH),
    "array_lower(anyarray,int4)": _number("CASE WHEN {1} = 1 AND array_size({0}) > 0 THEN 1 END"),
    "array_ndims(anyarray)": _number("CASE WHEN array_size({0}) > 0 THEN 1 END"),
    "array_dims(anyarray)": _build("CASE WHEN array_size({0}) > 0 THEN concat('[1:', array_size({0}), ']') END", TEXT),
    "cardinality(anyarray)": _number("array_size({0})"),
    "array_append(anycompatiblearray,anycompatible)": _build(str(OPERATORS["||(anycompatiblearray,anycompatible)"])),
    "array_prepend(anycompatible,anycompatiblearray)": _build(str(OPERATORS["||(anycompatible,anycompatiblearray)"])),
    "array_cat(anycompatiblearray,anycompatiblearray)": _build(
        str(OPERATORS["||(anycompatiblearray,anycompatiblearray)"])
    ),
    "array_remove(anycompatiblearray,anycompatible)": _build("filter({0}, __i -> NOT (__i <=> {1}))"),
    "array_replace(anycompatiblearray,anycompatible,anycompatible)": _build(
        "transform({0}, __i -> CASE WHEN __i <=> {1} THEN {2} ELSE __i END)"
    ),
    "array_position(anycompatiblearray,anycompatible)": _number(_FIND),
    "array_position(anycompatiblearray,anycompatible,int4)": _number(_FIND_FROM),
    "array_positions(anycompatiblearray,anycompatible)": _build(_FIND_ALL, array_of(INT4)),
    "array_to_string(anyarray,text)": _joined,
    "array_to_string(anyarray,text,text)": _joined,
    "array_fill(anyelement,_int4)": _fill,
    "array_reverse(anyarray)": _build("reverse({0})"),
    "array_sort(anyarray)": _build(_UP),
    "array_sort(anyarray,bool)": _build(f"CASE {{1}} WHEN false THEN {_UP} WHEN true THEN {_DOWN} END"),
    "array_sort(anyarray,bool,bool)": _build(
        f"CASE WHEN {{1}} AND {{2}} THEN {_DOWN} WHEN {{1}} AND NOT {{2}} THEN {_DOWN_NULLS_LAST} "
        f"WHEN NOT {{1}} AND {{2}} THEN {_UP_NULLS_FIRST} WHEN NOT {{1}} AND NOT {{2}} THEN {_UP} END"
    ),
    "trim_array(anyarray,int4)": _build(
        _TOO_MANY
        % ("number of elements to trim must be between 0 and the size", "slice({0}, 1, array_size({0}) - {1})")
    ),
    "array_shuffle(anyarray)": _build("shuffle({0})"),
    "array_sample(anyarray,int4)": _build(
        _TOO_MANY % ("sample size must be between 0 and the size", "slice(shuffle({0}), 1, {1})")
    ),
    "width_bucket(anycompatible,anycompatiblearray)": _number(_BUCKET),
}
