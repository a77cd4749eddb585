"""Expressions that sqlglot would write for Spark with another meaning: translated right, or refused."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from deltasql.sql.positions import refused, start_of

Tree = Any
_TYPES = {
    exp.DataType.Type.TIME: "a TIMESTAMP has a day as well, a TEXT can be sorted",
    exp.DataType.Type.TIMETZ: "a TIMESTAMP has a day as well, a TEXT can be sorted",
    exp.DataType.Type.MONEY: "use NUMERIC(18, 2)",
}
"""Types that there are none of, and what to do without them."""


def corrected(text: str, tree: Tree) -> Tree:
    """The tree in words that sqlglot translates right."""
    for node in list(tree.walk()):
        match node:
            case exp.DataType() if node.this in _TYPES:
                why = f"there is no type {node.sql(dialect='postgres')} here: {_TYPES[node.this]}"
                raise _refused(text, why, node.parent)
            case exp.Order() if isinstance(node.parent, exp.Func) and not _sorts(node.parent):
                why = "an aggregate has no ORDER BY here: sort what it gives, by array_sort(…)"
                raise _refused(text, why, node.parent)
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
"""What a table is part of."""


def _sorts(aggregate: Tree) -> bool:
    """string_agg is sorted by WITHIN GROUP, and a window is not an aggregate's own affair."""
    return isinstance(aggregate, exp.GroupConcat | exp.WithinGroup | exp.Window)


def _flags(text: str, call: Tree) -> None:
    """Spark replaces all that matches, as the flag `g` asks for, and knows others in the pattern alone."""
    flags, position = call.args.get("modifiers"), call.args.get("position")
    asked = set(flags.name) if isinstance(flags, exp.Literal) else set()
    known = flags is None or (asked <= {"g", "i"} and "g" in asked)
    if not known or call.args.get("occurrence") or not (position is None or isinstance(position, exp.Literal)):
        raise _refused(text, "regexp_replace has the flags 'g' and 'gi' here: put others into the pattern", call)
    if "i" in asked:
        pattern = exp.Concat(expressions=[exp.Literal.string("(?i)"), call.expression.copy()])
        call.set("expression", pattern)
    call.set("modifiers", None)


def _truncated(text: str, call: Tree) -> None:
    """`trunc(day, 'MM')` is Spark's."""
    if not call.args["decimals"].is_string:
        raise _refused(text, "trunc has no number of digits here: write trunc(x * 100) / 100", call)
    call.replace(exp.Anonymous(this="trunc", expressions=[call.this.copy(), call.args["decimals"].copy()]))


def _name_columns(values: Tree) -> None:
    """Columns of VALUES are column1, column2 … unless that is said."""
    alias = values.args.get("alias") or exp.TableAlias(this=exp.to_identifier("values", quoted=True))
    if not alias.columns and not any(values.args.get(part) for part in ("order", "limit", "offset")):
        count = len(values.expressions[0].expressions)
        alias.set("columns", [exp.to_identifier(f"column{number}") for number in range(1, count + 1)])
        values.set("alias", alias)


def _sequence(series: Tree) -> Tree:
    """Numbers, or days, one after the other. Spark counts down by itself, where PostgreSQL has nothing to count."""
    start, end, step = (series.args.get(key) for key in ("start", "end", "step"))
    array = exp.Anonymous(this="sequence", expressions=[part.copy() for part in (start, end, step) if part])
    if step is not None:
        return array
    rises = exp.LTE(this=exp.paren(start.copy()), expression=exp.paren(end.copy()))
    return exp.Case(ifs=[exp.If(this=rises, true=array)], default=exp.Array(expressions=[]))


def _rows_of(source: Tree, name: str, array: Tree) -> Tree:
    """The items of an array as rows; their column is called what the table is, unless that is said."""
    alias = source.args.get("alias")
    table = alias.this if alias is not None and alias.this else exp.to_identifier(name)
    columns = (alias.columns if alias is not None else None) or [table]
    called = exp.TableAlias(this=table.copy(), columns=[column.copy() for column in columns])
    call = exp.Anonymous(this="explode", expressions=[array.copy()])
    if isinstance(source.parent, exp.Join):  # it may be an array of the table before
        return exp.Lateral(this=call, alias=called)
    joins = [join.copy() for join in source.args.get("joins") or ()]
    return exp.Table(this=call, alias=called, joins=joins or None)


def _refused(text: str, why: str, at: Tree) -> Exception:
    return refused(text, f"cannot be run: {why}", start_of(at))
