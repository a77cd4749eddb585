"""Text to a syntax tree, with parameters that are bound and never pasted."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlglot import TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError

from deltasql.errors import UsageError, ValidationError

Tree = Any
_SHOWN = 300
_PARAMETER = re.compile(r":__deltasql_[0-9a-f]{16}_(.*?)_(?!\w)")
_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*([A-Za-z_]+)", re.DOTALL)
_KINDS = (
    "SELECT", "WITH", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "CREATE", "ALTER", "DROP",
    "TRUNCATE", "EXPLAIN",
)  # fmt: skip
_EXPLAIN = re.compile(r"\s*EXPLAIN\b\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement: its tree, the values of its parameters by their names in there, and whether it is to be run."""

    text: str
    tree: Tree
    values: Mapping[str, Any]
    explain: bool = False

    def shown(self, sql: str) -> str:
        """A part of the statement as history keeps it: with names of parameters, and not with their values."""
        return _PARAMETER.sub(lambda found: f"${int(found[1]) + 1}" if found[1].isdigit() else f":{found[1]}", sql)


def parse(text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Parsed:
    """The statement of a text. Parameters are `$1`, `?` or `%s` with a list, `:name` or `%(name)s` with a mapping."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"a statement is a text, got {text!r}", value=text)
    explain = _EXPLAIN.match(text)
    body = text[explain.end() :] if explain else text
    _check_kind(text, body)
    tree = _tree(body if params is None or isinstance(params, Mapping) else _numbered(body))
    _size_decimals(text, tree)
    return Parsed(text, tree, _bound(tree, params), explain is not None)


def _check_kind(text: str, body: str) -> None:
    """sqlglot takes what it does not know for a command of some sort."""
    first = _WORD.match(body)
    word = first[1].upper() if first else ""
    if word and word not in _KINDS:
        raise refused(text, f"line 1: {word} is not supported. What is: {', '.join(_KINDS)}")


def _tree(text: str) -> Tree:
    dialect = Postgres()
    try:
        trees = dialect.parser().parse(dialect.tokenize(text), text)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        place = f"line {first.get('line')}, column {first.get('col')}" if first else "somewhere"
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        raise refused(text, f"{place}{near}: {first.get('description', 'cannot be parsed')}") from None
    except TokenError as error:
        raise refused(text, str(error).partition("\n")[0]) from None
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1:
        raise refused(text, f"holds {len(found)} statements: run them one at a time, or in a transaction")
    return found[0]


def _size_decimals(text: str, tree: Tree) -> None:
    """NUMERIC holds any number in PostgreSQL, and whole ones in Spark: a column says how many digits it has, a cast
    takes as many as there can be."""
    for kind in tree.find_all(exp.DataType):
        if kind.this == exp.DataType.Type.DECIMAL and not kind.expressions:
            if isinstance(tree, exp.Create | exp.Alter) and kind.find_ancestor(exp.ColumnDef):
                raise refused(
                    text, "cannot be run: a column of type NUMERIC says how many digits it has: NUMERIC(10, 2)"
                )
            kind.set("expressions", [exp.DataTypeParam(this=exp.Literal.number(n)) for n in (38, 18)])


def _numbered(text: str) -> str:
    """Parameters by order (`?`, `%s`) as parameters by number, in the order of the text."""
    try:
        tokens = Postgres().tokenize(text)
    except TokenError as error:
        raise refused(text, str(error).partition("\n")[0]) from None
    places = [(t.start, t.end) for t in tokens if t.token_type == TokenType.PLACEHOLDER and t.text == "?"]
    for sign, letter in pairwise(tokens):
        if sign.token_type == TokenType.MOD and letter.text == "s" and letter.start == sign.end + 1:
            places.append((sign.start, letter.end))
    for number, (start, end) in reversed(list(enumerate(sorted(places)))):
        text = f"{text[:start]}${number + 1}{text[end + 1 :]}"
    return text


def refused(text: str, why: str) -> ValidationError:
    """A statement that cannot be run."""
    shown = text.strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return ValidationError(f"SQL {why}\n  {shown}", value=text)


def _bound(tree: Tree, params: Sequence[Any] | Mapping[str, Any] | None) -> dict[str, Any]:
    """Give every parameter a name of its own and look up its value."""
    found: dict[str, Any] = {}
    used: set[Any] = set()
    token = secrets.token_hex(8)  # nobody can write a text that looks like a parameter
    for node in list(tree.find_all(exp.Placeholder, exp.Parameter)):
        key: Any = node.name
        if isinstance(node, exp.Parameter) and key.isdigit():
            key = int(key) - 1
        elif not key:
            raise UsageError("parameters by order need a list of values: params=[…]")
        name = f"__deltasql_{token}_{key}_"
        found[name] = _value(key, params)
        used.add(key)
        node.replace(exp.Placeholder(this=name))
    given = set(params) if isinstance(params, Mapping) else set(range(len(params or ())))
    if given - used:
        left = ", ".join(str(key + 1 if isinstance(key, int) else key) for key in sorted(given - used, key=str))
        raise UsageError(f"the statement has no parameter for {left}", value=left)
    return found


def _value(key: Any, params: Any) -> Any:
    if isinstance(key, int):
        if params is None or isinstance(params, Mapping) or key >= len(params):
            raise UsageError(f"parameter {key + 1} has no value: give params=[…] with one for each", value=key + 1)
        return params[key]
    if not isinstance(params, Mapping) or key not in params:
        raise UsageError(f"parameter {key!r} has no value: give params={{{key!r}: …}}", value=key)
    return params[key]
