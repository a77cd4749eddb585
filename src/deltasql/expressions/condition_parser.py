"""Parser of predicates in Spark SQL into syntax trees, and resolution of their column names."""

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

from deltasql.errors import ValidationError, shown, text_position, unknown_column
from deltasql.expressions.bounds import ColumnPath

Node = Any  # exp.Expression, or its base class in newer releases of sqlglot

_SHOWN = 200
_DEEP = 8_000
_deep_lock = threading.Lock()
_PER_ROW = "a predicate is evaluated for each row separately"
_UNSUPPORTED: tuple[tuple[type[Any], str], ...] = (
    (exp.AggFunc, f"an aggregate is not allowed: {_PER_ROW}"),
    (exp.Window, f"a window function is not allowed: {_PER_ROW}"),
    (exp.Query, "a subquery is not allowed: run it first and put its result into the predicate"),
    (exp.Placeholder, "a parameter is not allowed: put its value into the predicate"),
    (exp.Parameter, "a parameter is not allowed: put its value into the predicate"),
)
_EMPTY = "the condition is empty: give one such as day = '2026-01-01', or leave it out"
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_CHAR_METADATA = b"__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(rb"(?<!var)char\(")


@dataclass(frozen=True, slots=True)
class Reference:
    """A column of a predicate: its top-level name, and its path and type if it is a leaf."""

    root: str
    path: ColumnPath | None = None
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class ConditionText:
    """The text of a predicate, for errors with positions."""

    text: str
    table: str | None

    def error(self, problem: str, start: int | None = None) -> ValidationError:
        """Return the error for a problem, with the line and column of a start position."""
        is_long = isinstance(self.text, str) and len(self.text) > _SHOWN
        text = repr(self.text[:_SHOWN] + "…") if is_long else shown(self.text)
        where = f", {text_position(self.text, start)}" if start is not None else ""
        subject = f"table {self.table}: predicate" if self.table else "predicate"
        return ValidationError(f"{subject} {text}{where}: {problem}", table=self.table, value=self.text)


@contextmanager
def room_for_nesting(source: ConditionText) -> Iterator[None]:
    """Raise the recursion limit: sqlglot needs about twenty calls for each level of parentheses."""
    with _deep_lock:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual, _DEEP))
        try:
            yield
        except RecursionError:
            raise source.error("the condition is nested too deeply: combine conditions without parentheses") from None
        finally:
            sys.setrecursionlimit(usual)


# --- Syntax


def parse_condition(source: ConditionText) -> tuple[Node, frozenset[str]]:
    """Return the syntax tree, and its strings that Spark may interpret differently."""
    if not isinstance(source.text, str) or (not source.text.isascii() and _HALF_PAIR.search(source.text)):
        raise source.error("a condition must be a text of valid Unicode, such as id = 5")
    tokens = _tokens(source)
    end = next((token for token in tokens[:-1] if token.token_type.name == "SEMICOLON"), None)
    if end is not None:
        raise source.error("several statements are given: give one condition", end.start)
    try:
        tree = next(iter(Spark().parser().parse_into(exp.Condition, tokens, source.text)), None)
    except ParseError as error:
        raise _syntax_error(source, error) from None
    if tree is None:
        raise source.error(_EMPTY)
    _reject_unsupported(tree, source)
    return tree, frozenset(_doubtful(tokens, source.text))


def _reject_unsupported(tree: Node, source: ConditionText) -> None:
    kinds = tuple(kind for kind, _ in _UNSUPPORTED)
    bad = next((node for node in tree.walk() if isinstance(node, kinds)), None)
    if bad is not None:
        problem = next(problem for kind, problem in _UNSUPPORTED if isinstance(bad, kind))
        raise source.error(problem, _start(bad))


def _tokens(source: ConditionText) -> list[Any]:
    try:
        tokens = Spark().tokenize(source.text)
    except TokenError:
        opened = max(map(source.text.rfind, ("'", '"', "`", "/*")))
        raise source.error("a quote or a comment is opened here and not closed", opened) from None
    if not tokens:
        raise source.error(_EMPTY)
    return tokens


def _doubtful(tokens: Sequence[Any], text: str) -> Iterator[str]:
    """Yield strings with a backslash: its meaning depends on spark.sql.parser.escapedStringLiterals."""
    for token in tokens:
        if token.token_type.name == "STRING" and "\\" in text[token.start : token.end + 1]:
            yield token.text


def _syntax_error(source: ConditionText, error: ParseError) -> ValidationError:
    details = error.errors[0] if error.errors else {}
    word = details.get("highlight") or ""
    lines = source.text.splitlines(keepends=True)[: details.get("line", 1) - 1]
    start = sum(map(len, lines)) + details.get("col", 1) - len(word)
    problem = f"invalid condition in Spark SQL near {word!r}" if word else "invalid condition in Spark SQL"
    return source.error(f"{problem}: compare columns with values, as in id = 5 AND day > '2026-01-01'", start)


def _start(node: Node) -> int | None:
    positions = [part.meta.get("start") for part in node.walk() if "start" in part.meta]
    return min(positions, default=None)


# --- Names


@dataclass(frozen=True, slots=True)
class Names:
    """The columns of a table as Spark resolves them: ignoring case, with or without the table's name."""

    schema: pa.Schema
    source: ConditionText

    def references(self, node: Node) -> Iterator[Reference]:
        """Yield every column that is used under a node."""
        for column in node.find_all(exp.Column):
            yield self.reference(_outermost(column))

    def reference(self, node: Node) -> Reference:
        """Return the column of `a`, `s.b` or `table.a`."""
        identifiers = list(_identifiers(node))
        for skipped in self._qualifiers([part.name.lower() for part in identifiers]):
            root = _field(self.schema, identifiers[skipped].name)
            if root is not None:
                return self._nested(root, identifiers[skipped + 1 :])
        raise self._unknown(identifiers[0], ".".join(part.name for part in identifiers), self.schema)

    def _qualifiers(self, parts: Sequence[str]) -> Iterator[int]:
        """Yield how many leading parts may be the table's name, the longest first, 0 last."""
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
                    f"column {chain[-1].name!r} is not a struct and has no field {identifier.name!r}",
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
    """Return the whole name: sqlglot keeps up to four parts in the column, and more parts in dots around it."""
    node = column
    while isinstance(node.parent, exp.Dot) and isinstance(node.parent.expression, exp.Identifier):
        node = node.parent
    return node


def is_name(node: Node) -> bool:
    """Return whether a node is a column or a field of a struct column, not a field of another expression."""
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
    """Return the type for comparisons: Spark pads literals compared with CHAR, so CHAR is undecided, like binary."""
    padded = any(_CHAR.search((part.metadata or {}).get(_CHAR_METADATA, b"")) for part in chain)
    return pa.binary() if padded else chain[-1].type
