"""INSERT: the given rows, and the changes of ON CONFLICT and RETURNING."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from deltasql.engines.row_change import INSERT, MATCHED, NOT_MATCHED, UPDATE, WRITE, Clause, Source
from deltasql.engines.spark.sql_text import verbatim
from deltasql.errors import UsageError
from deltasql.operations.dml import Change
from deltasql.operations.write import APPEND, OVERWRITE, WriteOptions
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema_fit import DEFAULT
from deltasql.sql.dml.assignments import assignments
from deltasql.sql.dml.column_scopes import column_of
from deltasql.sql.dml.insert_values import default_values, values_query, without_generated
from deltasql.sql.dml.row_statements import EXCLUDED, RowStatement
from deltasql.sql.dml.statement_target import StatementTarget, is_generated
from deltasql.sql.meaning import TypedColumn, columns_of_fields
from deltasql.sql.parse import Tree


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """An INSERT statement."""

    tree: Tree
    rows: RowStatement
    query: Callable[[Tree, Sequence[TypedColumn]], Any]
    """Runs a query for columns of the table and returns its frame."""

    def given(self) -> tuple[list[str], Any]:
        """Return the columns that the statement fills, and a frame with these columns."""
        tree, target = self.tree, self.rows.target
        named = tree.this.expressions if isinstance(tree.this, exp.Schema) else None
        if tree.args.get("by_name"):
            return self._by_name(named)
        columns = [target.column(c.name, c)["name"] for c in named] if named is not None else target.columns
        if len(set(columns)) < len(columns):
            raise self.rows.rejected("names a column twice", tree.this)
        query = default_values(columns) if tree.args.get("default") else tree.expression
        if query is None:
            raise self.rows.rejected("gives no rows: add VALUES (…) or a SELECT", tree.this)
        if isinstance(query, exp.Values):
            columns = without_generated(query, target, columns)
            query = values_query(query, target, columns)
        types = {column.name: column for column in columns_of_fields(target.fields)}
        frame = self.query(query, [types[name] for name in columns])
        count = len(frame.columns)
        if count > len(columns) or (named is not None and count < len(columns)):
            raise self.rows.rejected(f"gives {count} values for {len(columns)} columns", tree.expression)
        return columns[:count], frame.toDF(*columns[:count])

    def _by_name(self, named: Sequence[Tree] | None) -> tuple[list[str], Any]:
        """Return the rows of INSERT … BY NAME, whose columns have the names of the table's columns."""
        tree, target = self.tree, self.rows.target
        if named is not None or tree.expression is None or isinstance(tree.expression, exp.Values):
            raise self.rows.rejected("has BY NAME: give a query, and no list of columns", tree.this)
        frame = self.query(tree.expression, ())
        columns = [target.column(name, tree.expression)["name"] for name in frame.columns]
        if len(set(columns)) < len(columns):
            raise self.rows.rejected("gives a column twice", tree.expression)
        types = {column.name: column for column in columns_of_fields(target.fields)}
        given = exp.select(*(exp.column(exp.to_identifier(name, quoted=True)) for name in frame.columns))
        query = given.from_(exp.to_table(self.rows.relations.add(frame)))
        return columns, self.query(query, [types[name] for name in columns]).toDF(*columns)

    def options(self) -> WriteOptions:
        """Return how the rows are written: appended, or in place of all rows or of those of REPLACE WHERE."""
        where = self.tree.args.get("where")
        if where is None:
            return WriteOptions(mode=OVERWRITE if self.tree.args.get("overwrite") else APPEND, assign=True)
        return WriteOptions(mode=OVERWRITE, where=self.rows.condition_text(where), assign=True)

    def returning(self, columns: Sequence[str], frame: Any) -> Change:
        """Return the change that inserts rows and returns them."""
        values = {name: column_of(EXCLUDED, name) for name in columns}
        rows = self.rows.row_change([Clause(INSERT, NOT_MATCHED, None, values)], None, Source.of(frame, EXCLUDED))
        parameters = {"mode": "Append", "partitionBy": json.dumps([])}
        return Change(WRITE, rows, None, parameters, self.rows.reads_itself())

    def on_conflict(self, columns: Sequence[str], frame: Any) -> Change:
        """Return the change of ON CONFLICT: a merge by the keys."""
        from deltasql.engines.spark.dml.assignment import typed_rows

        rows, conflict = self.rows, self.tree.args["conflict"]
        target = rows.target
        keys = self._keys(conflict, columns)
        action = conflict.args.get("action")
        updates = action is not None and "UPDATE" in str(action).upper()
        columns, frame = _with_defaults(frame, target, columns)
        frame = typed_rows(frame, [target.column(name) for name in columns], target.state.name)
        unique = self._checked_unique(frame, keys) if updates else _first_of_each(frame, keys)
        pairs = [(column_of(target.name, key), column_of(EXCLUDED, key)) for key in keys]
        on = exp.and_(*(exp.EQ(this=left, expression=right) for left, right in pairs))
        clauses = [Clause(INSERT, NOT_MATCHED, None, {name: column_of(EXCLUDED, name) for name in columns})]
        if updates:
            where = conflict.args.get("where")
            values = assignments(target, conflict.expressions)
            clauses.append(Clause(UPDATE, MATCHED, where.this if where else None, values))
        return rows.merged(Source.of(unique, EXCLUDED), on, clauses)

    def _keys(self, conflict: Tree, columns: Sequence[str]) -> list[str]:
        items = conflict.args.get("conflict_keys") or ()
        named = [key.this if isinstance(key, exp.Ordered) else key for key in items]
        keys = [self.rows.target.column(key.name, key)["name"] for key in named]
        if not keys:
            raise self.rows.rejected(
                "names no keys: lake tables have no primary key, write ON CONFLICT (id) …", conflict
            )
        missing = [key for key in keys if key not in columns]
        if missing:
            raise self.rows.rejected(f"gives no value for the key {', '.join(missing)}", conflict)
        return keys

    def _checked_unique(self, frame: Any, keys: Sequence[str]) -> Any:
        """Reject given rows with the same key, as PostgreSQL does: DO UPDATE would change a row twice."""
        groups = frame.where(_not_null(keys)).groupBy(*map(quoted, keys)).count().where("count > 1")
        duplicates = groups.limit(3).collect()
        if duplicates:
            shown = "; ".join(", ".join(f"{key}={row[key]!r}" for key in keys) for row in duplicates)
            raise UsageError(
                f"ON CONFLICT DO UPDATE cannot change a row twice: several given rows have the key {shown}"
            )
        return frame


def _with_defaults(frame: Any, target: StatementTarget, columns: Sequence[str]) -> tuple[list[str], Any]:
    """Add the columns that are left out with their defaults or null; generated columns are computed later."""
    added = {
        f["name"]: (f.get("metadata") or {}).get(DEFAULT, "NULL")
        for f in target.fields
        if f["name"] not in columns and not is_generated(f)
    }
    values = [f"{default} AS {quoted(name)}" for name, default in added.items()]
    return [*columns, *added], frame.selectExpr("*", *map(verbatim, values))


def _not_null(keys: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(key)} IS NOT NULL" for key in keys)


def _first_of_each(frame: Any, keys: Sequence[str]) -> Any:
    """Keep one row of each key; rows with a null in the key are no duplicates."""
    complete = _not_null(keys)
    return frame.where(complete).dropDuplicates(list(keys)).union(frame.where(f"NOT ({complete})"))
