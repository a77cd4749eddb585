"""Run the operations of statements in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from deltasql.engines.row_change import UPDATE, Clause, RowChange
from deltasql.errors import TableExists, TableNotFound, UsageError
from deltasql.operations import alter
from deltasql.operations.allowed_roots import check_allowed_files
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.create import TableSpec
from deltasql.operations.dml import Change, Outcome, RowChanger
from deltasql.operations.write import TableWriter, WriteOptions, fields_of
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import Json
from deltasql.protocol.schema_fit import DEFAULT, GENERATED
from deltasql.protocol.table_changes import Reads, TableState
from deltasql.sql.ddl_statements import Definition, alteration, definition
from deltasql.sql.meaning import Meaning, columns_of_fields
from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.relations import table_name
from deltasql.store import Store


@dataclass
class TransactionSession:
    """The operations of statements in one transaction."""

    txn: MultiTableTransaction
    store: Store
    writer: TableWriter
    changer: RowChanger
    spark_session: Callable[[], Any]
    read: Callable[[TableState, int | None, str | None], Any]
    create: Callable[[str, TableSpec], TableState]
    replace: Callable[[TableState, TableSpec], None]
    """Gives a table another definition and other rows."""
    drop: Callable[[str], object] | None = None
    """Drops a table at once; None in a transaction, which could not undo it."""
    names: dict[str, str] = field(default_factory=dict)
    """The names of changed tables as the statements write them, by table id."""
    _written: dict[str, str] = field(default_factory=dict)
    """The names of all tables as the statements write them, by table id."""

    @property
    def spark(self) -> Any:
        return self.spark_session()

    def check_file(self, name: str, path: str) -> None:
        """Reject a file as a table unless files are allowed: a statement may come from anyone."""
        if not self.store.config["sql.allow_files"]:
            raise UsageError(
                f"statements cannot read files, got {name}: set sql.allow_files to on, or use COPY", value=name
            )
        self.check_path(path)

    def check_path(self, path: str) -> None:
        check_allowed_files(path, self.store.config["storage.allowed_roots"])

    def find(self, name: str) -> TableState | None:
        """Return a table by its name in any case."""
        state = self.txn.find_or_none(name)
        if state is not None:
            self._written.setdefault(state.table_id, name)
        return state

    def required(self, name: str) -> TableState:
        """Return a table by its name in any case.

        Raises:
            TableNotFound: The table does not exist.
        """
        state = self.find(name)
        if state is None:
            raise self.missing(name)
        return state

    def missing(self, name: str) -> TableNotFound:
        """Return the error about a table that does not exist."""
        return TableNotFound(name, self.store.closest_table(name))

    def frame(self, state: TableState, version: int | None, timestamp: str | None) -> Any:
        return self.read(state, version, timestamp)

    def change(self, state: TableState, change: Change) -> Outcome:
        outcome = self.changer.change(self.txn, state, change, translate_errors=False)
        if outcome.changed:
            self._changed(state)
        return outcome

    def _changed(self, state: TableState) -> None:
        self.names[state.table_id] = self._written.get(state.table_id, state.name)

    def explain(self, state: TableState, change: Change) -> str:
        return self.changer.explain(self.txn, state, change)

    def write(
        self, state: TableState, rows: Any, options: WriteOptions, *, reads_itself: bool = False
    ) -> Mapping[str, str]:
        given = _with_nulls(rows, fields_of(state))
        metrics = self.writer.write(self.txn, state, given, options, translate_errors=False)
        if reads_itself:
            self.txn.stage_on(state, [], reads=Reads(whole_table=True))
        self._changed(state)
        return metrics

    def evolve(self, state: TableState, fields: Sequence[Json]) -> TableState:
        alter.evolve(self.txn, self.txn.state_of(state), fields)
        self._changed(state)
        return self.txn.state_of(state)

    def define(self, parsed: Parsed, meaning: Meaning, rows: Callable[[Tree], Any]) -> None:
        tree = parsed.tree
        if isinstance(tree, exp.Create):
            self._create(definition(parsed, meaning, self.required), rows)
        elif isinstance(tree, exp.Drop):
            self._drop(parsed)
        else:
            self._alter(parsed, meaning)

    def _create(self, table: Definition, rows: Callable[[Tree], Any]) -> None:
        found = self.find(table.name)
        if found is not None and not table.replace:
            if table.if_not_exists:
                return
            raise TableExists(table.name)
        spec = table.spec if table.query is None else replace(table.spec, as_=rows(table.query))
        if found is not None:
            self.replace(found, spec)
        state = found or self.create(table.name, spec)
        self._changed(state)

    def _drop(self, parsed: Parsed) -> None:
        tree = parsed.tree
        if tree.args.get("kind", "").upper() != "TABLE":
            raise parsed.rejected("only DROP TABLE is supported")
        if self.drop is None:
            raise UsageError("DROP TABLE cannot be part of a transaction: run it with lake.sql(…)")
        names = [table_name(table) for table in tree.args.get("tables") or [tree.this]]
        found = {name: self.find(name) for name in names}
        lacking = [name for name, state in found.items() if state is None]
        if lacking and not tree.args.get("exists"):
            raise self.missing(lacking[0])
        for name in dict.fromkeys(state.name for state in found.values() if state is not None):
            self.drop(name)

    def _alter(self, parsed: Parsed, meaning: Meaning) -> None:
        name = table_name(parsed.tree.this)
        if parsed.tree.args.get("exists") and self.find(name) is None:
            return
        state = self.required(name)
        changes = alteration(parsed, meaning, columns_of_fields(fields_of(state)))
        if changes.properties:
            alter.set_properties(self.txn, state, changes.properties)
        for constraint, if_exists in changes.dropped_constraints:
            if not (if_exists and not alter.has_constraint(self.txn.state_of(state), constraint)):
                alter.drop_constraint(self.txn, self.txn.state_of(state), constraint)
        known = {field["name"].lower() for field in fields_of(self.txn.state_of(state))}
        new = [one for one in changes.columns if not (one.if_not_exists and one.field["name"].lower() in known)]
        if new:
            alter.add_columns(self.txn, self.txn.state_of(state), [one.field for one in new])
        for one in new:
            if one.default is not None:
                self._fill(self.txn.state_of(state), one.field["name"], one.default)
        for column, default in changes.defaults.items():
            alter.set_default(self.txn, self.txn.state_of(state), column, default)
            self._check_default(self.txn.state_of(state), column, default)
        for constraint, condition in changes.constraints:
            current = self.txn.state_of(state)
            free = constraint or alter.unused_constraint_name(current)
            alter.add_constraint(self.txn, current, free, condition, self.read(state, None, None))
        self._changed(state)

    def _fill(self, state: TableState, column: str, default: str) -> None:
        """Give a new column its default in all rows, and for rows to come."""
        alter.check_default(state, column, default)
        values = {column: default}
        change = Change(UPDATE, RowChange((Clause(UPDATE, values=values),)), None, {"predicate": "[]"})
        self.change(state, change)
        alter.set_default(self.txn, self.txn.state_of(state), column, default)

    def _check_default(self, state: TableState, column: str, default: str | None) -> None:
        """Fail if a default cannot be cast to the type of its column."""
        from deltasql.engines.spark.row_shape import ddl
        from deltasql.engines.spark.sql_text import verbatim

        if default is not None:
            [kind] = [f["type"] for f in fields_of(state) if f["name"].lower() == column.lower()]
            self.spark.sql(verbatim(f"SELECT CAST({default} AS {ddl(kind)})")).collect()


def _with_nulls(rows: Any, fields: Sequence[Mapping[str, Any]]) -> Any:
    """Add NOT NULL columns that are left out as null, so that the constraint is reported."""
    given = {name.lower() for name in rows.columns}
    lacking = [
        f"NULL AS {quoted(field['name'])}"
        for field in fields
        if field["name"].lower() not in given
        and not field.get("nullable", True)
        and not {DEFAULT, GENERATED} & (field.get("metadata") or {}).keys()
    ]
    return rows.selectExpr("*", *lacking) if lacking else rows
