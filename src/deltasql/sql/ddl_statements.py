"""CREATE, DROP and ALTER TABLE: from trees to what the lake is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from deltasql.errors import UnsupportedFeature, ValidationError
from deltasql.protocol.schema import schema_string
from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.positions import place, start_of
from deltasql.sql.relations import table_name
from deltasql.sql.spark_text import spark_sql

_PLACE = re.compile(r" at line \d+, column \d+")


@dataclass(frozen=True, slots=True)
class Definition:
    """A table that is to be made."""

    name: str
    schema: str | None
    query: Tree | None
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    constraints: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    description: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that is to be added, in the words of a schema."""

    name: str
    text: str
    if_not_exists: bool = False


@dataclass(slots=True)
class Alteration:
    """What is to be different about a table."""

    properties: dict[str, str] = field(default_factory=dict)
    constraints: list[tuple[str, str]] = field(default_factory=list)
    """Names, which may be empty, and conditions."""
    dropped_constraints: list[tuple[str, bool]] = field(default_factory=list)
    """Names, and whether there may be none of that name."""
    columns: list[NewColumn] = field(default_factory=list)
    defaults: dict[str, str | None] = field(default_factory=dict)
    if_exists: bool = False


def definition(parsed: Parsed) -> Definition:
    """What a CREATE TABLE asks for."""
    tree = parsed.tree
    if tree.args.get("kind", "").upper() != "TABLE" or tree.args.get("replace"):
        raise parsed.refused("of what can be created, only CREATE TABLE is supported")
    _refuse_parameters(parsed, [part for name, part in tree.args.items() if name != "expression"])
    schema = tree.this if isinstance(tree.this, exp.Schema) else None
    table = schema.this if schema is not None else tree.this
    columns, constraints = _columns(schema, parsed) if schema is not None else ([], {})
    known = dict(_properties(tree.args.get("properties"), parsed))
    return Definition(
        table_name(table),
        ", ".join(columns) or None,
        tree.args.get("expression"),
        known.pop("partitioned", ()),
        known.pop("properties", {}),
        constraints,
        known.pop("location", None),
        known.pop("comment", None),
        bool(tree.args.get("exists")),
    )


def _refuse_parameters(parsed: Parsed, parts: Sequence[Any]) -> None:
    """What defines a table stays when the values of a statement are gone."""
    for part in parts:
        found = part.find(exp.Placeholder) if isinstance(part, exp.Expression) else None
        if found is not None:
            raise parsed.refused("parameters stand for values of rows: write this one out", found)


def _columns(schema: Tree, parsed: Parsed) -> tuple[list[str], dict[str, str]]:
    columns: list[str] = []
    constraints: dict[str, str] = {}
    for item in schema.expressions:
        match item:
            case exp.ColumnDef():
                columns.append(_column(item, constraints, parsed))
            case exp.Constraint() | exp.CheckColumnConstraint():
                name, condition = check_of(item, parsed, f"check_{len(constraints) + 1}")
                constraints[name] = condition
            case _:
                raise parsed.refused(f"tables have no {parsed.sql_of(item)}", item)
    return columns, constraints


def _column(column: Tree, constraints: dict[str, str], parsed: Parsed) -> str:
    kept = []
    for constraint in column.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.CheckColumnConstraint):
            name = constraint.name or f"{column.name}_check"
            constraints[name] = spark_sql(kind.this)
        elif isinstance(
            kind,
            exp.NotNullColumnConstraint
            | exp.DefaultColumnConstraint
            | exp.GeneratedAsIdentityColumnConstraint
            | exp.ComputedColumnConstraint
            | exp.CommentColumnConstraint,
        ):
            kept.append(constraint)
        else:
            raise parsed.refused(f"columns have no {parsed.sql_of(constraint)}", column)
    plain = column.copy()
    plain.set("constraints", kept)
    plain.set("exists", None)
    text = spark_sql(plain)
    try:
        schema_string(text)
    except (ValidationError, UnsupportedFeature) as error:
        start = start_of(column)
        raise _of_statement(error, f"SQL {place(parsed.text, start or 0)}: cannot be run: ") from None
    return text


def _of_statement(error: Any, where: str) -> Exception:
    """What is wrong with a column, at its place in the statement and not in the words that it became."""
    message = where + _PLACE.sub("", str(error)).removeprefix("DDL: ")
    if isinstance(error, UnsupportedFeature):
        return UnsupportedFeature(message, features=error.features)
    return ValidationError(message, value=error.value)


def check_of(item: Tree, parsed: Parsed, name: str) -> tuple[str, str]:
    """The name and the condition of a CHECK."""
    if isinstance(item, exp.CheckColumnConstraint):
        return name, spark_sql(item.this)
    checks = [part for part in item.expressions if isinstance(part, exp.CheckColumnConstraint)]
    if len(checks) != 1:
        raise parsed.refused(f"tables have no {parsed.sql_of(item)}", item)
    return item.name or name, spark_sql(checks[0].this)


def _properties(properties: Tree | None, parsed: Parsed) -> Iterator[tuple[str, Any]]:
    plain: dict[str, str] = {}
    for item in properties.expressions if properties is not None else ():
        match item:
            case exp.PartitionedByProperty():
                names = item.this.expressions if item.this.expressions else [item.this]
                yield "partitioned", tuple(part.name for part in names)
            case exp.PartitionByListProperty():
                yield "partitioned", tuple(part.name for part in item.args["partition_expressions"])
            case exp.LocationProperty():
                yield "location", item.this.name
            case exp.SchemaCommentProperty():
                yield "comment", item.this.name
            case exp.FileFormatProperty() if item.this.name.lower() in ("delta", "deltasql"):
                pass
            case exp.Property() if "value" in item.args:
                plain[_key(item.this)] = _text(item.args["value"], item, parsed)
            case _:
                raise parsed.refused(f"tables have no {parsed.sql_of(item)}", item)
    yield "properties", plain


def _key(node: Tree) -> str:
    """The name of a property, which may be written in quotes or not."""
    if isinstance(node, exp.Dot):
        return f"{_key(node.this)}.{_key(node.expression)}"
    return ".".join(str(part.name) for part in (node.parts if isinstance(node, exp.Column) else [node]))


def _text(value: Tree, item: Tree, parsed: Parsed) -> str:
    """The value of a property, as it is written."""
    match value:
        case exp.Literal() | exp.Var() | exp.Column() | exp.ByteString() | exp.RawString() | exp.National():
            return str(value.name)
        case exp.Boolean():
            return str(value.this).lower()
        case exp.Neg(this=exp.Literal(is_string=False)):
            return f"-{value.name}"
    raise parsed.refused(
        f"the property {_key(item.this)} cannot be {parsed.sql_of(value)}: a property is a text in quotes, a number, "
        f"true or false",
        item,
    )


def alteration(parsed: Parsed) -> Alteration:
    """What an ALTER TABLE asks for."""
    if parsed.tree.args.get("kind", "").upper() != "TABLE":
        raise parsed.refused("of what can be altered, only ALTER TABLE is supported")
    _refuse_parameters(parsed, [parsed.tree])
    found = Alteration(if_exists=bool(parsed.tree.args.get("exists")))
    for action in parsed.tree.args["actions"]:
        match action:
            case exp.ColumnDef():
                found.columns.append(_new_column(action, found, parsed))
            case exp.AddConstraint():
                found.constraints += [check_of(item, parsed, "") for item in action.expressions]
            case exp.Drop() if action.args.get("kind") == "CONSTRAINT":
                names = [action.this.name] if action.this else [t.name for t in action.args.get("tables") or ()]
                found.dropped_constraints += [(name, bool(action.args.get("exists"))) for name in names]
            case exp.AlterColumn() if action.args.get("default") is not None:
                found.defaults[action.name] = spark_sql(action.args["default"])
            case exp.AlterColumn() if action.args.get("drop") and not _other(action):
                found.defaults[action.name] = None
            case exp.AlterSet() if action.expressions:
                found.properties |= _assigned(action, parsed)
            case _:
                raise parsed.refused(f"ALTER TABLE has no {parsed.sql_of(action)} here", action)
    return found


def _other(action: Tree) -> bool:
    """Does an ALTER COLUMN … DROP speak of something else than the default?"""
    return any(value for name, value in action.args.items() if name not in ("this", "drop"))


def _new_column(column: Tree, found: Alteration, parsed: Parsed) -> NewColumn:
    checks: dict[str, str] = {}
    text = _column(column, checks, parsed)
    for constraint in column.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.ComputedColumnConstraint | exp.GeneratedAsIdentityColumnConstraint):
            raise parsed.refused(f"the rows that are there have no value for {column.name}: add a plain column", column)
        if isinstance(kind, exp.DefaultColumnConstraint) and not isinstance(kind.this, exp.Null):
            raise parsed.refused(
                f"the rows that are there would have NULL for {column.name}, and not its default: add it without, fill "
                f"it by UPDATE, then ALTER COLUMN {column.name} SET DEFAULT",
                column,
            )
    found.constraints += checks.items()
    return NewColumn(column.name, text, bool(column.args.get("exists")))


def _assigned(action: Tree, parsed: Parsed) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in action.expressions:
        for node in item.expressions if isinstance(item, exp.Properties) else [item]:
            if not isinstance(node, exp.EQ | exp.Property) or isinstance(node.this, exp.EQ):
                raise parsed.refused(f"SET takes names of properties and their values, got {parsed.sql_of(node)}", node)
            value = node.args["value"] if isinstance(node, exp.Property) else node.expression
            found[_key(node.this)] = _text(value, node, parsed)
    return found
