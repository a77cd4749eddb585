"""RETURNING: the values that a statement returns for each changed row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from deltasql.engines.row_change import ACTION, NEW_ROW, OLD_ROW, Output
from deltasql.errors import ValidationError
from deltasql.protocol.constraints import quoted
from deltasql.sql.dml.column_scopes import Scope, qualify
from deltasql.sql.meaning import output_name
from deltasql.sql.parse import Parsed, Tree

_OLD_AND_NEW = {"old": OLD_ROW, "new": NEW_ROW}


@dataclass(frozen=True, slots=True)
class Returning:
    """The RETURNING clause of a statement."""

    parsed: Parsed
    scopes: Sequence[Scope]
    columns: Sequence[str]
    """The columns of the changed table."""
    rename: Callable[[Any], None]
    """Resolves the tables of a tree and the qualifiers of its columns."""
    text: Callable[[Tree], str]
    """Returns a tree in Spark SQL."""

    def outputs(self) -> list[Output] | None:
        """Return the items of the clause, or None without the clause."""
        clause = self.parsed.tree.args.get("returning")
        return None if clause is None else [output for item in clause.expressions for output in self._of(item.copy())]

    def _of(self, item: Tree) -> Iterator[Output]:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            yield from self._columns(item)
            return
        tree = item.this if isinstance(item, exp.Alias) else item
        name = item.alias or output_name(tree)
        if _is_merge_action(tree):
            yield Output(ACTION, item.alias or "merge_action")
            return
        holder = exp.Paren(this=tree.copy())
        for column in holder.find_all(exp.Column):
            row = self._row_of(column.text("table"))
            if row is not None:
                column.set("table", exp.to_identifier(row, quoted=True))
        for call in list(holder.find_all(exp.Anonymous)):
            if _is_merge_action(call):
                call.replace(exp.column(ACTION))
        self.rename([holder])
        qualify(self.parsed, holder, self.scopes)
        yield Output(self.text(holder), name)

    def _columns(self, item: Tree) -> Iterator[Output]:
        """Yield the columns of `*` or `name.*`."""
        alias = item.text("table").lower() if isinstance(item, exp.Column) else ""
        row = self._row_of(alias)
        if row is not None:
            yield from (Output(f"{row}.{quoted(column)}", column) for column in self.columns)
            return
        if alias not in ("", *(name.lower() for name, _ in self.scopes)):
            raise self._unknown_scope(item, alias)
        for name, columns in self.scopes:
            if alias in ("", name.lower()):
                yield from (Output(f"{quoted(name)}.{quoted(column)}", column) for column in columns)

    def _row_of(self, name: str) -> str | None:
        """Return the name of the row before or after the change, unless a table has the name `old` or `new`."""
        taken = {alias.lower() for alias, _ in self.scopes}
        return _OLD_AND_NEW.get(name.lower()) if name.lower() not in taken else None

    def _unknown_scope(self, at: Tree, name: str) -> ValidationError:
        return self.parsed.rejected(f"it has no table {name!r} to return columns of", at)


def _is_merge_action(tree: Tree) -> bool:
    return isinstance(tree, exp.Anonymous) and bool(tree.name.lower() == "merge_action")
