"""Where something is in a statement's text, and errors that say so."""

from __future__ import annotations

import re
from typing import Any

from deltasql.errors import ValidationError

_SHOWN = 300
# What has an end: comments, texts, quoted names; whatever else comes one by one.
_PARTS = re.compile(
    r"--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|\$((?!\d)\w*)\$.*?\$\1\$|"
    r"[^\W\d][\w$]*|\w+|.",
    re.DOTALL,
)
_OPENED = re.compile(r"'|\"|/\*|\$(?!\d)\w*\$")
_NUMBER = re.compile(r"\$(?=\d)")


def place(text: str, start: int) -> str:
    """A place in a text, as people count."""
    before = text[:start]
    return f"line {before.count(chr(10)) + 1}, column {start - before.rfind(chr(10))}"


def refused(text: str, why: str, start: int | None = None) -> ValidationError:
    """A statement that cannot be run; without a place, because of what it is."""
    at = first_word(text) if start is None else start
    return failed(text, f"{place(text, at)}: {why}")


def failed(text: str, why: str) -> ValidationError:
    """The error of a statement, which it shows."""
    shown = text.strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return ValidationError(f"SQL {why}\n  {shown}", value=text)


def start_of(tree: Any) -> int | None:
    """Where a tree begins, as far as its parts tell."""
    places = [node.meta["start"] for node in tree.walk() if "start" in node.meta]
    return min(places, default=None)


def first_word(text: str) -> int:
    """Where a text begins that is neither space nor comment."""
    for part in _PARTS.finditer(text):
        if not part[0].isspace() and not part[0].startswith(("--", "/*")):
            return part.start()
    return 0


def unclosed(text: str) -> int | None:
    """Where a quote or a comment is opened that has no end."""
    for part in _PARTS.finditer(text):
        if _OPENED.match(text, part.start()) and len(part[0]) == 1:
            return part.start()
    return None


def numbers(text: str) -> list[int]:
    """Where the `$` of each `$1` is."""
    return [part.start() for part in _PARTS.finditer(text) if part[0] == "$" and _NUMBER.match(text, part.start())]


def occurrences(text: str, names: list[str]) -> list[int]:
    """Where a name of some parts stands, such as `t.id`, in any case; if nowhere, where its last part does."""
    known = [(part.start(), _bare(part[0])) for part in _PARTS.finditer(text) if not _is_space(part[0])]
    words = [word for _, word in known]
    wanted = [part for name in names for part in (".", name.lower())][1:]
    found = [n for n in range(len(words)) if words[n : n + len(wanted)] == wanted]
    whole = [n for n in found if n == 0 or words[n - 1] != "."] or found
    return [known[n][0] for n in whole] or (occurrences(text, names[-1:]) if len(names) > 1 else [])


def _bare(word: str) -> str:
    return word[1:-1].replace('""', '"').lower() if word.startswith('"') else word.lower()


def _is_space(part: str) -> bool:
    return part.isspace() or part.startswith(("--", "/*"))
