"""Bind queries: their tables, columns, clauses and the types of what they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.binding import conditions as _conditions  # noqa: F401 (registers its handlers
from deltasql.sql.binding.binder import Binder, Session
from deltasql.sql.binding.row_sources import returns_rows, rows_of, source_of
from deltasql.sql.binding.scopes import Scope, ScopeTable, TypedColumn
from deltasql.sql.binding.select_rewrites import distinct_on, spread
from deltasql.sql.binding.syntax_calls import ordered
from deltasql.sql.catalog.pg_types import INT8, OPAQUE, TEXT, UNKNOWN, SqlType
from deltasql.sql.functions.casts import ASSIGNMENT
from deltasql.sql.functions.common_types import common_type
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
Columns = Callable[[Tree], Sequence[TypedColumn]]
"""Returns the columns of a table."""


class QueryBinder:
    """Binds the queries of one statement in place."""

    def __init__(self, text: str, values: dict[str, Any], session: Session, columns: Columns) -> None:
        self.binder = Binder(text, values, session, self.types)
        self._columns = columns
        self._keeps_unknown = False

    def types(self, tree: Tree, outer: Scope) -> list[SqlType]:
        """Bind a subquery in place and return the types of its columns."""
        return [column.type for column in self.query(tree, outer)]

    def query(self, tree: Tree, outer: Scope | None = None, targets: Sequence[TypedColumn] = ()) -> list[TypedColumn]:
        """Bind a query in place and return its columns.

        Args:
            tree: The query.
            outer: The scope around a subquery.
            targets: The columns of a table that get the rows: literals without a type take theirs.
        """
        scope = (outer or Scope()).inner()
        clause = tree.args.get("with_")
        if clause is not None:
            self._ctes(clause, scope)
        match tree:
            case exp.Subquery():
                found = self.query(tree.this, scope, targets)
                self._order(tree, scope.with_sources([ScopeTable("", found)]), found)
                return found
            case exp.Select():
                return self._select(tree, scope, targets)
            case exp.SetOperation():
                return self._set_operation(tree, scope, targets)
            case exp.Values():
                return self._values(tree, scope, targets)
            case exp.Table():
                return list(self._source(tree, scope).columns)
        raise self.binder.rejected(f"this query is not supported: {type(tree).__name__}", tree)

    def _ctes(self, clause: Tree, scope: Scope) -> None:
        for cte in clause.expressions:
            name = cte.alias.lower()
            names = [column.name for column in cte.args["alias"].columns]
            if clause.args.get("recursive") and isinstance(cte.this, exp.SetOperation):
                first = self.query(cte.this.this.copy(), scope)
                scope.queries[name] = _renamed(first, names)
            scope.queries[name] = _renamed(self.query(cte.this, scope), names)

    # --- Tables

    def _sources(self, tree: Tree, scope: Scope) -> Scope:
        sources: list[ScopeTable] = []
        start = tree.args.get("from_")
        tables = [start.this] if start is not None else []
        for table in tables:
            sources += self._with_joins(table, scope, sources)
        for join in tree.args.get("joins") or ():
            sources += self._join(join, scope, sources)
        for lateral in tree.args.get("laterals") or ():
            sources.append(self._source(lateral, scope.with_sources(sources)))
        return scope.with_sources(sources)

    def _with_joins(self, table: Tree, scope: Scope, before: Sequence[ScopeTable]) -> list[ScopeTable]:
        sources = [self._source(table, scope.with_sources(before))]
        for join in table.args.get("joins") or ():
            sources += self._join(join, scope, [*before, *sources])
        return sources

    def _join(self, join: Tree, scope: Scope, before: Sequence[ScopeTable]) -> list[ScopeTable]:
        found = self._with_joins(join.this, scope, before)
        using = {item.name.lower() for item in join.args.get("using") or ()}
        if str(join.args.get("method") or "").upper() == "NATURAL":
            left = {column.name.lower() for source in before for column in source.columns}
            using = {column.name.lower() for source in found for column in source.columns} & left
        found = [ScopeTable(source.name, source.columns, frozenset(using)) for source in found]
        if join.args.get("on") is not None:
            join.set("on", self.binder.condition(join.args["on"], scope.with_sources([*before, *found])))
        return found

    def _source(self, tree: Tree, scope: Scope) -> ScopeTable:
        alias = tree.args.get("alias")
        name = tree.alias_or_name
        names = [column.name for column in alias.columns] if alias is not None else []
        match tree:
            case exp.Subquery() | exp.Values():
                return ScopeTable(name, _renamed(self.query(tree, scope), names))
            case exp.Table(this=exp.Identifier()):
                known = scope.queries.get(tree.name.lower()) if not tree.args.get("db") else None
                columns = known if known is not None else self._columns(tree)
                return ScopeTable(name, _renamed(columns, names))
            case exp.Lateral() if isinstance(tree.this, exp.Subquery):
                return ScopeTable(name, _renamed(self.query(tree.this, scope), names))
        return self._function(tree, scope, names)

    def _function(self, tree: Tree, scope: Scope, names: Sequence[str]) -> ScopeTable:
        """Bind a function that returns rows."""
        alias = tree.alias or (tree.this.name if isinstance(tree.this, exp.Anonymous) else "unnest")
        columns = source_of(self.binder, tree, scope, names)
        return ScopeTable(alias, columns if columns is not None else _renamed(self._columns(tree), names))

    # --- SELECT

    def _select(self, tree: Tree, scope: Scope, targets: Sequence[TypedColumn]) -> list[TypedColumn]:
        scope = self._sources(tree, scope)
        binder = self.binder
        if tree.args.get("where") is not None:
            tree.args["where"].set("this", binder.condition(tree.args["where"].this, scope))
        written = self._expanded(tree, scope)
        columns: list[TypedColumn] = []
        items: list[Tree] = []
        arrays: list[Typed | None] = []
        for item in written:
            target = targets[len(columns)] if len(columns) < len(targets) else None
            bound, column, array = self._item(item, scope, target)
            items.append(bound)
            columns += column
            arrays.append(array)
        self._group(tree, scope, written)
        if tree.args.get("having") is not None:
            tree.args["having"].set("this", binder.condition(tree.args["having"].this, scope))
        for window in tree.args.get("windows") or ():
            self._named_window(window, scope)
        tree.set("expressions", items)
        distinct = tree.args.get("distinct")
        on = distinct.args.get("on") if distinct is not None else None
        if on is not None:
            self._distinct_on(tree, scope, written, columns, on)
        elif any(array is not None for array in arrays):
            self._spread(tree, items, arrays, columns)
        else:
            self._order(tree, scope, columns)
        return columns

    def _common_columns(self, tree: Tree, scope: Scope) -> list[TypedColumn]:
        """Return the columns of a set operation, whose literals without a type take the type of the other side."""
        self._keeps_unknown = True
        try:
            return self._set_operation(tree.copy(), scope, ())
        finally:
            self._keeps_unknown = False

    def _expanded(self, tree: Tree, scope: Scope) -> list[Tree]:
        """Return the items of SELECT; a star is written out where the query becomes a subquery."""
        distinct = tree.args.get("distinct")
        rewritten = (distinct is not None and distinct.args.get("on") is not None) or any(
            returns_rows(item.this if isinstance(item, exp.Alias) else item) for item in tree.expressions
        )
        if not rewritten:
            return list(tree.expressions)
        return [
            one for item in tree.expressions for one in (self._all_columns(item, scope) if item.is_star else [item])
        ]

    def _all_columns(self, item: Tree, scope: Scope) -> list[Tree]:
        sources = [scope.source(item.text("table"))] if isinstance(item, exp.Column) else scope.sources
        return [
            exp.column(exp.to_identifier(column.name, quoted=True), table=exp.to_identifier(source.name, quoted=True))
            for source in sources
            if source is not None
            for column in source.columns
            if isinstance(item, exp.Column) or column.name.lower() not in source.merged
        ]

    def _spread(self, tree: Tree, items: list[Tree], arrays: list[Typed | None], columns: list[TypedColumn]) -> None:
        spread(tree, items, arrays, columns)
        names = {column.name.lower() for column in columns}
        order = tree.args.get("order")
        for key in order.expressions if order is not None else ():
            is_name = isinstance(key.this, exp.Column) and key.this.name.lower() in names
            if not (is_name or isinstance(key.this, exp.Literal)):
                raise self.binder.rejected(
                    "beside a function that returns rows, ORDER BY names columns of the result", key
                )

    def _distinct_on(self, tree: Tree, scope: Scope, written: list[Tree], columns: list[TypedColumn], on: Tree) -> None:
        order = tree.args.get("order")
        sort = list(order.expressions) if order is not None else []

        def meant(node: Tree) -> Tree:
            """Return the expression of a result column that is given by its name or number."""
            if isinstance(node, exp.Literal) and not node.is_string and 0 < int(node.name) <= len(written):
                node = written[int(node.name) - 1]
            elif isinstance(node, exp.Column) and len(node.parts) == 1:
                named = [
                    item
                    for item, column in zip(written, columns, strict=True)
                    if column.name.lower() == node.name.lower()
                ]
                node = named[0] if named else node
            node = node.this if isinstance(node, exp.Alias) else node
            return self.binder.typed(self.binder.expression(node, scope), node).tree

        keys = [meant(node) for node in (on.expressions if isinstance(on, exp.Tuple) else [on])]
        for key in sort:
            key.set("this", meant(key.this))
        if any(key.this not in keys for key in sort[: len(keys)]):
            raise self.binder.rejected("SELECT DISTINCT ON expressions must be the first of ORDER BY", on)
        distinct_on(tree, tree.expressions, columns, keys, sort)

    def _item(
        self, item: Tree, scope: Scope, target: TypedColumn | None
    ) -> tuple[Tree, list[TypedColumn], Typed | None]:
        """Return an item of SELECT with its column, and the array of a function that returns rows."""
        if item.is_star:
            return item, self._star(item, scope), None
        inner = item.this if isinstance(item, exp.Alias) else item
        name = item.alias if isinstance(item, exp.Alias) else output_name(inner)
        if returns_rows(inner):
            array = rows_of(self.binder, inner.name.lower(), inner.expressions, scope, inner)
            return item, [TypedColumn(name, array.type.element)], array
        value = self.binder.expression(inner, scope)
        if value.type == UNKNOWN and not self._keeps_unknown:
            value = self._of_target(value, target, inner)
        if isinstance(value.tree, exp.Column) and not isinstance(item, exp.Alias):
            return value.tree, [TypedColumn(name, value.type)], None
        quoted = isinstance(item, exp.Alias) and item.args["alias"].quoted
        alias = exp.to_identifier(name, quoted=quoted or not name.isidentifier())
        return exp.Alias(this=value.tree, alias=alias), [TypedColumn(name, value.type)], None

    def _of_target(self, value: Typed, target: TypedColumn | None, at: Tree) -> Typed:
        """Return a literal without a type as a value of the column for which it is meant, else as a text."""
        if target is None or target.type.name not in OPAQUE:
            return self.binder.coerced(value, TEXT if target is None else target.type, at)
        return Typed(value.tree, target.type) if isinstance(value.tree, exp.Null) else self.binder.typed(value, at)

    def _star(self, item: Tree, scope: Scope) -> list[TypedColumn]:
        if isinstance(item, exp.Column):
            source = scope.source(item.text("table"))
            if source is None:
                raise self.binder.rejected(f"there is no table {item.text('table')!r} in this query", item)
            return list(source.columns)
        return [c for source in scope.sources for c in source.columns if c.name.lower() not in source.merged]

    def _group(self, tree: Tree, scope: Scope, items: Sequence[Tree]) -> None:
        group = tree.args.get("group")
        if group is None:
            return
        aliases = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}

        def bound(node: Tree) -> Tree:
            if isinstance(node, exp.Literal) and not node.is_string:
                return node
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
                node.set("expressions", [bound(part) for part in node.expressions])
                return node
            if isinstance(node, exp.Tuple | exp.Paren):
                for part in node.expressions if isinstance(node, exp.Tuple) else [node.this]:
                    part.replace(bound(part))
                return node
            is_name = isinstance(node, exp.Column) and len(node.parts) == 1
            if is_name and not scope.columns(node.name) and node.name.lower() in aliases:
                node = aliases[node.name.lower()]
            return self.binder.typed(self.binder.expression(node, scope), node).tree

        group.set("expressions", [bound(node) for node in group.expressions])
        for kind in ("cube", "rollup", "grouping_sets"):
            for part in group.args.get(kind) or ():
                part.set("expressions", [bound(node) for node in part.expressions])

    def _named_window(self, window: Tree, scope: Scope) -> None:
        for key in window.args.get("partition_by") or ():
            key.replace(self.binder.typed(self.binder.expression(key, scope), key).tree)
        order = window.args.get("order")
        for key in order.expressions if order is not None else ():
            key.replace(ordered(self.binder, key, scope))

    def _order(self, tree: Tree, scope: Scope, columns: Sequence[TypedColumn]) -> None:
        """Bind ORDER BY, LIMIT and OFFSET. A name alone is a result column; expressions have input columns."""
        order = tree.args.get("order")
        names = {column.name.lower() for column in columns}
        for key in order.expressions if order is not None else ():
            inner = key.this
            is_name = isinstance(inner, exp.Column) and len(inner.parts) == 1 and inner.name.lower() in names
            if is_name or (isinstance(inner, exp.Literal) and not inner.is_string):
                continue
            bound = self.binder.typed(self.binder.expression(inner, scope), inner).tree
            key.set("this", _of_input(bound, scope, names))
        for part in ("limit", "offset"):
            self._count_of_rows(tree, part)

    def _count_of_rows(self, tree: Tree, part: str) -> None:
        """Bind LIMIT or OFFSET: null means that there is none. Spark takes an integer."""
        node = tree.args.get(part)
        value = node.args.get("expression") or node.args.get("count") if node is not None else None
        if value is None or (isinstance(value, exp.Literal) and value.name.isdigit() and not value.is_string):
            return
        is_parameter = isinstance(value, exp.Placeholder)
        if isinstance(value, exp.Null) or (is_parameter and self.binder.values[value.name] is None):
            tree.set(part, None)
            return
        number = self.binder.values[value.name] if is_parameter else None
        if isinstance(value, exp.Neg) or (isinstance(number, int) and number < 0):
            raise self.binder.rejected(f"{part.upper()} must not be negative", value)
        if value.find(exp.Column) is not None:
            raise self.binder.rejected(f"{part.upper()} must not contain columns", value)
        count = self.binder.coerced(self.binder.expression(value, Scope()), INT8, value, ASSIGNMENT)
        value.replace(filled("CAST({0} AS INT)", [count.tree]))

    # --- VALUES and set operations

    def _values(self, tree: Tree, scope: Scope, targets: Sequence[TypedColumn] = ()) -> list[TypedColumn]:
        rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in tree.expressions]
        if len({len(row) for row in rows}) > 1:
            raise self.binder.rejected("VALUES lists must all be the same length", tree)
        bound = [[self.binder.expression(item, scope) for item in row] for row in rows]
        columns = []
        for index in range(len(rows[0])):
            ats = [row[index] for row in rows]
            given = [row[index] for row in bound]
            if index < len(targets) and targets[index].type.name not in OPAQUE:
                target = targets[index].type
                given = [self.binder.coerced(one, target, at, ASSIGNMENT) for one, at in zip(given, ats, strict=True)]
            values = self.binder.unified(given, ats, "VALUES")
            for row, value in zip(bound, values, strict=True):
                row[index] = value
            columns.append(TypedColumn(f"column{index + 1}", values[0].type))
        tree.set("expressions", [exp.Tuple(expressions=[value.tree for value in row]) for row in bound])
        _name_columns(tree, columns)
        return columns

    def _set_operation(self, tree: Tree, scope: Scope, targets: Sequence[TypedColumn]) -> list[TypedColumn]:
        if not targets and not self._keeps_unknown:
            targets = self._common_columns(tree, scope)
        left, right = (self.query(part, scope, targets) for part in (tree.this, tree.expression))
        name = type(tree).__name__.upper()
        if len(left) != len(right):
            raise self.binder.rejected(f"each {name} query must have the same number of columns", tree)
        columns = []
        for one, other in zip(left, right, strict=True):
            type_ = common_type([one.type, other.type])
            if type_ is None:
                raise self.binder.rejected(f"{name} types {one.type} and {other.type} cannot be matched", tree)
            columns.append(TypedColumn(one.name, type_))
        self._order(tree, scope.with_sources([ScopeTable("", columns)]), columns)
        return columns


def _name_columns(values: Tree, columns: Sequence[TypedColumn]) -> None:
    """Name the columns of VALUES as PostgreSQL does, unless they have names."""
    alias = values.args.get("alias") or exp.TableAlias(this=exp.to_identifier("values", quoted=True))
    if not alias.columns and not any(values.args.get(part) for part in ("order", "limit", "offset")):
        alias.set("columns", [exp.to_identifier(column.name) for column in columns])
        values.set("alias", alias)


def _of_input(tree: Tree, scope: Scope, names: set[str]) -> Tree:
    """Qualify columns that have the name of a result column: Spark would take the result column."""
    for column in list(tree.find_all(exp.Column)):
        owners = [source for source in scope.sources if source.find(column.name)]
        if not column.args.get("table") and column.name.lower() in names and owners and owners[0].name:
            column.set("table", exp.to_identifier(owners[0].name, quoted=True))
    return tree


def _renamed(columns: Sequence[TypedColumn], names: Sequence[str]) -> list[TypedColumn]:
    return [
        TypedColumn(names[index] if index < len(names) else one.name, one.type) for index, one in enumerate(columns)
    ]


def output_name(tree: Tree) -> str:
    """Return the name that PostgreSQL gives the column of an expression."""
    name = _NAMES.get(type(tree), _UNNAMED)
    match tree:
        case exp.Column() | exp.Dot():
            name = str(tree.name)
        case exp.Anonymous():
            name = str(tree.name).lower()
        case exp.Paren() | exp.Bracket() | exp.Collate() | exp.Window() | exp.Filter() | exp.WithinGroup():
            name = output_name(tree.this)
        case exp.Cast():
            inner = output_name(tree.this)
            name = inner if inner != _UNNAMED else _type_name(tree)
        case exp.Subquery(this=exp.Select(expressions=[first])):
            name = first.alias or output_name(first)
    return name


def _type_name(tree: Tree) -> str:
    from deltasql.sql.catalog.type_names import of_name

    found = of_name(tree.to)
    return found.name if found is not None and found.name != "array" else _UNNAMED


_UNNAMED = "?column?"
_NAMES: dict[type, str] = {
    exp.Substring: "substring", exp.Trim: "btrim", exp.StrPosition: "position", exp.Overlay: "overlay",
    exp.Extract: "extract", exp.Ceil: "ceil", exp.Floor: "floor", exp.GroupConcat: "string_agg",
    exp.CurrentDate: "current_date", exp.CurrentTimestamp: "current_timestamp", exp.AtTimeZone: "timezone",
    exp.Localtimestamp: "localtimestamp", exp.Interval: "interval", exp.Boolean: "bool", exp.Case: "case",
    exp.Exists: "exists", exp.Array: "array",
}  # fmt: skip
