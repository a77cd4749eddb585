"""CREATE and ALTER TABLE: from a syntax tree to a definition."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from deltasql.errors import UnsupportedFeature, ValidationError, text_position, unknown_column
from deltasql.operations.create import TableSpec
from deltasql.operations.overwrite import metadata_of
from deltasql.operations.write import fields_of
from deltasql.protocol.properties import CONSTRAINT_PREFIX
from deltasql.protocol.schema import Json, schema_string, struct_type
from deltasql.protocol.schema_fit import DEFAULT, GENERATED, parse_struct
from deltasql.protocol.table_changes import TableState
from deltasql.sql.meaning import Meaning, Scope, ScopeTable, TypedColumn, columns_of_fields
from deltasql.sql.parse import Parsed, Tree
from deltasql.sql.positions import start_of
from deltasql.sql.relations import table_name
from deltasql.sql.spark_text import spark_sql

_POSITION = re.compile(r" at line \d+, column \d+")


@dataclass(frozen=True, slots=True)
class Definition:
    """The parts of a CREATE TABLE."""

    name: str
    spec: TableSpec
    query: Tree | None
    """The query of CREATE TABLE … AS, whose rows are not part of the spec yet."""
    if_not_exists: bool
    replace: bool = False
    """Whether the table may exist, and is replaced then."""


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add."""

    field: Json
    """The column as a field of a Delta schema."""
    if_not_exists: bool = False
    default: str | None = None
    """The value of the column in existing rows and of new rows that leave it out, in Spark SQL."""


@dataclass(slots=True)
class Alteration:
    """The changes of an ALTER TABLE."""

    properties: dict[str, str] = field(default_factory=dict)
    constraints: list[tuple[str, str]] = field(default_factory=list)
    """Names and conditions; an empty name is chosen later."""
    dropped_constraints: list[tuple[str, bool]] = field(default_factory=list)
    """Names, and whether the constraint may be missing."""
    columns: list[NewColumn] = field(default_factory=list)
    defaults: dict[str, str | None] = field(default_factory=dict)


def definition(parsed: Parsed, meaning: Meaning, find: Callable[[str], TableState]) -> Definition:
    """Return the definition of a CREATE TABLE; `find` returns the table that LIKE names."""
    tree = parsed.tree
    if tree.args.get("kind", "").upper() != "TABLE":
        raise parsed.rejected("only CREATE TABLE is supported")
    _reject_parameters(parsed, [part for name, part in tree.args.items() if name != "expression"])
    schema = tree.this if isinstance(tree.this, exp.Schema) else None
    table = schema.this if schema is not None else tree.this
    like = _likes(tree, find)
    definer = Definer(parsed, meaning, columns_of_fields(like.columns))
    columns, constraints = _columns(schema, definer) if schema is not None else ([], {})
    known = dict(_properties(tree.args.get("properties"), parsed))
    columns = [*like.columns, *columns]
    spec = TableSpec(
        json.dumps(struct_type(columns)) if columns else None,
        location=known.get("location"),
        partition_by=known.get("partitioned", like.partition_by),
        properties={**like.properties, **known["properties"]},
        constraints={**like.constraints, **constraints},
        description=known.get("comment"),
    )
    query = tree.args.get("expression")
    return Definition(table_name(table), spec, query, bool(tree.args.get("exists")), bool(tree.args.get("replace")))


@dataclass
class _Like:
    """What a new table takes from others."""

    columns: list[Json] = field(default_factory=list)
    constraints: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()


def _likes(tree: Tree, find: Callable[[str], TableState]) -> _Like:
    """Return what LIKE takes: `(LIKE t INCLUDING …)` as PostgreSQL does, `LIKE t` all of it as Spark does."""
    found = _Like()
    properties = tree.args.get("properties")
    for item in tree.this.expressions if isinstance(tree.this, exp.Schema) else ():
        if isinstance(item, exp.LikeProperty):
            _take(found, find(table_name(item.this)), {one.args["value"].name.upper() for one in item.expressions})
    for item in properties.expressions if properties is not None else ():
        if isinstance(item, exp.LikeProperty):
            metadata = metadata_of(find(table_name(item.this)))
            _take(found, find(table_name(item.this)), {"ALL"})
            found.partition_by = tuple(metadata.partition_columns)
            kept = {k: v for k, v in metadata.configuration.items() if not k.startswith(CONSTRAINT_PREFIX)}
            found.properties |= kept
    return found


def _take(found: _Like, state: TableState, including: set[str]) -> None:
    parts = {"DEFAULTS": DEFAULT, "GENERATED": GENERATED, "COMMENTS": "comment"}
    dropped = {key for name, key in parts.items() if not including & {name, "ALL"}}
    for one in fields_of(state):
        metadata = {key: value for key, value in (one.get("metadata") or {}).items() if key not in dropped}
        found.columns.append({**one, "metadata": metadata})
    if including & {"CONSTRAINTS", "ALL"}:
        found.constraints |= dict(metadata_of(state).table_properties.constraints)


def _reject_parameters(parsed: Parsed, parts: Sequence[Any]) -> None:
    """Reject parameters in definitions, which outlive the statement."""
    for part in parts:
        found = part.find(exp.Placeholder) if isinstance(part, exp.Expression) else None
        if found is not None:
            raise parsed.rejected("parameters are not supported in definitions: write the value", found)


@dataclass
class Definer:
    """Gives the expressions of a definition their meaning: in Spark SQL, as Delta stores them."""

    parsed: Parsed
    meaning: Meaning
    columns: list[TypedColumn] = field(default_factory=list)
    """The columns that expressions may name."""

    def condition(self, tree: Tree) -> str:
        """Return the condition of a CHECK."""
        return spark_sql(self.meaning.condition(tree, self._scope()))

    def default(self, tree: Tree, column: TypedColumn) -> Tree:
        """Return the default of a column."""
        return self.meaning.assigned(tree, Scope(), column)

    def generated(self, tree: Tree, column: TypedColumn) -> Tree:
        """Return the expression of a generated column."""
        return self.meaning.assigned(tree, self._scope(), column)

    def _scope(self) -> Scope:
        return Scope([ScopeTable("", self.columns)])


def _columns(schema: Tree, definer: Definer) -> tuple[list[Json], dict[str, str]]:
    parsed = definer.parsed
    columns: list[Json] = []
    constraints: dict[str, str] = {}
    definer.columns += columns_of_fields(
        [_plain(item, parsed) for item in schema.expressions if isinstance(item, exp.ColumnDef)]
    )
    for item in schema.expressions:
        match item:
            case exp.ColumnDef():
                columns.append(_column(item, constraints, definer))
            case exp.Constraint() | exp.CheckColumnConstraint():
                name, condition = check_of(item, definer, f"check_{len(constraints) + 1}")
                constraints[name] = condition
            case exp.LikeProperty():
                pass
            case _:
                raise parsed.rejected(f"{parsed.sql_of(item)} is not supported for tables", item)
    return columns, constraints


def _plain(column: Tree, parsed: Parsed) -> Json:
    """Return a column without its constraints as a field of a Delta schema."""
    plain = column.copy()
    plain.set("constraints", [])
    plain.set("exists", None)
    return _field_of(plain, column, parsed)


def _column(column: Tree, constraints: dict[str, str], definer: Definer) -> Json:
    """Return a column as a field of a Delta schema, and add its CHECK to the constraints."""
    parsed = definer.parsed
    [typed] = [one for one in definer.columns if one.name == column.name][:1]
    kept = []
    for constraint in column.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.CheckColumnConstraint):
            name = constraint.name or f"{column.name}_check"
            constraints[name] = definer.condition(kind.this)
        elif isinstance(
            kind,
            exp.NotNullColumnConstraint
            | exp.DefaultColumnConstraint
            | exp.GeneratedAsIdentityColumnConstraint
            | exp.ComputedColumnConstraint
            | exp.CommentColumnConstraint,
        ):
            kept.append(_stored(constraint, typed, definer))
        else:
            raise parsed.rejected(f"{parsed.sql_of(constraint)} is not supported for columns", column)
    plain = column.copy()
    plain.set("constraints", kept)
    plain.set("exists", None)
    return _field_of(plain, column, parsed)


def _stored(constraint: Tree, column: TypedColumn, definer: Definer) -> Tree:
    """Return a constraint of a column with its expression in Spark SQL."""
    kind = constraint.kind
    copy = constraint.copy()
    if isinstance(kind, exp.DefaultColumnConstraint):
        copy.kind.set("this", definer.default(kind.this, column))
    elif isinstance(kind, exp.ComputedColumnConstraint):
        copy.kind.set("this", definer.generated(kind.this, column))
    elif isinstance(kind, exp.GeneratedAsIdentityColumnConstraint) and kind.expression is not None:
        copy.kind.set("expression", definer.generated(kind.expression, column))
    return copy


def _field_of(plain: Tree, column: Tree, parsed: Parsed) -> Json:
    try:
        [one] = parse_struct(schema_string(spark_sql(plain)))["fields"]
    except (ValidationError, UnsupportedFeature) as error:
        start = start_of(column)
        raise _of_statement(error, f"SQL {text_position(parsed.text, start or 0)}: cannot be run: ") from None
    delta_field: Json = one
    return delta_field


def _of_statement(error: Any, where: str) -> Exception:
    """Return an error about a column with its position in the statement instead of the position in the DDL."""
    message = where + _POSITION.sub("", str(error)).removeprefix("DDL: ")
    if isinstance(error, UnsupportedFeature):
        return UnsupportedFeature(message, features=error.features)
    return ValidationError(message, value=error.value)


def check_of(item: Tree, definer: Definer, name: str) -> tuple[str, str]:
    """Return the name and the condition of a CHECK."""
    parsed = definer.parsed
    if isinstance(item, exp.CheckColumnConstraint):
        return name, definer.condition(item.this)
    checks = [part for part in item.expressions if isinstance(part, exp.CheckColumnConstraint)]
    if len(checks) != 1:
        raise parsed.rejected(f"{parsed.sql_of(item)} is not supported for tables", item)
    return item.name or name, definer.condition(checks[0].this)


def _properties(properties: Tree | None, parsed: Parsed) -> Iterator[tuple[str, Any]]:
    plain: dict[str, str] = {}
    for item in properties.expressions if properties is not None else ():
        match item:
            case exp.PartitionedByProperty():
                yield "partitioned", _partition_columns(item, parsed)
            case exp.PartitionByListProperty():
                yield "partitioned", tuple(part.name for part in item.args["partition_expressions"])
            case exp.LocationProperty():
                yield "location", item.this.name
            case exp.SchemaCommentProperty():
                yield "comment", item.this.name
            case exp.LikeProperty():
                pass
            case exp.FileFormatProperty() if item.this.name.lower() in ("delta", "deltasql"):
                pass
            case exp.Property() if "value" in item.args:
                plain[_key(item.this)] = _text(item.args["value"], item, parsed)
            case _:
                raise parsed.rejected(f"{parsed.sql_of(item)} is not supported for tables", item)
    yield "properties", plain


def _partition_columns(item: Tree, parsed: Parsed) -> tuple[str, ...]:
    """Return the columns of PARTITIONED BY; files are grouped by their values."""
    by = item.this
    if isinstance(by, exp.Func) and by.name.upper() != "LIST":
        why = f"PARTITION BY {by.name.upper()} is not supported: PARTITIONED BY (column, …) groups rows by equal values"
        raise parsed.rejected(why, by)
    names = by.expressions or [by]
    for part in names:
        if not isinstance(part, exp.Identifier | exp.Column | exp.ColumnDef):
            why = f"partitions are columns, not {parsed.sql_of(part)}: add a generated column"
            raise parsed.rejected(why, part)
    return tuple(part.name for part in names)


def _key(node: Tree) -> str:
    """Return the name of a property, with or without quotes."""
    if isinstance(node, exp.Dot):
        return f"{_key(node.this)}.{_key(node.expression)}"
    return ".".join(str(part.name) for part in (node.parts if isinstance(node, exp.Column) else [node]))


def _text(value: Tree, item: Tree, parsed: Parsed) -> str:
    """Return the value of a property as text."""
    match value:
        case exp.Literal() | exp.Var() | exp.Column() | exp.ByteString() | exp.RawString() | exp.National():
            return str(value.name)
        case exp.Boolean():
            return str(value.this).lower()
        case exp.Neg(this=exp.Literal(is_string=False)):
            return f"-{value.name}"
    raise parsed.rejected(
        f"invalid value {parsed.sql_of(value)} of property {_key(item.this)}: use a text in quotes, a number, "
        f"true or false",
        item,
    )


def alteration(parsed: Parsed, meaning: Meaning, columns: Sequence[TypedColumn]) -> Alteration:
    """Return the changes of an ALTER TABLE with these columns."""
    if parsed.tree.args.get("kind", "").upper() != "TABLE":
        raise parsed.rejected("only ALTER TABLE is supported")
    _reject_parameters(parsed, [parsed.tree])
    found = Alteration()
    definer = Definer(parsed, meaning, list(columns))
    for action in parsed.tree.args["actions"]:
        match action:
            case exp.ColumnDef():
                found.columns.append(_new_column(action, found, definer))
            case exp.AddConstraint():
                found.constraints += [check_of(item, definer, "") for item in action.expressions]
            case exp.Drop() if action.args.get("kind") == "CONSTRAINT":
                names = [action.this.name] if action.this else [t.name for t in action.args.get("tables") or ()]
                found.dropped_constraints += [(name, bool(action.args.get("exists"))) for name in names]
            case exp.AlterColumn() if action.args.get("default") is not None:
                found.defaults[action.name] = _new_default(action, definer)
            case exp.AlterColumn() if action.args.get("drop") and not _other(action):
                found.defaults[action.name] = None
            case exp.AlterSet() if action.expressions:
                found.properties |= _assigned(action, parsed)
            case _:
                raise parsed.rejected(f"ALTER TABLE {parsed.sql_of(action)} is not supported", action)
    return found


def _other(action: Tree) -> bool:
    """Return whether ALTER COLUMN … DROP drops something else than the default."""
    return any(value for name, value in action.args.items() if name not in ("this", "drop"))


def _new_default(action: Tree, definer: Definer) -> str:
    named = [column for column in definer.columns if column.name.lower() == action.name.lower()]
    if not named:
        known = [column.name for column in definer.columns]
        raise definer.parsed.rejected(unknown_column(action.name, known), action)
    return spark_sql(definer.default(action.args["default"], named[0]))


def _new_column(column: Tree, found: Alteration, definer: Definer) -> NewColumn:
    parsed = definer.parsed
    checks: dict[str, str] = {}
    definer.columns += columns_of_fields([_plain(column, parsed)])
    plain = column.copy()
    constraints = column.args.get("constraints") or ()
    kept = [one.copy() for one in constraints if not isinstance(one.kind, exp.DefaultColumnConstraint)]
    plain.set("constraints", kept)
    added = _column(plain, checks, definer)
    for constraint in column.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.ComputedColumnConstraint | exp.GeneratedAsIdentityColumnConstraint):
            raise parsed.rejected(f"existing rows have no value for {column.name}: add a plain column", column)
    found.constraints += checks.items()
    return NewColumn(added, bool(column.args.get("exists")), _default_of(column, definer))


def _default_of(column: Tree, definer: Definer) -> str | None:
    """Return the default of a new column in Spark SQL, or None."""
    for constraint in column.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.DefaultColumnConstraint) and not isinstance(kind.this, exp.Null):
            return spark_sql(definer.default(kind.this, definer.columns[-1]))
    return None


def _assigned(action: Tree, parsed: Parsed) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in action.expressions:
        for node in item.expressions if isinstance(item, exp.Properties) else [item]:
            if not isinstance(node, exp.EQ | exp.Property) or isinstance(node.this, exp.EQ):
                raise parsed.rejected(
                    f"SET takes names of properties and their values, got {parsed.sql_of(node)}", node
                )
            value = node.args["value"] if isinstance(node, exp.Property) else node.expression
            found[_key(node.this)] = _text(value, node, parsed)
    return found
