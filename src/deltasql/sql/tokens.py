"""Change the tokens of a statement before sqlglot parses them: parameters, types, the actions of ALTER TABLE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from sqlglot import TokenType

from deltasql.sql.positions import rejected

Token = Any
_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_BASES = {TokenType.HEX_STRING: 16, TokenType.BIT_STRING: 2}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


def numbered(text: str, tokens: Sequence[Token]) -> list[Token]:
    """Replace parameters by order (`?`, `%s`) with numbered parameters."""
    found: list[Token] = []
    number, left = 0, list(reversed(tokens))
    by_number = next((token for token in tokens if token.token_type == TokenType.PARAMETER), None)
    while left:
        token = left.pop()
        after = left[-1] if left else token
        is_word = after.token_type == TokenType.VAR and after.text == "s" and after.start == token.end + 1
        is_percent = is_word and token.token_type == TokenType.MOD
        if not is_percent and (token.token_type != TokenType.PLACEHOLDER or token.text != "?"):
            found.append(token)
            continue
        if by_number is not None:
            raise rejected(text, "parameters are given by order (? or %s) or by number ($1), not by both", token.start)
        number += 1
        last = left.pop() if is_percent else token
        found += [_like(token, TokenType.PARAMETER, "$"), _like(last, TokenType.NUMBER, str(number))]
    return found


def by_number(token: Token) -> Token:
    """Return the `$` token of a numbered parameter."""
    return _like(token, TokenType.PARAMETER, "$")


def zoneless(tokens: Sequence[Token]) -> list[Token]:
    """Replace TIMESTAMP WITHOUT TIME ZONE by sqlglot's token TIMESTAMPNTZ."""
    found: list[Token] = []
    for token in tokens:
        found.append(token)
        if len(found) < 4 or [t.text.upper() for t in found[-3:]] != ["WITHOUT", "TIME", "ZONE"]:
            continue
        start = len(found) - 7 if found[-4].token_type == TokenType.R_PAREN else len(found) - 4
        if start >= 0 and found[start].token_type == TokenType.TIMESTAMP:
            found[start:] = [_like(found[start], TokenType.TIMESTAMPNTZ, found[start].text)]
    return found


def whole_numbers(text: str, tokens: Sequence[Token]) -> list[Token]:
    """Join the parts of numbers such as 1_000, 0x1F, 0o17 and 0b101; reject letters after a number."""
    found: list[Token] = []
    for token in tokens:
        if token.token_type in _BASES and text[token.start] == "0":
            number = str(int(token.text, _BASES[token.token_type]))
            found.append(_like(token, TokenType.NUMBER, number))
        elif found and found[-1].token_type == TokenType.NUMBER and _follows(found[-1], token):
            found[-1] = _joined(text, found[-1], token)
        else:
            found.append(token)
    return found


def _follows(number: Token, token: Token) -> bool:
    return bool(token.start == number.end + 1 and token.token_type == TokenType.VAR)


def _joined(text: str, number: Token, token: Token) -> Token:
    whole = number.text + token.text
    if re.fullmatch(r"\d+(_\d+)+", whole):
        value = whole.replace("_", "")
    elif re.fullmatch(r"0[oO](_?[0-7]+)+", whole):
        value = str(int(whole, 8))
    else:
        raise rejected(text, f"there are letters after a number: {whole}", number.start)
    return type(number)(TokenType.NUMBER, value, number.line, number.col, number.start, token.end)


def without_schema_evolution(tokens: Sequence[Token]) -> tuple[list[Token], bool]:
    """Take WITH SCHEMA EVOLUTION out of a MERGE, which sqlglot does not parse, and return whether it was there."""
    words = [token.text.upper() for token in tokens]
    for start, word in enumerate(words):
        if word == "MERGE" and words[start + 1 : start + 4] == ["WITH", "SCHEMA", "EVOLUTION"]:
            return [*tokens[: start + 1], *tokens[start + 4 :]], True
    return list(tokens), False


def outer_where(tokens: Sequence[Token]) -> Token | None:
    """Return the WHERE of the statement itself, not of a subquery."""
    return next((token for token in _outer(tokens) if token.token_type == TokenType.WHERE), None)


def actions_of(tokens: Sequence[Token]) -> Iterator[tuple[list[Token], list[Token]]]:
    """Yield the actions of an ALTER TABLE, each with the tokens of a statement that has only this action."""
    words = [token.text.upper() for token in tokens]
    if words[:2] != ["ALTER", "TABLE"]:
        return
    start = 2
    start += 2 if words[start : start + 2] == ["IF", "EXISTS"] else 0
    start += 1 if words[start : start + 1] == ["ONLY"] else 0
    start += 1
    while words[start : start + 1] == ["."]:
        start += 2
    head, rest = list(tokens[:start]), [t for t in tokens[start:] if t.token_type != TokenType.SEMICOLON]
    commas = [token for token in _outer(rest) if token.token_type == TokenType.COMMA]
    indexes = [-1, *(rest.index(comma) for comma in commas), len(rest)]
    for before, after in pairwise(indexes):
        action = rest[before + 1 : after]
        if action:
            yield action, [*head, *_named_check(action)]


def _named_check(action: list[Token]) -> list[Token]:
    """Replace ADD CHECK by ADD CONSTRAINT with an empty name, the only form that sqlglot parses."""
    if [token.text.upper() for token in action[:2]] != ["ADD", "CHECK"]:
        return action
    check = action[1]
    return [
        action[0],
        _like(check, TokenType.CONSTRAINT, "CONSTRAINT"),
        _like(check, TokenType.IDENTIFIER, ""),
        *action[1:],
    ]


def _outer(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens outside of parentheses."""
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        if depth == 0:
            yield token


def _like(token: Token, kind: Any, text: str) -> Token:
    return type(token)(kind, text, token.line, token.col, token.start, token.end)
