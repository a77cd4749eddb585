"""Reject WITH clauses whose parts would show that they run one after the other.

In PostgreSQL all parts, and the statement itself, see the tables as they were before the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.relations import table_name

ROW_STATEMENTS = (exp.Insert, exp.Update, exp.Delete, exp.Merge)
_REST_OF_INSERT = ("conflict", "overwrite", "where")


def reject_visible_order(parsed: Parsed, tree: Tree, table_id: Callable[[str], str]) -> None:
    """Reject a statement in which one part reads or changes a table that an earlier part changes.

    A plain INSERT after other changes of its table is allowed: it does not look at the rows of its table.
    """
    ctes = tree.args["with_"].expressions
    names = {cte.alias.lower() for cte in ctes}
    main = tree.copy()
    main.set("with_", None)
    changed: set[str] = set()
    for part in (*(cte.this for cte in ctes), main):
        target = _target(part)
        others = [table for table in part.find_all(exp.Table) if table is not target]
        read = [table for table in others if table_name(table).lower() not in names]
        _reject_any(parsed, read, "reads", changed, table_id)
        if target is not None:
            if not _is_plain_insert(part):
                _reject_any(parsed, [target], "changes", changed, table_id)
            changed.add(table_id(table_name(target)))


def _reject_any(
    parsed: Parsed, tables: Sequence[Tree], verb: str, changed: set[str], table_id: Callable[[str], str]
) -> None:
    for table in tables if changed else ():
        name = table_name(table)
        if table_id(name) in changed:
            why = f"it {verb} {name}, which an earlier part of the WITH clause changes"
            raise parsed.rejected(f"{why}: run the statements one after the other in a transaction", table)


def _target(tree: Tree) -> Tree | None:
    """Return the table that a statement changes, if it is a table."""
    target = tree.this if isinstance(tree, ROW_STATEMENTS) else None
    target = target.this if isinstance(target, exp.Schema) else target
    return target if isinstance(target, exp.Table) else None


def _is_plain_insert(tree: Tree) -> bool:
    return isinstance(tree, exp.Insert) and not any(tree.args.get(part) for part in _REST_OF_INSERT)
