"""The values that SET and the INSERT of a MERGE give to columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from sqlglot import exp

from deltasql.sql.dml.statement_target import StatementTarget, default_of, is_default, is_generated
from deltasql.sql.dml.struct_changes import StructChange
from deltasql.sql.parse import Tree


def assignments(target: StatementTarget, items: Iterable[Tree]) -> dict[str, Tree]:
    """Return the columns that SET names, with their values."""
    values: dict[str, Tree] = {}
    parts: dict[str, StructChange] = {}
    named: set[str] = set()
    for item in items:
        for column, value in _assigned(target, item):
            if (path := _field_path(target, column)) is not None:
                _change_field(target, parts, path, column, value)
                continue
            field = target.column(_assigned_name(target, column), column)
            name = field["name"]
            if name in named:
                raise target.parsed.rejected(f"it gives column {name!r} two values", column)
            named.add(name)
            if not (is_default(value) and is_generated(field)):
                values[name] = default_of(field, value) or exp.Null()
    both = sorted(named & parts.keys())
    if both:
        raise target.parsed.rejected(f"it gives column {both[0]!r} and a field of it values", next(iter(items), None))
    return values | {name: change.tree() for name, change in parts.items()}


def _field_path(target: StatementTarget, column: Tree) -> list[str] | None:
    """Return the column and the fields of `struct.field`, or None if a whole column is assigned."""
    if not isinstance(column, exp.Column | exp.Dot):
        return None
    names = [part.name for part in column.parts]
    own = {target.name.lower(), target.state.name.lower()}
    if names[0].lower() in own and len(names) > 1:
        names = names[1:]
    elif ".".join(names[:2]).lower() in own and len(names) > 2:
        names = names[2:]
    known = {name.lower() for name in target.columns}
    return names if len(names) > 1 and names[0].lower() in known else None


def _change_field(
    target: StatementTarget, changes: dict[str, StructChange], path: Sequence[str], column: Tree, value: Tree
) -> None:
    field = target.column(path[0], column)
    change = changes.setdefault(
        field["name"], StructChange(exp.column(field["name"], table=target.name, quoted=True), field["type"])
    )
    problem = change.set(path[1:], value)
    if problem is not None:
        raise target.parsed.rejected(f"it assigns to {column.sql(dialect='postgres')}: {problem}", column)


def inserted_values(target: StatementTarget, insert: Tree) -> dict[str, Tree]:
    """Return the values of `THEN INSERT` by column; without column names the last columns may be left out."""
    named = insert.this.expressions if insert.this else []
    if insert.expression is None and len(named) == 1 and is_default(named[0]):  # INSERT DEFAULT VALUES
        return {}
    items = insert.expression.expressions if insert.expression else []
    columns = [c.name for c in named] or target.columns[: len(items)]
    if len(columns) != len(items):
        count = len(named) or len(target.columns)
        raise target.parsed.rejected(f"it names {count} columns and gives {len(items)} values", insert)
    fields = [target.column(name, at) for name, at in zip_longest(columns, named)]
    values = {f["name"]: default_of(f, item) for f, item in zip(fields, items, strict=True)}
    if len(values) < len(fields):
        raise target.parsed.rejected("it names a column twice", insert)
    return {name: value for name, value in values.items() if value is not None}


def _assigned_name(target: StatementTarget, column: Tree) -> str:
    qualifier = ".".join(part.name for part in column.parts[:-1]) if isinstance(column, exp.Column) else ""
    own = {"", target.name.lower(), target.state.name.lower()}
    if not isinstance(column, exp.Column) or qualifier.lower() not in own:
        raise target.parsed.rejected(
            f"it assigns to {column.sql(dialect='postgres')}: SET names columns of the table; to change a part of a "
            f"column assign the whole column",
            column,
        )
    return str(column.name)


def _assigned(target: StatementTarget, item: Tree) -> Iterator[tuple[Tree, Tree]]:
    """Yield columns and values of `a = 1`, or of `(a, b) = …` with a row, ROW(…) or a query."""
    parsed = target.parsed
    if not isinstance(item, exp.EQ):
        raise parsed.rejected(f"it cannot assign by {parsed.sql_of(item)}", item)
    left, right = item.this, item.expression
    if not isinstance(left, exp.Tuple):
        yield (left.this if isinstance(left, exp.Paren) else left, right)
        return
    queries = _by_column(right)
    if len(queries) == len(left.expressions):
        yield from zip(left.expressions, queries, strict=True)
        return
    is_row = isinstance(right, exp.Anonymous) and right.name.upper() == "ROW"
    if not (is_row or isinstance(right, exp.Tuple)) or len(left.expressions) != len(right.expressions):
        raise parsed.rejected(
            f"it cannot assign by {parsed.sql_of(item)}: give as many values as columns; join a query that has "
            f"DISTINCT, LIMIT or UNION with FROM",
            item,
        )
    yield from zip(left.expressions, right.expressions, strict=True)


def _by_column(query: Tree) -> list[Tree]:
    """Return one scalar subquery per column of a query, or nothing if the query might return another row each time.

    Each subquery returns the whole row as a struct, so that aggregates and plain columns come from the same row.
    """
    select = query.this if isinstance(query, exp.Subquery) else query
    if not isinstance(select, exp.Select) or any(select.args.get(a) for a in ("distinct", "limit", "offset", "fetch")):
        return []
    items = [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]
    if any(item.is_star for item in items):
        return []
    names = [f"c{number}" for number in range(len(items))]
    parts = [part for name, item in zip(names, items, strict=True) for part in (exp.Literal.string(name), item.copy())]
    row = select.copy()
    row.set("expressions", [exp.alias_(exp.Anonymous(this="named_struct", expressions=parts), "row")])
    return [exp.Dot(this=exp.Subquery(this=row.copy()), expression=exp.to_identifier(name)) for name in names]
