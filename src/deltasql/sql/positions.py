"""Positions in the text of a statement, and errors that show them."""

from __future__ import annotations

import re
from typing import Any

from deltasql.errors import ValidationError, text_position

_SHOWN = 300
# Comments, texts, quoted names and words; every other character alone.
_PARTS = re.compile(
    r"--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|\$((?!\d)\w*)\$.*?\$\1\$|"
    r"[^\W\d][\w$]*|\w+|.",
    re.DOTALL,
)
_OPENED = re.compile(r"'|\"|/\*|\$(?!\d)\w*\$")
_NUMBER = re.compile(r"\$(?=\d)")


def rejected(text: str, why: str, start: int | None = None) -> ValidationError:
    """Return the error of a statement that cannot be run, at a position or at its first word."""
    at = first_word(text) if start is None else start
    return failed(text, f"{text_position(text, at)}: {why}")


def failed(text: str, why: str) -> ValidationError:
    """Return an error that shows the statement."""
    shown = text.strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return ValidationError(f"SQL {why}\n  {shown}", value=text)


def start_of(tree: Any) -> int | None:
    """Return the position of the first token of a tree, or None if no node has one."""
    starts = [node.meta["start"] for node in tree.walk() if "start" in node.meta]
    return min(starts, default=None)


def first_word(text: str) -> int:
    """Return the position of the first word that is neither space nor comment."""
    for part in _PARTS.finditer(text):
        if not part[0].isspace() and not part[0].startswith(("--", "/*")):
            return part.start()
    return 0


def unclosed(text: str) -> int | None:
    """Return the position of a quote or comment that is not closed, or None."""
    for part in _PARTS.finditer(text):
        if _OPENED.match(text, part.start()) and len(part[0]) == 1:
            return part.start()
    return None


def numbers(text: str) -> list[int]:
    """Return the position of each `$1`."""
    return [part.start() for part in _PARTS.finditer(text) if part[0] == "$" and _NUMBER.match(text, part.start())]


def occurrences(text: str, names: list[str]) -> list[int]:
    """Return the positions of a qualified name in any case, or else of its last part."""
    known = [(part.start(), _bare(part[0])) for part in _PARTS.finditer(text) if not _is_space(part[0])]
    words = [word for _, word in known]
    parts_of_name = [part for name in names for part in (".", name.lower())][1:]
    found = [n for n in range(len(words)) if words[n : n + len(parts_of_name)] == parts_of_name]
    whole = [n for n in found if n == 0 or words[n - 1] != "."] or found
    return [known[n][0] for n in whole] or (occurrences(text, names[-1:]) if len(names) > 1 else [])


def _bare(word: str) -> str:
    return word[1:-1].replace('""', '"').lower() if word.startswith('"') else word.lower()


def _is_space(part: str) -> bool:
    return part.isspace() or part.startswith(("--", "/*"))
