"""Parse a statement to a syntax tree and bind its parameters."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from deltasql.errors import UsageError, ValidationError, shown
from deltasql.sql.parameters import checked, name_for, shown_parameter
from deltasql.sql.pg_parser import PostgreSql
from deltasql.sql.positions import numbers, rejected, start_of, unclosed
from deltasql.sql.supported_syntax import reject_unknown_parts
from deltasql.sql.tokens import (
    Token,
    actions_of,
    by_number,
    numbered,
    outer_where,
    whole_numbers,
    without_schema_evolution,
    zoneless,
)

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
DIALECTS: Mapping[str, Dialect] = {"postgres": PostgreSql(), "spark": Spark()}
"""The meaning of expressions by name: PostgreSQL's or Spark's."""
_TYPES = {
    exp.DataType.Type.TIME: "use TIMESTAMP, or TEXT such as '12:30:00'",
    exp.DataType.Type.TIMETZ: "use TIMESTAMP, or TEXT such as '12:30:00'",
    exp.DataType.Type.MONEY: "use NUMERIC(18, 2)",
}
"""Types that columns cannot have, with alternatives."""
_SHOWN = 300
_LACKING = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]+'>")
_TOKEN = re.compile(r"<Token .*?text: (.*?), line: .*?>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement: its text, its syntax tree, the values of its parameters, and whether it is only explained."""

    text: str
    tree: Tree
    values: dict[str, Any]
    explain: bool = False
    dialect: str = "postgres"
    evolves: bool = False
    """Whether a MERGE adds the columns of its source to the table."""
    start: int | None = None
    """The position of the statement if it is only a part of the text."""

    def rejected(self, why: str, at: Tree | None = None) -> ValidationError:
        """Return the error of a statement that cannot be run, with the position of the given part."""
        start = None if at is None else start_of(at)
        return rejected(self.text, f"cannot be run: {why}", self.start if start is None else start)

    def sql_of(self, tree: Tree) -> str:
        """Return a part of the statement in PostgreSQL syntax, without values of parameters."""
        holder = exp.Paren(this=tree.copy())
        for node in list(holder.find_all(exp.Placeholder)):
            node.replace(exp.Var(this=shown_parameter(node.name)))
        return str(holder.this.sql(dialect=DIALECTS[self.dialect]))


def parse(text: str, params: Sequence[Any] | Mapping[str, Any] | None = None, dialect: str = "postgres") -> Parsed:
    """Parse one statement. Parameters are `$1`, `?` or `%s` with a list, `:name` or `%(name)s` with a mapping."""
    if not isinstance(dialect, str) or dialect not in DIALECTS:
        raise UsageError(f"dialect must be one of {', '.join(DIALECTS)}, got {shown(dialect)}", value=dialect)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"a statement is a text, got {shown(text)}", value=text)
    if params is not None and (not isinstance(params, Sequence | Mapping) or isinstance(params, str | bytes)):
        raise UsageError(f"params must be a list or a mapping of values, got {type(params).__name__}", value=params)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"the statement is not valid Unicode text: {text[:_SHOWN]!r}", value=text)
    explain = _EXPLAIN.match(text)
    after = explain.end() if explain else 0
    _check_kind(text, after, explain=explain is not None)
    try:
        in_order = params is not None and not isinstance(params, Mapping)
        tree, evolves = _tree(text, after, DIALECTS[dialect], in_order=in_order)
        reject_unknown_parts(text, tree)
        _check_column_types(text, tree)
        return Parsed(text, tree, _bound(tree, params), explain is not None, dialect, evolves)
    except RecursionError:
        raise rejected(text, "cannot be run: it is nested too deeply: split it") from None


def _check_kind(text: str, after: int, *, explain: bool) -> None:
    """Reject kinds of statements that are not supported; sqlglot would parse them as commands."""
    option = _OPTIONS.match(text, after) if explain else None
    if option is not None:
        raise rejected(text, f"EXPLAIN has no option {option[1].upper()}: leave it out", option.start(1))
    first = _WORD.match(text, after)
    word = first[1].upper() if first else ""
    if first and word not in _KINDS:
        raise rejected(text, f"{word} is not supported (supported: {', '.join(_KINDS)})", first.start(1))


def _tree(text: str, after: int, dialect: Dialect, *, in_order: bool) -> tuple[Tree, bool]:
    masked = re.sub(r"\S", " ", text[:after]) + text[after:]  # keeps all positions
    tokens, evolves = without_schema_evolution(_tokens(text, masked, dialect))
    tokens = numbered(text, tokens) if in_order else tokens
    found = _trees(text, tokens, dialect)
    if not found:
        raise rejected(text, "there is no statement")
    if len(found) != 1:
        raise rejected(text, f"holds {len(found)} statements: run them one at a time, or in a transaction")
    [tree] = found
    return (_commanded(text, tokens, dialect) if isinstance(tree, exp.Command) else tree), evolves


def _tokens(text: str, masked: str, dialect: Dialect) -> list[Token]:
    """Return the tokens. sqlglot reads `$1,$` as the start of a dollar-quoted text, so `$1` becomes `?1` before."""
    starts = set(numbers(masked))
    plain = "".join("?" if at in starts else character for at, character in enumerate(masked)) if starts else masked
    try:
        found = dialect.tokenize(plain)
    except TokenError:
        opened = unclosed(text)
        what = "cannot be read" if opened is None else "this quote or comment is not closed"
        raise rejected(text, what, opened) from None
    found = zoneless([by_number(token) if token.start in starts else token for token in found])
    return whole_numbers(text, found) if isinstance(dialect, PostgreSql) else found


def _trees(text: str, tokens: Sequence[Token], dialect: Dialect) -> list[Tree]:
    logger = logging.getLogger("sqlglot")
    logger.addFilter(_no_command)
    try:
        trees = dialect.parser().parse(list(tokens), text)
    except ParseError as error:
        raise _syntax_error(text, error) from None
    finally:
        logger.removeFilter(_no_command)
    return [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]


def _no_command(record: logging.LogRecord) -> bool:
    """Drop sqlglot's warning about commands, which are rejected or parsed otherwise."""
    return "Falling back to parsing as a 'Command'" not in record.getMessage()


def _syntax_error(text: str, error: ParseError) -> ValidationError:
    first: Mapping[str, Any] = error.errors[0] if error.errors else {}
    word = first.get("highlight") or ""
    lines = text.splitlines(keepends=True)[: first.get("line", 1) - 1]
    start = sum(map(len, lines)) + max(0, first.get("col", 1) - len(word))
    why = _LACKING.sub("something is missing here", first.get("description") or "cannot be parsed")
    why = _TOKEN.sub(lambda found: "the end" if found[1] == "SENTINEL" else repr(found[1]), why)
    why = why.replace("Invalid expression / Unexpected token", "this cannot be here")
    return rejected(text, f"near {word!r}: {why}" if word else why, start)


def _commanded(text: str, tokens: Sequence[Token], dialect: Dialect) -> Tree:
    """Parse ALTER TABLE action by action; reject other statements that sqlglot parses as commands."""
    where = outer_where(tokens)
    if tokens[0].text.upper() == "COPY" and where is not None:
        raise rejected(
            text, "COPY with WHERE is not supported: copy into another table, then INSERT … SELECT … WHERE", where.start
        )
    whole: Tree = None
    for action, alone in actions_of(tokens):
        [tree] = _trees(text, alone, dialect)
        if isinstance(tree, exp.Command):
            shown = text[action[0].start : action[-1].end + 1]
            raise rejected(text, f"cannot be run: ALTER TABLE {shown} is not supported", action[0].start)
        if whole is None:
            whole = tree
        else:
            whole.set("actions", [*whole.args["actions"], *tree.args["actions"]])
    if whole is None:
        raise rejected(text, f"this {tokens[0].text.upper()} is not understood", tokens[0].start)
    return whole


def _check_column_types(text: str, tree: Tree) -> None:
    """Reject types that columns of Delta tables cannot have.

    NUMERIC without precision holds any number in PostgreSQL, and only integers in Spark.
    """
    for kind in tree.find_all(exp.DataType) if isinstance(tree, exp.Create | exp.Alter) else ():
        column = kind.find_ancestor(exp.ColumnDef)
        if column is not None and kind.this in _TYPES:
            why = f"type {kind.sql(dialect='postgres')} is not supported: {_TYPES[kind.this]}"
            raise rejected(text, f"cannot be run: {why}", start_of(column))
        if column is not None and kind.this == exp.DataType.Type.DECIMAL and not kind.expressions:
            why = "cannot be run: a NUMERIC column needs a precision: NUMERIC(10, 2)"
            raise rejected(text, why, start_of(column))


def _bound(tree: Tree, params: Sequence[Any] | Mapping[str, Any] | None) -> dict[str, Any]:
    """Give every parameter a unique name and return the values by name."""
    found: dict[str, Any] = {}
    used: set[Any] = set()
    for node in list(tree.find_all(exp.Placeholder, exp.Parameter)):
        key: Any = node.name
        if isinstance(node, exp.Parameter) and key.isdigit():
            key = int(key) - 1
        elif not key or key == "?":
            raise UsageError("parameters by order need a list of values: params=[…]")
        name = name_for(key)
        found[name] = checked(_value(key, params))
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
        if params is None or isinstance(params, Mapping) or not 0 <= key < len(params):
            raise UsageError(f"parameter {key + 1} has no value: give params=[…] with one for each", value=key + 1)
        return params[key]
    if not isinstance(params, Mapping) or key not in params:
        raise UsageError(f"parameter {key!r} has no value: give params={{{key!r}: …}}", value=key)
    return params[key]
