"""The columns that an expression can name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from deltasql.sql.catalog.pg_types import SqlType


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of a table or query."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class ScopeTable:
    """A table or query of a FROM clause, by the name that the statement has for it."""

    name: str
    columns: Sequence[TypedColumn]
    merged: frozenset[str] = frozenset()
    """Columns in lower case that USING or NATURAL merge with those of an earlier source."""

    def find(self, name: str) -> list[TypedColumn]:
        """Return the columns of a name in any case."""
        return [column for column in self.columns if column.name.lower() == name.lower()]


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources of a query, those of the queries around it, and the variables of lambdas."""

    sources: Sequence[ScopeTable] = ()
    outer: Scope | None = None
    variables: dict[str, SqlType] = field(default_factory=dict)
    queries: dict[str, Sequence[TypedColumn]] = field(default_factory=dict)
    """The columns of queries of WITH clauses, by name in lower case."""

    def inner(self) -> Scope:
        """Return an empty scope inside this one."""
        return Scope(outer=self, queries=dict(self.queries))

    def with_sources(self, sources: Sequence[ScopeTable]) -> Scope:
        """Return the scope with other sources."""
        return replace(self, sources=list(sources))

    def with_variables(self, variables: dict[str, SqlType]) -> Scope:
        """Return the scope with more variables."""
        return replace(self, variables={**self.variables, **variables})

    def names(self) -> list[str]:
        """Return the names of all columns of this query."""
        found = [column.name for source in self.sources for column in source.columns]
        return [name for name in found if not name.startswith("__deltasql")]

    def owners(self, name: str) -> list[str]:
        """Return the names of the sources that have a column."""
        found = [source for source in self.sources if source.find(name) and name.lower() not in source.merged]
        return [source.name for source in found]

    def source(self, name: str) -> ScopeTable | None:
        """Return a source by its name, of this query or of one around it."""
        for source in self.sources:
            if source.name.lower() == name.lower():
                return source
        return self.outer.source(name) if self.outer is not None else None

    def columns(self, name: str) -> list[TypedColumn]:
        """Return the columns of a name, of the innermost query that has one."""
        found = [column for source in self.sources for column in source.find(name) if name.lower() not in source.merged]
        return found or (self.outer.columns(name) if self.outer is not None else [])
