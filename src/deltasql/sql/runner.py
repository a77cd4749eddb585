"""Runs statements: each kind in the words of the lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Protocol

from sqlglot import exp

from deltasql.engines.row_change import (
    FILE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    ROW,
    UPDATE,
    WRITE,
    Clause,
    Statement,
    raw_name,
)
from deltasql.errors import TableNotFound, UsageError
from deltasql.operations.dml import Change, Outcome
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema_fit import DEFAULT, GENERATED
from deltasql.protocol.table_changes import TableState
from deltasql.sql.copy import copied_rows
from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.positions import start_of
from deltasql.sql.relations import Relations, table_name
from deltasql.sql.row_statements import EXCLUDED, RowStatement, StatementTarget, default_of, is_default, target_of
from deltasql.sql.spark_text import spark_sql
from deltasql.sql.statement_failures import explained

_ROW_STATEMENTS = (exp.Insert, exp.Update, exp.Delete, exp.Merge)
_COMPUTED = (exp.Query, exp.Rand, exp.Randn, exp.Shuffle, exp.Uuid)
"""What Spark does not take in VALUES: subqueries, and functions that give another value each time."""


class StatementContext(Protocol):
    """What statements ask of a lake, or of a transaction."""

    @property
    def spark(self) -> Any:
        """The Spark session."""

    def find(self, name: str) -> TableState | None:
        """A table of the lake, if there is one of that name."""

    def frame(self, state: TableState, version: int | None, timestamp: str | None) -> Any:
        """A table's rows."""

    def change(self, state: TableState, change: Change) -> Outcome:
        """Change a table's rows."""

    def explain(self, state: TableState, change: Change) -> str:
        """What a change would read."""

    def append(self, state: TableState, rows: Any, *, reads_itself: bool = False) -> Mapping[str, str]:
        """Add rows to a table, cast as SQL casts."""

    def define(self, parsed: Parsed, rows: Callable[[Tree], Any]) -> None:
        """CREATE, DROP or ALTER a table."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave: rows, or the table that it changed and how."""

    frame: Any = None
    table: TableState | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Runner:
    """Runs one statement in a session."""

    session: StatementContext
    parsed: Parsed

    def __post_init__(self) -> None:
        self.relations = Relations(self.session.spark, self.session.find, self.session.frame, self.parsed.values)

    def run(self) -> Result:
        """Run it; nothing is committed here."""
        tree = self.parsed.tree
        tables = {table.alias_or_name for table in tree.find_all(exp.Table, exp.Subquery)}
        with explained(self.parsed.text, tables, files=isinstance(tree, exp.Copy)):
            return self._run(tree)

    def _run(self, tree: Tree) -> Result:
        self._refuse_what_spark_leaves_out(tree)
        if self.parsed.explain and any(isinstance(cte.this, _ROW_STATEMENTS) for cte in tree.find_all(exp.CTE)):
            raise self._refused("changes rows in its WITH clause: explain these statements by themselves")
        ctes = self._ctes(tree)
        if self.parsed.explain:
            return self._explained(tree, ctes)
        for kinds, run in _KINDS.items():
            if isinstance(tree, kinds):
                return run(self, tree, ctes)
        raise self._refused(f"is not supported: {type(tree).__name__.upper()}")

    def _refuse_what_spark_leaves_out(self, tree: Tree) -> None:
        lock = tree.find(exp.Lock)
        if lock is not None:
            at = lock if lock.expressions else lock.parent
            raise self._refused("locks rows: there are no locks here, a transaction that is too late fails", at)
        into = tree.find(exp.Into)
        if into is not None and isinstance(into.parent, exp.Select):
            raise self._refused("selects INTO a table: write CREATE TABLE … AS SELECT", into)

    def _define(self, _: Tree, ctes: str) -> Result:
        self.session.define(self.parsed, lambda query: self._query(query, ctes))
        return Result()

    # --- Queries

    def _select(self, tree: Tree, ctes: str) -> Result:
        frame = self._query(tree, ctes)
        return Result(frame.localCheckpoint() if self.relations.known else frame)  # or it fails once rows have changed

    def _ctes(self, tree: Tree) -> str:
        """A WITH clause in Spark's SQL; of one that changes rows, each part is run."""
        clause = tree.args.get("with_")
        if clause is None:
            return ""
        named = _tables_in(tree)
        tree.set("with_", None)
        recursive = "RECURSIVE " if clause.args.get("recursive") else ""
        if any(isinstance(cte.this, _ROW_STATEMENTS) for cte in clause.expressions):
            self._run_each(clause.expressions, named, recursive)
            return ""
        names = [cte.alias.lower() for cte in clause.expressions]
        if recursive:  # they see each other
            self.relations.hide(names)
        for cte, name in zip(clause.expressions, names, strict=True):
            self.relations.resolve(cte.this)
            self.relations.hide([name])
        return f"WITH {recursive}{', '.join(map(spark_sql, clause.expressions))} "

    def _run_each(self, ctes: Sequence[Tree], named: Sequence[str], recursive: str) -> None:
        """Each part sees what those before it gave. A query that is named several times is computed once, as in
        PostgreSQL, or each of them might find other rows."""
        for cte in ctes:
            name, scope = cte.alias.lower(), self.relations.scope()
            if [other.alias.lower() for other in ctes].count(name) > 1:
                raise self._refused(f"has two parts of the name {cte.alias} in its WITH clause", cte)
            if isinstance(cte.this, _ROW_STATEMENTS):
                start = start_of(cte.this)
                inner = Runner(self.session, replace(self.parsed, tree=cte.this, explain=False, start=start))
                inner.relations = scope
                self.relations.known[name] = self._renamed(cte, inner.run().frame)
                continue
            readers = named.count(name) - _tables_in(cte).count(name)
            scope.hide([name] if recursive else [])
            scope.resolve(cte.this)
            frame = scope.run(f"WITH {recursive}{spark_sql(cte)} SELECT * FROM {quoted(cte.alias)}")
            self.relations.known[name] = frame.localCheckpoint() if readers > 1 else frame

    def _renamed(self, cte: Tree, frame: Any) -> Any:
        """What a statement returned, under the names that the WITH clause has for the first of its columns; None
        without RETURNING."""
        asked = [column.name for column in cte.args["alias"].columns]
        names = [] if frame is None else frame.columns
        if len(asked) > len(names):
            raise self._refused(f"names {len(asked)} columns of {cte.alias}, which returns {len(names)}", cte)
        return frame.toDF(*asked, *names[len(asked) :]) if asked else frame

    def _query(self, tree: Tree, ctes: str = "") -> Any:
        self.relations.resolve(tree)
        text = spark_sql(tree)
        return self.relations.run(f"{ctes}SELECT * FROM ({text})" if ctes and tree.args.get("with_") else ctes + text)

    # --- Rows

    def _table(self, tree: Tree) -> TableState:
        name = table_name(tree)
        state = self.session.find(name)
        if state is None:
            raise TableNotFound(name)
        return state

    def _row_statement(self, tree: Tree, ctes: str) -> RowStatement:
        table = self._changed_table(tree.this)
        return RowStatement(self.parsed, self.relations, target_of(table, self._table(table), self.parsed), ctes)

    def _changed_table(self, tree: Tree) -> Tree:
        """The table that a statement changes: its name, and nothing besides."""
        table = tree.this if isinstance(tree, exp.Schema) else tree
        if not isinstance(table, exp.Table):
            raise self._refused("does not name a table to change", tree if isinstance(tree, exp.Expr) else None)
        for name, value in table.args.items():
            if value and name not in ("this", "db", "catalog", "alias", "only"):
                raise self._refused(f"has {name.strip('_').upper()} of {table_name(table)}, which it changes", table)
        alias = table.args.get("alias")
        if alias is not None and alias.columns:
            why = f"has other names for columns of {table_name(table)}, which it changes: leave them out"
            raise self._refused(why, alias.columns[0])
        return table

    def _planned(self, rows: RowStatement) -> Change:
        match self.parsed.tree:
            case exp.Update():
                return rows.update()
            case exp.Delete():
                return rows.delete()
        return rows.merge()

    def _changed(self, tree: Tree, ctes: str) -> Result:
        return self._change(self._row_statement(tree, ctes))

    def _change(self, rows: RowStatement, change: Change | None = None) -> Result:
        outcome = self.session.change(rows.target.state, change or self._planned(rows))
        return Result(outcome.returned, rows.target.state, outcome.metrics)

    def _truncate(self, tree: Tree, _: str) -> Result:
        states = [self._table(self._changed_table(table)) for table in tree.expressions]
        if len({state.table_id for state in states}) < len(states):
            raise self._refused("names a table twice", tree.expressions[1])
        change = Change("DELETE", Statement((Clause("DELETE"),)), None, {"predicate": "[]"})
        found = [self.session.change(state, change).metrics for state in states]
        return Result(None, states[0], found[0]) if len(states) == 1 else Result()

    # --- INSERT

    def _insert(self, tree: Tree, ctes: str) -> Result:
        rows = self._row_statement(tree, ctes)
        named = tree.this.expressions if isinstance(tree.this, exp.Schema) else None
        columns, frame = self._given(tree, rows, named)
        if tree.args.get("conflict"):
            return self._change(rows, self._on_conflict(tree.args["conflict"], rows, columns, frame))
        if tree.args.get("returning"):
            return self._change(rows, self._returning(rows, columns, frame))
        state = rows.target.state
        return Result(None, state, self.session.append(state, frame, reads_itself=rows.reads_itself()))

    def _given(self, tree: Tree, rows: RowStatement, named: Sequence[Tree] | None) -> tuple[list[str], Any]:
        """The columns that an INSERT fills, and a frame with just these."""
        target = rows.target
        columns = [target.column(c.name, c)["name"] for c in named] if named is not None else target.columns
        if len(set(columns)) < len(columns):
            raise self._refused("names a column twice", tree.this)
        query = _all_default(columns) if tree.args.get("default") else tree.expression
        if query is None:
            raise self._refused("gives no rows: VALUES (…) or a SELECT", tree.this)
        if isinstance(query, exp.Values):
            columns = _without_generated(query, target, columns)
            query = self._values(query, target, columns)
        frame = self._query(query, rows.ctes)
        given = len(frame.columns)
        if given > len(columns) or (named is not None and given < len(columns)):
            raise self._refused(f"gives {given} values for {len(columns)} columns", tree.expression)
        return columns[:given], frame.toDF(*columns[:given])

    def _values(self, values: Tree, target: StatementTarget, columns: Sequence[str]) -> Tree:
        """VALUES with what DEFAULT stands for. Literals have no type in PostgreSQL, so a column may have texts among
        numbers: all of them are texts then."""
        for row in _rows_of(values):
            for item, name in zip(row, columns, strict=False):
                found = default_of(target.column(name), item)
                if found is not item:
                    item.replace(exp.Null() if found is None else found)
        for items in zip_longest(*_rows_of(values), fillvalue=exp.Null()):
            texts = [isinstance(item, exp.Literal) and item.is_string for item in items]
            for item, is_text in zip(items, texts, strict=True):
                if any(texts) and not is_text and not isinstance(item, exp.Null):
                    item.replace(exp.cast(item.copy(), "text"))
        if values.find(*_COMPUTED) is not None:
            return _as_selects(values)
        return exp.select("*").from_(exp.alias_(values, "v", table=True) if not values.alias else values)

    def _on_conflict(self, conflict: Tree, rows: RowStatement, columns: Sequence[str], frame: Any) -> Change:
        """Rows that are there already, by their keys, are updated or stay; the others come in."""
        from deltasql.engines.spark.dml.assignment import typed_rows

        named = [_bare(key) for key in conflict.args.get("conflict_keys") or ()]
        keys = [rows.target.column(key.name, key)["name"] for key in named]
        if not keys:
            raise self._refused("names no keys: lake tables have none of their own, write ON CONFLICT (id) …", conflict)
        lacking = [key for key in keys if key not in columns]
        if lacking:
            raise self._refused(f"gives no value for the key {', '.join(lacking)}", conflict)
        action = conflict.args.get("action")
        updates = action is not None and "UPDATE" in str(action).upper()
        columns, frame = _filled(frame, rows.target, columns)
        frame = typed_rows(frame, [rows.target.column(name) for name in columns], rows.target.state.name)
        source = _first_of_each(frame, keys) if not updates else self._unique(frame, keys)
        names = (rows.target.name, EXCLUDED)
        pairs = [
            [exp.column(exp.to_identifier(key, True), exp.to_identifier(name, True)) for name in names] for key in keys
        ]
        on = exp.and_(*(exp.EQ(this=left, expression=right) for left, right in pairs))
        given = {c: exp.column(exp.to_identifier(c, True), exp.to_identifier(EXCLUDED, True)) for c in columns}
        clauses = [Clause(INSERT, NOT_MATCHED, None, given)]
        if updates:
            where = conflict.args.get("where")
            values = dict(rows.assignments(conflict.expressions))
            clauses.append(Clause(UPDATE, MATCHED, where.this if where else None, values))
        return rows.merged(EXCLUDED, source, on, clauses)

    def _unique(self, frame: Any, keys: Sequence[str]) -> Any:
        """PostgreSQL refuses to update a row twice, and so does this."""
        twice = frame.where(_all_there(keys)).groupBy(*map(quoted, keys)).count().where("count > 1").limit(3).collect()
        if twice:
            shown = "; ".join(", ".join(f"{key}={row[key]!r}" for key in keys) for row in twice)
            raise UsageError(
                f"ON CONFLICT DO UPDATE cannot change a row twice: several given rows have the key {shown}"
            )
        return frame

    def _returning(self, rows: RowStatement, columns: Sequence[str], frame: Any) -> Change:
        """An INSERT that shows its rows: they are a change like others, of no row that was there."""
        target = rows.target
        places = f"CAST(NULL AS BIGINT) AS {FILE}, CAST(NULL AS BIGINT) AS {ROW}"
        raw = ", ".join(f"{quoted(c)} AS {quoted(raw_name(0, c))}" for c in columns)
        view = self.relations.add(frame)

        def found(empty: Any, *_: Any, **__: Any) -> Any:
            no_row = (
                f"(SELECT first(struct({', '.join(map(quoted, target.columns))})) FROM {self.relations.add(empty)})"
            )
            return self.relations.run(f"SELECT {places}, {no_row} AS {quoted(target.name)}, {raw} FROM {view}")

        clause = Clause(INSERT, NOT_MATCHED, None, dict.fromkeys(columns))
        statement = Statement((clause,), queries=rows.queries(found, []))
        parameters = {"mode": "Append", "partitionBy": json.dumps([])}
        return Change(WRITE, statement, None, parameters, rows.reads_itself())

    # --- COPY and EXPLAIN

    def _copy(self, tree: Tree, _: str) -> Result:
        if not tree.args.get("kind"):
            raise self._refused("copies out of a table: only COPY … FROM is supported; t.df() gives its rows")
        table = self._changed_table(tree.this)
        target = target_of(table, self._table(table), self.parsed)
        named = tree.this.expressions if isinstance(tree.this, exp.Schema) else None
        columns = [target.column(c.name, c)["name"] for c in named] if named else target.columns
        rows = copied_rows(self.session.spark, self.parsed, columns, named=named is not None)
        return Result(None, target.state, self.session.append(target.state, rows))

    def _explained(self, tree: Tree, ctes: str) -> Result:
        if isinstance(tree, exp.Query):
            self._query(tree, ctes)  # or a query that cannot be run would be explained by its error
            return Result(self.relations.run(f"EXPLAIN {ctes}{spark_sql(tree)}"))
        if not isinstance(tree, exp.Update | exp.Delete | exp.Merge):
            raise self._refused(
                "cannot be explained: EXPLAIN is for SELECT, UPDATE, DELETE and MERGE; of an INSERT explain its query"
            )
        rows = self._row_statement(tree, ctes)
        change, state = self._planned(rows), rows.target.state
        lines = [f"{change.operation} on {state.name} at version {state.version}"]
        lines.append(f"  files are told apart by: {change.own or 'nothing, all of them are read'}")
        lines.append(f"  {self.session.explain(state, change)}")
        return Result(self.session.spark.createDataFrame([("\n".join(lines),)], "plan STRING"))

    def _refused(self, why: str, at: Tree | None = None) -> Exception:
        return self.parsed.refused(f"it {why}", at)


_KINDS: dict[Any, Callable[[Runner, Tree, str], Result]] = {
    (exp.Query, exp.Values): Runner._select,
    exp.Insert: Runner._insert,
    (exp.Update, exp.Delete, exp.Merge): Runner._changed,
    exp.TruncateTable: Runner._truncate,
    exp.Copy: Runner._copy,
    (exp.Create, exp.Drop, exp.Alter): Runner._define,
}


def _filled(frame: Any, target: StatementTarget, columns: Sequence[str]) -> tuple[list[str], Any]:
    """Given rows with the columns that are left out: what their default is, or null. Generated ones follow later."""
    lacking = {
        f["name"]: (f.get("metadata") or {})
        for f in target.fields
        if f["name"] not in columns and GENERATED not in (f.get("metadata") or {})
    }
    more = [f"{metadata.get(DEFAULT, 'NULL')} AS {quoted(name)}" for name, metadata in lacking.items()]
    return [*columns, *lacking], frame.selectExpr("*", *more)


def _as_selects(values: Tree) -> Tree:
    """The rows of VALUES, each as a query."""
    selects = [exp.select(*(item.copy() for item in row)) for row in _rows_of(values)]
    return exp.union(*selects, distinct=False) if len(selects) > 1 else selects[0]


def _tables_in(tree: Tree) -> list[str]:
    """The names of tables in a tree, as often as they are there."""
    return [table_name(table).lower() for table in tree.find_all(exp.Table)]


def _all_default(columns: Sequence[str]) -> Tree:
    """A row that names no value."""
    return exp.Values(expressions=[exp.Tuple(expressions=[exp.Var(this="DEFAULT") for _ in columns])])


def _without_generated(values: Tree, target: StatementTarget, columns: list[str]) -> list[str]:
    """DEFAULT of a generated column is what it follows from others: as if it were not named."""
    rows = _rows_of(values)
    dropped = [
        place
        for place, name in enumerate(columns)
        if GENERATED in (target.column(name).get("metadata") or {})
        and all(place < len(row) and is_default(row[place]) for row in rows)
    ]
    for row in values.expressions if dropped else ():
        row.set("expressions", [item for place, item in enumerate(row.expressions) if place not in dropped])
    return [name for place, name in enumerate(columns) if place not in dropped]


def _rows_of(values: Tree) -> list[list[Tree]]:
    return [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in values.expressions]


def _bare(key: Tree) -> Tree:
    return key.this if isinstance(key, exp.Ordered) else key


def _column(name: str, table: str) -> Tree:
    return exp.column(exp.to_identifier(name, True), exp.to_identifier(table, True))


def _all_there(keys: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(key)} IS NOT NULL" for key in keys)


def _first_of_each(frame: Any, keys: Sequence[str]) -> Any:
    """Of rows with the same key one; null is the same as nothing."""
    there = _all_there(keys)
    return frame.where(there).dropDuplicates(list(keys)).union(frame.where(f"NOT ({there})"))
