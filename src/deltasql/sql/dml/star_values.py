"""`UPDATE SET *` and `INSERT *` of a MERGE, and the columns that WITH SCHEMA EVOLUTION adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from deltasql.engines.row_change import UPDATE
from deltasql.protocol.schema import DeltaType, Json, struct_type
from deltasql.protocol.schema_fit import missing_field, with_new_fields
from deltasql.sql.dml.column_scopes import column_of
from deltasql.sql.dml.statement_target import StatementTarget, is_generated
from deltasql.sql.parse import Tree


def star_values(target: StatementTarget, alias: str, given: Sequence[Json], action: str, when: Tree) -> dict[str, Tree]:
    """Return the value of each column of the table: the column of the source with its name.

    A column or field that the source lacks is an error. With schema evolution it keeps its value, and is null or its
    default in a new row.
    """
    evolves, rejected = target.parsed.evolves, target.parsed.rejected
    known = {field["name"].lower(): field for field in given}
    values: dict[str, Tree] = {}
    for field in target.fields:
        name = field["name"]
        found = known.get(name.lower())
        if found is None:
            if not evolves and not is_generated(field):
                raise rejected(f"it takes all columns from {alias}, which has no column {name!r}", when)
            continue
        if is_generated(field):
            continue
        values[name] = column_of(alias, found["name"])
        lacking = missing_field(found["type"], field["type"])
        if lacking is None or (evolves and action != UPDATE):
            continue
        if not evolves or not _is_struct(field["type"]):
            raise rejected(f"it takes all columns from {alias}, whose column {name!r} has no field {lacking}", when)
        values[name] = _merged(column_of(target.name, name), values[name], field["type"], found["type"])
    return values


def evolved_fields(target: StatementTarget, given: Sequence[Json]) -> list[Json] | None:
    """Return the columns of the table with those columns and fields of a merge's source that it lacks, if any.

    They are added if a clause takes all columns; otherwise if a clause names them.
    """
    whens = target.parsed.tree.args["whens"].expressions
    if not any(_takes_all(when.args["then"]) for when in whens):
        named = {name.lower() for when in whens for name in _named(when.args["then"])}
        given = [field for field in given if field["name"].lower() in named]
    schema, added = with_new_fields(struct_type(list(given)), struct_type(target.fields), name=target.state.name)
    return schema["fields"] if added else None


def is_star(then: Tree) -> bool:
    """Return whether an action of a clause takes all columns of the source."""
    return any(isinstance(part, exp.Star) for part in (then.this, *then.expressions))


def _takes_all(then: Tree) -> bool:
    return isinstance(then, exp.Update | exp.Insert) and is_star(then)


def _named(then: Tree) -> Iterator[str]:
    """Yield the first part of each column that an action gives a value."""
    if isinstance(then, exp.Insert):
        yield from (column.name for column in (then.this.expressions if then.this else ()))
    elif isinstance(then, exp.Update):
        for column in (column for item in then.expressions for column in item.this.find_all(exp.Column)):
            yield from (part.name for part in column.parts)


def _is_struct(kind: DeltaType) -> bool:
    return not isinstance(kind, str) and kind["type"] == "struct"


def _merged(old: Tree, new: Tree, wanted: Json, given: Json) -> Tree:
    """Return a struct with the fields of the new one; fields that it lacks keep their old values."""
    known = {field["name"].lower(): field for field in given["fields"]}
    parts: list[Tree] = []
    kept: list[Tree] = []
    for field in wanted["fields"]:
        before, found = _field(old, field["name"]), known.get(field["name"].lower())
        value = before if found is None else _field(new, found["name"])
        lacks = found is not None and missing_field(found["type"], field["type"]) is not None
        if found is not None and lacks and _is_struct(field["type"]):
            value = _merged(before, value, field["type"], found["type"])
        if found is None or lacks:
            kept.append(before)
        parts += [exp.Literal.string(field["name"]), value]
    is_null = exp.and_(*(exp.Anonymous(this="isnull", expressions=[one.copy()]) for one in (new, *kept)))
    struct = exp.Anonymous(this="named_struct", expressions=parts)
    return exp.Case(ifs=[exp.If(this=is_null, true=exp.null())], default=struct)


def _field(struct: Tree, name: str) -> Tree:
    return exp.Dot(this=struct.copy(), expression=exp.to_identifier(name, quoted=True))
