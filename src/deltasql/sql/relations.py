"""The tables that a statement names: tables of the lake become frames, Spark resolves the others."""

from __future__ import annotations

import datetime as dt
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from deltasql.engines.spark.sql_text import verbatim
from deltasql.errors import UsageError
from deltasql.protocol.table_changes import TableState
from deltasql.sql.meaning import Meaning, Scope, SparkMeaning, TypedColumn, columns_of_frame
from deltasql.sql.parameters import PARAMETER, literal
from deltasql.sql.parse import Tree
from deltasql.sql.spark_text import spark_sql

VIEW = f"__deltasql_{secrets.token_hex(8)}_view"
"""The prefix of the names of registered frames, which no statement can contain by accident."""
_numbers = itertools.count()
_INSTANT = "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"
# Spark reads files with these prefixes: FROM parquet."/data/x".
_FORMATS = {"parquet", "csv", "json", "orc", "text", "delta"}

Find = Callable[[str], TableState | None]
Missing = Callable[[str], Exception]
Frame = Callable[[TableState, int | None, str | None], Any]


@dataclass
class Relations:
    """The frames of one statement, by the names that its text has for them."""

    spark: Any
    find: Find
    missing: Missing
    """Makes the error about a table that does not exist."""
    check_file: Callable[[str, str], None]
    """Raises for a file that statements may not read, given the name in the statement and the path."""
    frame: Frame
    values: Mapping[str, Any]
    meaning: Meaning = field(default_factory=SparkMeaning)
    known: dict[str, Any] = field(default_factory=dict)
    """The frames of the statement's WITH clause, by name."""
    local: set[str] = field(default_factory=set)
    """The names of CTEs that are part of the query text."""
    frames: dict[str, Any] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    """The ids of the lake tables that the statement reads."""

    def scope(self) -> Relations:
        """Return relations for a part of the statement, whose names do not leave it."""
        return replace(self, known=dict(self.known), local=set(self.local))

    def hide(self, names: Iterable[str]) -> None:
        """Treat these names as CTEs from here on."""
        for name in names:
            self.local.add(name)
            self.known.pop(name, None)

    def add(self, frame: Any) -> str:
        """Register a frame and return its name."""
        name = f"{VIEW}{next(_numbers)}_"
        self.frames[name] = frame
        return name

    def expression(self, tree: Tree) -> str:
        """Return an expression in Spark SQL, with literals as parameters."""
        return self._bound(spark_sql(tree))

    def query(self, tree: Tree, targets: Sequence[TypedColumn] = ()) -> str:
        """Return a query in Spark SQL; its rows are for these columns of a table, if there are any."""
        self.resolve(tree)
        return spark_sql(self.meaning.query(tree, targets))

    def columns(self, table: Tree) -> list[TypedColumn]:
        """Return the columns of a table or of a function of Spark."""
        frame = self.frames.get(table.name) if isinstance(table.this, exp.Identifier) else None
        if frame is None:
            plain = table.copy()
            for part in ("alias", "joins", "laterals"):
                plain.set(part, None)
            frame = self.spark.sql(f"SELECT * FROM {spark_sql(plain)}")
        return columns_of_frame(frame)

    def time_zone(self) -> str:
        """Return the time zone of the Spark session."""
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    def type_of(self, expression: str) -> Any:
        """Return the type of an expression in Spark SQL, as JSON of a schema."""
        return self.spark.sql(verbatim(f"SELECT {expression}")).schema.jsonValue()["fields"][0]["type"]

    def used_in(self, texts: Iterable[str | None]) -> dict[str, Any]:
        """Return the registered frames that texts name."""
        whole = "\n".join(filter(None, texts))
        return {name: frame for name, frame in self.frames.items() if name in whole}

    def resolve(self, tree: Tree) -> None:
        """Replace the tables of a tree by registered frames."""
        for table in sorted(tree.find_all(exp.Table), key=lambda table: -table.depth):  # subqueries first
            name = table_name(table)
            bare = name.lower() if not table.args.get("db") else ""
            if name.startswith(VIEW) or not isinstance(table.this, exp.Identifier):
                continue
            if bare in self.local or bare in _ctes_visible_to(table, tree):
                continue
            if bare in self.known:
                if self.known[bare] is None:
                    raise UsageError(f"{name} returns no rows: add RETURNING to its statement", value=name)
                self._replace(table, self.known[bare])
            elif (state := self.find(name)) is not None:
                self.read.add(state.table_id)
                self._replace(table, self.frame(state, *self._moment(table)))
            elif table.text("db").lower() in _FORMATS:
                self.check_file(table_name(table), table.name)
            elif not self.spark.catalog.tableExists(name):
                raise self.missing(name)

    def _replace(self, table: Tree, frame: Any) -> None:
        if table.args.get("alias") is None:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        self._rename_columns(table)
        table.set("version", None)
        table.set("only", None)
        table.set("db", None)
        table.set("catalog", None)
        table.set("this", exp.to_identifier(self.add(frame)))

    def _moment(self, table: Tree) -> tuple[int | None, str | None]:
        """Return the version or the timestamp of FOR VERSION or FOR TIMESTAMP."""
        version = table.args.get("version")
        if version is None:
            return None, None
        value = self._value(version.expression)
        if version.name.upper() != "VERSION":
            value = value.isoformat() if isinstance(value, dt.date) else value
            return None, value if isinstance(value, str) else self._instant(version.expression)
        if not (isinstance(value, int) or (isinstance(value, str) and value.isdigit())) or isinstance(value, bool):
            shown = repr(value) if value is not None else version.expression.sql(dialect="postgres")
            raise UsageError(f"the version of {table_name(table)} is a whole number, got {shown}")
        return int(value), None

    def _value(self, node: Tree) -> Any:
        """Return the value of a literal or parameter, else None."""
        if isinstance(node, exp.Placeholder):
            return self.values[node.name]
        return node.name if isinstance(node, exp.Literal) else None

    def _instant(self, node: Tree) -> str:
        """Compute a timestamp expression and return it as text."""
        value = self.meaning.value(node, Scope())
        [row] = self.run(f"SELECT date_format(CAST({spark_sql(value)} AS TIMESTAMP_LTZ), {_INSTANT!r}) AS at").collect()
        if row["at"] is None:
            raise UsageError("the timestamp of a table is null")
        return str(row["at"])

    def _rename_columns(self, table: Tree) -> None:
        """Qualify columns of `namespace.table` by the alias of the frame that replaces the table."""
        query = table.find_ancestor(exp.Select) if table.args.get("db") else None
        for column in query.find_all(exp.Column) if query is not None else ():
            if (column.text("db"), column.text("table")) == (table.text("db"), table.name):
                column.set("db", None)
                column.set("table", exp.to_identifier(table.alias, quoted=True))

    def run(self, text: str) -> Any:
        """Return the frame of a query in Spark SQL."""
        text = self._bound(text)
        used = self.used_in([text])
        escaped = text.replace("{", "{{").replace("}", "}}") if used else text
        for name in used:
            escaped = escaped.replace(name, f"{{{name}}}")
        return self.spark.sql(verbatim(escaped), **used)

    def _bound(self, text: str) -> str:
        return PARAMETER.sub(lambda found: literal(self.values[found[1]]), text)


def table_name(table: Tree) -> str:
    """Return the full name of a table."""
    return ".".join(part.name for part in table.parts)


def _ctes_visible_to(node: Tree, top: Tree) -> set[str]:
    """Return the names of CTEs that a node can refer to: of the queries around it, and the earlier ones of its WITH
    clause, or all of them if the clause is recursive."""
    names_in_scope: set[str] = set()
    while node is not top:
        inner, node = node, node.parent
        if isinstance(node, exp.With):
            names = [cte.alias.lower() for cte in node.expressions]
            before = [cte is inner for cte in node.expressions].index(True)
            names_in_scope |= set(names if node.recursive else names[:before])
        elif node.args.get("with_") is not None and node.args["with_"] is not inner:
            names_in_scope |= {cte.alias.lower() for cte in node.args["with_"].expressions}
    return names_in_scope
