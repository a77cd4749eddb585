"""The text of a predicate as a syntax tree whose columns are known to exist.

Owns the syntax, the names and their errors. Knows nothing of what a condition means.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from deltasql.errors import ValidationError, unknown_column
from deltasql.expressions.bounds import ColumnPath

Node = Any  # exp.Expression, or its base class in newer releases of sqlglot

_SHOWN = 200
_DEEP = 8_000
_deep_lock = threading.Lock()
_ROW_ALONE = "a predicate is decided for each row by itself"
_REFUSED: tuple[tuple[type[Any], str], ...] = (
    (exp.AggFunc, f"an aggregate is not allowed: {_ROW_ALONE}"),
    (exp.Window, f"a window function is not allowed: {_ROW_ALONE}"),
    (exp.Query, "a subquery is not allowed: run it first and put its result into the predicate"),
    (exp.Placeholder, "a parameter is not allowed: put its value into the predicate"),
    (exp.Parameter, "a parameter is not allowed: put its value into the predicate"),
)
_CHAR_METADATA = b"__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(rb"(?<!var)char\(")


@dataclass(frozen=True, slots=True)
class Reference:
    """A column that a predicate names: its top-level name, and its path and type where it is a leaf."""

    root: str
    path: ColumnPath | None = None
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class ConditionText:
    """The text of a predicate, for errors that say where."""

    text: str
    table: str | None

    def error(self, problem: str, start: int | None = None) -> ValidationError:
        shown = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"
        where = f", {self._place(start)}" if start is not None else ""
        subject = f"table {self.table}: predicate" if self.table else "predicate"
        end = "" if problem.endswith("?") else "."
        return ValidationError(f"{subject} {shown!r}{where}: {problem}{end}", table=self.table, value=self.text)

    def _place(self, start: int) -> str:
        before = self.text[:start]
        return f"line {before.count(chr(10)) + 1}, column {start - before.rfind(chr(10))}"


@contextmanager
def room_for_nesting(source: ConditionText) -> Iterator[None]:
    """sqlglot takes about twenty calls for each level of parentheses, the interpreter allows a thousand."""
    with _deep_lock:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual, _DEEP))
        try:
            yield
        except RecursionError:
            raise source.error("it is nested too deeply: join the conditions without parentheses") from None
        finally:
            sys.setrecursionlimit(usual)


# --- Syntax


def parse_condition(source: ConditionText) -> tuple[Node, frozenset[str]]:
    """The tree, and those strings of it that Spark may read otherwise."""
    tokens = _tokens(source)
    end = next((token for token in tokens[:-1] if token.token_type.name == "SEMICOLON"), None)
    if end is not None:
        raise source.error("it holds several statements: give one condition", end.start)
    try:
        tree = Spark().parser().parse_into(exp.Condition, tokens, source.text)[0]
    except ParseError as error:
        raise _syntax_error(source, error) from None
    _refuse(tree, source)
    return tree, frozenset(_doubtful(tokens, source.text))


def _refuse(tree: Node, source: ConditionText) -> None:
    kinds = tuple(kind for kind, _ in _REFUSED)
    bad = next((node for node in tree.walk() if isinstance(node, kinds)), None)
    if bad is not None:
        problem = next(problem for kind, problem in _REFUSED if isinstance(bad, kind))
        raise source.error(problem, _start(bad))


def _tokens(source: ConditionText) -> list[Any]:
    try:
        tokens = Spark().tokenize(source.text)
    except TokenError:
        opened = max(map(source.text.rfind, ("'", '"', "`", "/*")))
        raise source.error("a quote or a comment is opened here and not closed", opened) from None
    if not tokens:
        raise source.error("it is empty: give a condition such as day = '2026-01-01', or leave it out")
    return tokens


def _doubtful(tokens: Sequence[Any], text: str) -> Iterator[str]:
    """What a backslash means depends on spark.sql.parser.escapedStringLiterals."""
    for token in tokens:
        if token.token_type.name == "STRING" and "\\" in text[token.start : token.end + 1]:
            yield token.text


def _syntax_error(source: ConditionText, error: ParseError) -> ValidationError:
    details = error.errors[0] if error.errors else {}
    word = details.get("highlight") or ""
    lines = source.text.splitlines(keepends=True)[: details.get("line", 1) - 1]
    start = sum(map(len, lines)) + details.get("col", 1) - len(word)
    problem = f"it is no condition in Spark's SQL, see {word!r}" if word else "it is no condition in Spark's SQL"
    return source.error(f"{problem}: compare columns with values, as in id = 5 AND day > '2026-01-01'", start)


def _start(node: Node) -> int | None:
    places = [part.meta.get("start") for part in node.walk() if "start" in part.meta]
    return min(places, default=None)


# --- Names


@dataclass(frozen=True, slots=True)
class Names:
    """The columns of a table as Spark finds them: by any case, with or without the table's name."""

    schema: pa.Schema
    source: ConditionText

    def references(self, node: Node) -> Iterator[Reference]:
        """Every column used anywhere under a node."""
        for column in node.find_all(exp.Column):
            yield self.reference(_outermost(column))

    def reference(self, node: Node) -> Reference:
        """The column that `a`, `s.b` or `table.a` names."""
        identifiers = list(_identifiers(node))
        for skipped in self._qualifiers([part.name.lower() for part in identifiers]):
            root = _field(self.schema, identifiers[skipped].name)
            if root is not None:
                return self._nested(root, identifiers[skipped + 1 :])
        raise self._unknown(identifiers[0], ".".join(part.name for part in identifiers), self.schema)

    def _qualifiers(self, parts: Sequence[str]) -> Iterator[int]:
        """How many leading parts may be the table's name; the longest first, none last."""
        table = (self.source.table or "").lower().split(".")
        for length in range(min(len(table), len(parts) - 1), 0, -1):
            if list(parts[:length]) == table[-length:]:
                yield length
        yield 0

    def _nested(self, root: pa.Field, rest: Sequence[Node]) -> Reference:
        chain = [root]
        for identifier in rest:
            if not pa.types.is_struct(chain[-1].type):
                if pa.types.is_nested(chain[-1].type):
                    return Reference(root.name)
                raise self.source.error(
                    f"column {chain[-1].name!r} is no struct and has no field {identifier.name!r}",
                    identifier.meta.get("start"),
                )
            inner = _field(chain[-1].type, identifier.name)
            if inner is None:
                raise self._unknown(identifier, identifier.name, chain[-1].type)
            chain.append(inner)
        if pa.types.is_nested(chain[-1].type):
            return Reference(root.name)
        return Reference(root.name, tuple(part.name for part in chain), _compared_type(chain))

    def _unknown(self, identifier: Node, name: str, parent: pa.Schema | pa.StructType) -> ValidationError:
        problem = unknown_column(name, [part.name for part in parent])
        return self.source.error(problem, identifier.meta.get("start"))


def _outermost(column: Node) -> Node:
    """sqlglot holds up to four parts of a name in the column, the others in dots around it."""
    node = column
    while isinstance(node.parent, exp.Dot) and isinstance(node.parent.expression, exp.Identifier):
        node = node.parent
    return node


def is_name(node: Node) -> bool:
    """Is it a column, possibly in a struct, and not a field of some other expression?"""
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        node = node.this
    return isinstance(node, exp.Column)


def _identifiers(node: Node) -> Iterator[Node]:
    if isinstance(node, exp.Dot):
        yield from _identifiers(node.this)
        yield node.expression
    else:
        yield from node.parts


def _field(parent: pa.Schema | pa.StructType, name: str) -> pa.Field | None:
    fields = list(parent)
    exact = next((part for part in fields if part.name == name), None)
    return exact or next((part for part in fields if part.name.lower() == name.lower()), None)


def _compared_type(chain: Sequence[pa.Field]) -> pa.DataType:
    """CHAR columns hold strings, but Spark pads what they are compared with: undecided, like binary."""
    padded = any(_CHAR.search((part.metadata or {}).get(_CHAR_METADATA, b"")) for part in chain)
    return pa.binary() if padded else chain[-1].type
