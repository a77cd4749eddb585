"""Pruning of files: whether a file may have a row for which a condition is true, from bounds of many files at once.

Conditions come without NOT, because `predicates` pushes it down to the comparisons. Answers are Arrow booleans, one per
file or one scalar for all. Null is unknown, which Kleene logic treats like true: the file is not pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.expressions.bounds import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    Bounds,
    ColumnPath,
    bounds_type,
    retyped,
)
from deltasql.expressions.literals import Fitted

Answer = Any  # pa.BooleanArray | pa.BooleanScalar
FileBounds = Mapping[ColumnPath, Bounds]

UNKNOWN = pa.scalar(None, BOOL)
_TRUE = pa.scalar(True, BOOL)
_FALSE = pa.scalar(False, BOOL)
# Arrow converts decimals to doubles with more than one rounding.
_DOUBLE_ERROR = 2.0**-49


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf column and its type in the schema."""

    path: ColumnPath
    type: pa.DataType


class Question(Protocol):
    """A question about every file: whether it may have a row for which a condition is true."""

    def may(self, files: FileBounds) -> Answer: ...


def may_match(question: Question, files: FileBounds, n: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each of n files whether it may have a row for which the condition is true."""
    answer = question.may(files)
    if isinstance(answer, pa.Scalar):
        return np.full(n, answer.as_py() is not False)
    return np.asarray(pc.fill_null(answer, _TRUE).to_numpy(zero_copy_only=False))


# --- Questions


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same answer for every file; None is unknown. `about` is the text of the condition, `why` the reason."""

    answer: bool | None
    about: str = field(default="", compare=False)
    why: str = field(default="", compare=False)

    def may(self, files: FileBounds) -> Answer:  # noqa: ARG002
        return pa.scalar(self.answer, BOOL)


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Question, ...]

    def may(self, files: FileBounds) -> Answer:
        answer = _TRUE
        for part in self.parts:
            answer = pc.and_kleene(answer, part.may(files))
        return answer


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Question, ...]

    def may(self, files: FileBounds) -> Answer:
        answer = _FALSE
        for part in self.parts:
            answer = pc.or_kleene(answer, part.may(files))
        return answer


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column

    def may(self, files: FileBounds) -> Answer:
        bounds = files.get(self.column.path)
        return UNKNOWN if bounds is None else bounds.has_nulls


@dataclass(frozen=True, slots=True)
class NotNull:
    column: Column

    def may(self, files: FileBounds) -> Answer:
        bounds = files.get(self.column.path)
        return UNKNOWN if bounds is None else pc.invert(bounds.all_null)


@dataclass(frozen=True, slots=True)
class Compare:
    """Column against literal."""

    column: Column
    operator: str
    literal: Fitted

    def may(self, files: FileBounds) -> Answer:
        bounds = files.get(self.column.path)
        if bounds is None:
            return UNKNOWN
        column = _range(bounds, self.column.type, self.literal.low.type)
        return pc.and_kleene(
            pc.invert(bounds.all_null), _MAY[self.operator](column, (self.literal.low, self.literal.high))
        )


@dataclass(frozen=True, slots=True)
class CompareColumns:
    """Two columns of one row, in the type that both are compared in."""

    left: Column
    operator: str
    right: Column
    type: pa.DataType

    def may(self, files: FileBounds) -> Answer:
        left, right = files.get(self.left.path), files.get(self.right.path)
        if left is None or right is None:
            return UNKNOWN
        ranges = (_range(left, self.left.type, self.type), _range(right, self.right.type, self.type))
        present = pc.and_kleene(pc.invert(left.all_null), pc.invert(right.all_null))
        return pc.and_kleene(present, _MAY[self.operator](*ranges))


def comparable_columns(left: Column, right: Column) -> pa.DataType | None:
    """Return the type in which Spark compares two columns, if it needs neither a time zone nor rounding."""
    types = {bounds_type(left.type), bounds_type(right.type)}
    if len(types) == 1:
        type = types.pop()
        return None if pa.types.is_null(type) else type
    return DOUBLE if types == {INT, DOUBLE} else None


@dataclass(frozen=True, slots=True)
class OneOf:
    """Column IN (…), or NOT IN: literals as disjoint ranges from `lows` to `highs`, in ascending order."""

    column: Column
    lows: pa.Array
    highs: pa.Array
    negated: bool

    def may(self, files: FileBounds) -> Answer:
        bounds = files.get(self.column.path)
        if bounds is None:
            return UNKNOWN
        low, high = _range(bounds, self.column.type, self.lows.type)
        # The first literal that is not below the file, and whether it is not above it either.
        at = _first_not_below(self.highs, low)
        nearest = pa.array(np.minimum(at, len(self.highs) - 1), INT)
        nearest_low, nearest_high = self.lows.take(nearest), self.highs.take(nearest)
        if self.negated:
            only = pc.and_kleene(pc.equal(low, high), pc.equal(nearest_low, low))
            hit = pc.invert(pc.and_kleene(only, pc.equal(nearest_high, low)))
        else:
            hit = pc.and_kleene(pc.less_equal(low, nearest_high), pc.less_equal(nearest_low, high))
        # If the minimum is unknown, so is the index among the literals; the maximum may still decide.
        hit = pc.if_else(low.is_valid(), hit, UNKNOWN if self.negated else pc.greater_equal(high, self.lows[0]))
        return pc.and_kleene(pc.invert(bounds.all_null), hit)


# --- Ranges of values

Range = tuple[Any, Any]

_MAY: dict[str, Callable[[Range, Range], Answer]] = {
    "<": lambda a, b: pc.less(a[0], b[1]),
    "<=": lambda a, b: pc.less_equal(a[0], b[1]),
    ">": lambda a, b: pc.greater(a[1], b[0]),
    ">=": lambda a, b: pc.greater_equal(a[1], b[0]),
    "=": lambda a, b: pc.and_kleene(pc.less_equal(a[0], b[1]), pc.greater_equal(a[1], b[0])),
    "<>": lambda a, b: pc.or_kleene(pc.less(a[0], b[1]), pc.greater(a[1], b[0])),
}


def _range(bounds: Bounds, type: pa.DataType, target: pa.DataType) -> Range:
    """Return the bounds in the type of the comparison."""
    bounds = retyped(bounds, bounds_type(type))
    source = bounds.min.type
    if source == target or (pa.types.is_decimal(source) and pa.types.is_decimal(target)):
        return bounds.min, bounds.max
    low, high = (pc.cast(values, target, safe=False) for values in (bounds.min, bounds.max))
    return (_moved(low, -1), _moved(high, 1)) if pa.types.is_decimal(source) else (low, high)


def _moved(values: pa.DoubleArray, direction: int) -> pa.DoubleArray:
    return pc.add(values, pc.multiply(pc.abs(values), pa.scalar(direction * _DOUBLE_ERROR, DOUBLE)))


def _first_not_below(ordered: pa.Array, values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return for each value the index of the first element that is not below it; any index for a null."""
    plain = ordered.type in (INT, DOUBLE, DATE) or pa.types.is_timestamp(ordered.type)
    return (_search_plain if plain else _search)(ordered, values)


def _search_plain(ordered: pa.Array, values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    whole, parts = (_plain(array) for array in (ordered, values))
    return np.searchsorted(whole, parts)


def _plain(values: pa.Array) -> np.ndarray[Any, Any]:
    if values.type == DATE:
        values = values.cast(pa.int32())
    if values.type != DOUBLE:
        values = values.cast(INT)
    return np.asarray(pc.fill_null(values, pa.scalar(0, values.type)).to_numpy())


def _search(ordered: pa.Array, values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Search all values at once, for types that numpy and Arrow order differently."""
    low = np.zeros(len(values), np.int64)
    high = np.full(len(values), len(ordered), np.int64)
    for _ in range(len(ordered).bit_length()):
        middle = (low + high) // 2
        probe = ordered.take(pa.array(np.minimum(middle, len(ordered) - 1), INT))
        below = pc.fill_null(pc.less(probe, values), _FALSE).to_numpy(zero_copy_only=False) & (low < high)
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, middle)
    return low
