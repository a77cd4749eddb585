"""Reject parts of statements that are not supported: without the check they would be dropped silently."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from deltasql.sql.positions import rejected, start_of

Tree = Any
_KNOWN: dict[type, set[str]] = {
    exp.Select: {
        "with_", "expressions", "distinct", "from_", "joins", "laterals", "where", "group", "having", "qualify",
        "windows", "order", "limit", "offset", "into", "locks",
    },
    exp.Insert: {"with_", "this", "expression", "conflict", "returning", "default", "by_name", "overwrite", "where"},
    exp.Update: {"with_", "this", "expressions", "from_", "where", "returning"},
    exp.Delete: {"with_", "this", "using", "where", "returning"},
    exp.Merge: {"with_", "this", "using", "on", "whens", "returning"},
    exp.When: {"matched", "source", "condition", "then"},
    exp.OnConflict: {"expressions", "action", "conflict_keys", "constraint", "where"},
    exp.Returning: {"expressions"},
    exp.TruncateTable: {"expressions"},
    exp.Copy: {"this", "kind", "files", "params"},
    exp.Create: {"with_", "this", "kind", "expression", "exists", "properties", "replace"},
    exp.Alter: {"this", "kind", "actions", "exists", "only"},
    exp.AlterSet: {"expressions"},
    exp.Drop: {"this", "kind", "tables", "exists", "cascade", "restrict"},
    exp.ColumnDef: {"this", "kind", "constraints", "exists"},
    exp.CheckColumnConstraint: {"this"},
    exp.With: {"expressions", "recursive"},
    exp.CTE: {"this", "alias", "materialized"},
    exp.Table: {"this", "db", "catalog", "alias", "joins", "laterals", "only", "version", "sample", "ordinality"},
    exp.Unnest: {"expressions", "alias", "offset"},
    exp.Lateral: {"this", "view", "outer", "alias", "ordinality"},
    exp.WindowSpec: {"kind", "start", "start_side", "end", "end_side"},
    exp.LimitOptions: {"rows"},
}  # fmt: skip
_OF_WHEN: dict[type, set[str]] = {exp.Update: {"expressions"}, exp.Insert: {"this", "expression"}}
"""The parts of UPDATE and INSERT after THEN."""
_WHY = {
    "index_predicate": "has WHERE after the keys: lake tables have no indexes, leave it out",
    "into": "has RETURNING INTO: leave INTO out, the rows are returned as a DataFrame",
    "not_valid": "adds a constraint with NOT VALID: existing rows must satisfy a new constraint",
    "with_ties": "has FETCH … WITH TIES: choose the rows by rank()",
    "percent": "has FETCH … PERCENT: choose the rows by percent_rank()",
    "exclude": "has EXCLUDE in the frame of a window, which Spark does not support",
    "rows_from": "has ROWS FROM: join the functions instead",
    "search": "has SEARCH: number the rows in the query",
    "cycle": "has CYCLE: keep the path in a column of the query",
    "position": "gives the position of a new column: new columns come last",
}
_ROW_STATEMENTS = (exp.Insert, exp.Update, exp.Delete, exp.Merge)


def reject_unknown_parts(text: str, tree: Tree) -> None:
    """Raise if a statement, or a part of it, has a part that is not supported."""
    if isinstance(tree, exp.Create | exp.Alter | exp.Drop) and tree.args.get("kind", "").upper() != "TABLE":
        return  # ddl_statements rejects these
    for node in tree.walk():
        of_when = isinstance(node.parent, exp.When)
        known = (_OF_WHEN if of_when else _KNOWN).get(type(node))
        for name, value in node.args.items():
            if known is not None and name not in known and _is_there(node, value):
                raise rejected(text, f"cannot be run: it {_why(node, name)}", _start(node, value))
        if isinstance(node, _ROW_STATEMENTS) and node is not tree and not of_when and not _is_part(node, tree):
            why = "changes rows inside a query: move that statement to the first WITH clause"
            raise rejected(text, f"cannot be run: it {why}", start_of(node))


def _is_there(node: Tree, value: Any) -> bool:
    if isinstance(node, exp.Delete) and not node.this:
        return False  # the runner rejects a DELETE without a table
    return any(value.args.values()) if isinstance(value, exp.Credentials) else bool(value)


def _why(node: Tree, name: str) -> str:
    if name == "where" and isinstance(node.parent, exp.When):
        kind = "MATCHED" if node.parent.args["matched"] else "NOT MATCHED"
        return f"has WHERE after THEN: write WHEN {kind} AND …"
    if isinstance(node, exp.AlterSet):
        what = node.args[name].name if name == "option" else name.replace("_", " ").upper()
        return f"has SET {what}: lake tables have only properties, SET ('key' = 'value')"
    known = f"has a part of {type(node).__name__.upper()} that is not supported: {name.strip('_').upper()}"
    return _WHY.get(name, known)


def _start(node: Tree, value: Any) -> int | None:
    """Return the position of a part, or else of the node that it belongs to."""
    parts = value if isinstance(value, list) else [value]
    for part in (*parts, node, node.parent):
        start = start_of(part) if isinstance(part, exp.Expr) else None
        if start is not None:
            return start
    return None


def _is_part(node: Tree, tree: Tree) -> bool:
    """Return whether a statement is a part of the WITH clause of the tree, or of such a part."""
    clause = node.parent.parent if isinstance(node.parent, exp.CTE) else None
    owner = clause.parent if isinstance(clause, exp.With) else None
    return owner is tree or (isinstance(owner, _ROW_STATEMENTS) and _is_part(owner, tree))
