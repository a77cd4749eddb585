"""Predicates in Spark SQL, compiled from syntax trees to questions about files and rows.

NOT is pushed down to the comparisons, which SQL's three-valued logic allows: `NOT (a AND b)` is true exactly where
`NOT a OR NOT b` is, `NOT a < 5` where `a >= 5` is. A condition that is not supported is unknown and prunes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from deltasql.errors import UnsupportedFeature
from deltasql.expressions.bounds import STRING, Bounds, ColumnPath, bounds_type
from deltasql.expressions.condition_parser import ConditionText, Names, Node, is_name, parse_condition, room_for_nesting
from deltasql.expressions.literals import Constant, Fitted, Value, constant, doubt, fit, fit_all
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
    comparable_columns,
    may_match,
)
from deltasql.expressions.row_filter import RowFilter, Undecided, row_filter


@dataclass(frozen=True, slots=True)
class _Conjunct:
    """One of the top-level conditions that are joined by AND."""

    text: str
    columns: frozenset[ColumnPath]
    data_columns: frozenset[ColumnPath]
    partition_only: bool
    question: Question


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the rows of one table."""

    text: str
    columns: frozenset[ColumnPath]
    """All leaf columns of the predicate."""
    data_columns: frozenset[ColumnPath]
    """The leaf columns that are not partition columns: their bounds come from statistics."""
    partition_only: bool
    """Whether the predicate only uses partition columns, so that partition values decide it."""
    conjuncts: tuple[_Conjunct, ...] = dataclass_field(repr=False)

    @classmethod
    def parse(
        cls, text: str, schema: pa.Schema, partition_columns: Sequence[str], *, table: str | None = None
    ) -> Predicate:
        """Parse a predicate such as `day = '2026-01-01' AND amount > 5` with the columns of a schema.

        Raises:
            ValidationError: The text is not a condition, or a column does not exist.
        """
        source = ConditionText(text, table)
        with room_for_nesting(source):
            tree, doubtful = parse_condition(source)
            compiler = _Compiler(Names(schema, source), doubtful)
            conjuncts = tuple(compiler.conjuncts(tree, frozenset(partition_columns)))
        return cls._of(text, conjuncts)

    @classmethod
    def _of(cls, text: str, conjuncts: tuple[_Conjunct, ...]) -> Predicate:
        columns = frozenset[ColumnPath]().union(*(part.columns for part in conjuncts))
        data_columns = frozenset[ColumnPath]().union(*(part.data_columns for part in conjuncts))
        return cls(text, columns, data_columns, all(part.partition_only for part in conjuncts), conjuncts)

    def may_match(self, bounds: Mapping[ColumnPath, Bounds], n: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for each of n files whether it may have a matching row. A column without bounds is unknown."""
        return may_match(All(tuple(part.question for part in self.conjuncts)), bounds, n)

    def row_filter(self, table: str) -> RowFilter:
        """Return a filter for batches with the table's columns, with the same result as Spark.

        Raises:
            UnsupportedFeature: The result of a condition is not certain without Spark.
        """
        try:
            return row_filter(All(tuple(part.question for part in self.conjuncts)))
        except Undecided as part:
            raise UnsupportedFeature(
                f"table {table}: rows cannot be filtered by {part.about or self.text} without Spark: {part.why}; "
                f"use t.df(where=…), which runs on Spark",
                table=table,
            ) from None

    def partition_part(self) -> Predicate | None:
        """Return the predicate of the conditions that only use partition columns; None if there are none."""
        parts = tuple(part for part in self.conjuncts if part.partition_only and part.columns)
        return self._of(" AND ".join(part.text for part in parts), parts) if parts else None


_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_OPERATORS: dict[type[Any], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_UNKNOWN = Fixed(None)
_WIDE_INTEGERS = (pa.int32(), pa.int64())
_NEVER = Fixed(False)
_FEW = 4
_WILDCARDS = frozenset("%_\\")
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class _Compiler:
    """The compiler from syntax trees to questions; with `negated`, a question is about where a condition is false."""

    names: Names
    doubtful: frozenset[str]

    def conjuncts(self, tree: Node, partitions: frozenset[str]) -> Iterator[_Conjunct]:
        for node in _joined(tree, exp.And):
            references = list(self.names.references(node))
            columns = frozenset(reference.path for reference in references if reference.path)
            partition_only = all(reference.root in partitions for reference in references)
            yield _Conjunct(
                text=_text(node) if partition_only else "",  # only `partition_part` uses it
                columns=columns,
                data_columns=frozenset(path for path in columns if path[0] not in partitions),
                partition_only=partition_only,
                question=self.question(node, negated=False),
            )

    def question(self, node: Node, *, negated: bool) -> Question:
        node = node.unnest()
        negated ^= bool(node.args.get("negate"))
        kind = type(node)
        if kind in (exp.And, exp.Or):
            parts = tuple(self.question(part, negated=negated) for part in _joined(node, kind))
            return All(parts) if (kind is exp.And) != negated else Either(parts)
        if kind is exp.Not:
            return self.question(node.this, negated=not negated)
        if kind in (exp.Boolean, exp.Null):
            return _NEVER if kind is exp.Null else Fixed(bool(node.this) != negated)
        if kind in (exp.Column, exp.Dot):
            column = self._column(node)
            return _against(column, "=", not negated) if column else _UNKNOWN
        found = self._predicate(node, negated=negated)
        return Fixed(None, _text(node)) if found is None or found == _UNKNOWN else found

    def _predicate(self, node: Node, *, negated: bool) -> Question | None:
        kind = type(node)
        known, rule = _RULES.get(kind, (frozenset(), None))
        # An argument that is not known here may change the meaning (SYMMETRIC, ESCAPE).
        if rule is None or any(value and name not in known for name, value in node.args.items()):
            return None
        return rule(self, node, negated)

    def _ordered(self, node: Node, negated: bool) -> Question:
        operator = _OPERATORS[type(node)]
        return self._comparison(node.this, _NEGATED[operator] if negated else operator, node.expression)

    def _operand(self, node: Node) -> Column | Constant | None:
        return self._column(node.unnest()) or constant(node, self.doubtful.__contains__)

    def _column(self, node: Node) -> Column | None:
        if not is_name(node):
            return None
        reference = self.names.reference(node)
        return Column(reference.path, reference.type) if reference.path else None

    def _comparison(self, left: Node, operator: str, right: Node) -> Question:
        found, why = self._compared(left, operator, right)
        if found == _UNKNOWN or why:
            return _bounded(found, f"{_text(left)} {operator} {_text(right)}", why or "")
        return found

    def _compared(self, left: Node, operator: str, right: Node) -> tuple[Question, str | None]:
        """Return the question, and why it only holds for files and not for rows, if so."""
        match self._operand(left), self._operand(right):
            case (Constant(None), _) | (_, Constant(None)):
                return _NEVER, None
            case Column() as a, Column() as b:
                type = comparable_columns(a, b)
                return (_UNKNOWN, None) if type is None else (CompareColumns(a, operator, b, type), _mixed(a, b))
            case Column() as column, Constant(value):
                return _against(column, operator, value), doubt(value, column.type)
            case Constant(value), Column() as column:
                return _against(column, _FLIPPED[operator], value), doubt(value, column.type)
        return _UNKNOWN, None

    def _null_safe(self, node: Node, negated: bool) -> Question:
        """Compile `<=>`, which is never null: it is true for equal values and for two nulls."""
        negated ^= type(node) is exp.NullSafeNEQ
        left, right = self._operand(node.this), self._operand(node.expression)
        compared = self._comparison(node.this, "<>" if negated else "=", node.expression)
        if left is None or right is None or compared == _UNKNOWN or _may_become_null(left, right):
            return _UNKNOWN
        both = All((_null(left), _null(right)))
        one = Either((All((_null(left), _value(right))), All((_value(left), _null(right)))))
        return Either((compared, one if negated else both))

    def _is(self, node: Node, negated: bool) -> Question | None:
        other = node.expression
        if isinstance(other, exp.Null):
            column = self._column(node.this.unnest())
            if column is None:
                return None
            return NotNull(column) if negated else IsNull(column)
        if isinstance(other, exp.Boolean) and not negated:
            return self.question(node.this, negated=not other.this)
        return None

    def _between(self, node: Node, negated: bool) -> Question:
        low, high = ("<", ">") if negated else (">=", "<=")
        ends = (
            self._comparison(node.this, low, node.args["low"]),
            self._comparison(node.this, high, node.args["high"]),
        )
        return Either(ends) if negated else All(ends)

    def _like(self, node: Node, negated: bool) -> Question | None:
        """Compile `prefix%` to a range of strings; other patterns are unknown."""
        column, pattern = self._operand(node.this), self._operand(node.expression)
        if not isinstance(column, Column):
            return None
        match pattern:
            case Constant(None):
                return _NEVER
            case Constant(str(text)) if bounds_type(column.type) == STRING:
                prefix = text.rstrip("%")
                if _WILDCARDS & set(prefix):
                    return None
                if prefix == text:
                    return _against(column, "<>" if negated else "=", text)
                return _starts_with(column, prefix, negated=negated)
        return None

    def _in(self, node: Node, negated: bool) -> Question | None:
        column = self._operand(node.this)
        if not isinstance(column, Column):
            return None
        items = [constant(item, self.doubtful.__contains__) for item in node.expressions]
        known = [item.value for item in items if item is not None]
        if negated and None in known:
            return _NEVER
        values = [value for value in known if value is not None]
        fitted = fit_all(values, column.type, negated=negated) if len(known) == len(items) else None
        if fitted is None:
            return None
        found, why = _one_of(column, fitted, negated=negated), _doubt_of_list(values, column.type)
        return _bounded(found, f"{_text(node.this)} IN (…)", why) if why else found


_Rule = Callable[[_Compiler, Node, bool], Question | None]
_TWO = frozenset({"this", "expression"})
_RULES: dict[type[Any], tuple[frozenset[str], _Rule | None]] = {
    **dict.fromkeys(_OPERATORS, (_TWO, _Compiler._ordered)),
    exp.NullSafeEQ: (_TWO, _Compiler._null_safe),
    exp.NullSafeNEQ: (_TWO, _Compiler._null_safe),
    exp.Is: (_TWO | {"negate"}, _Compiler._is),
    exp.Between: (frozenset({"this", "low", "high"}), _Compiler._between),
    exp.Like: (_TWO | {"negate"}, _Compiler._like),
    exp.In: (frozenset({"this", "expressions"}), _Compiler._in),
}


def _joined(node: Node, kind: type[Any]) -> Iterator[Node]:
    """Yield the conditions that are joined by AND or OR, in order."""
    waiting = [node]
    while waiting:
        part = waiting.pop().unnest()
        if type(part) is kind:
            waiting += [part.expression, part.this]
        else:
            yield part


def _text(node: Node) -> str:
    text: str = node.sql(dialect="spark")
    return f"({text})" if isinstance(node, exp.Or) else text


def _against(column: Column, operator: str, value: Value) -> Question:
    literal = fit(value, column.type)
    if literal is None:
        return _UNKNOWN
    if not literal.gap:
        return Compare(column, operator, literal)
    if operator in ("=", "<>"):
        return _NEVER if operator == "=" else NotNull(column)
    # The column has no value in the gap, so a value is below the literal if it is not above its lower neighbour.
    below = operator in ("<", "<=")
    neighbour = literal.low if below else literal.high
    return Compare(column, "<=" if below else ">=", Fitted(neighbour, neighbour))


def _bounded(bound: Question, about: str, why: str) -> Question:
    """Return a question that the bound decides for files, and that is undecided for rows."""
    undecided = Fixed(None, about, why)
    return undecided if bound == _UNKNOWN else All((undecided, bound))


def _mixed(left: Column, right: Column) -> str | None:
    """Return why two columns cannot be compared: without ANSI mode, Spark compares integers and floats as floats."""
    types = (left.type, right.type)
    rounded = any(pa.types.is_float32(type) for type in types) and any(type in _WIDE_INTEGERS for type in types)
    return "some modes of Spark round the integers to floats" if rounded else None


def _doubt_of_list(values: Sequence[Value], type: pa.DataType) -> str | None:
    if pa.types.is_timestamp(type) and any(isinstance(value, str) for value in values):
        return "some modes of Spark compare the times as texts: write TIMESTAMP '…' or TIMESTAMP_NTZ '…'"
    if pa.types.is_integer(type) and not any(isinstance(value, str) for value in values):
        return None  # lists of integers may be long
    return next(filter(None, (doubt(value, type) for value in values)), None)


def _null(operand: Column | Constant) -> Question:
    return IsNull(operand) if isinstance(operand, Column) else Fixed(operand.value is None)


def _value(operand: Column | Constant) -> Question:
    return NotNull(operand) if isinstance(operand, Column) else Fixed(operand.value is not None)


def _may_become_null(left: Column | Constant, right: Column | Constant) -> bool:
    """Return whether a cast may give null: without ANSI mode, a string that is not a value of the type does."""
    texts = [isinstance(side, Constant) and isinstance(side.value, str) for side in (left, right)]
    columns = [side for side in (left, right) if isinstance(side, Column)]
    return any(texts) and any(bounds_type(column.type) != STRING for column in columns)


def _starts_with(column: Column, prefix: str, *, negated: bool) -> Question:
    after = _successor(prefix)
    start = _against(column, "<" if negated else ">=", prefix)
    end = (_against(column, ">=" if negated else "<", after),) if after else ()
    return Either((start, *end)) if negated else All((start, *end))


def _successor(prefix: str) -> str:
    """Return the first string after all that start with the prefix; empty if there is none."""
    stem = prefix.rstrip(chr(_LAST_CHARACTER))
    if not stem:
        return ""
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _one_of(column: Column, literals: Sequence[Fitted], *, negated: bool) -> Question:
    if not literals:
        return NotNull(column) if negated else _NEVER
    type = literals[0].low.type
    lows: list[Any] = []
    highs: list[Any] = []
    for low, high in sorted({(_plain(literal.low), _plain(literal.high)) for literal in literals}):
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)
    if len(lows) > _FEW:
        return OneOf(column, pa.array(lows, type), pa.array(highs, type), negated)
    ends = zip(pa.array(lows, type), pa.array(highs, type), strict=True)
    each = tuple(Compare(column, "<>" if negated else "=", Fitted(*pair)) for pair in ends)
    return All(each) if negated else Either(each)


def _plain(value: pa.Scalar) -> Any:
    """Return days and microseconds as integers: Python's datetime needs a time zone database."""
    return value.value if pa.types.is_temporal(value.type) else value.as_py()
