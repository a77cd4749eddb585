"""Trees as Spark writes them."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import ErrorLevel, exp
from sqlglot.generators.spark import SparkGenerator

Tree = Any


def spark_sql(tree: Tree) -> str:
    """A tree as Spark writes it; what cannot be written there is an `UnsupportedError` of sqlglot's."""
    return str(_Generator(dialect="spark", unsupported_level=ErrorLevel.RAISE).generate(tree))


def _percentile(generator: Any, node: Tree) -> str:
    """Spark has these aggregates by the same names; nulls are in none of them, wherever they are sorted to."""
    if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
        return str(generator.withingroup_sql(node))
    [ordered] = node.expression.expressions
    name = "percentile_cont" if isinstance(node.this, exp.PercentileCont) else "percentile_disc"
    order = f"{generator.sql(ordered, 'this')}{' DESC' if ordered.args.get('desc') else ''}"
    return f"{name}({generator.sql(node.this, 'this')}) WITHIN GROUP (ORDER BY {order})"


class _Generator(SparkGenerator):
    """A WITH clause stays where it is: its names are those of its query alone."""

    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TYPE_MAPPING: ClassVar[Any] = {**SparkGenerator.TYPE_MAPPING, exp.DataType.Type.TIMESTAMPTZ: "TIMESTAMP_LTZ"}
    TRANSFORMS: ClassVar[Any] = {**SparkGenerator.TRANSFORMS, exp.WithinGroup: _percentile}

    def cte_sql(self, expression: exp.CTE) -> str:
        """MATERIALIZED says how a query is computed, which Spark decides by itself."""
        expression.set("materialized", None)
        return super().cte_sql(expression)
