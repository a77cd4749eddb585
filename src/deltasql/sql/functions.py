"""Expressions that sqlglot translates to Spark with another meaning: correct them, or reject them."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from deltasql.sql.positions import rejected, start_of

Tree = Any
_TYPES = {
    exp.DataType.Type.TIME: "use TIMESTAMP, or TEXT such as '12:30:00'",
    exp.DataType.Type.TIMETZ: "use TIMESTAMP, or TEXT such as '12:30:00'",
    exp.DataType.Type.MONEY: "use NUMERIC(18, 2)",
}
"""Types that are not supported, with alternatives."""


def corrected(text: str, tree: Tree) -> Tree:
    """Return the tree with expressions that sqlglot translates correctly."""
    for node in list(tree.walk()):
        match node:
            case exp.DataType() if node.this in _TYPES:
                why = f"type {node.sql(dialect='postgres')} is not supported: {_TYPES[node.this]}"
                raise _rejected(text, why, node.parent)
            case exp.Order() if isinstance(node.parent, exp.Func) and not _sorts(node.parent):
                why = "ORDER BY in an aggregate is not supported: sort the result with array_sort(…)"
                raise _rejected(text, why, node.parent)
            case exp.RegexpReplace():
                _flags(text, node)
            case exp.Trunc() if node.args.get("decimals") is not None:
                _truncated(text, node)
            case exp.Table(this=exp.ExplodingGenerateSeries()):
                node.replace(_rows_of(node, "generate_series", _sequence(node.this)))
            case exp.Unnest(expressions=[array]) if isinstance(node.parent, _SOURCES):
                node.replace(_rows_of(node, "unnest", array))
            case exp.Values() if not isinstance(node.parent, exp.Insert):
                _name_columns(node)
            case exp.Select(parent=exp.Exists()) if not node.expressions:
                node.set("expressions", [exp.Literal.number(1)])
    return tree


_SOURCES = (exp.From, exp.Join, exp.Delete, exp.Merge)
"""The parents of a table."""


def _sorts(aggregate: Tree) -> bool:
    """Return whether an aggregate may have ORDER BY: string_agg, WITHIN GROUP and windows."""
    return isinstance(aggregate, exp.GroupConcat | exp.WithinGroup | exp.Window)


def _flags(text: str, call: Tree) -> None:
    """Translate the flags of regexp_replace: Spark always replaces all matches, and has other flags in the pattern."""
    flags, position = call.args.get("modifiers"), call.args.get("position")
    given = set(flags.name) if isinstance(flags, exp.Literal) else set()
    known = flags is None or (given <= {"g", "i"} and "g" in given)
    if not known or call.args.get("occurrence") or not (position is None or isinstance(position, exp.Literal)):
        raise _rejected(text, "regexp_replace supports the flags 'g' and 'gi': put other flags into the pattern", call)
    if "i" in given:
        pattern = exp.Concat(expressions=[exp.Literal.string("(?i)"), call.expression.copy()])
        call.set("expression", pattern)
    call.set("modifiers", None)


def _truncated(text: str, call: Tree) -> None:
    """Keep `trunc(day, 'MM')`, which Spark has as well; reject a number of digits."""
    if not call.args["decimals"].is_string:
        raise _rejected(text, "trunc with a number of digits is not supported: write trunc(x * 100) / 100", call)
    call.replace(exp.Anonymous(this="trunc", expressions=[call.this.copy(), call.args["decimals"].copy()]))


def _name_columns(values: Tree) -> None:
    """Name the columns of VALUES column1, column2 …, as PostgreSQL does, unless they have names."""
    alias = values.args.get("alias") or exp.TableAlias(this=exp.to_identifier("values", quoted=True))
    if not alias.columns and not any(values.args.get(part) for part in ("order", "limit", "offset")):
        count = len(values.expressions[0].expressions)
        alias.set("columns", [exp.to_identifier(f"column{number}") for number in range(1, count + 1)])
        values.set("alias", alias)


def _sequence(series: Tree) -> Tree:
    """Translate generate_series. Without a step, PostgreSQL returns nothing where Spark counts down."""
    start, end, step = (series.args.get(key) for key in ("start", "end", "step"))
    array = exp.Anonymous(this="sequence", expressions=[part.copy() for part in (start, end, step) if part])
    if step is not None:
        return array
    rises = exp.LTE(this=exp.paren(start.copy()), expression=exp.paren(end.copy()))
    return exp.Case(ifs=[exp.If(this=rises, true=array)], default=exp.Array(expressions=[]))


def _rows_of(source: Tree, name: str, array: Tree) -> Tree:
    """Return the items of an array as rows; the column has the name of the table unless it has its own."""
    alias = source.args.get("alias")
    table = alias.this if alias is not None and alias.this else exp.to_identifier(name)
    columns = (alias.columns if alias is not None else None) or [table]
    named = exp.TableAlias(this=table.copy(), columns=[column.copy() for column in columns])
    call = exp.Anonymous(this="explode", expressions=[array.copy()])
    if isinstance(source.parent, exp.Join):  # the array may be a column of the table before
        return exp.Lateral(this=call, alias=named)
    joins = [join.copy() for join in source.args.get("joins") or ()]
    return exp.Table(this=call, alias=named, joins=joins or None)


def _rejected(text: str, why: str, at: Tree) -> Exception:
    return rejected(text, f"cannot be run: {why}", start_of(at))
