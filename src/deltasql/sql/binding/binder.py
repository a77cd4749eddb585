"""Give every expression of a statement its type and the meaning that it has in PostgreSQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from sqlglot import exp

from deltasql.errors import unknown_column
from deltasql.sql.binding.scopes import Scope
from deltasql.sql.catalog.pg_types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT8,
    INT4,
    INT8,
    INTEGER_DIGITS,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
    array_of,
    numeric,
    of_spark,
)
from deltasql.sql.functions import pg_literals
from deltasql.sql.functions.casts import EXPLICIT, IMPLICIT, cast, castable
from deltasql.sql.functions.common_types import common_type
from deltasql.sql.functions.templates import SparkText, Typed, filled
from deltasql.sql.positions import rejected, start_of

Tree = Any


class Session(Protocol):
    """What the binder asks Spark."""

    def type_of(self, expression: str) -> Any:
        """Return the type of an expression in Spark SQL, as JSON of a schema."""


@dataclass
class Binder:
    """Binds the expressions of one statement."""

    text: str
    values: Mapping[str, Any]
    session: Session
    query: Callable[[Tree, Scope], Sequence[SqlType]]
    """Binds a subquery and returns the types of its columns."""

    def expression(self, tree: Tree, scope: Scope) -> Typed:
        """Return an expression in Spark SQL with its type."""
        for kind in type(tree).__mro__:
            if kind in HANDLERS:
                bound = HANDLERS[kind](self, tree, scope)
                if "start" in tree.meta:
                    bound.tree.meta.setdefault("start", tree.meta["start"])
                return bound
        raise self.rejected(f"{_shown(tree)} is not supported", tree)

    def condition(self, tree: Tree, scope: Scope) -> Tree:
        """Return a condition in Spark SQL."""
        return self.as_type(tree, scope, BOOL).tree

    def as_type(self, tree: Tree, scope: Scope, target: SqlType) -> Typed:
        """Return an expression cast to a type."""
        return self.coerced(self.expression(tree, scope), target, tree)

    def coerced(self, value: Typed, target: SqlType, at: Tree, context: str = IMPLICIT) -> Typed:
        """Return a value cast to a type, or raise the error of PostgreSQL."""
        if value.type == UNKNOWN:
            return self._read(value, target, at)
        if not castable(value.type, target, context):
            raise self.rejected(f"{_shown(at)} is {value.type}, and must be {target}", at)
        if target.name in INTEGER_DIGITS and not _is_in_range(at, target):
            raise self.rejected(f"{_shown(at)} is out of range for type {target}", at)
        return cast(value, target)

    def typed(self, value: Typed, at: Tree) -> Typed:
        """Return a value with a type: a literal without one is a text."""
        return self.coerced(value, TEXT, at) if value.type == UNKNOWN else value

    def _read(self, value: Typed, target: SqlType, at: Tree) -> Typed:
        """Return a literal without a type as a value of a type."""
        if target == UNKNOWN:
            return value
        try:
            if isinstance(value.tree, exp.Placeholder):
                return self._parameter(value.tree, target)
            if isinstance(value.tree, exp.Literal):
                return pg_literals.of_text(value.tree.name, target)
        except pg_literals.InvalidLiteral as error:
            raise self.rejected(str(error), at if start_of(value.tree) is None else value.tree) from None
        size = numeric(1, 0) if target.name == "numeric" and not target.size else target
        return Typed(filled(f"CAST({{0}} AS {size.ddl})", [value.tree]), size)

    def _parameter(self, tree: Tree, target: SqlType) -> Typed:
        """Return a text parameter as a value of a type; the statement's history shows its name, not its value."""
        value = self.values[tree.name]
        if value is None:
            return Typed(exp.cast(tree, exp.DataType.build(target.ddl, dialect="spark")), target)
        checked = pg_literals.of_text(value, target)
        if target.name in ("text", "varchar", "bpchar", "json"):
            return Typed(tree, target)
        return Typed(exp.cast(tree, exp.DataType.build(checked.type.ddl, dialect="spark")), checked.type)

    def unified(self, values: Sequence[Typed], ats: Sequence[Tree], what: str) -> list[Typed]:
        """Return values cast to the type that PostgreSQL finds for all of them."""
        target = common_type([value.type for value in values])
        if target is None:
            shown = ", ".join(dict.fromkeys(str(value.type) for value in values))
            raise self.rejected(f"{what} types {shown} cannot be matched", ats[0])
        return [self.coerced(value, target, at) for value, at in zip(values, ats, strict=True)]

    def rejected(self, why: str, at: Tree) -> Exception:
        """Return the error of a statement that cannot be run."""
        return rejected(self.text, f"cannot be run: {why}", start_of(at))

    # --- Constants

    def literal(self, tree: Tree, _: Scope) -> Typed:
        """Return a number, or a text without a type."""
        if tree.is_string:
            return Typed(tree.copy(), UNKNOWN)
        try:
            return pg_literals.number(tree.name)
        except pg_literals.InvalidLiteral:  # a number that only double precision can hold
            return Typed(exp.Literal.string(tree.name), UNKNOWN)

    def parameter(self, tree: Tree, _: Scope) -> Typed:
        """Return a parameter with the type of its value; a text has none yet."""
        copy = tree.copy()
        copy.meta["value"] = self.values[tree.name]
        return Typed(copy, _type_of(self.values[tree.name]))

    def stored(self, tree: Tree) -> Typed:
        """Return an expression that is Spark SQL already."""
        return Typed(tree.copy(), of_spark(self.session.type_of(tree.this)))

    # --- Names

    def column(self, tree: Tree, scope: Scope) -> Typed:
        """Return a column, or a field of a column that is a struct."""
        parts = [part.name for part in tree.parts]
        if len(parts) == 1 and parts[0].lower() in scope.variables:
            return Typed(tree.copy(), scope.variables[parts[0].lower()])
        source = scope.source(parts[0]) if len(parts) > 1 else None
        if source is not None:
            found = source.find(parts[1])
            known, fields = [column.name for column in source.columns], parts[2:]
        else:
            found, known, fields = scope.columns(parts[0]), scope.names(), parts[1:]
        if not found:
            name = parts[1] if source is not None else parts[0]
            raise self._unknown(name, parts, known, tree)
        if len({id(column) for column in found}) > 1:
            ways = " or ".join(f"{owner}.{parts[0]}" for owner in scope.owners(parts[0]))
            raise rejected(self.text, f'column "{parts[0]}" is ambiguous: write {ways}', start_of(tree))
        return Typed(tree.copy(), self._field(found[0].type, fields, tree))

    def _unknown(self, name: str, parts: Sequence[str], known: Sequence[str], at: Tree) -> Exception:
        if len(parts) > 1 and name == parts[0]:
            return self.rejected(f"there is no table or column {parts[0]!r} in this query", at)
        return rejected(self.text, unknown_column(name, list(dict.fromkeys(known))), start_of(at))

    def _field(self, type_: SqlType, names: Sequence[str], at: Tree) -> SqlType:
        for name in names:
            fields = {field.lower(): item for field, item in zip(type_.fields, type_.items, strict=False)}
            if type_.name == "array" and type_.element.name == "record":  # Spark returns the field of each item
                return array_of(self._field(type_.element, [name], at))
            if type_.name != "record" or name.lower() not in fields:
                raise self.rejected(f"{_shown(at)}: there is no field {name!r} in {type_}", at)
            type_ = fields[name.lower()]
        return type_

    def dot(self, tree: Tree, scope: Scope) -> Typed:
        """Return a field of an expression, `(row).field`."""
        if not isinstance(tree.expression, exp.Identifier):
            return self.expression(tree.expression, scope)  # a function with its schema
        value = self.expression(tree.this, scope)
        inner = value.tree if isinstance(value.tree, exp.Paren | exp.Column) else exp.paren(value.tree)
        return Typed(exp.Dot(this=inner, expression=tree.expression.copy()), self._field(value.type, [tree.name], tree))

    # --- Arrays

    def array(self, tree: Tree, scope: Scope) -> Typed:
        """Return ARRAY[…]."""
        items = tree.expressions
        if not items:
            raise self.rejected("cannot determine the type of an empty array: write ARRAY[]::integer[]", tree)
        values = self.unified([self.expression(item, scope) for item in items], items, "ARRAY")
        return Typed(filled("array({*})", [value.tree for value in values]), array_of(values[0].type))

    def subscript(self, tree: Tree, scope: Scope) -> Typed:
        """Return an item or a part of an array: numbers start at 1, and other items are null."""
        value = self.expression(tree.this, scope)
        for item in tree.expressions:
            value = self._subscripted(value, item, scope, tree)
        return value

    def _subscripted(self, value: Typed, item: Tree, scope: Scope, at: Tree) -> Typed:
        if value.type.name == "map":
            key = self.expression(item, scope)
            return Typed(filled("try_element_at({0}, {1})", [value.tree, key.tree]), value.type.items[1])
        if value.type.name != "array":
            raise self.rejected(f"cannot subscript type {value.type}", at)
        if isinstance(item, exp.Slice):
            first = self.as_type(item.this, scope, INT4).tree if item.this else exp.Literal.number(1)
            last = self.as_type(item.expression, scope, INT4).tree if item.expression else None
            text = "slice({0}, greatest({1}, 1), greatest(least({2}, size({0})) - greatest({1}, 1) + 1, 0))"
            upper = last if last is not None else filled("size({0})", [value.tree])
            return Typed(filled(text, [value.tree, first, upper]), value.type)
        index = self.as_type(item, scope, INT4).tree
        if isinstance(index, exp.Literal):
            return Typed(filled(f"get({{0}}, {int(index.name) - 1})", [value.tree]), value.type.element)
        return Typed(filled("get({0}, {1} - 1)", [value.tree, index]), value.type.element)

    # --- Parts of expressions

    def paren(self, tree: Tree, scope: Scope) -> Typed:
        """Return an expression in parentheses."""
        value = self.expression(tree.this, scope)
        simple = isinstance(value.tree, exp.Column | exp.Literal | exp.Paren)
        return Typed(value.tree if simple else exp.Paren(this=value.tree), value.type)

    def case(self, tree: Tree, scope: Scope) -> Typed:
        """Return CASE."""
        results = [branch.args["true"] for branch in tree.args["ifs"]]
        results += [tree.args["default"]] if tree.args.get("default") is not None else []
        values = self.unified([self.expression(one, scope) for one in results], results, "CASE")
        conditions = [self._when(tree, branch, scope) for branch in tree.args["ifs"]]
        ifs = [exp.If(this=condition, true=value.tree) for condition, value in zip(conditions, values, strict=False)]
        default = values[-1].tree if tree.args.get("default") is not None else None
        return Typed(exp.Case(ifs=ifs, default=default), values[0].type)

    def _when(self, tree: Tree, branch: Tree, scope: Scope) -> Tree:
        if tree.this is None:
            return self.condition(branch.this, scope)
        comparison = exp.EQ(this=tree.this.copy(), expression=branch.this.copy())
        return self.expression(comparison, scope).tree

    def casted(self, tree: Tree, scope: Scope) -> Typed:
        """Return CAST(… AS …)."""
        target = self.named_type(tree.to)
        if isinstance(tree.this, exp.Array) and not tree.this.expressions and target.name == "array":
            return Typed(filled(f"CAST(array() AS {target.ddl})", []), target)
        if isinstance(tree.this, exp.Array) and target.name == "array":
            given = [(self.expression(item, scope), item) for item in tree.this.expressions]
            items = [self.coerced(value, target.element, item, EXPLICIT) for value, item in given]
            return Typed(filled("array({*})", [item.tree for item in items]), array_of(items[0].type))
        value = self.expression(tree.this, scope)
        if value.type != UNKNOWN and not castable(value.type, target, EXPLICIT):
            raise self.rejected(f"cannot cast type {value.type} to {target}", tree)
        if value.type.padded and target.name in ("text", "varchar", "bpchar"):
            raise self.rejected(
                "the number of decimals of this numeric is not known: round it before it becomes a text", tree
            )
        return self.coerced(value, target, tree, EXPLICIT)

    def named_type(self, tree: Tree) -> SqlType:
        """Return the type of a name in a statement."""
        from deltasql.sql.catalog.type_names import of_name

        found = of_name(tree)
        if found is None:
            raise self.rejected(f"type {tree.sql(dialect='postgres')} is not supported", tree.parent)
        return found

    def subquery(self, tree: Tree, scope: Scope) -> Typed:
        """Return the value of a query with one column."""
        copy = tree.copy()
        types = self.query(copy, scope)
        if len(types) != 1:
            raise self.rejected("a subquery in an expression must return one column", tree)
        return Typed(copy if isinstance(copy, exp.Subquery) else exp.Subquery(this=copy), types[0])

    def exists(self, tree: Tree, scope: Scope) -> Typed:
        """Return EXISTS (…), or Spark's function exists(array, condition)."""
        if tree.args.get("expression") is not None:
            from deltasql.sql.binding.calls import spark_call

            return spark_call(self, "exists", [tree.this, tree.expression], scope, tree)
        copy = tree.copy()
        if isinstance(copy.this, exp.Select) and not copy.this.expressions:
            copy.this.set("expressions", [exp.Literal.number(1)])
        self.query(copy.this, scope)
        return Typed(copy, BOOL)


def _type_of(value: Any) -> SqlType:
    """Return the type of a parameter's value."""
    if isinstance(value, list | tuple):
        types = {_type_of(item) for item in value if item is not None} or {UNKNOWN}
        return array_of(common_type(list(types)) or TEXT)
    if isinstance(value, dt.datetime):
        return TIMESTAMP if value.tzinfo is None else TIMESTAMPTZ
    if isinstance(value, int) and not isinstance(value, bool):
        return INT4 if -(2**31) <= value < 2**31 else INT8 if -(2**63) <= value < 2**63 else numeric(38, 0)
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        return numeric(max(len(digits) + max(0, int(exponent)), scale), scale)
    return _PLAIN_TYPES.get(type(value), UNKNOWN)


_PLAIN_TYPES = {bool: BOOL, float: FLOAT8, bytes: BYTEA, dt.date: DATE}


def _is_in_range(tree: Tree, target: SqlType) -> bool:
    """Return whether an integer type holds a number; other expressions are checked when they are computed."""
    number = tree.this if isinstance(tree, exp.Neg) else tree
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
        return True
    bits = 8 * int(target.name.removeprefix("int"))
    most: int = 2 ** (bits - 1) - (0 if isinstance(tree, exp.Neg) else 1)
    return int(number.name) <= most


def _shown(tree: Tree) -> str:
    return str(tree.sql(dialect="postgres"))


Handler = Callable[[Binder, Tree, Scope], Typed]
HANDLERS: dict[type, Handler] = {
    exp.Literal: Binder.literal,
    exp.Null: lambda _binder, _tree, _scope: Typed(exp.Null(), UNKNOWN),
    exp.Boolean: lambda _binder, tree, _scope: pg_literals.boolean(tree.this),
    exp.ByteString: lambda _binder, tree, _scope: Typed(exp.Literal.string(tree.name), UNKNOWN),
    exp.RawString: lambda _binder, tree, _scope: Typed(exp.Literal.string(tree.name), UNKNOWN),
    exp.Placeholder: Binder.parameter,
    exp.Column: Binder.column,
    exp.Identifier: lambda binder, tree, scope: binder.column(exp.Column(this=tree.copy()), scope),
    exp.Dot: Binder.dot,
    exp.Array: Binder.array,
    exp.Bracket: Binder.subscript,
    exp.Paren: Binder.paren,
    exp.Case: Binder.case,
    exp.Cast: Binder.casted,
    exp.Subquery: Binder.subquery,
    exp.Query: Binder.subquery,
    exp.Exists: Binder.exists,
    SparkText: lambda binder, tree, _scope: binder.stored(tree),
}
"""How each kind of node is bound; operators and calls add theirs."""
