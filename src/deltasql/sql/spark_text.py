"""Render syntax trees in Spark SQL."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import ErrorLevel, exp
from sqlglot.generators.spark import SparkGenerator

Tree = Any


def spark_sql(tree: Tree) -> str:
    """Return a tree in Spark SQL; raise sqlglot's `UnsupportedError` if Spark has no such expression."""
    return str(_Generator(dialect="spark", unsupported_level=ErrorLevel.RAISE).generate(tree))


def _percentile(generator: Any, node: Tree) -> str:
    """Render percentile_cont and percentile_disc, which ignore nulls in Spark as well."""
    if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
        return str(generator.withingroup_sql(node))
    [ordered] = node.expression.expressions
    name = "percentile_cont" if isinstance(node.this, exp.PercentileCont) else "percentile_disc"
    order = f"{generator.sql(ordered, 'this')}{' DESC' if ordered.args.get('desc') else ''}"
    return f"{name}({generator.sql(node.this, 'this')}) WITHIN GROUP (ORDER BY {order})"


class _Generator(SparkGenerator):
    """Keeps WITH clauses in their queries, because their names are local."""

    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TYPE_MAPPING: ClassVar[Any] = {**SparkGenerator.TYPE_MAPPING, exp.DataType.Type.TIMESTAMPTZ: "TIMESTAMP_LTZ"}
    TRANSFORMS: ClassVar[Any] = {**SparkGenerator.TRANSFORMS, exp.WithinGroup: _percentile}

    def cte_sql(self, expression: exp.CTE) -> str:
        """Drop MATERIALIZED, which Spark does not have."""
        expression.set("materialized", None)
        return super().cte_sql(expression)
