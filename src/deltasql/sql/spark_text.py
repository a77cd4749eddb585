"""Render syntax trees in Spark SQL."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import ErrorLevel, exp
from sqlglot.generators.spark import SparkGenerator

from deltasql.sql.functions.templates import SparkText, Template, rendered

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
    TRANSFORMS: ClassVar[Any] = {
        **SparkGenerator.TRANSFORMS,
        exp.WithinGroup: _percentile,
        Template: rendered,
        SparkText: lambda _, text: text.this,
    }

    def values_sql(self, expression: exp.Values, values_as_table: bool = True) -> str:
        """Render VALUES with lambdas or errors, which Spark does not allow there, as SELECT … UNION ALL SELECT …."""
        texts = [template.text_with_holes for template in expression.find_all(Template)]
        if not any("->" in text or "raise_error" in text for text in texts):
            return super().values_sql(expression, values_as_table)
        alias = expression.args["alias"]
        names = [column.name for column in alias.columns]
        rows = [self._row_sql(row, names) for row in expression.expressions]
        query = " UNION ALL ".join(rows)
        in_from = isinstance(expression.parent, exp.From | exp.Join)
        return f"({query}) AS {self.sql(alias, 'this')}" if in_from else query

    def _row_sql(self, row: exp.Expr, names: list[str]) -> str:
        items = [f"{self.sql(item)} AS `{name}`" for item, name in zip(row.expressions, names, strict=True)]
        return f"SELECT {', '.join(items)}"

    def cte_sql(self, expression: exp.CTE) -> str:
        """Drop MATERIALIZED, which Spark does not have."""
        expression.set("materialized", None)
        return super().cte_sql(expression)
