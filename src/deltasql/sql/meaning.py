"""What the expressions of a statement mean: PostgreSQL's meaning, or Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

from deltasql.sql.binding.binder import Binder
from deltasql.sql.binding.query_binder import QueryBinder, output_name
from deltasql.sql.binding.scopes import Scope, ScopeTable, TypedColumn
from deltasql.sql.catalog.pg_types import OPAQUE, UNKNOWN, SqlType, of_spark
from deltasql.sql.functions.casts import ASSIGNMENT, cast, castable
from deltasql.sql.functions.dates.time_zones import SESSION_ZONE
from deltasql.sql.functions.templates import Typed

Tree = Any


class Meaning(Protocol):
    """Gives trees the meaning of a dialect, in Spark SQL."""

    def query(self, tree: Tree, targets: Sequence[TypedColumn] = ()) -> Tree:
        """Return a query; its columns are for these columns of a table, if there are any."""

    def condition(self, tree: Tree, scope: Scope) -> Tree:
        """Return a condition."""

    def value(self, tree: Tree, scope: Scope) -> Tree:
        """Return an expression."""

    def assigned(self, tree: Tree, scope: Scope, target: TypedColumn) -> Tree:
        """Return an expression as a value of a column."""


class SparkMeaning:
    """Spark's meaning: trees stay as they are."""

    def query(self, tree: Tree, targets: Sequence[TypedColumn] = ()) -> Tree:  # noqa: ARG002
        """Return the tree."""
        return tree

    def condition(self, tree: Tree, scope: Scope) -> Tree:  # noqa: ARG002
        """Return the tree."""
        return tree

    def value(self, tree: Tree, scope: Scope) -> Tree:  # noqa: ARG002
        """Return the tree."""
        return tree

    def assigned(self, tree: Tree, scope: Scope, target: TypedColumn) -> Tree:  # noqa: ARG002
        """Return the tree."""
        return tree


@dataclass
class PostgresMeaning:
    """PostgreSQL's meaning."""

    text: str
    values: dict[str, Any]
    type_of: Callable[[str], Any]
    """Returns the type of an expression in Spark SQL, or None if it has none."""
    columns: Callable[[Tree], Sequence[TypedColumn]]
    """Returns the columns of a table."""
    zone: Callable[[], str] | None = None
    """Returns the time zone of the session."""
    queries: QueryBinder = field(init=False)

    def __post_init__(self) -> None:
        self.queries = QueryBinder(self.text, self.values, self, self.columns)

    @property
    def binder(self) -> Binder:
        """The binder of expressions."""
        return self.queries.binder

    def query(self, tree: Tree, targets: Sequence[TypedColumn] = ()) -> Tree:
        """Return a query, with its columns cast to those of a table."""
        with self._in_session():
            return self._query(tree, targets)

    @contextmanager
    def _in_session(self) -> Iterator[None]:
        """Read constants in the time zone of the session."""
        before = SESSION_ZONE.set(self.zone)
        try:
            yield
        finally:
            SESSION_ZONE.reset(before)

    def _query(self, tree: Tree, targets: Sequence[TypedColumn]) -> Tree:
        found = self.queries.query(tree, targets=targets)
        pairs = list(zip(found, targets, strict=False))
        for column, target in pairs:
            self._check(column.type, target, tree)
        if all(one.type.name == other.type.name and one.type.size == other.type.size for one, other in pairs):
            return tree
        return _with_casts(tree, found, targets)

    def _check(self, given: SqlType, target: TypedColumn, at: Tree) -> None:
        if given.name in OPAQUE or target.type.name in OPAQUE or castable(given, target.type, ASSIGNMENT):
            return
        raise self.binder.rejected(f"column {target.name!r} is {target.type}, and its value is {given}: add a cast", at)

    def condition(self, tree: Tree, scope: Scope) -> Tree:
        """Return a condition."""
        with self._in_session():
            return self.binder.condition(tree, scope)

    def value(self, tree: Tree, scope: Scope) -> Tree:
        """Return an expression."""
        with self._in_session():
            return self.binder.typed(self.binder.expression(tree, scope), tree).tree

    def assigned(self, tree: Tree, scope: Scope, target: TypedColumn) -> Tree:
        """Return an expression as a value of a column."""
        with self._in_session():
            return self._assigned(tree, scope, target)

    def _assigned(self, tree: Tree, scope: Scope, target: TypedColumn) -> Tree:
        value = self.binder.expression(tree, scope)
        if value.type == UNKNOWN:
            if isinstance(value.tree, exp.Null) or target.type.name in OPAQUE:
                return value.tree
            return self.binder.coerced(value, target.type, tree).tree
        self._check(value.type, target, tree)
        return value.tree if target.type.name in OPAQUE or value.type.name in OPAQUE else cast(value, target.type).tree


def _with_casts(tree: Tree, found: Sequence[TypedColumn], targets: Sequence[TypedColumn]) -> Tree:
    """Return the rows of a query with its columns cast to those of a table."""
    names = [f"c{number}" for number in range(len(found))]
    alias = exp.TableAlias(
        this=exp.to_identifier("__deltasql_given"), columns=[exp.to_identifier(name) for name in names]
    )
    items = []
    for name, column, target in zip(names, found, targets, strict=False):
        value = Typed(exp.column(name), column.type)
        plain = {column.type.name, target.type.name} & {*OPAQUE, "unknown"}
        items.append(exp.alias_(value.tree if plain else cast(value, target.type).tree, column.name, quoted=True))
    items += [exp.column(name) for name in names[len(targets) :]]
    return exp.select(*items).from_(exp.Subquery(this=tree, alias=alias))


def columns_of_fields(fields: Sequence[Mapping[str, Any]]) -> list[TypedColumn]:
    """Return the columns of a schema's fields."""
    return [TypedColumn(one["name"], of_spark(one["type"])) for one in fields]


def columns_of_frame(frame: Any) -> list[TypedColumn]:
    """Return the columns of a Spark frame."""
    return columns_of_fields(frame.schema.jsonValue()["fields"])


__all__ = ["Meaning", "PostgresMeaning", "Scope", "ScopeTable", "SparkMeaning", "TypedColumn", "output_name"]
