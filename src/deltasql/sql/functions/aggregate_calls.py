"""A call of an aggregate or window function with its DISTINCT, ORDER BY, FILTER and OVER."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import SqlType
from deltasql.sql.functions.numeric_arithmetic import TooManyDigits
from deltasql.sql.functions.templates import Typed, filled, template

Tree = Any


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """The parts of a call."""

    values: Sequence[Typed]
    distinct: bool
    order: Sequence[tuple[Typed, Tree]]
    """The keys of ORDER BY, each with its node, which has the direction."""
    condition: Tree | None
    over: Tree | None
    """The window in Spark SQL."""
    result: SqlType

    def filled(self, text: str, result: SqlType | None = None, extra: Sequence[Tree] = ()) -> Typed:
        """Return the call in Spark SQL: `{d}` is DISTINCT, and `{after}` stands for FILTER and OVER."""
        if self.order and "{order}" not in text and "{after}" in text:
            call = replace(self, order=())  # the order does not change the result
            return call.filled(text, result, extra)
        if self.condition is not None and self.over is not None:  # Spark has no FILTER before OVER
            return self._conditional().filled(text, result, extra)
        trees = [*(value.tree for value in self.values), *extra]
        after = ""
        for clause, tree in ((" FILTER (WHERE {})", self.condition), (" OVER {}", self.over)):
            if tree is not None:
                after += clause.format(f"{{{len(trees)}}}")
                trees.append(tree)
        text = text.replace("{d}", "DISTINCT " if self.distinct else "").replace("{after}", after)
        return Typed(template(text, trees), result or self.result)

    def _conditional(self) -> AggregateCall:
        """Return the call with its condition as part of the first argument, which ignores nulls."""
        if not self.values:
            one = Typed(exp.Literal.number(1), SqlType("int4"))
            return replace(self, values=[one], condition=None)._with_condition(self.condition)
        return replace(self, condition=None)._with_condition(self.condition)

    def _with_condition(self, condition: Tree) -> AggregateCall:
        first = self.values[0]
        tree = filled("CASE WHEN {0} THEN {1} END", [condition, first.tree])
        return replace(self, values=[Typed(tree, first.type), *self.values[1:]])

    def sorted_items(self, item: str) -> Typed:
        """Return an array of the first argument in the order of ORDER BY; `item` is a lambda over sorted structs."""
        if self.over is not None and self.order:
            raise TooManyDigits("ORDER BY in an aggregate is not possible with OVER: sort in a subquery")
        if self.distinct and not self.order:  # PostgreSQL sorts the values to find those that are the same
            return replace(self, order=[(self.values[0], exp.Ordered())]).sorted_items(item)
        keys = [key.tree for key, _ in self.order]
        if self.distinct and any(key != self.values[0].tree for key in keys):
            raise TooManyDigits("with DISTINCT, ORDER BY is the argument itself")
        fields = ", ".join([f"{{{n + 1}}} AS k{n}" for n in range(len(keys))] + ["{0} AS v"])
        collect = "collect_set" if self.distinct else "collect_list"
        collected = f"{collect}(struct({fields})){{after}}"
        ordered = collected if not keys else f"array_sort({collected}, (a, b) -> {self._comparison()})"
        call = replace(self, values=[self.values[0]], order=())
        if call.condition is not None and call.over is not None:
            raise TooManyDigits("FILTER is not possible with OVER here")
        bound = replace(call, values=[self.values[0], *(key for key, _ in self.order)])
        return bound.filled(f"transform({ordered}, s -> {item})", self.result)

    def _comparison(self) -> str:
        text = "0"
        for number, (_, node) in reversed(list(enumerate(self.order))):
            key = f"k{number}"
            down = bool(node.args.get("desc"))
            first = bool(node.args.get("nulls_first"))
            null_a, null_b = (-1, 1) if first else (1, -1)
            less, more = (1, -1) if down else (-1, 1)
            text = (
                f"CASE WHEN a.{key} IS NULL AND b.{key} IS NULL THEN {text} WHEN a.{key} IS NULL THEN {null_a} "
                f"WHEN b.{key} IS NULL THEN {null_b} WHEN a.{key} < b.{key} THEN {less} "
                f"WHEN a.{key} > b.{key} THEN {more} "
                f"ELSE {text} END"
            )
        return text
