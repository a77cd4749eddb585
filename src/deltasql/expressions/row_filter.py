"""Filters for the rows of Arrow batches, from the questions that `pruning` evaluates for files.

Conditions come without NOT, so null counts as false. Results equal Spark's in every mode: NaN equals NaN and is above
all other numbers, -0.0 equals 0.0. A question that is only certain for files is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.expressions.bounds import BOOL, DOUBLE
from deltasql.expressions.pruning import (
    All,
    Column,
    Compare,
    CompareColumns,
    Either,
    Fixed,
    IsNull,
    NotNull,
    OneOf,
    Question,
)

Mask = Any  # pa.BooleanArray | pa.BooleanScalar
RowFilter = Callable[[pa.RecordBatch], Mask]
"""One answer per row of a batch, or one for all rows; null counts as false."""

_Values = Callable[[pa.RecordBatch], pa.Array]
_ZERO = pa.scalar(0.0, DOUBLE)


class Undecided(Exception):
    """A part of a condition that cannot filter rows: its text if it is known, and the reason."""

    def __init__(self, about: str, why: str) -> None:
        super().__init__(about, why)
        self.about = about
        self.why = why


@singledispatch
def row_filter(question: Question) -> RowFilter:
    """Return the filter of a question; raise Undecided if it is only certain for files."""
    raise Undecided("", f"{type(question).__name__} can only be decided for whole files")


@row_filter.register
def _fixed(question: Fixed) -> RowFilter:
    if question.answer is None:
        raise Undecided(question.about, question.why or "this kind of condition is not supported")
    answer = pa.scalar(question.answer, BOOL)
    return lambda _: answer


@row_filter.register
def _all(question: All) -> RowFilter:
    return _joined(question.parts, pc.and_kleene, start=True)


@row_filter.register
def _either(question: Either) -> RowFilter:
    return _joined(question.parts, pc.or_kleene, start=False)


@row_filter.register
def _is_null(question: IsNull) -> RowFilter:
    values = _values(question.column)
    return lambda batch: pc.is_null(values(batch))


@row_filter.register
def _not_null(question: NotNull) -> RowFilter:
    values = _values(question.column)
    return lambda batch: pc.is_valid(values(batch))


@row_filter.register
def _compare(question: Compare) -> RowFilter:
    literal = question.literal.low
    if literal != question.literal.high:
        raise Undecided("", "the literal is only known to be between two values")
    values, rule = _values(question.column, literal.type), _ORDERED[question.operator]
    return lambda batch: rule(values(batch), literal)


@row_filter.register
def _compare_columns(question: CompareColumns) -> RowFilter:
    left, right = _values(question.left, question.type), _values(question.right, question.type)
    rule = (_TOTAL if question.type == DOUBLE else _ORDERED)[question.operator]
    return lambda batch: rule(left(batch), right(batch))


@row_filter.register
def _one_of(question: OneOf) -> RowFilter:
    if not question.lows.equals(question.highs):
        raise Undecided("", "the literals are only known to be between two values")
    values, literals = _values(question.column, question.lows.type), _without_negative_zero(question.lows)

    def answer(batch: pa.RecordBatch) -> Mask:
        array = _without_negative_zero(values(batch))
        found = pc.is_in(array, value_set=literals)
        return pc.and_(array.is_valid(), pc.invert(found)) if question.negated else found

    return answer


def _joined(parts: tuple[Question, ...], join: Callable[[Mask, Mask], Mask], *, start: bool) -> RowFilter:
    filters = [row_filter(part) for part in parts]

    def answer(batch: pa.RecordBatch) -> Mask:
        mask: Mask = pa.scalar(start, BOOL)
        for each in filters:
            mask = join(mask, each(batch))
        return mask

    return answer


def _values(column: Column, type: pa.DataType | None = None) -> _Values:
    """Return a column or field of a struct, in the type in which Spark compares it."""
    root, *inner = column.path

    def values(batch: pa.RecordBatch) -> pa.Array:
        array = batch.column(root)
        if inner:
            array = pc.struct_field(array, inner)
        # Integers are cast to the nearest double, as in Java.
        return array if type is None or array.type == type else array.cast(type, safe=False)

    return values


def _without_negative_zero(values: pa.Array) -> pa.Array:
    """Return values without -0.0: Arrow compares doubles by their bits in `is_in`."""
    return pc.add(values, _ZERO) if values.type == DOUBLE else values


# --- Orders of values

_Rules = dict[str, Callable[[Any, Any], Mask]]

# Literals are numbers, so NaN is only ever on the left: not equal, and above.
_ORDERED: _Rules = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": lambda a, b: pc.invert(pc.less_equal(a, b)),
    ">=": lambda a, b: pc.invert(pc.less(a, b)),
}


def _same(a: pa.Array, b: pa.Array) -> Mask:
    return pc.or_kleene(pc.equal(a, b), pc.and_kleene(pc.is_nan(a), pc.is_nan(b)))


def _below(a: pa.Array, b: pa.Array) -> Mask:
    return pc.or_kleene(pc.less(a, b), pc.and_kleene(pc.invert(pc.is_nan(a)), pc.is_nan(b)))


_TOTAL: _Rules = {
    "=": _same,
    "<>": lambda a, b: pc.invert(_same(a, b)),
    "<": _below,
    "<=": lambda a, b: pc.invert(_below(b, a)),
    ">": lambda a, b: _below(b, a),
    ">=": lambda a, b: pc.invert(_below(a, b)),
}
