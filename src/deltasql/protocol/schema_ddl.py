"""Parser of column lists in Spark's DDL, into Delta's JSON types.

Only this parser of schemas needs sqlglot, which is slow to import: `schema` imports this module when it parses DDL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import sqlglot
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from deltasql.errors import UnsupportedFeature, ValidationError, closest_name, text_position
from deltasql.protocol.schema import (
    DeltaType,
    Json,
    array_type,
    by_alias,
    invalid,
    join_path,
    map_type,
    struct_field,
    struct_type,
    unsupported,
)

_DDL = by_alias(
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
_DDL_UNSUPPORTED = ("VARIANT", "INTERVAL", "TIME", "GEOMETRY", "GEOGRAPHY")
_CONSTRAINTS = ("PRIMARY KEY", "FOREIGN KEY", "UNIQUE", "CHECK", "REFERENCES", "CONSTRAINT")


_END = "the end"
_MOST_DIGITS = 9


class _Token(NamedTuple):
    text: str
    word: str  # in upper case; empty for strings and quoted names
    kind: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    # In parentheses no word is parsed as a command, and the newline ends a comment on the last line.
    _, *tokens, last = Dialect.get_or_raise("spark").tokenize(f"({text}\n)")
    if last.start != len(text) + 2:
        raise SqlglotError("a comment is not closed")
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


class Ddl:
    """A column list in Spark's DDL.

    The parser uses sqlglot's tokens, not its trees: tokens have positions, and the expressions of DEFAULT and GENERATED
    are stored as they are written.
    """

    def __init__(self, text: str, table: str | None) -> None:
        self.text, self.table, self.index = text, table, 0
        try:
            self.tokens = _tokens(text)
        except SqlglotError:
            raise invalid(f"DDL: a quote or a comment is not closed: {text[:120]!r}", table, text) from None

    def columns(self) -> list[Json]:
        """Return the columns as Delta's JSON fields."""
        fields = self._list(lambda: self._column("")) if len(self.tokens) > 1 else []
        self._expect(_END)
        return fields

    def _peek(self, offset: int = 0) -> _Token:
        return self.tokens[min(self.index + offset, len(self.tokens) - 1)]

    def _take(self) -> _Token:
        self.index += 1
        return self.tokens[self.index - 1]

    def _accept(self, *words: str) -> bool:
        matches = all(self._peek(offset).word == word for offset, word in enumerate(words))
        self.index += len(words) * matches
        return matches

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._unexpected(f"a comma or {word}" if word == _END else repr(word))

    def _list(self, item: Callable[[], Any]) -> list[Any]:
        items = [item()]
        while self._accept(","):
            items.append(item())
        return items

    def _position(self) -> str:
        return text_position(self.text, self._peek().start)

    def _unexpected(self, expected: str) -> ValidationError:
        got = _END if self._peek().kind == _END else repr(self._peek().text)
        return invalid(f"DDL: expected {expected} at {self._position()}, got {got}", self.table, self.text)

    def _column(self, path: str) -> Json:
        if not path:
            self._reject_table_constraint()
        name = self._name()
        self._accept(":")
        type_ = self._type(join_path(path, name))
        nullable = True
        metadata: Json = {}
        while self._peek().word not in (",", ">", _END):
            if self._accept("NOT", "NULL"):
                nullable = False
            else:
                metadata.update(self._clause(join_path(path, name), nested=bool(path)))
        return struct_field(name, type_, nullable, metadata)

    def _name(self) -> str:
        token = self._peek()
        if token.kind != "IDENTIFIER" and not re.fullmatch(r"\w+", token.word):
            raise self._unexpected("a column name (in backticks when it is not a plain word)")
        return self._take().text

    def _reject_table_constraint(self) -> None:
        word, following, third = (self._peek(offset).word for offset in range(3))
        named = word == "CONSTRAINT" and third in _CONSTRAINTS
        keyed = word in ("PRIMARY KEY", "FOREIGN KEY")
        if named or keyed or (word in ("UNIQUE", "CHECK") and following == "("):
            raise self._constraint(third if named else word)

    def _constraint(self, word: str) -> UnsupportedFeature:
        hint = "Delta tables have no keys; leave it out, and use MERGE on the key columns to keep rows unique"
        if word == "CHECK":
            hint = 'use create_table(constraints={"name": "condition"})'
        return unsupported(f"DDL: {word} at {self._position()} is not supported: {hint}", self.table, word)

    def _clause(self, column: str, *, nested: bool) -> Json:
        """Parse one clause after a column's type into field metadata."""
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
        position = self._position()
        by_default = self._accept("GENERATED", "BY", "DEFAULT", "AS")
        if not (by_default or self._accept("GENERATED", "ALWAYS", "AS")):
            raise self._unexpected("GENERATED ALWAYS AS (expression)")
        if by_default or self._peek().word == "IDENTITY":
            raise unsupported(
                f"DDL: the IDENTITY column {column!r} at {position} is not supported: generate the numbers in the "
                f"job that writes the rows, or use a UUID",
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
        """Return the text of a SQL expression up to its end outside parentheses."""
        position, start, depth = self._position(), self.index, 0
        while self._peek().kind != _END and (depth or not ended()):
            depth += {"(": 1, ")": -1}.get(self._take().word, 0)
        text = self.text[self.tokens[start].start : self.tokens[self.index - 1].end]
        if not _is_expression(text):
            problem = f"DDL: column {column!r}: expected a SQL expression at {position}, got {text!r}"
            raise invalid(problem, self.table, text)
        return text

    def _string(self) -> str:
        if self._peek().kind != "STRING":
            raise self._unexpected("a string in quotes")
        last = self._take()
        text = last.text
        while self._peek().kind == "STRING":
            # The tokens of 'it''s' are two adjacent strings.
            adjacent = self._peek().start == last.end
            last = self._take()
            text += ("'" if adjacent else "") + last.text
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
        if word in _DDL_UNSUPPORTED:
            return unsupported(
                f"DDL: column {path!r} at {self._position()} has type {word}, which this release of deltasql "
                f"does not support: store it as STRING or BINARY",
                self.table,
                word.lower(),
            )
        close = closest_name(word, [*_DDL, *_DDL_DECIMAL, *_DDL_CHAR, *_DDL_NESTED])
        hint = f' (did you mean "{close}"?)' if close else ""
        return self._unexpected(f"a type for column {path!r}{hint}")

    def _numbers(self) -> list[int]:
        if not self._accept("("):
            return []
        numbers = self._list(self._number)
        self._expect(")")
        return numbers

    def _number(self) -> int:
        word = self._peek().word
        if not word.isdecimal() or len(word) > _MOST_DIGITS:
            raise self._unexpected(f"a whole number of at most {_MOST_DIGITS} digits")
        return int(self._take().text)

    def _decimal(self) -> str:
        position, word = self._position(), self._take().text
        numbers = self._numbers() or [10]
        if len(numbers) > 2:
            raise invalid(f"DDL: {word} at {position} must be {word}(precision, scale)", self.table, word)
        return f"decimal({numbers[0]},{numbers[1] if len(numbers) == 2 else 0})"

    def _char(self) -> str:
        position, word = self._position(), self._take().word
        length = self._numbers()
        if len(length) != 1:
            raise invalid(
                f"DDL: {word} at {position} must have a length, as in {word}(10): without a limit use STRING",
                self.table,
                word,
            )
        return f"{'varchar' if 'VAR' in word else 'char'}({length[0]})"

    def _nested(self, path: str) -> DeltaType:
        kind = self._take().word
        self._expect("<")
        if kind == "ARRAY":
            type_ = array_type(self._type(join_path(path, "element")))
        elif kind == "MAP":
            key = self._type(join_path(path, "key"))
            self._expect(",")
            type_ = map_type(key, self._type(join_path(path, "value")))
        else:
            type_ = struct_type(self._list(lambda: self._column(path)))
        self._expect(">")
        return type_
