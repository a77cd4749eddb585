"""Bind functions that have a syntax of their own: EXTRACT, TRIM, OVER, FILTER, AT TIME ZONE and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.binding.binder import HANDLERS, Binder
from deltasql.sql.binding.calls import aggregate, called, spark_call
from deltasql.sql.binding.scopes import Scope
from deltasql.sql.catalog.pg_types import BOOL, DATE, INTERVAL, JSON, TEXT, TIMESTAMP, TIMESTAMPTZ, SqlType
from deltasql.sql.functions import pg_literals
from deltasql.sql.functions.operator_table import ascii_lower
from deltasql.sql.functions.regex.regular_expressions import similar
from deltasql.sql.functions.templates import Template, Typed, filled

Tree = Any


def _present(*parts: Tree | None) -> list[Tree]:
    return [part for part in parts if part is not None]


def _substring(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    start, length = tree.args.get("start"), tree.args.get("length")
    if start is None and length is not None:
        start = exp.Literal.number(1)
    return called(binder, "substring", _present(tree.this, start, length), scope, tree)


def _trim(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or "").upper(), "btrim")
    return called(binder, name, _present(tree.this, tree.args.get("expression")), scope, tree)


def _position(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    return called(binder, "position", [tree.this, tree.args["substr"]], scope, tree)


def _overlay(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    parts = _present(tree.this, tree.expression, tree.args.get("from_"), tree.args.get("for_"))
    return called(binder, "overlay", parts, scope, tree)


def _extract(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    name = "extract" if _is_written(binder, tree, "extract") else "date_part"
    return called(binder, name, [exp.Literal.string(tree.this.name.lower()), tree.expression], scope, tree)


def _is_written(binder: Binder, tree: Tree, name: str) -> bool:
    """Return whether the statement writes EXTRACT, or date_part, which sqlglot parses to the same node."""
    start = tree.meta.get("start")
    return start is None or binder.text[start : start + len(name)].lower() == name


def _rounding(name: str) -> Any:
    def bind(binder: Binder, tree: Tree, scope: Scope) -> Typed:
        return called(binder, name, _present(tree.this, tree.args.get("decimals")), scope, tree)

    return bind


def _string_agg(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    return _aggregated(binder, tree, scope)


def _constant(spark: str, type_: SqlType) -> Any:
    return lambda _binder, _tree, _scope: Typed(filled(spark, []), type_)


def _at_time_zone(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    return called(binder, "timezone", [tree.args["zone"], tree.this], scope, tree)


def _interval(binder: Binder, tree: Tree, _: Scope) -> Typed:
    """Return INTERVAL '1 day', or INTERVAL '1' DAY."""
    unit = tree.args.get("unit")
    if not isinstance(tree.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        raise binder.rejected("an interval is written as INTERVAL '1 day'", tree)
    text = f"{tree.this.name} {unit.name}" if unit is not None else tree.this.name
    try:
        return pg_literals.interval(text, INTERVAL)
    except pg_literals.InvalidLiteral as error:
        raise binder.rejected(str(error), tree) from None


def _collate(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    if tree.expression.name not in ("C", "POSIX", "default", "ucs_basic"):
        raise binder.rejected('texts are compared by their bytes: the only collation is "C"', tree)
    return binder.expression(tree.this, scope)


def _escaped(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return LIKE … ESCAPE."""
    like, character = tree.this, tree.expression
    if not isinstance(like, exp.Like | exp.ILike) or len(character.name) != 1:
        raise binder.rejected("ESCAPE is one character after LIKE or ILIKE", tree)
    values = [binder.as_type(part, scope, TEXT).tree for part in (like.this, like.expression)]
    if isinstance(like, exp.ILike):
        values = [filled(ascii_lower("{0}"), [one]) for one in values]
    word = "NOT LIKE" if like.args.get("negate") else "LIKE"
    return Typed(filled(f"({{0}} {word} {{1}} ESCAPE {{2}})", [*values, character.copy()]), BOOL)


def _initcap(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    separators = tree.args.get("expression")  # sqlglot adds those of its default
    extra = separators if separators is not None and not separators.name.startswith(" \t\n") else None
    return called(binder, "initcap", _present(tree.this, extra), scope, tree)


def _chr(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    return called(binder, "chr", tree.expressions, scope, tree)


def _decode(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    return called(binder, "decode", _present(tree.this, tree.args.get("charset")), scope, tree)


def _similar(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return SIMILAR TO."""
    value, pattern = (binder.as_type(part, scope, TEXT) for part in (tree.this, tree.expression))
    try:
        return similar(value, pattern)
    except pg_literals.InvalidLiteral as error:
        raise binder.rejected(str(error), tree) from None


def _json(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return a part of a JSON text: `->` as JSON, `->>` as text."""
    value = binder.typed(binder.expression(tree.this, scope), tree.this)
    if value.type.name not in ("text", "json", "varchar"):
        raise binder.rejected(f"-> and ->> need a JSON text, got {value.type}", tree)
    path = tree.expression
    steps = [step.this for step in path.expressions[1:]] if isinstance(path, exp.JSONPath) else None
    if not steps or not all(isinstance(step, str | int) for step in steps):
        raise binder.rejected("-> and ->> need a constant key or index", tree)
    keys = "".join(f"[{step}]" if isinstance(step, int) else "['" + step.replace("'", "\\'") + "']" for step in steps)
    result = JSON if isinstance(tree, exp.JSONExtract) else TEXT
    return Typed(filled("get_json_object({0}, {1})", [value.tree, exp.Literal.string(f"${keys}")]), result)


# --- FILTER, OVER and WITHIN GROUP


def _filter(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    return _aggregated(binder, tree.this, scope, condition=tree.expression.this)


def _window(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    inner, condition = tree.this, None
    if isinstance(inner, exp.Filter):
        inner, condition = inner.this, inner.expression.this
    if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        raise binder.rejected("IGNORE NULLS and RESPECT NULLS are not supported", tree)
    return _aggregated(binder, inner, scope, condition=condition, over=window(binder, tree, scope))


def window(binder: Binder, tree: Tree, scope: Scope) -> Tree:
    """Return the window of OVER in Spark SQL."""
    alias = tree.args.get("alias")
    parts = tree.args.get("partition_by") or ()
    order = tree.args.get("order")
    spec = tree.args.get("spec")
    if alias is not None and not parts and order is None and spec is None and tree.args.get("over") is not None:
        return filled(f"`{alias.name}`", [])
    clauses, trees = ([f"`{alias.name}`"] if alias is not None else []), []
    if parts:
        bound = [binder.typed(binder.expression(part, scope), part).tree for part in parts]
        clauses.append(f"PARTITION BY {', '.join(f'{{{n}}}' for n in range(len(bound)))}")
        trees += bound
    if order is not None:
        keys = [ordered(binder, key, scope) for key in order.expressions]
        clauses.append(f"ORDER BY {', '.join(f'{{{len(trees) + n}}}' for n in range(len(keys)))}")
        trees += keys
    if spec is not None:
        if spec.args.get("exclude") or str(spec.args.get("kind")).upper() == "GROUPS":
            raise binder.rejected("a frame is of ROWS or RANGE, without EXCLUDE", tree)
        clauses.append(f"{{{len(trees)}}}")
        trees.append(spec.copy())
    return Template(this=f"({' '.join(clauses)})", expressions=trees)


def ordered(binder: Binder, tree: Tree, scope: Scope) -> Tree:
    """Return a key of ORDER BY."""
    copy = tree.copy()
    copy.set("this", binder.typed(binder.expression(tree.this, scope), tree.this).tree)
    return copy


def _aggregated(
    binder: Binder, tree: Tree, scope: Scope, *, condition: Tree | None = None, over: Tree | None = None
) -> Typed:
    from deltasql.sql.catalog.pg_catalog import catalog

    name, arguments = _call_of(tree)
    if name is None:
        raise binder.rejected("FILTER and OVER follow an aggregate or a window function", tree)
    if name.lower() not in catalog().functions:
        value = spark_call(binder, name, arguments, scope, tree)
        text, trees = "{0}", [value.tree]
        for clause, part in (
            (" FILTER (WHERE {})", condition and binder.condition(condition, scope)),
            (" OVER {}", over),
        ):
            if part is not None:
                text += clause.format(f"{{{len(trees)}}}")
                trees.append(part)
        return Typed(Template(this=text, expressions=trees), value.type)
    return aggregate(binder, name.lower(), arguments, scope, tree, condition=condition, over=over)


def _call_of(tree: Tree) -> tuple[str | None, Sequence[Tree]]:
    """Return the name and the arguments of a call."""
    if isinstance(tree, exp.Anonymous):
        return str(tree.name), list(tree.expressions)
    if isinstance(tree, exp.GroupConcat):
        separator = tree.args.get("separator") or exp.Literal.string("")
        first = tree.this
        if isinstance(first, exp.Order):
            return "string_agg", [
                first.this,
                exp.Order(this=separator.copy(), expressions=[e.copy() for e in first.expressions]),
            ]
        return "string_agg", [first, separator]
    return None, []


def _within_group(binder: Binder, tree: Tree, scope: Scope) -> Typed:
    """Return percentile_cont, percentile_disc or mode WITHIN GROUP."""
    name, arguments = _call_of(tree.this)
    name = (name or "").lower()
    if (name, len(arguments)) not in _ORDERED or len(tree.expression.expressions) != 1:
        raise binder.rejected(
            "WITHIN GROUP is supported for percentile_cont, percentile_disc and mode, with one key", tree
        )
    [key] = tree.expression.expressions
    value = binder.typed(binder.expression(key.this, scope), key.this)
    descending = " DESC" if key.args.get("desc") else ""
    if name == "mode":
        return Typed(filled(f"mode() WITHIN GROUP (ORDER BY {{0}}{descending})", [value.tree]), value.type)
    share = binder.as_type(arguments[0], scope, SqlType("float8"))
    if name == "percentile_disc":
        up = "false" if descending else "true"
        items = filled(f"sort_array(collect_list({{0}}), {up})", [value.tree])
        return Typed(filled(_PERCENTILE, [share.tree, items]), value.type)
    value = binder.coerced(value, SqlType("float8"), key.this)
    text = f"percentile_cont({{0}}) WITHIN GROUP (ORDER BY {{1}}{descending})"
    return Typed(filled(text, [share.tree, value.tree]), value.type)


_ORDERED = {("percentile_cont", 1), ("percentile_disc", 1), ("mode", 0)}
"""The functions of WITHIN GROUP, and their numbers of arguments."""
_PERCENTILE = (
    "CASE WHEN {0} NOT BETWEEN 0 AND 1 THEN raise_error('percentile value is not between 0 and 1') "
    "WHEN {0} IS NOT NULL THEN get({1}, CAST(greatest(ceil({0} * array_size({1})), 1) - 1 AS INT)) END"
)
"""Spark's percentile_disc returns floats."""


HANDLERS |= {
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.StrPosition: _position,
    exp.Overlay: _overlay,
    exp.Extract: _extract,
    exp.Ceil: _rounding("ceil"),
    exp.Floor: _rounding("floor"),
    exp.GroupConcat: _string_agg,
    exp.CurrentDate: _constant("current_date()", DATE),
    exp.CurrentTimestamp: _constant("current_timestamp()", TIMESTAMPTZ),
    exp.Localtimestamp: _constant("localtimestamp()", TIMESTAMP),
    exp.AtTimeZone: _at_time_zone,
    exp.Interval: _interval,
    exp.Collate: _collate,
    exp.Initcap: _initcap,
    exp.Chr: _chr,
    exp.Decode: _decode,
    exp.Escape: _escaped,
    exp.SimilarTo: _similar,
    exp.JSONExtract: _json,
    exp.JSONExtractScalar: _json,
    exp.Filter: _filter,
    exp.Window: _window,
    exp.WithinGroup: _within_group,
}
