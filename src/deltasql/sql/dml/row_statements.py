"""UPDATE, DELETE and MERGE: from a syntax tree to the description of a row change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlglot import exp

from deltasql.engines.row_change import (
    ACTION,
    DELETE,
    INSERT,
    MATCHED,
    MERGE,
    NEW_ROW,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    NOTHING,
    OLD_ROW,
    UPDATE,
    Clause,
    RowChange,
    Source,
    unique_names,
    unreachable,
)
from deltasql.errors import ValidationError
from deltasql.expressions.conjuncts import is_own, own_part
from deltasql.operations.change_builders import merge_parameters
from deltasql.operations.dml import Change, history_parameters
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import Json
from deltasql.sql.catalog.pg_types import TEXT
from deltasql.sql.dml.assignments import assignments, inserted_values
from deltasql.sql.dml.column_scopes import Scope, is_inside_query, qualify, qualify_merged
from deltasql.sql.dml.returning import Returning
from deltasql.sql.dml.star_values import evolved_fields, is_star, star_values
from deltasql.sql.dml.statement_target import StatementTarget
from deltasql.sql.meaning import Scope as TypedScope
from deltasql.sql.meaning import ScopeTable, TypedColumn, columns_of_fields, columns_of_frame
from deltasql.sql.parameters import constant
from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.relations import Relations
from deltasql.sql.spark_text import spark_sql

EXCLUDED = "excluded"
"""The alias of the given rows in INSERT … ON CONFLICT; RETURNING cannot read them."""

_ACTIONS = {
    MATCHED: (UPDATE, DELETE, NOTHING),
    NOT_MATCHED: (INSERT, NOTHING),
    NOT_MATCHED_BY_SOURCE: (UPDATE, DELETE, NOTHING),
}
"""The actions that each kind of WHEN clause allows."""


@dataclass
class RowStatement:
    """A statement that changes rows. Its clauses hold trees until they are rendered in Spark SQL."""

    parsed: Parsed
    relations: Relations
    target: StatementTarget
    sources: dict[tuple[str, str], str] = field(default_factory=dict)
    """The aliases of tables that the statement reads besides, by namespace and name."""

    _given: list[Json] = field(default_factory=list)
    """The columns of a merge's source."""

    def update(self) -> Change:
        """Return the change of an UPDATE."""
        tree = self.parsed.tree
        values = self._set(tree)
        source = tree.args.get("from_")
        return self._joined(Clause(UPDATE, values=values), [source.this] if source else [])

    def delete(self) -> Change:
        """Return the change of a DELETE."""
        return self._joined(Clause(DELETE), self.parsed.tree.args.get("using") or [])

    def _joined(self, clause: Clause, parts: Sequence[Tree]) -> Change:
        tree = self.parsed.tree
        where = tree.args["where"].this if tree.args.get("where") else None
        shown = None if where is None else self.parsed.sql_of(where)
        source = self._source(parts) if parts else None
        self._rename([*clause.values.values(), where])
        if source is not None and len(source.columns) > 1:
            clause = replace(clause, values={name: exp.Paren(this=value) for name, value in clause.values.items()})
            where = exp.Paren(this=where) if where is not None else None
            own = {name.lower() for name in self.target.columns}
            qualify_merged([*clause.values.values(), *([where] if where else [])], parts, source.columns, own)
        where = self._condition(where, source)
        pruning, exact = self._pruning(where)
        rows = self.row_change([clause], where, source)
        parameters = history_parameters(clause.action, shown)
        return Change(clause.action, rows, pruning, parameters, self.reads_itself(), exact and source is None)

    def merge(self) -> Change:
        """Return the change of a MERGE."""
        tree = self.parsed.tree
        source = self._source([tree.args["using"]])
        [alias] = source.columns
        self._given = source.rows.schema.jsonValue()["fields"]
        whens = tree.args["whens"].expressions
        clauses = [self._clause(when, alias) for when in whens]
        if (index := unreachable(clauses)) is not None:
            why = "has a WHEN clause that no row reaches: an earlier clause of its kind has no condition"
            raise self.rejected(why, whens[index])
        return self.merged(source, tree.args["on"], clauses)

    def evolved_fields(self) -> list[Json] | None:
        """Return the columns of the table and those of a merge's source that it lacks; None if it lacks none."""
        source = self._source([self.parsed.tree.args["using"].copy()])
        return evolved_fields(self.target, source.rows.schema.jsonValue()["fields"])

    def merged(self, source: Source, on: Tree, clauses: Sequence[Clause]) -> Change:
        """Return the change that merges a source with one alias."""
        shown = self.parsed.sql_of(on)
        parameters = merge_parameters(shown, [replace(c, condition=self._shown_sql(c.condition)) for c in clauses])
        self._rename([on, *(part for c in clauses for part in (c.condition, *c.values.values()))])
        [scope] = source.columns.items()
        for clause in clauses:
            self._qualify(clause, scope)
        on = self._condition(on, source)
        pruning, _ = self._pruning(on)
        return Change(MERGE, self.row_change(clauses, on, source), pruning, parameters, self.reads_itself())

    def row_change(self, clauses: Sequence[Clause], condition: Tree | None, source: Source | None) -> RowChange:
        """Return the description with its expressions in Spark SQL; the condition has its meaning already."""
        scope = self._scope(source)
        rendered = [self._rendered(clause, scope) for clause in clauses]
        scopes: list[Scope] = [(self.target.name, self.target.columns)]
        if source is not None:
            scopes += [item for item in source.columns.items() if item[0] != EXCLUDED]
        if isinstance(self.parsed.tree, exp.Merge):
            scopes.reverse()  # PostgreSQL returns the columns of the source first
        text = partial(self._text, scope=scope)
        returning = Returning(self.parsed, scopes, self.target.columns, self._rename, text).outputs()
        where = None if condition is None else self.relations.expression(condition)
        change = RowChange(rendered, where, source, returning, self.target.name)
        return replace(change, relations=self.relations.used_in(_texts(change)))

    def _rendered(self, clause: Clause, scope: TypedScope) -> Clause:
        text, meaning = self.relations.expression, self.relations.meaning
        condition = None if clause.condition is None else text(meaning.condition(clause.condition, scope))
        columns = {column.name: column for column in columns_of_fields(self.target.fields)}
        values = {name: text(meaning.assigned(value, scope, columns[name])) for name, value in clause.values.items()}
        return replace(clause, condition=condition, values=values)

    def _text(self, tree: Tree, scope: TypedScope) -> str:
        """Return an expression of RETURNING in Spark SQL."""
        return self.relations.expression(self.relations.meaning.value(tree, scope))

    def condition_text(self, tree: Tree) -> str:
        """Return a condition on rows of the table in Spark SQL."""
        self._rename([tree])
        return self.relations.expression(self.relations.meaning.condition(tree, self._scope(None)))

    def _condition(self, tree: Tree | None, source: Source | None) -> Tree | None:
        return None if tree is None else self.relations.meaning.condition(tree, self._scope(source))

    def _scope(self, source: Source | None) -> TypedScope:
        """Return the columns of the table and of the source, with their types."""
        own = ScopeTable(self.target.name, columns_of_fields(self.target.fields))
        every = frozenset(name.lower() for name in self.target.columns)
        rows = [ScopeTable(name, own.columns, every) for name in (OLD_ROW, NEW_ROW)]
        hidden = [ScopeTable("", [TypedColumn(ACTION, TEXT)]), *rows]
        if source is None:
            return TypedScope([own, *hidden])
        types = {column.name.lower(): column.type for column in columns_of_frame(source.rows)}
        if len(source.columns) == 1:
            given = {
                alias: [TypedColumn(name, types[name.lower()]) for name in names]
                for alias, names in source.columns.items()
            }
        else:  # the frame has the columns of all aliases one after the other
            left = iter(columns_of_frame(source.rows))
            given = {
                alias: [TypedColumn(name, next(left).type) for name in names] for alias, names in source.columns.items()
            }
        return TypedScope([own, *(ScopeTable(alias, columns) for alias, columns in given.items()), *hidden])

    # --- Clauses

    def _clause(self, when: Tree, alias: str) -> Clause:
        """Return a WHEN clause. (sqlglot has BY SOURCE as `source`.)"""
        by_source = bool(when.args.get("source"))
        if when.args["matched"] and by_source:
            raise self.rejected("has WHEN MATCHED BY SOURCE: rows that match do so on both sides", when)
        of = MATCHED if when.args["matched"] else NOT_MATCHED_BY_SOURCE if by_source else NOT_MATCHED
        clause = self._clause_of(of, when, alias)
        if clause.action not in _ACTIONS[of]:
            able = ", ".join(_ACTIONS[of][:-1])
            raise self.rejected(f"has WHEN {of.upper()} THEN {clause.action}: use {able} or DO NOTHING", when)
        return clause

    def _clause_of(self, of: str, when: Tree, alias: str) -> Clause:
        then, condition = when.args["then"], when.args.get("condition")
        if isinstance(then, exp.Var):
            return Clause(DELETE if then.name.upper() == "DELETE" else NOTHING, of, condition)
        if is_star(then):
            action = UPDATE if isinstance(then, exp.Update) else INSERT
            return Clause(action, of, condition, star_values(self.target, alias, self._given, action, when))
        if isinstance(then, exp.Update):
            return Clause(UPDATE, of, condition, self._set(then))
        return Clause(INSERT, of, condition, inserted_values(self.target, then))

    def _set(self, update: Tree) -> dict[str, Tree]:
        if not update.expressions:
            raise self.rejected("sets nothing: SET names columns and their values", update if update.this else None)
        return assignments(self.target, update.expressions)

    def _qualify(self, clause: Clause, source: Scope) -> None:
        """Qualify the columns of a clause of a MERGE, and reject columns of rows that its kind does not have."""
        target: Scope = (self.target.name, self.target.columns)
        both = [target] if source[0] == EXCLUDED else [target, source]
        scopes = {MATCHED: both, NOT_MATCHED: [source], NOT_MATCHED_BY_SOURCE: [target]}[clause.of]
        absent = {MATCHED: "", NOT_MATCHED: self.target.name, NOT_MATCHED_BY_SOURCE: source[0]}[clause.of].lower()
        for value in (*clause.values.values(), *([clause.condition] if clause.condition is not None else [])):
            for column in value.find_all(exp.Column):
                if absent and column.text("table").lower() == absent and not is_inside_query(column, value):
                    raise self.rejected(
                        f"reads {self.parsed.sql_of(column)} WHEN {clause.of.upper()}: there is no such row", column
                    )
            qualify(self.parsed, value, scopes)

    # --- Sources and names

    def _source(self, parts: Sequence[Tree]) -> Source:
        """Return the source of UPDATE … FROM, DELETE … USING or MERGE … USING."""
        names = [name for part in parts for name in self._names(part)]
        self._rename(parts)
        query = exp.select("*").from_(parts[0])
        query.set("joins", [exp.Join(this=part) for part in parts[1:]])
        query = self.relations.meaning.query(query)
        if len(names) == 1:
            return Source.of(self.relations.run(spark_sql(query)), names[0])
        # Every column by name: a star has the columns that USING merges once, or twice.
        tables = spark_sql(query).removeprefix("SELECT * FROM ")
        structs = ", ".join(f"struct({quoted(name)}.*) AS {quoted(name)}" for name in names)
        schema = self.relations.run(f"SELECT {structs} FROM {tables}").schema
        columns = {name: unique_names(schema[name].dataType.names) for name in names}
        chosen = ", ".join(f"{quoted(name)}.{quoted(column)}" for name in names for column in columns[name])
        return Source(self.relations.run(f"SELECT {chosen} FROM {tables}"), columns)

    def _names(self, source: Tree) -> list[str]:
        """Return the aliases of the parts of a source."""
        parts = [source, *(join.this for join in source.args.get("joins") or ())]
        names = [part.alias_or_name for part in parts]
        self.sources |= {_qualified(part): part.alias_or_name for part in parts if part.text("db")}
        if not all(names):
            raise self.rejected("has a subquery without a name: (SELECT …) AS s", source)
        taken = [name.lower() for name in (self.target.name, *names)]
        if len(set(taken)) < len(taken):
            raise self.rejected(f"has two tables of the same name ({', '.join(taken)}): rename one with AS", source)
        return names

    def _rename(self, parts: Iterable[Tree | None]) -> None:
        """Resolve the tables in subqueries, and qualify columns of `namespace.table` by the alias of the table."""
        namespace, _, table = self.target.state.name.lower().partition(".")
        aliases = {**self.sources, (namespace, table): self.target.name}
        for part in parts:
            if part is None:
                continue
            self.relations.resolve(part)
            for column in part.find_all(exp.Column):
                alias = aliases.get((column.text("db").lower(), column.text("table").lower()))
                if alias is not None:
                    column.set("db", None)
                    column.set("table", exp.to_identifier(alias, quoted=True))

    # --- Pruning, conflicts and history

    def _pruning(self, condition: Tree | None) -> tuple[str | None, bool]:
        """Return the part of a condition that reads only the table, and whether that is the whole condition."""
        if condition is None:
            return None, False
        holder = exp.Paren(this=condition.copy())
        for node in list(holder.find_all(exp.Placeholder)):
            node.replace(constant(self.relations.values[node.name]))
        names, columns, text = self.target.names, self.target.columns, spark_sql(holder.this)
        return own_part(text, names, columns), is_own(text, names, columns)

    def _shown_sql(self, tree: Tree | None) -> str | None:
        return None if tree is None else self.parsed.sql_of(tree)

    def reads_itself(self) -> bool:
        """Return whether the statement also reads the table in a subquery or as a source."""
        return self.target.state.table_id in self.relations.read

    def rejected(self, why: str, at: Tree | None = None) -> ValidationError:
        """Return the error of a statement that cannot be run."""
        return self.parsed.rejected(f"it {why}", at)


def _texts(change: RowChange) -> list[Any]:
    clauses = [text for clause in change.clauses for text in (clause.condition, *clause.values.values())]
    return [change.condition, *clauses, *(output.expression for output in change.returning or ())]


def _qualified(table: Tree) -> tuple[str, str]:
    return table.text("db").lower(), table.name.lower()
