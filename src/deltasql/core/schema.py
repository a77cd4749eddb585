"""Delta schemas: DDL, Spark or Arrow to Delta's `schemaString`, that to Arrow, and whether one is legal.

A schema is handled as the JSON that Delta stores, so field metadata this release does not know survives.
Nothing here knows pyspark (a StructType is whatever has `jsonValue()`), files or tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import sqlglot
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from deltasql.errors import UnsupportedFeature, ValidationError

Json = dict[str, Any]
DeltaType = str | Json


class StructTypeLike(Protocol):
    """What this module asks of a pyspark StructType."""

    def jsonValue(self) -> Any: ...


_ARROW: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "null": pa.null(),
}
_VOID = ("void", "null")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MAX_PRECISION = 38
_DECIMAL_RANGE = f"the precision goes from 1 to {_MAX_PRECISION}, the scale from 0 to the precision"
_CHAR = re.compile(r"(?:var)?char\(\s*\d+\s*\)")
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def schema_string(schema: str | pa.Schema | StructTypeLike, *, table: str | None = None) -> str:
    """The schemaString of a DDL column list, a schemaString, a pyspark StructType or a pyarrow.Schema."""
    if isinstance(schema, str):
        is_json = schema.lstrip().startswith("{")
        struct = _loads(schema, table) if is_json else _struct(_Ddl(schema, table).columns())
    elif isinstance(schema, pa.Schema):
        struct = _struct([_from_arrow_field(field, "", table) for field in schema])
    elif hasattr(schema, "jsonValue"):
        struct = schema.jsonValue()
    else:
        raise _invalid(
            f"a schema is DDL such as 'id BIGINT NOT NULL, day DATE', a pyarrow.Schema or a pyspark "
            f"StructType, got {type(schema).__name__}",
            table,
            schema,
        )
    _check_type(struct, "", table)
    return _dumps(_struct([_without_char(field) for field in struct["fields"]]))


@lru_cache(maxsize=256)
def arrow_schema(schema_string: str) -> pa.Schema:
    """The Arrow schema of a Delta table; Delta's field metadata becomes Arrow's, each value as JSON."""
    return pa.schema([_arrow_field(field) for field in _parse(schema_string)["fields"]])


def schema_types(schema_string: str) -> set[str]:
    """The names of the primitive types used anywhere, decimals without their precision."""
    return {name.partition("(")[0] for name in _primitives(_parse(schema_string))}


def schema_metadata_keys(schema_string: str) -> set[str]:
    """The keys of field metadata used anywhere: some of them switch table features on."""
    return {key for field in _fields(_parse(schema_string)) for key in field.get("metadata") or ()}


def _invalid(problem: str, table: str | None, value: Any) -> ValidationError:
    return ValidationError(f"table {table}: {problem}" if table else problem, table=table, value=value)


def _unsupported(problem: str, table: str | None, feature: str) -> UnsupportedFeature:
    text = f"table {table}: {problem}" if table else problem
    return UnsupportedFeature(text, features=(feature,), table=table)


# --- schemaString


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _struct(fields: list[Json]) -> Json:
    return {"type": "struct", "fields": fields}


def _array(element: DeltaType, contains_null: bool = True) -> Json:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def _map(key: DeltaType, value: DeltaType, contains_null: bool = True) -> Json:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": contains_null}


def _field(name: str, type_: DeltaType, nullable: bool, metadata: Json) -> Json:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def _parse(text: str, table: str | None = None) -> Json:
    """The JSON of a schemaString, known to be well formed and to hold only types this release knows."""
    struct = _loads(text, table)
    _check_type(struct, "", table)
    return struct


def _loads(text: str, table: str | None) -> Json:
    try:
        struct = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _invalid(f"the schemaString is not JSON ({error}): {str(text)[:120]!r}", table, text) from None
    if not isinstance(struct, dict) or struct.get("type") != "struct":
        raise _invalid(f'a schemaString is a JSON object of "type":"struct", got {text[:120]!r}', table, text)
    return struct


def _check_type(type_: Any, path: str, table: str | None) -> None:
    match type_:
        case str():
            _check_primitive(type_, path, table)
        case {"type": "struct", "fields": [*fields]}:
            for field in fields:
                _check_field(field, path, table)
        case {"type": "array", "elementType": element, "containsNull": bool()}:
            _check_type(element, _join(path, "element"), table)
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": bool()}:
            _check_type(key, _join(path, "key"), table)
            _check_type(value, _join(path, "value"), table)
            if key in _VOID:
                raise _invalid(f"column {path!r}: the keys of a map cannot be void", table, type_)
        case _:
            where = f"the type of column {path!r}" if path else "the schema"
            raise _invalid(f"malformed schemaString: {where} reads {_dumps(type_)[:120]}", table, type_)


def _check_field(field: Any, path: str, table: str | None) -> None:
    match field:
        case {"name": str(name), "type": type_} if isinstance(field.get("nullable", True), bool) and isinstance(
            field.get("metadata") or {}, dict
        ):
            _check_type(type_, _join(path, name), table)
        case _:
            where = f"a field of column {path!r}" if path else "a field"
            raise _invalid(f"malformed schemaString: {where} reads {_dumps(field)[:120]}", table, field)


def _check_primitive(name: str, path: str, table: str | None) -> None:
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = map(int, decimal.groups())
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise _invalid(f"column {path!r}: {name} is out of range: {_DECIMAL_RANGE}", table, name)
    elif name not in _ARROW and not _CHAR.fullmatch(name):
        raise _unsupported(
            f"column {path!r} has type {name}, which this release of deltasql does not know: "
            f"leave the column out, or store it as string or binary",
            table,
            name,
        )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _children(type_: DeltaType) -> list[tuple[str, DeltaType]]:
    """The types right inside a type, each with the name its column path gets."""
    if isinstance(type_, str):
        return []
    named = [(field["name"], field["type"]) for field in type_.get("fields", ())]
    return named + [(name, type_[name + "Type"]) for name in ("element", "key", "value") if name + "Type" in type_]


def _primitives(type_: DeltaType) -> Iterator[str]:
    if isinstance(type_, str):
        yield type_
    for _, child in _children(type_):
        yield from _primitives(child)


def _fields(type_: DeltaType) -> Iterator[Json]:
    """Every field of every struct."""
    if not isinstance(type_, str):
        yield from type_.get("fields", ())
    for _, child in _children(type_):
        yield from _fields(child)


# --- CHAR and VARCHAR: Delta stores strings, and Spark finds the declared type in the column's metadata


def _without_char(field: Json) -> Json:
    if not any(map(_CHAR.fullmatch, _primitives(field["type"]))):
        return field
    metadata = {**(field.get("metadata") or {}), _CHAR_METADATA: _catalog_string(field["type"])}
    return {**field, "type": _char_to_string(field["type"]), "metadata": metadata}


def _char_to_string(type_: DeltaType) -> DeltaType:
    if isinstance(type_, str):
        return "string" if _CHAR.fullmatch(type_) else type_
    if "fields" in type_:
        return _struct([{**field, "type": _char_to_string(field["type"])} for field in type_["fields"]])
    return {key: _char_to_string(value) if key.endswith("Type") else value for key, value in type_.items()}


_CATALOG = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def _catalog_string(type_: DeltaType) -> str:
    """A type as Spark's catalog writes it."""
    if isinstance(type_, str):
        return _CATALOG.get(type_, type_)
    named = type_["type"] == "struct"
    inside = [(f"{name}:" if named else "") + _catalog_string(child) for name, child in _children(type_)]
    return f"{type_['type']}<{','.join(inside)}>"


# --- Delta to Arrow


def _arrow_field(field: Json) -> pa.Field:
    metadata = {key: _dumps(value) for key, value in (field.get("metadata") or {}).items()}
    return _nullable(field["name"], field["type"], field.get("nullable", True), metadata)


def _nullable(name: str, type_: DeltaType, nullable: bool, metadata: Mapping[str, str] | None = None) -> pa.Field:
    # Arrow has no field of nulls that is not nullable.
    return pa.field(name, _arrow_type(type_), nullable or type_ in _VOID, metadata or None)


def _arrow_type(type_: DeltaType) -> pa.DataType:
    if isinstance(type_, str):
        decimal = _DECIMAL.fullmatch(type_)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        return pa.string() if _CHAR.fullmatch(type_) else _ARROW[type_]
    if type_["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in type_["fields"]])
    if type_["type"] == "array":
        return pa.list_(_nullable("element", type_["elementType"], type_["containsNull"]))
    value = _nullable("value", type_["valueType"], type_["valueContainsNull"])
    return pa.map_(_nullable("key", type_["keyType"], False), value)


# --- Arrow to Delta


def _inverted(words: Mapping[str, str]) -> dict[str, str]:
    return {word: name for name, many in words.items() for word in many.split("|")}


_FROM_ARROW = _inverted(
    {
        "byte": "int8",
        "short": "int16|uint8",
        "integer": "int32|uint16",
        "long": "int64|uint32",
        "float": "float|halffloat",
        "double": "double",
        "boolean": "bool",
        "string": "string|large_string|string_view",
        "binary": "binary|large_binary|binary_view",
        "date": "date32[day]|date64[ms]",
        "void": "null",
    }
)
_WAY_OUT: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (pa.types.is_uint64, "cast it to int64, or to decimal128(20, 0) when values reach 2^63"),
    (pa.types.is_time, "cast it to int64 or string"),
    (pa.types.is_duration, "cast it to int64"),
    (pa.types.is_interval, "cast it to string, or keep its parts in columns of their own"),
    (pa.types.is_union, "make it a struct with one nullable field per member"),
    (pa.types.is_decimal, f"cast it to a decimal where {_DECIMAL_RANGE}"),
    (lambda type_: isinstance(type_, pa.BaseExtensionType), "cast it to its storage type"),
)
# Spark reads these values as text, so they stay text even where they look like JSON.
_TEXT_METADATA = {"comment", "CURRENT_DEFAULT", "EXISTS_DEFAULT", _CHAR_METADATA, _PHYSICAL_NAME}
_TEXT_METADATA |= {"delta.generationExpression", "delta.invariants"}
# What pyarrow itself adds to fields: true of one file or one process, not of a table.
_ARROW_METADATA = ("PARQUET:", "ARROW:")
_LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")


def _from_arrow_field(field: pa.Field, path: str, table: str | None) -> Json:
    type_ = _from_arrow(field.type, _join(path, field.name), table)
    texts = {key.decode(): value.decode(errors="replace") for key, value in (field.metadata or {}).items()}
    metadata = {k: _metadata_value(k, v) for k, v in texts.items() if not k.startswith(_ARROW_METADATA)}
    return _field(field.name, type_, field.nullable, metadata)


def _metadata_value(key: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if key in _TEXT_METADATA and not isinstance(value, str) else value


def _from_arrow(type_: pa.DataType, path: str, table: str | None) -> DeltaType:
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _from_arrow(type_.value_type, path, table)
    delta = primitive_name(type_) or _nested_from_arrow(type_, path, table)
    if delta is None:
        hint = next((hint for test, hint in _WAY_OUT if test(type_)), "cast it to a type that Delta has")
        raise _unsupported(
            f"column {path!r} is {type_} in Arrow, a type that Delta does not have: {hint}", table, str(type_)
        )
    return delta


def primitive_name(type_: pa.DataType) -> str | None:
    """Delta's name for an Arrow type, if it is one of Delta's primitive types."""
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= _MAX_PRECISION:
        return f"decimal({type_.precision},{type_.scale})"
    return "binary" if pa.types.is_fixed_size_binary(type_) else _FROM_ARROW.get(str(type_))


def is_list(type_: pa.DataType) -> bool:
    """Is this one of Arrow's many kinds of list?"""
    return any(getattr(pa.types, f"is_{kind}")(type_) for kind in _LISTS)


def _nested_from_arrow(type_: pa.DataType, path: str, table: str | None) -> Json | None:
    if pa.types.is_struct(type_):
        return _struct([_from_arrow_field(field, path, table) for field in type_])
    if pa.types.is_map(type_):
        key = _from_arrow(type_.key_type, _join(path, "key"), table)
        value = _from_arrow(type_.item_type, _join(path, "value"), table)
        return _map(key, value, type_.item_field.nullable)
    if is_list(type_):
        return _array(_from_arrow(type_.value_type, _join(path, "element"), table), type_.value_field.nullable)
    return None


# --- DDL

_DDL = _inverted(
    {
        "byte": "BYTE|TINYINT",
        "short": "SHORT|SMALLINT",
        "integer": "INT|INTEGER",
        "long": "LONG|BIGINT",
        "float": "FLOAT|REAL",
        "double": "DOUBLE|DOUBLE PRECISION",
        "string": "STRING|TEXT",
        "binary": "BINARY|BYTEA",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp": "TIMESTAMP|TIMESTAMP_LTZ",
        "timestamp_ntz": "TIMESTAMP_NTZ",
        "void": "VOID",
    }
)
_DDL_DECIMAL = ("DECIMAL", "NUMERIC", "DEC")
_DDL_CHAR = ("VARCHAR", "CHARACTER VARYING", "CHAR", "CHARACTER")
_DDL_NESTED = ("ARRAY", "MAP", "STRUCT")
_DDL_REFUSED = ("VARIANT", "INTERVAL", "TIME", "GEOMETRY", "GEOGRAPHY")
_CONSTRAINTS = ("PRIMARY KEY", "FOREIGN KEY", "UNIQUE", "CHECK", "REFERENCES", "CONSTRAINT")


_END = "the end"


class _Token(NamedTuple):
    text: str
    word: str  # in upper case; empty for strings and for names in backticks
    kind: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    # In parentheses no word is taken for a command, and the newline ends a comment on the last line.
    _, *tokens, last = Dialect.get_or_raise("spark").tokenize(f"({text}\n)")
    if last.start != len(text) + 2:
        raise SqlglotError("a comment is left open")
    found = [_Token(t.text, t.text.upper(), t.token_type.name, t.start - 1, t.end) for t in tokens]
    quoted = ("IDENTIFIER", "STRING")
    return [
        *(t._replace(word="") if t.kind in quoted else t for t in found),
        _Token(_END, _END, _END, len(text), len(text)),
    ]


def _is_expression(text: str) -> bool:
    try:
        return bool(text) and sqlglot.parse_one(f"SELECT ({text}\n)", dialect="spark") is not None
    except SqlglotError:
        return False


class _Ddl:
    """A column list in Spark's DDL.

    Read from sqlglot's tokens rather than its trees: tokens know where they stand, and the expressions of
    DEFAULT and GENERATED have to be kept as they were written.
    """

    def __init__(self, text: str, table: str | None) -> None:
        self.text, self.table, self.at = text, table, 0
        try:
            self.tokens = _tokens(text)
        except SqlglotError:
            raise _invalid(f"DDL: is a quote or a comment left open? {text[:120]!r}", table, text) from None

    def columns(self) -> list[Json]:
        fields = self._list(lambda: self._column("")) if len(self.tokens) > 1 else []
        self._expect(_END)
        return fields

    def _peek(self, offset: int = 0) -> _Token:
        return self.tokens[min(self.at + offset, len(self.tokens) - 1)]

    def _take(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _accept(self, *words: str) -> bool:
        found = all(self._peek(offset).word == word for offset, word in enumerate(words))
        self.at += len(words) * found
        return found

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._unexpected(f"a comma or {word}" if word == _END else repr(word))

    def _list(self, item: Callable[[], Any]) -> list[Any]:
        items = [item()]
        while self._accept(","):
            items.append(item())
        return items

    def _where(self) -> str:
        before = self.text[: self._peek().start]
        return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"

    def _unexpected(self, wanted: str) -> ValidationError:
        got = _END if self._peek().kind == _END else repr(self._peek().text)
        return _invalid(f"DDL: expected {wanted} at {self._where()}, got {got}", self.table, self.text)

    def _column(self, path: str) -> Json:
        if not path:
            self._refuse_table_constraint()
        name = self._name()
        self._accept(":")
        type_ = self._type(_join(path, name))
        nullable = True
        metadata: Json = {}
        while self._peek().word not in (",", ">", _END):
            if self._accept("NOT", "NULL"):
                nullable = False
            else:
                metadata.update(self._clause(_join(path, name), nested=bool(path)))
        return _field(name, type_, nullable, metadata)

    def _name(self) -> str:
        token = self._peek()
        if token.kind != "IDENTIFIER" and not re.fullmatch(r"\w+", token.word):
            raise self._unexpected("a column name (in backticks when it is not a plain word)")
        return self._take().text

    def _refuse_table_constraint(self) -> None:
        word, following, third = (self._peek(offset).word for offset in range(3))
        named = word == "CONSTRAINT" and third in _CONSTRAINTS
        keyed = word in ("PRIMARY KEY", "FOREIGN KEY")
        if named or keyed or (word in ("UNIQUE", "CHECK") and following == "("):
            raise self._constraint(third if named else word)

    def _constraint(self, word: str) -> UnsupportedFeature:
        hint = "Delta tables have no keys: leave it out, and MERGE on the key columns to keep rows unique"
        if word == "CHECK":
            hint = 'give it to create_table as constraints={"name": "condition"}'
        return _unsupported(f"DDL: {word} at {self._where()} is not supported: {hint}", self.table, word)

    def _clause(self, column: str, *, nested: bool) -> Json:
        """One clause after a column's type, as field metadata."""
        word = self._peek().word
        if self._accept("COMMENT"):
            return {"comment": self._string()}
        if nested:
            raise self._unexpected("NOT NULL, COMMENT, a comma or '>'")
        if self._accept("DEFAULT"):
            return {"CURRENT_DEFAULT": self._expression(column, self._at_end_of_default)}
        if word == "GENERATED":
            return {"delta.generationExpression": self._generated(column)}
        if word in _CONSTRAINTS:
            raise self._constraint(self._peek(2).word if word == "CONSTRAINT" else word)
        raise self._unexpected("NOT NULL, COMMENT, DEFAULT, GENERATED ALWAYS AS, a comma or the end")

    def _generated(self, column: str) -> str:
        where = self._where()
        by_default = self._accept("GENERATED", "BY", "DEFAULT", "AS")
        if not (by_default or self._accept("GENERATED", "ALWAYS", "AS")):
            raise self._unexpected("GENERATED ALWAYS AS (expression)")
        if by_default or self._peek().word == "IDENTITY":
            raise _unsupported(
                f"DDL: the IDENTITY column {column!r} at {where} is not supported: number the rows in the "
                f"job that writes them, or use a uuid",
                self.table,
                "identityColumns",
            )
        self._expect("(")
        text = self._expression(column, lambda: self._peek().word == ")")
        self._expect(")")
        return text

    def _at_end_of_default(self) -> bool:
        word, before = self._peek().word, self._peek(-1).word
        not_null = word == "NOT" and self._peek(1).word == "NULL" and before != "IS"
        return not_null or word in (",", _END, "COMMENT", "GENERATED", *_CONSTRAINTS)

    def _expression(self, column: str, ended: Callable[[], bool]) -> str:
        """The text of a SQL expression up to where it ends outside parentheses."""
        where, start, depth = self._where(), self.at, 0
        while self._peek().kind != _END and (depth or not ended()):
            depth += {"(": 1, ")": -1}.get(self._take().word, 0)
        text = self.text[self.tokens[start].start : self.tokens[self.at - 1].end]
        if not _is_expression(text):
            problem = f"DDL: column {column!r} lacks a SQL expression at {where}, got {text!r}"
            raise _invalid(problem, self.table, text)
        return text

    def _string(self) -> str:
        if self._peek().kind != "STRING":
            raise self._unexpected("a string in quotes")
        last = self._take()
        text = last.text
        while self._peek().kind == "STRING":
            # 'it''s' comes as two strings that touch.
            touching = self._peek().start == last.end
            last = self._take()
            text += ("'" if touching else "") + last.text
        return text

    def _type(self, path: str) -> DeltaType:
        word = self._peek().word
        if word in _DDL:
            self._take()
            return _DDL[word]
        if word in _DDL_DECIMAL:
            return self._decimal()
        if word in _DDL_CHAR:
            return self._char()
        if word in _DDL_NESTED:
            return self._nested(path)
        raise self._unknown_type(word, path)

    def _unknown_type(self, word: str, path: str) -> ValidationError | UnsupportedFeature:
        if word in _DDL_REFUSED:
            return _unsupported(
                f"DDL: column {path!r} at {self._where()} is of type {word}, which this release of deltasql "
                f"does not know: store it as STRING or BINARY",
                self.table,
                word.lower(),
            )
        near = get_close_matches(word, [*_DDL, *_DDL_DECIMAL, *_DDL_CHAR, *_DDL_NESTED], n=1)
        return self._unexpected(f"a type for column {path!r}{f' (did you mean {near[0]}?)' if near else ''}")

    def _numbers(self) -> list[int]:
        if not self._accept("("):
            return []
        numbers = self._list(self._number)
        self._expect(")")
        return numbers

    def _number(self) -> int:
        if not self._peek().word.isdecimal():
            raise self._unexpected("a whole number")
        return int(self._take().text)

    def _decimal(self) -> str:
        where, word = self._where(), self._take().text
        numbers = self._numbers() or [10]
        if len(numbers) > 2:
            raise _invalid(f"DDL: {word} at {where} is {word}(precision, scale)", self.table, word)
        return f"decimal({numbers[0]},{numbers[1] if len(numbers) == 2 else 0})"

    def _char(self) -> str:
        where, word = self._where(), self._take().word
        length = self._numbers()
        if len(length) != 1:
            raise _invalid(
                f"DDL: {word} at {where} takes a length, as in {word}(10): without a limit it is STRING",
                self.table,
                word,
            )
        return f"{'varchar' if 'VAR' in word else 'char'}({length[0]})"

    def _nested(self, path: str) -> DeltaType:
        kind = self._take().word
        self._expect("<")
        if kind == "ARRAY":
            type_ = _array(self._type(_join(path, "element")))
        elif kind == "MAP":
            key = self._type(_join(path, "key"))
            self._expect(",")
            type_ = _map(key, self._type(_join(path, "value")))
        else:
            type_ = _struct(self._list(lambda: self._column(path)))
        self._expect(">")
        return type_


# --- is it legal?

_ILLEGAL_IN_NAME = re.compile(r"[ ,;{}()\n\t=]")


def validate_schema(schema_string: str, partition_columns: Sequence[str], table: str) -> None:
    """Refuse a schema, or a partitioning of it, that Delta readers would refuse."""
    struct = _parse(schema_string, table)
    if not struct["fields"]:
        raise _invalid("a table needs at least one column", table, schema_string)
    _check_names(struct, "", table)
    _check_partitioning(struct, partition_columns, table)


def _check_names(type_: DeltaType, path: str, table: str) -> None:
    seen: dict[str, str] = {}
    for field in [] if isinstance(type_, str) else type_.get("fields", ()):
        name = field["name"]
        _check_name(name, path, field.get("metadata") or {}, table)
        if name.lower() in seen:
            twin = _join(path, seen[name.lower()])
            raise _invalid(
                f"the columns {twin!r} and {_join(path, name)!r} differ at most in case: "
                f"Delta column names ignore case, so rename one",
                table,
                name,
            )
        seen[name.lower()] = name
    for name, child in _children(type_):
        _check_names(child, _join(path, name), table)


def _check_name(name: str, path: str, metadata: Json, table: str) -> None:
    if not name:
        raise _invalid(f"a column{f' inside {path!r}' if path else ''} has an empty name: give it one", table, name)
    if _ILLEGAL_IN_NAME.search(name) and _PHYSICAL_NAME not in metadata:
        raise _invalid(
            f"column {_join(path, name)!r}: a column name in a Delta table cannot hold any of "
            f"' ,;{{}}()\\n\\t=': call it {_ILLEGAL_IN_NAME.sub('_', name).strip('_') or 'column'!r}",
            table,
            name,
        )


def _check_partitioning(struct: Json, partition_columns: Sequence[str], table: str) -> None:
    types = {field["name"]: field["type"] for field in struct["fields"]}
    for index, name in enumerate(partition_columns):
        if name not in types:
            raise _invalid(f"partition column {name!r} is not a column: {_nearest(name, list(types))}", table, name)
        if name in partition_columns[:index]:
            raise _invalid(f"partition column {name!r} is given twice", table, name)
        if isinstance(types[name], dict):
            kind = types[name]["type"]
            raise _invalid(f"partition column {name!r} is of type {kind}: partition by a simple type", table, name)
    if len(partition_columns) == len(types):
        raise _invalid("every column is a partition column: leave at least one for the files to hold", table, None)


def _nearest(name: str, names: list[str]) -> str:
    by_case = {known.lower(): known for known in names}
    near = get_close_matches(str(name).lower(), by_case, n=1)
    return f"did you mean {by_case[near[0]]!r}?" if near else f"the columns are {', '.join(names)}"
