"""UPDATE, DELETE and MERGE: from a tree to a change of a table's rows.

The rows that change are one query of Spark's: each comes with its place, the table's row and the sources' as structs,
and the values that it gets. What is returned is a second query, on the rows as they became.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from sqlglot import exp, parse_one

from deltasql.engines.row_change import (
    ACTION,
    CLAUSE,
    DELETE,
    FILE,
    INSERT,
    MATCHED,
    MERGE,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    NOTHING,
    ROW,
    UPDATE,
    Clause,
    Queries,
    Statement,
    raw_name,
    unreachable,
)
from deltasql.errors import ValidationError, unknown_column
from deltasql.expressions.conjuncts import is_own, own_part
from deltasql.operations.change_builders import merge_parameters
from deltasql.operations.dml import Change, history_parameters
from deltasql.operations.write import fields_of
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema_fit import DEFAULT, GENERATED
from deltasql.protocol.table_changes import TableState
from deltasql.sql.parameters import constant
from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.relations import Relations
from deltasql.sql.rewrites import by_column
from deltasql.sql.spark_text import spark_sql

if TYPE_CHECKING:
    from deltasql.engines.spark.dml.merge_pairs import MergeSource

EXCLUDED = "excluded"
"""What INSERT … ON CONFLICT calls the rows that are given; RETURNING does not see them."""

_OLD_AND_NEW = {"old", "new"}

_ACTIONS = {
    MATCHED: (UPDATE, DELETE, NOTHING),
    NOT_MATCHED: (INSERT, NOTHING),
    NOT_MATCHED_BY_SOURCE: (UPDATE, DELETE, NOTHING),
}
"""What can become of rows."""

Scope = tuple[str, list[str]]
"""A name in a statement, and the columns that it has."""


@dataclass(frozen=True, slots=True)
class StatementTarget:
    """The table that a statement changes, and what it is called in there."""

    state: TableState
    name: str
    parsed: Parsed

    @property
    def fields(self) -> list[dict[str, Any]]:
        return fields_of(self.state)

    @property
    def columns(self) -> list[str]:
        return [f["name"] for f in self.fields]

    def column(self, name: str, at: Tree | None = None) -> dict[str, Any]:
        """A column by its name, whatever the case; `at` is where the statement names it."""
        known = {f["name"].lower(): f for f in self.fields}
        if name.lower() not in known:
            raise self.parsed.refused(f"table {self.state.name}: {unknown_column(name, self.columns)}", at)
        return known[name.lower()]

    def place(self) -> str:
        """Where a row lies, and the row as a struct."""
        name = quoted(self.name)
        columns = ", ".join(f"{name}.{quoted(column)}" for column in self.columns)
        return f"{name}.{FILE}, {name}.{ROW}, struct({columns}) AS {name}"


def target_of(table: Tree, state: TableState, parsed: Parsed) -> StatementTarget:
    """The table of a statement under the name that it has there."""
    return StatementTarget(state, table.alias or table.name, parsed)


@dataclass
class RowStatement:
    """A statement that changes rows, on its way to a change."""

    parsed: Parsed
    relations: Relations
    target: StatementTarget
    ctes: str = ""
    """The WITH clause in Spark's SQL, if there is one."""
    sources: dict[tuple[str, str], str] = field(default_factory=dict)
    """What tables are called that the statement reads besides, by their namespaces and names."""

    def update(self) -> Change:
        """The change that an UPDATE makes."""
        tree = self.parsed.tree
        values = self._set(tree)
        source = tree.args.get("from_")
        return self._joined(Clause(UPDATE, values=values), [source.this] if source else [])

    def delete(self) -> Change:
        """The change that a DELETE makes."""
        return self._joined(Clause(DELETE), self.parsed.tree.args.get("using") or [])

    def _joined(self, clause: Clause, sources: Sequence[Tree]) -> Change:
        tree, target = self.parsed.tree, self.target
        where = tree.args["where"].this if tree.args.get("where") else None
        shown = None if where is None else self.parsed.shown(spark_sql(where))
        known = self._known(where)
        own, is_simple = self._own(known), known is not None and is_own(known, self._called, target.columns)
        names = [name for source in sources for name in self._names(source)]
        self._rename([*sources, *clause.values.values(), where])
        structs = [f"struct({quoted(name)}.*) AS {quoted(name)}" for name in names]
        raw = [f"{spark_sql(v)} AS {quoted(raw_name(0, n))}" for n, v in clause.values.items()]
        tables = "".join(f", {spark_sql(source)}" for source in sources)
        condition = "" if where is None else f" WHERE {spark_sql(where)}"

        def run(frame: Any, chosen: Sequence[str], rest: str) -> Any:
            view = f"{self.relations.add(frame)} AS {quoted(target.name)}"
            return self.relations.run(f"{self.ctes}SELECT {', '.join(chosen)} FROM {view}{rest}")

        def rows(frame: Any, _: Any, *, found: bool) -> Any:
            return run(frame, [target.place(), *structs, *raw], "" if found else f"{tables}{condition}")

        def places(frame: Any) -> Any:
            return run(frame, [FILE, ROW], condition)

        simple = own if is_simple and not sources else where
        queries = self.queries(rows, names, None if sources else places)
        statement = Statement((clause,), simple, names or None, None, queries)
        return Change(
            clause.action, statement, own, history_parameters(clause.action, shown), self.reads_itself(), simple is own
        )

    def merge(self) -> Change:
        """The change that a MERGE makes."""
        tree = self.parsed.tree
        [name] = self._names(tree.args["using"])
        self._rename([tree.args["using"]])
        source = self.relations.run(f"{self.ctes}SELECT * FROM {spark_sql(tree.args['using'])}")
        clauses = [self._clause(when, name, source.columns) for when in tree.args["whens"].expressions]
        if (dead := unreachable(clauses)) is not None:
            why = "has a WHEN clause that no row reaches: one of its kind without a condition comes before"
            raise self.refused(why, tree.args["whens"].expressions[dead])
        return self.merged(name, source, tree.args["on"], clauses)

    def merged(self, name: str, source: Any, on: Tree, clauses: Sequence[Clause]) -> Change:
        """The change that merging a frame makes."""
        shown = self.parsed.shown(spark_sql(on))
        own = self._own(self._known(on))
        parameters = merge_parameters(shown, [replace(c, condition=self._shown_sql(c.condition)) for c in clauses])
        self._rename([on, *(part for c in clauses for part in (c.condition, *c.values.values()))])
        for clause in clauses:
            self._qualify(clause, name, source.columns)
        raw = [
            f"CASE WHEN {CLAUSE} = {number} THEN {spark_sql(value)} END AS {quoted(raw_name(number, column))}"
            for number, clause in enumerate(clauses)
            for column, value in clause.values.items()
        ]

        def rows(frame: Any, held: Any, **_: Any) -> Any:
            pairs = self._pairs_of(frame, name, held, on, clauses)
            inner = f"SELECT *, {self._number(clauses, name)} AS {CLAUSE} FROM {self.relations.add(pairs)}"
            return self.relations.run(
                f"{self.ctes}SELECT {', '.join(['*', *raw])} FROM ({inner}) WHERE {CLAUSE} IS NOT NULL"
            )

        seen = [] if name == EXCLUDED else [name]
        statement = Statement(tuple(clauses), on, source, None, self.queries(rows, seen))
        return Change(MERGE, statement, own, parameters, self.reads_itself())

    def _pairs_of(self, frame: Any, name: str, source: MergeSource, on: Tree, clauses: Sequence[Clause]) -> Any:
        """Rows that match, as structs, and those of either side that match none as far as a clause may want them."""
        from deltasql.engines.spark.dml.merge_pairs import NUMBER, Pairing

        asked, condition = Statement(clauses), spark_sql(on)
        pairing = Pairing(source, condition, whole=asked.takes_whole, inserts=asked.inserts)
        number = f"{quoted(name)}.{quoted(NUMBER)}"
        columns = ", ".join(f"{quoted(name)}.{quoted(column)}" for column in source.columns)
        given = f"CASE WHEN {number} IS NOT NULL THEN struct({columns}) END AS {quoted(name)}"
        view = f"{self.relations.add(frame)} AS {quoted(self.target.name)}"
        other = f"{self.relations.add(pairing.side)} AS {quoted(name)}"
        joined = self.relations.run(
            f"{self.ctes}SELECT {self.target.place()}, {given}, {number} FROM {view} "
            f"{pairing.how} JOIN {other} ON {condition}"
        )
        return pairing.complete(joined, self.target.name, name)

    def _number(self, clauses: Sequence[Clause], name: str) -> str:
        """Which clause is the first to apply to a row."""
        there, given = f"{ROW} IS NOT NULL", f"{quoted(name)} IS NOT NULL"
        which = {
            MATCHED: f"{there} AND {given}",
            NOT_MATCHED: f"NOT ({there})",
            NOT_MATCHED_BY_SOURCE: f"NOT ({given})",
        }
        cases = []
        for number, clause in enumerate(clauses):
            asked = "" if clause.condition is None else f" AND ({spark_sql(clause.condition)})"
            result = "CAST(NULL AS INT)" if clause.action == NOTHING else str(number)
            cases.append(f"WHEN {which[clause.of]}{asked} THEN {result}")
        return f"CASE {' '.join(cases)} END"

    def _clause(self, when: Tree, name: str, given: Sequence[str]) -> Clause:
        """A WHEN clause. (`source` is what sqlglot calls BY SOURCE.)"""
        by_source = bool(when.args.get("source"))
        if when.args["matched"] and by_source:
            raise self.refused("has WHEN MATCHED BY SOURCE: rows that match do so on both sides", when)
        of = MATCHED if when.args["matched"] else NOT_MATCHED_BY_SOURCE if by_source else NOT_MATCHED
        clause = self._clause_of(of, when, name, given)
        if clause.action not in _ACTIONS[of]:
            able = ", ".join(_ACTIONS[of][:-1])
            raise self.refused(
                f"has WHEN {of.upper()} THEN {clause.action}: what can follow is {able} or DO NOTHING", when
            )
        return clause

    def _clause_of(self, of: str, when: Tree, name: str, given: Sequence[str]) -> Clause:
        then, condition = when.args["then"], when.args.get("condition")
        if isinstance(then, exp.Var):
            return Clause(DELETE if then.name.upper() == "DELETE" else NOTHING, of, condition)
        stars = any(isinstance(part, exp.Star) for part in (then.this, *then.expressions))
        if stars:
            return Clause(UPDATE if isinstance(then, exp.Update) else INSERT, of, condition, self._same(name, given))
        if isinstance(then, exp.Update):
            return Clause(UPDATE, of, condition, self._set(then))
        return Clause(INSERT, of, condition, self._inserted(then))

    def _set(self, update: Tree) -> dict[str, Tree]:
        if not update.expressions:
            raise self.refused("sets nothing: SET names columns and their values", update if update.this else None)
        return dict(self.assignments(update.expressions))

    def _inserted(self, insert: Tree) -> dict[str, Tree]:
        """The values of an insert by their columns; columns at the end may be left out if none is named."""
        named = insert.this.expressions if insert.this else []
        if insert.expression is None and len(named) == 1 and is_default(named[0]):  # INSERT DEFAULT VALUES
            return {}
        items = insert.expression.expressions if insert.expression else []
        columns = [c.name for c in named] or self.target.columns[: len(items)]
        if len(columns) != len(items):
            given = len(named) or len(self.target.columns)
            raise self.refused(f"names {given} columns and gives {len(items)} values", insert)
        fields = [self.target.column(name, at) for name, at in zip_longest(columns, named)]
        found = {f["name"]: default_of(f, item) for f, item in zip(fields, items, strict=True)}
        if len(found) < len(fields):
            raise self.refused("names a column twice", insert)
        return {name: value for name, value in found.items() if value is not None}

    def _same(self, name: str, given: Sequence[str]) -> dict[str, Tree]:
        return {self.target.column(c)["name"]: exp.column(exp.to_identifier(c, True), name) for c in given}

    def assignments(self, items: Iterable[Tree]) -> Iterator[tuple[str, Tree]]:
        """The columns that get values."""
        seen: set[str] = set()
        for item in items:
            for column, value in self._pairs(item):
                field = self.target.column(self._assigned_name(column), column)
                if field["name"] in seen:
                    raise self.refused(f"gives column {field['name']!r} two values", column)
                seen.add(field["name"])
                if not (is_default(value) and GENERATED in (field.get("metadata") or {})):
                    yield field["name"], default_of(field, value) or exp.Null()

    def _assigned_name(self, column: Tree) -> str:
        qualifier = ".".join(part.name for part in column.parts[:-1]) if isinstance(column, exp.Column) else ""
        own = {"", self.target.name.lower(), self.target.state.name.lower()}
        if not isinstance(column, exp.Column) or qualifier.lower() not in own:
            raise self.refused(
                f"assigns to {column.sql(dialect='postgres')}: SET names columns of the table; to change a part of one "
                f"give all of it",
                column,
            )
        return str(column.name)

    def _pairs(self, item: Tree) -> Iterable[tuple[Tree, Tree]]:
        """`a = 1`, or `(a, b) = (1, 2)`, which may also be written ROW(1, 2) or be a query."""
        if not isinstance(item, exp.EQ):
            raise self.refused(f"cannot assign by {self.parsed.sql_of(item)}", item)
        left, right = item.this, item.expression
        if not isinstance(left, exp.Tuple):
            return [(left.this if isinstance(left, exp.Paren) else left, right)]
        queries = by_column(right)
        if len(queries) == len(left.expressions):
            return list(zip(left.expressions, queries, strict=True))
        is_row = isinstance(right, exp.Anonymous) and right.name.upper() == "ROW"
        if not (is_row or isinstance(right, exp.Tuple)) or len(left.expressions) != len(right.expressions):
            raise self.refused(
                f"cannot assign by {self.parsed.sql_of(item)}: give as many values as columns; those of a query that "
                f"has DISTINCT, LIMIT or UNION come by FROM",
                item,
            )
        return list(zip(left.expressions, right.expressions, strict=True))

    # --- Names

    def _names(self, source: Tree) -> list[str]:
        """What the parts of a source are called."""
        parts = [source, *(join.this for join in source.args.get("joins") or ())]
        names = [part.alias_or_name for part in parts]
        self.sources |= {_qualified(part): part.alias_or_name for part in parts if part.text("db")}
        if not all(names):
            raise self.refused("has a subquery without a name: (SELECT …) AS s", source)
        taken = [name.lower() for name in (self.target.name, *names)]
        if len(set(taken)) < len(taken):
            raise self.refused(
                f"has two tables of the same name ({', '.join(taken)}): give one of them another by AS", source
            )
        return names

    def _rename(self, parts: Iterable[Tree | None]) -> None:
        """Call the table what it is called in the statement, whatever its columns are qualified by, and let tables be
        frames."""
        namespace, _, table = self.target.state.name.lower().partition(".")
        called = {**self.sources, (namespace, table): self.target.name}
        for part in parts:
            if part is None:
                continue
            self.relations.resolve(part)
            for column in part.find_all(exp.Column):
                name = called.get((column.text("db").lower(), column.text("table").lower()))
                if name is not None:
                    column.set("db", None)
                    column.set("table", exp.to_identifier(name, quoted=True))

    def _qualify(self, clause: Clause, name: str, given: Sequence[str]) -> None:
        """The values of a clause are computed from structs: each column says which it is of."""
        target, source = (self.target.name, self.target.columns), (name, list(given))
        both = [target] if name == EXCLUDED else [target, source]
        scopes = {MATCHED: both, NOT_MATCHED: [source], NOT_MATCHED_BY_SOURCE: [target]}[clause.of]
        absent = {MATCHED: "", NOT_MATCHED: self.target.name, NOT_MATCHED_BY_SOURCE: name}[clause.of].lower()
        for value in (*clause.values.values(), *([clause.condition] if clause.condition is not None else [])):
            for column in value.find_all(exp.Column):
                if absent and column.text("table").lower() == absent and not _is_inside_query(column, value):
                    raise self.refused(
                        f"reads {self.parsed.sql_of(column)} WHEN {clause.of.upper()}: there is no such row", column
                    )
            self._qualify_tree(value, scopes)

    def _qualify_tree(self, tree: Tree, scopes: Sequence[Scope]) -> None:
        for column in list(tree.find_all(exp.Column)):
            first = column.parts[0].name.lower()
            if first in {name.lower() for name, _ in scopes} and column.args.get("table"):
                continue
            if _is_inside_query(column, tree) or isinstance(column.this, exp.Star) or column.args.get("db"):
                continue
            owners = [name for name, columns in scopes if first in {c.lower() for c in columns}]
            if len(owners) > 1:
                ways = " or ".join(f"{owner}.{column.name}" for owner in owners)
                raise self.refused(f"does not say which {column.name!r} is meant: write {ways}", column)
            if owners:  # a column, or a field of one that is a struct
                place = "db" if column.args.get("table") else "table"
                column.set(place, exp.to_identifier(owners[0], quoted=True))

    # --- What is returned

    def queries(self, rows: Any, names: Sequence[str], places: Any = None) -> Queries:
        """How the rows are found, and what is seen of them."""
        returning = self.parsed.tree.args.get("returning")
        if returning is None:
            return Queries(self.target.name, rows, places)

        def seen(frame: Any, out: str) -> Any:
            scopes = [(self.target.name, self.target.columns), *((n, frame.schema[n].dataType.names) for n in names)]
            if isinstance(self.parsed.tree, exp.Merge):
                scopes.reverse()  # the source first, as PostgreSQL has it
            shown = [text for item in returning.expressions for text in self._shown(item.copy(), scopes)]
            view = self.relations.add(frame)
            return self.relations.run(f"{self.ctes}SELECT *, struct({', '.join(shown)}) AS {out} FROM {view}")

        return Queries(self.target.name, rows, places, seen)

    def _shown(self, item: Tree, scopes: Sequence[Scope]) -> Iterator[str]:
        """One item of RETURNING in Spark's SQL, each with its name."""
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            wanted = item.text("table").lower() if isinstance(item, exp.Column) else ""
            if wanted not in ("", *(name.lower() for name, _ in scopes)):
                raise self._unknown_scope(item, wanted)
            for name, columns in scopes:
                if wanted in ("", name.lower()):
                    yield from (f"{quoted(name)}.{quoted(column)} AS {quoted(column)}" for column in columns)
            return
        name = item.alias_or_name or (item.sql_name().lower() if isinstance(item, exp.Func) else "") or "?column?"
        tree = item.this if isinstance(item, exp.Alias) else item
        if isinstance(tree, exp.Anonymous) and tree.name.lower() == "merge_action":
            yield f"{ACTION} AS {quoted(item.alias or 'merge_action')}"
            return
        for column in tree.find_all(exp.Column):
            if column.text("table").lower() in _OLD_AND_NEW - {name.lower() for name, _ in scopes}:
                raise self._unknown_scope(column, column.text("table"))
        holder = exp.Paren(this=tree.copy())
        for call in list(holder.find_all(exp.Anonymous)):
            if call.name.lower() == "merge_action":
                call.replace(exp.column(ACTION))
        self._rename([holder])
        self._qualify_tree(holder, scopes)
        yield f"{spark_sql(holder)} AS {quoted(name)}"

    def _unknown_scope(self, at: Tree, name: str) -> ValidationError:
        if name.lower() in _OLD_AND_NEW:
            return self.refused(
                "returns old or new values by name: RETURNING has the new ones of rows that were updated, the old ones "
                "of rows that were deleted",
                at,
            )
        return self.refused(f"has no table {name!r} to return columns of", at)

    # --- What the log should know

    @property
    def _called(self) -> set[str]:
        return {self.target.name, self.target.state.name}

    def _known(self, condition: Tree | None) -> Tree | None:
        """A condition in which parameters are values."""
        if condition is None:
            return None
        holder = exp.Paren(this=condition.copy())
        for node in list(holder.find_all(exp.Placeholder)):
            node.replace(constant(self.relations.values[node.name]))
        return holder.this

    def _own(self, known: Tree | None) -> str | None:
        """The part of a condition that tells files apart."""
        return None if known is None else own_part(known, self._called, self.target.columns)

    def _shown_sql(self, tree: Tree | None) -> str | None:
        return None if tree is None else self.parsed.shown(spark_sql(tree))

    def reads_itself(self) -> bool:
        """Is the table also read otherwise?"""
        return self.target.state.table_id in self.relations.read

    def refused(self, why: str, at: Tree | None = None) -> ValidationError:
        """The statement cannot be run."""
        return self.parsed.refused(f"it {why}", at)


def _qualified(table: Tree) -> tuple[str, str]:
    return table.text("db").lower(), table.name.lower()


def is_default(value: Tree) -> bool:
    """Is it the word DEFAULT?"""
    word = value.this if isinstance(value, exp.Column) and not value.args.get("table") else value
    is_word = isinstance(word, exp.Var) or (isinstance(word, exp.Identifier) and not word.quoted)
    return is_word and word.name.upper() == "DEFAULT"


def default_of(field: dict[str, Any], value: Tree) -> Tree | None:
    """DEFAULT is what the table says; None if it says nothing."""
    if not is_default(value):
        return value
    text = (field.get("metadata") or {}).get(DEFAULT)
    return None if text is None else parse_one(text, read="spark")


def _is_inside_query(node: Tree, top: Tree) -> bool:
    """Is a node part of a subquery of a tree?"""
    while node is not top and node is not None:
        if isinstance(node, exp.Query):
            return True
        node = node.parent
    return isinstance(top, exp.Query)
