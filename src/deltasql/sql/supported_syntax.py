"""The parts of statements that are known here. Any other would be left out on the way to Spark, and the statement would
mean something else: so it is refused."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from deltasql.sql.positions import refused, start_of

Tree = Any
_KNOWN: dict[type, set[str]] = {
    exp.Select: {
        "with_", "expressions", "distinct", "from_", "joins", "laterals", "where", "group", "having", "qualify",
        "windows", "order", "limit", "offset", "into", "locks",
    },
    exp.Insert: {"with_", "this", "expression", "conflict", "returning", "default"},
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
    exp.Table: {"this", "db", "catalog", "alias", "joins", "laterals", "only", "version", "sample"},
    exp.Unnest: {"expressions", "alias"},
    exp.Lateral: {"this", "view", "outer", "alias"},
    exp.WindowSpec: {"kind", "start", "start_side", "end", "end_side"},
    exp.LimitOptions: {"rows"},
}  # fmt: skip
_OF_WHEN: dict[type, set[str]] = {exp.Update: {"expressions"}, exp.Insert: {"this", "expression"}}
"""What UPDATE and INSERT are made of where they follow THEN."""
_WHY = {
    "index_predicate": "names an index by WHERE: lake tables have none, leave it out",
    "into": "returns INTO something: the rows come as a DataFrame",
    "not_valid": "adds a constraint that is NOT VALID: one that the rows which are there break cannot be added",
    "ordinality": "has WITH ORDINALITY: number the rows by row_number()",
    "offset": "has WITH ORDINALITY: number the rows by row_number()",
    "with_ties": "has FETCH … WITH TIES: choose the rows by rank()",
    "percent": "has FETCH … PERCENT: choose the rows by percent_rank()",
    "exclude": "has EXCLUDE in the frame of a window: Spark has frames without it alone",
    "rows_from": "has ROWS FROM: join what its functions give",
    "search": "has SEARCH: number the rows in the query",
    "cycle": "has CYCLE: keep the path in a column of the query",
    "position": "says where a new column is to be: it comes last",
}
_ROW_STATEMENTS = (exp.Insert, exp.Update, exp.Delete, exp.Merge)


def refuse_unknown_parts(text: str, tree: Tree) -> None:
    """Go through a statement, with all that is inside it."""
    if isinstance(tree, exp.Create | exp.Alter | exp.Drop) and tree.args.get("kind", "").upper() != "TABLE":
        return  # which is refused for what it is
    for node in tree.walk():
        of_when = isinstance(node.parent, exp.When)
        known = (_OF_WHEN if of_when else _KNOWN).get(type(node))
        for name, value in node.args.items():
            if known is not None and name not in known and _is_there(node, value):
                raise refused(text, f"cannot be run: it {_why(node, name)}", _start(node, value))
        if isinstance(node, _ROW_STATEMENTS) and node is not tree and not of_when and not _is_part(node, tree):
            why = "changes rows inside a query: such a statement is a part of the first WITH clause"
            raise refused(text, f"cannot be run: it {why}", start_of(node))


def _is_there(node: Tree, value: Any) -> bool:
    if isinstance(node, exp.Delete) and not node.this:
        return False  # which is refused for that
    return any(value.args.values()) if isinstance(value, exp.Credentials) else bool(value)


def _why(node: Tree, name: str) -> str:
    if name == "where" and isinstance(node.parent, exp.When):
        kind = "MATCHED" if node.parent.args["matched"] else "NOT MATCHED"
        return f"has WHERE after THEN: write WHEN {kind} AND …"
    if isinstance(node, exp.AlterSet):
        what = node.args[name].name if name == "option" else name.replace("_", " ").upper()
        return f"has SET {what}: what lake tables have is properties, SET ('key' = 'value')"
    known = f"has a part of {type(node).__name__.upper()} that is not supported: {name.strip('_').upper()}"
    return _WHY.get(name, known)


def _start(node: Tree, value: Any) -> int | None:
    """Where a part is, as far as it tells; else where what it is a part of begins."""
    parts = value if isinstance(value, list) else [value]
    for part in (*parts, node, node.parent):
        start = start_of(part) if isinstance(part, exp.Expr) else None
        if start is not None:
            return start
    return None


def _is_part(node: Tree, tree: Tree) -> bool:
    """Is a statement one of the WITH clause, or of that of such a one?"""
    clause = node.parent.parent if isinstance(node.parent, exp.CTE) else None
    owner = clause.parent if isinstance(clause, exp.With) else None
    return owner is tree or (isinstance(owner, _ROW_STATEMENTS) and _is_part(owner, tree))
