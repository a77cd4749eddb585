"""Run statements: dispatch each kind to an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from sqlglot import exp

from deltasql.engines.row_change import DELETE, Clause, RowChange
from deltasql.errors import TableNotFound
from deltasql.operations.dml import Change, Outcome
from deltasql.operations.write import WriteOptions
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import Json
from deltasql.protocol.table_changes import TableState
from deltasql.sql.copy import copied_rows, copy_path
from deltasql.sql.copy_out import write_rows
from deltasql.sql.dml.inserts import InsertStatement
from deltasql.sql.dml.row_statements import RowStatement
from deltasql.sql.dml.statement_target import target_of
from deltasql.sql.dml.with_order import ROW_STATEMENTS, reject_visible_order
from deltasql.sql.meaning import Meaning, PostgresMeaning, TypedColumn
from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.positions import start_of
from deltasql.sql.relations import Relations, table_name
from deltasql.sql.statement_failures import explained

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""Settings of Spark on which the translation of expressions relies; all are Spark's defaults."""


class StatementContext(Protocol):
    """The operations that statements need from a lake or a transaction."""

    @property
    def spark(self) -> Any:
        """The Spark session."""

    def check_file(self, name: str, path: str) -> None:
        """Raise `UsageError` for a file in a FROM clause that statements may not read."""

    def check_path(self, path: str) -> None:
        """Raise `UsageError` for a file outside of the allowed roots."""

    def find(self, name: str) -> TableState | None:
        """Return the table of a name, or None."""

    def required(self, name: str) -> TableState:
        """Return the table of a name, or raise TableNotFound."""

    def missing(self, name: str) -> TableNotFound:
        """Return the error about a table that does not exist."""

    def frame(self, state: TableState, version: int | None, timestamp: str | None) -> Any:
        """Return the rows of a table."""

    def change(self, state: TableState, change: Change) -> Outcome:
        """Change a table's rows."""

    def explain(self, state: TableState, change: Change) -> str:
        """Return one line about the files that a change would read."""

    def write(
        self, state: TableState, rows: Any, options: WriteOptions, *, reads_itself: bool = False
    ) -> Mapping[str, str]:
        """Write rows to a table."""

    def evolve(self, state: TableState, fields: Sequence[Json]) -> TableState:
        """Give a table more columns and fields, and return its state."""

    def define(self, parsed: Parsed, meaning: Meaning, rows: Callable[[Tree], Any]) -> None:
        """CREATE, DROP or ALTER a table."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement: rows, or the changed table with metrics."""

    frame: Any = None
    table: TableState | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Runner:
    """Runs one statement in a session."""

    session: StatementContext
    parsed: Parsed

    def __post_init__(self) -> None:
        session, values = self.session, self.parsed.values
        self.relations = Relations(
            session.spark, session.find, session.missing, session.check_file, session.frame, values
        )
        if self.parsed.dialect == "postgres":
            relations = self.relations
            relations.meaning = PostgresMeaning(
                self.parsed.text, values, relations.type_of, relations.columns, relations.time_zone
            )

    def run(self) -> Result:
        """Run the statement and stage its changes; the caller commits."""
        tree = self.parsed.tree
        tables = {table.alias_or_name for table in tree.find_all(exp.Table, exp.Subquery)}
        translation = partial(explained, self.parsed.text, tables, files=isinstance(tree, exp.Copy))
        with translation(), self._settings():
            result = self._run(tree)
        if result.frame is None:
            return result
        from deltasql.engines.spark.query_rows import with_translated_errors

        return replace(result, frame=with_translated_errors(result.frame, translation))

    def _settings(self) -> AbstractContextManager[None]:
        """Return the settings with which Spark analyses the expressions of PostgreSQL."""
        from deltasql.engines.spark.session import with_settings

        is_translated = self.parsed.dialect == "postgres" and not isinstance(self.parsed.tree, exp.Drop)
        return with_settings(self.session.spark, _SETTINGS) if is_translated else nullcontext()

    def _run(self, tree: Tree) -> Result:
        self._reject_unsupported(tree)
        if self.parsed.explain and any(isinstance(cte.this, ROW_STATEMENTS) for cte in tree.find_all(exp.CTE)):
            raise self._rejected("changes rows in its WITH clause: explain these statements by themselves")
        self._run_with(tree)
        if self.parsed.explain:
            return self._explained(tree)
        for kinds, run in _KINDS.items():
            if isinstance(tree, kinds):
                return run(self, tree)
        raise self._rejected(f"is not supported: {type(tree).__name__.upper()}")

    def _reject_unsupported(self, tree: Tree) -> None:
        lock = tree.find(exp.Lock)
        if lock is not None:
            at = lock if lock.expressions else lock.parent
            raise self.parsed.rejected(f"{_lock_words(lock)} is not supported; conflicts are detected at commit", at)
        into = tree.find(exp.Into)
        if into is not None and isinstance(into.parent, exp.Select):
            raise self._rejected("selects INTO a table: write CREATE TABLE … AS SELECT", into)

    def _define(self, _: Tree) -> Result:
        self.session.define(self.parsed, self.relations.meaning, self._query)
        return Result()

    # --- Queries

    def _select(self, tree: Tree) -> Result:
        frame = self._query(tree)
        return Result(_held(frame) if self.relations.known else frame)  # the WITH clause may change the rows

    def _run_with(self, tree: Tree) -> None:
        """Run the parts of the WITH clause of a statement that changes rows, or whose WITH clause does."""
        clause = tree.args.get("with_")
        if clause is None:
            return
        changes_rows = isinstance(tree, ROW_STATEMENTS)
        if changes_rows or any(isinstance(cte.this, ROW_STATEMENTS) for cte in clause.expressions):
            reject_visible_order(self.parsed, tree, self._table_id)
            named = _tables_in(tree)
            tree.set("with_", None)
            self._run_each(clause.expressions, named, recursive=bool(clause.args.get("recursive")))

    def _table_id(self, name: str) -> str:
        state = self.session.find(name)
        return name.lower() if state is None else state.table_id

    def _run_each(self, ctes: Sequence[Tree], named: Sequence[str], *, recursive: bool) -> None:
        """Register the parts of a WITH clause as frames, each of which sees those before it.

        A query that is read several times is computed once, as in PostgreSQL: it may be nondeterministic.
        """
        for cte in ctes:
            name, scope = cte.alias.lower(), self.relations.scope()
            if [other.alias.lower() for other in ctes].count(name) > 1:
                raise self._rejected(f"has two queries named {cte.alias} in its WITH clause", cte)
            if isinstance(cte.this, ROW_STATEMENTS):
                start = start_of(cte.this)
                inner = Runner(self.session, replace(self.parsed, tree=cte.this, explain=False, start=start))
                inner.relations = scope
                self.relations.known[name] = self._renamed(cte, inner.run().frame)
                continue
            readers = named.count(name) - _tables_in(cte).count(name)
            clause = exp.With(expressions=[cte.copy()], recursive=recursive)
            query = exp.select("*").from_(exp.to_table(quoted(cte.alias), dialect="spark"))
            query.set("with_", clause)
            frame = scope.run(scope.query(query))
            computed_once = readers > 1 and not self.parsed.explain
            self.relations.known[name] = _held(frame) if computed_once else frame

    def _renamed(self, cte: Tree, frame: Any) -> Any:
        """Return the rows of a statement with the column names of the WITH clause; None without RETURNING."""
        aliases = [column.name for column in cte.args["alias"].columns]
        names = [] if frame is None else frame.columns
        if len(aliases) > len(names):
            raise self._rejected(f"names {len(aliases)} columns of {cte.alias}, which returns {len(names)}", cte)
        return frame.toDF(*aliases, *names[len(aliases) :]) if aliases else frame

    def _query(self, tree: Tree, targets: Sequence[TypedColumn] = ()) -> Any:
        return self.relations.run(self.relations.query(tree, targets))

    # --- Rows

    def _table(self, tree: Tree) -> TableState:
        return self.session.required(table_name(tree))

    def _row_statement(self, tree: Tree) -> RowStatement:
        table = self._changed_table(tree.this)
        return RowStatement(self.parsed, self.relations, target_of(table, self._table(table), self.parsed))

    def _changed_table(self, tree: Tree) -> Tree:
        """Return the table that a statement changes; reject anything besides its name and alias."""
        table = tree.this if isinstance(tree, exp.Schema) else tree
        if not isinstance(table, exp.Table):
            raise self._rejected("does not name a table to change", tree if isinstance(tree, exp.Expr) else None)
        for name, value in table.args.items():
            if value and name not in ("this", "db", "catalog", "alias", "only"):
                raise self._rejected(f"has {name.strip('_').upper()} of {table_name(table)}, which it changes", table)
        alias = table.args.get("alias")
        if alias is not None and alias.columns:
            why = f"renames columns of {table_name(table)}, which it changes: leave the names out"
            raise self._rejected(why, alias.columns[0])
        return table

    def _planned(self, rows: RowStatement) -> Change:
        match self.parsed.tree:
            case exp.Update():
                return rows.update()
            case exp.Delete():
                return rows.delete()
        return rows.merge()

    def _changed(self, tree: Tree) -> Result:
        rows = self._row_statement(tree)
        return self._change(self._evolved(rows) if self.parsed.evolves else rows)

    def _evolved(self, rows: RowStatement) -> RowStatement:
        """Add the columns of the source that the table lacks to the table: MERGE WITH SCHEMA EVOLUTION."""
        fields = rows.evolved_fields()
        if fields is None:
            return rows
        target = replace(rows.target, state=self.session.evolve(rows.target.state, fields))
        return RowStatement(self.parsed, self.relations, target)

    def _change(self, rows: RowStatement, change: Change | None = None) -> Result:
        outcome = self.session.change(rows.target.state, change or self._planned(rows))
        return Result(outcome.returned, rows.target.state, outcome.metrics)

    def _truncate(self, tree: Tree) -> Result:
        states = [self._table(self._changed_table(table)) for table in tree.expressions]
        if len({state.table_id for state in states}) < len(states):
            raise self._rejected("names a table twice", tree.expressions[1])
        change = Change(DELETE, RowChange((Clause(DELETE),)), None, {"predicate": "[]"})
        metrics = [self.session.change(state, change).metrics for state in states]
        return Result(None, states[0], metrics[0]) if len(states) == 1 else Result()

    # --- INSERT

    def _insert(self, tree: Tree) -> Result:
        rows = self._row_statement(tree)
        insert = InsertStatement(tree, rows, self._query)
        columns, frame = insert.given()
        if tree.args.get("conflict"):
            return self._change(rows, insert.on_conflict(columns, frame))
        if tree.args.get("returning"):
            return self._change(rows, insert.returning(columns, frame))
        state, options = rows.target.state, insert.options()
        return Result(None, state, self.session.write(state, frame, options, reads_itself=rows.reads_itself()))

    # --- COPY and EXPLAIN

    def _copy(self, tree: Tree) -> Result:
        self.session.check_path(copy_path(self.parsed))
        if not tree.args.get("kind"):
            return self._copy_out(tree)
        table = self._changed_table(tree.this)
        target = target_of(table, self._table(table), self.parsed)
        named = tree.this.expressions if isinstance(tree.this, exp.Schema) else None
        columns = [target.column(c.name, c)["name"] for c in named] if named else target.columns
        rows = copied_rows(self.session.spark, self.parsed, columns, named=named is not None)
        return Result(None, target.state, self.session.write(target.state, rows, WriteOptions(assign=True)))

    def _copy_out(self, tree: Tree) -> Result:
        given = tree.this
        if isinstance(given, exp.Subquery):
            query = given.this
        else:
            named = given.expressions if isinstance(given, exp.Schema) else None
            table = given.this if isinstance(given, exp.Schema) else given
            columns: list[Tree] = [exp.column(exp.to_identifier(one.name, quoted=True)) for one in named or ()]
            query = exp.select(*(columns or [exp.Star()])).from_(table.copy())
        count = write_rows(self._query(query), self.parsed)
        return Result(metrics={"numOutputRows": str(count)})

    def _explained(self, tree: Tree) -> Result:
        if isinstance(tree, exp.Query):
            text = self.relations.query(tree)
            self.relations.run(text)  # raises the error of a query that cannot be run
            return Result(self.relations.run(f"EXPLAIN {text}"))
        if not isinstance(tree, exp.Update | exp.Delete | exp.Merge):
            raise self._rejected(
                "cannot be explained: EXPLAIN supports SELECT, UPDATE, DELETE and MERGE, or the query of an INSERT"
            )
        rows = self._row_statement(tree)
        change, state = self._planned(rows), rows.target.state
        lines = [f"{change.operation} on {state.name} at version {state.version}"]
        lines.append(f"  files pruned by: {change.pruning or 'nothing, all files are read'}")
        lines.append(f"  {self.session.explain(state, change)}")
        return Result(self.session.spark.createDataFrame([("\n".join(lines),)], "plan STRING"))

    def _rejected(self, why: str, at: Tree | None = None) -> Exception:
        return self.parsed.rejected(f"it {why}", at)


_KINDS: dict[Any, Callable[[Runner, Tree], Result]] = {
    (exp.Query, exp.Values): Runner._select,
    exp.Insert: Runner._insert,
    (exp.Update, exp.Delete, exp.Merge): Runner._changed,
    exp.TruncateTable: Runner._truncate,
    exp.Copy: Runner._copy,
    (exp.Create, exp.Drop, exp.Alter): Runner._define,
}


def _held(frame: Any) -> Any:
    from deltasql.engines.spark.held_rows import hold

    return hold(frame)


def _tables_in(tree: Tree) -> list[str]:
    """Return the names of tables in a tree, with duplicates."""
    return [table_name(table).lower() for table in tree.find_all(exp.Table)]


def _lock_words(lock: Tree) -> str:
    return "FOR UPDATE" if lock.args.get("update") else "FOR SHARE"
