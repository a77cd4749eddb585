"""Text to a syntax tree, with parameters that are bound and never pasted."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError

from deltasql.errors import UsageError, ValidationError
from deltasql.sql.functions import corrected
from deltasql.sql.parameters import PARAMETER, name_for, shown_name
from deltasql.sql.positions import numbers, refused, start_of, unclosed
from deltasql.sql.rewrites import reshaped
from deltasql.sql.supported_syntax import refuse_unknown_parts
from deltasql.sql.tokens import Token, actions_of, by_number, numbered, the_where_of, zoneless

Tree = Any
_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*([A-Za-z_]+)", re.DOTALL)
_KINDS = (
    "SELECT", "WITH", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "CREATE", "ALTER", "DROP",
    "TRUNCATE", "EXPLAIN",
)  # fmt: skip
_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN\b\s*", re.IGNORECASE | re.DOTALL)
_OPTIONS = re.compile(
    r"\(?\s*(ANALYZE|VERBOSE|COSTS|SETTINGS|GENERIC_PLAN|BUFFERS|SERIALIZE|WAL|TIMING|SUMMARY|MEMORY|FORMAT)\b",
    re.IGNORECASE,
)
_SHOWN = 300
_LACKING = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]+'>")
_TOKEN = re.compile(r"<Token .*?text: (.*?), line: .*?>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement: its tree, the values of its parameters by their names in there, and whether it is to be run."""

    text: str
    tree: Tree
    values: Mapping[str, Any]
    explain: bool = False
    start: int | None = None
    """Where it begins, if it is a part of the text."""

    def shown(self, sql: str) -> str:
        """A part of the statement as history keeps it: with names of parameters, and not with their values."""
        return PARAMETER.sub(lambda found: shown_name(found[2]), sql)

    def refused(self, why: str, at: Tree | None = None) -> ValidationError:
        """It cannot be run, because of one of its parts."""
        start = None if at is None else start_of(at)
        return refused(self.text, f"cannot be run: {why}", self.start if start is None else start)

    def sql_of(self, tree: Tree) -> str:
        """A part of it, as it may be shown."""
        return self.shown(str(tree.sql(dialect="postgres")))


def parse(text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Parsed:
    """The statement of a text. Parameters are `$1`, `?` or `%s` with a list, `:name` or `%(name)s` with a mapping."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"a statement is a text, got {text!r}", value=text)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"a statement is a text that can be written, got {text[:_SHOWN]!r}", value=text)
    explain = _EXPLAIN.match(text)
    after = explain.end() if explain else 0
    _check_kind(text, after, explain=explain is not None)
    try:
        tree = _tree(text, after, in_order=params is not None and not isinstance(params, Mapping))
        refuse_unknown_parts(text, tree)
        _size_decimals(text, tree)
        values = _bound(tree, params)
        return Parsed(text, reshaped(text, corrected(text, tree), values), values, explain is not None)
    except RecursionError:
        raise refused(text, "cannot be run: it is nested too deeply: take it apart") from None


def _check_kind(text: str, after: int, *, explain: bool) -> None:
    """sqlglot takes what it does not know for a command of some sort."""
    option = _OPTIONS.match(text, after) if explain else None
    if option is not None:
        raise refused(text, f"EXPLAIN has no option {option[1].upper()}: leave it out", option.start(1))
    first = _WORD.match(text, after)
    word = first[1].upper() if first else ""
    if first and word not in _KINDS:
        raise refused(text, f"{word} is not supported. What is: {', '.join(_KINDS)}", first.start(1))


def _tree(text: str, after: int, *, in_order: bool) -> Tree:
    masked = re.sub(r"\S", " ", text[:after]) + text[after:]  # all places stay what they are
    tokens = _tokens(text, masked)
    tokens = numbered(text, tokens) if in_order else tokens
    found = _trees(text, tokens)
    if not found:
        raise refused(text, "there is no statement")
    if len(found) != 1:
        raise refused(text, f"holds {len(found)} statements: run them one at a time, or in a transaction")
    [tree] = found
    return _commanded(text, tokens) if isinstance(tree, exp.Command) else tree


def _tokens(text: str, masked: str) -> list[Token]:
    """The tokens. sqlglot takes `$1,$` for the beginning of a text in dollars: so these are `?1` to it."""
    places = set(numbers(masked))
    plain = "".join("?" if at in places else character for at, character in enumerate(masked)) if places else masked
    try:
        found = Postgres().tokenize(plain)
    except TokenError:
        opened = unclosed(text)
        what = "cannot be read" if opened is None else "a quote or a comment is opened here and not closed"
        raise refused(text, what, opened) from None
    return zoneless([by_number(token) if token.start in places else token for token in found])


def _trees(text: str, tokens: Sequence[Token]) -> list[Tree]:
    logger = logging.getLogger("sqlglot")
    logger.addFilter(_no_command)
    try:
        trees = Postgres().parser().parse(list(tokens), text)
    except ParseError as error:
        raise _syntax_error(text, error) from None
    finally:
        logger.removeFilter(_no_command)
    return [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]


def _no_command(record: logging.LogRecord) -> bool:
    """What sqlglot takes for a command is refused, or parsed otherwise: there is nothing to warn of."""
    return "Falling back to parsing as a 'Command'" not in record.getMessage()


def _syntax_error(text: str, error: ParseError) -> ValidationError:
    first: Mapping[str, Any] = error.errors[0] if error.errors else {}
    word = first.get("highlight") or ""
    lines = text.splitlines(keepends=True)[: first.get("line", 1) - 1]
    start = sum(map(len, lines)) + max(0, first.get("col", 1) - len(word))
    why = _LACKING.sub("something is missing here", first.get("description") or "cannot be parsed")
    why = _TOKEN.sub(lambda found: "the end" if found[1] == "SENTINEL" else repr(found[1]), why)
    why = why.replace("Invalid expression / Unexpected token", "this cannot be here")
    return refused(text, f"near {word!r}: {why}" if word else why, start)


def _commanded(text: str, tokens: Sequence[Token]) -> Tree:
    """ALTER TABLE by its actions, each by itself; whatever else sqlglot does not understand is refused."""
    where = the_where_of(tokens)
    if tokens[0].text.upper() == "COPY" and where is not None:
        raise refused(
            text, "COPY has no WHERE here: copy into a table of its own, and INSERT … SELECT … WHERE", where.start
        )
    whole: Tree = None
    for action, alone in actions_of(tokens):
        [tree] = _trees(text, alone)
        if isinstance(tree, exp.Command):
            shown = text[action[0].start : action[-1].end + 1]
            raise refused(text, f"cannot be run: ALTER TABLE has no {shown} here", action[0].start)
        if whole is None:
            whole = tree
        else:
            whole.set("actions", [*whole.args["actions"], *tree.args["actions"]])
    if whole is None:
        raise refused(text, f"this {tokens[0].text.upper()} is not understood", tokens[0].start)
    return whole


def _size_decimals(text: str, tree: Tree) -> None:
    """NUMERIC holds any number in PostgreSQL, and whole ones in Spark: a column says how many digits it has, a cast
    takes as many as there can be."""
    for kind in tree.find_all(exp.DataType):
        if kind.this == exp.DataType.Type.DECIMAL and not kind.expressions:
            column = kind.find_ancestor(exp.ColumnDef)
            if isinstance(tree, exp.Create | exp.Alter) and column:
                raise refused(
                    text,
                    "cannot be run: a column of type NUMERIC says how many digits it has: NUMERIC(10, 2)",
                    start_of(column),
                )
            kind.set("expressions", [exp.DataTypeParam(this=exp.Literal.number(n)) for n in (38, 18)])


def _bound(tree: Tree, params: Sequence[Any] | Mapping[str, Any] | None) -> dict[str, Any]:
    """Give every parameter a name of its own and look up its value."""
    found: dict[str, Any] = {}
    used: set[Any] = set()
    for node in list(tree.find_all(exp.Placeholder, exp.Parameter)):
        key: Any = node.name
        if isinstance(node, exp.Parameter) and key.isdigit():
            key = int(key) - 1
        elif not key or key == "?":
            raise UsageError("parameters by order need a list of values: params=[…]")
        name = name_for(key)
        found[name] = _value(key, params)
        used.add(key)
        bound = exp.Placeholder(this=name)
        bound.meta["start"] = start_of(node) or 0
        node.replace(bound)
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
