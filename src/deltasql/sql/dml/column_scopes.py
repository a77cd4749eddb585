"""Which table or source the columns of an expression belong to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlglot import exp

from deltasql.sql.parse import Parsed, Tree

Scope = tuple[str, Sequence[str]]
"""A name of a table or source in a statement, and its columns."""


def column_of(alias: str, name: str) -> Tree:
    """Return a qualified column."""
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(alias, quoted=True))


def qualify(parsed: Parsed, tree: Tree, scopes: Sequence[Scope]) -> None:
    """Qualify the columns of a tree outside of subqueries; reject a column that several scopes have."""
    aliases = {alias.lower() for alias, _ in scopes}
    for column in list(tree.find_all(exp.Column)):
        first = column.parts[0].name.lower()
        if first in aliases and column.args.get("table"):
            continue
        if is_inside_query(column, tree) or isinstance(column.this, exp.Star) or column.args.get("db"):
            continue
        owners = [alias for alias, names in scopes if first in {name.lower() for name in names}]
        if len(owners) > 1:
            ways = " or ".join(f"{owner}.{column.name}" for owner in owners)
            raise parsed.rejected(f"it does not say which {column.name!r} is meant: write {ways}", column)
        if owners:  # a column, or a field of one that is a struct
            part = "db" if column.args.get("table") else "table"
            column.set(part, exp.to_identifier(owners[0], quoted=True))


def qualify_merged(
    trees: Iterable[Tree], sources: Sequence[Tree], columns: Mapping[str, Sequence[str]], others: Collection[str]
) -> None:
    """Replace unqualified columns that USING or NATURAL joins merge by columns of one side.

    `others` are names of the table's columns, with which an unqualified column is ambiguous.
    """
    merged: dict[str, Tree] = {}
    for source in sources:
        aliases = [source.alias_or_name]
        for join in source.args.get("joins") or ():
            for name in _merged_names(join, aliases, columns):
                merged[name] = _merged_column(join, name, aliases, columns, merged.get(name))
            aliases.append(join.this.alias_or_name)
    for tree in trees if merged else ():
        for column in list(tree.find_all(exp.Column)):
            name = column.name.lower()
            is_plain = not column.args.get("table") and not is_inside_query(column, tree)
            if is_plain and name in merged and name not in others:
                column.replace(merged[name].copy())


def _merged_names(join: Tree, left: Sequence[str], columns: Mapping[str, Sequence[str]]) -> list[str]:
    if join.method.upper() == "NATURAL":
        known = {name.lower() for alias in left for name in columns[alias]}
        return [name.lower() for name in columns[join.this.alias_or_name] if name.lower() in known]
    return [item.name.lower() for item in join.args.get("using") or ()]


def _merged_column(
    join: Tree, name: str, left: Sequence[str], columns: Mapping[str, Sequence[str]], earlier: Tree | None
) -> Tree:
    owner = next((alias for alias in left if name in {column.lower() for column in columns[alias]}), left[0])
    first, second = earlier or column_of(owner, name), column_of(join.this.alias_or_name, name)
    if join.side.upper() == "FULL":
        return exp.Coalesce(this=first.copy(), expressions=[second])
    return second if join.side.upper() == "RIGHT" else first


def is_inside_query(node: Tree, top: Tree) -> bool:
    """Return whether a node is part of a subquery of a tree."""
    while node is not top and node is not None:
        if isinstance(node, exp.Query):
            return True
        node = node.parent
    return isinstance(top, exp.Query)
