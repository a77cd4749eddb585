"""Read regular expressions of PostgreSQL: a pattern becomes a tree. Classes and cases are those of the locale C."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass

from deltasql.sql.functions.pg_literals import InvalidLiteral

Ranges = tuple[tuple[int, int], ...]
_LAST = 0x10FFFF
MOST_REPEATS = 255
_QUANTIFIER = re.compile(r"([*+?]|\{([0-9]+)(,?)([0-9]*)\})(\??)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_WORD = string.ascii_letters + string.digits + "_"
_PRINTED = "".join(chr(code) for code in range(33, 127))
_CLASSES = {
    "alpha": string.ascii_letters, "digit": string.digits, "alnum": string.ascii_letters + string.digits,
    "upper": string.ascii_uppercase, "lower": string.ascii_lowercase, "space": " \t\n\v\f\r", "blank": " \t",
    "punct": string.punctuation, "cntrl": "".join(map(chr, range(32))) + "\x7f", "xdigit": string.hexdigits,
    "graph": _PRINTED, "print": " " + _PRINTED, "word": _WORD,
}  # fmt: skip
_SHORT = {"d": "digit", "s": "space", "w": "word"}


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a pattern: set, start, end, cat, alt, group or repeat."""

    kind: str
    ranges: Ranges = ()
    """The characters of a set."""
    items: tuple[Node, ...] = ()
    least: int = 1
    most: int | None = 1
    """How often a repeat matches; None is without limit."""
    is_captured: bool = False


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _of(characters: str) -> Ranges:
    return _merged((ord(one), ord(one)) for one in characters)


def complement(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    edges = [0, *(edge for low, high in ranges for edge in (low, high + 1)), _LAST + 1]
    return tuple((low, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high)


def _both_cases(ranges: Ranges) -> Ranges:
    """Add the other case of the letters A to Z."""
    letters = [one for one in string.ascii_letters if any(low <= ord(one) <= high for low, high in ranges)]
    return _merged([*ranges, *_of("".join(letters).swapcase())])


class PatternReader:
    """Reads a pattern; raises InvalidLiteral for what the two dialects do not share."""

    def __init__(self, text: str, *, ignore_case: bool) -> None:
        self.text = text
        self.at = 0
        self.ignore_case = ignore_case
        self.is_lazy = False

    def wrong(self, why: str) -> InvalidLiteral:
        return InvalidLiteral(f"the regular expression '{self.text}' is not supported: {why}")

    def taken(self, part: str) -> bool:
        """Move behind a part if it is next."""
        is_next = self.text.startswith(part, self.at)
        self.at += len(part) if is_next else 0
        return is_next

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.wrong("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def whole(self) -> Node:
        node = self.alternatives()
        if self.at < len(self.text):
            raise self.wrong("its parentheses are not balanced")
        return node

    def alternatives(self) -> Node:
        branches = [self.branch()]
        while self.taken("|"):
            branches.append(self.branch())
        if all([item.kind for item in branch.items] == ["set"] for branch in branches):  # one set for a|b
            ranges = _merged(pair for branch in branches for pair in branch.items[0].ranges)
            return Node("cat", items=(Node("set", ranges),))
        return branches[0] if len(branches) == 1 else Node("alt", items=tuple(branches))

    def branch(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            items.append(self.quantified(self.atom()))
        return Node("cat", items=tuple(items))

    def quantified(self, atom: Node) -> Node:
        found = _QUANTIFIER.match(self.text, self.at)
        if found is None:
            if re.compile(r"\{\d").match(self.text, self.at):
                raise self.wrong("{ is followed by one or two numbers and }")
            return atom
        if atom.kind in ("start", "end"):
            raise self.wrong("^ and $ cannot be repeated")
        self.at = found.end()
        if self.text[self.at : self.at + 1] in ("*", "+", "?") or re.compile(r"\{\d").match(self.text, self.at):
            raise self.wrong("a quantifier follows a quantifier")
        self.is_lazy = self.is_lazy or bool(found[5])
        least, most = self.bounds(found)
        if max(least, most or 0) > MOST_REPEATS or (most is not None and least > most):
            raise self.wrong(f"numbers of repeats are ordered, and at most {MOST_REPEATS}")
        return Node("repeat", items=(atom,), least=least, most=most)

    @staticmethod
    def bounds(found: re.Match[str]) -> tuple[int, int | None]:
        if found[2] is None:
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
        least = int(found[2])
        return least, (int(found[4]) if found[4] else None) if found[3] else least

    def atom(self) -> Node:
        one = self.next()
        match one:
            case "(":
                return self.group()
            case "[":
                return self.brackets()
            case ".":
                return Node("set", complement(()))
            case "^" | "$":
                return Node("start" if one == "^" else "end")
            case "*" | "+" | "?":
                raise self.wrong("a quantifier follows nothing")
            case "{" if self.text[self.at : self.at + 1].isdigit():
                raise self.wrong("a quantifier follows nothing")
        return self.character(one)

    def character(self, one: str) -> Node:
        """Return a character, or an escape."""
        if one != "\\":
            return self.set_of(_of(one))
        if self.text[self.at : self.at + 1] in ("A", "Z"):
            return Node("start" if self.next() == "A" else "end")
        return self.set_of(self.escaped())

    def group(self) -> Node:
        is_captured = not self.taken("?:")
        if self.text[self.at : self.at + 1] == "?":
            raise self.wrong("options, lookahead and lookbehind (?…) are not supported")
        inner = self.alternatives()
        if not self.taken(")"):
            raise self.wrong("its parentheses are not balanced")
        return Node("group", items=(inner,), is_captured=is_captured)

    def set_of(self, ranges: Ranges) -> Node:
        return Node("set", _both_cases(ranges) if self.ignore_case else ranges)

    def escaped(self) -> Ranges:
        """Return the characters of an escape after its backslash."""
        one = self.next()
        if one.lower() in _SHORT:
            found = _of(_CLASSES[_SHORT[one.lower()]])
            return found if one.islower() else complement(found)
        if one in _ESCAPES:
            return _of(_ESCAPES[one])
        if one.isascii() and one.isalnum():
            raise self.wrong(f"the escape \\{one} is not supported")
        return _of(one)

    def brackets(self) -> Node:
        is_negated = self.taken("^")
        ranges: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self.taken("]"):
            low = self.member(is_first=is_first)
            is_first = False
            if self.text[self.at : self.at + 1] == "-" and self.text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                high = self.member(is_first=False)
                if [len(one) for one in (low, high)] != [1, 1] or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise self.wrong("a range is between two characters")
                if low[0][0] > high[0][0]:
                    raise self.wrong("a range has its characters in the wrong order")
                low = ((low[0][0], high[0][0]),)
            ranges += low
        found = self.set_of(_merged(ranges)).ranges
        return Node("set", complement(found) if is_negated else found)

    def member(self, *, is_first: bool) -> Ranges:
        """Return a character or a class between brackets."""
        one = self.next()
        if one == "\\":
            return self.escaped()
        if one == "-" and not is_first and self.text[self.at : self.at + 1] != "]":
            raise self.wrong("write - as the first or last character between brackets, or as \\-")
        if one == "[" and self.text[self.at : self.at + 1] in (".", "=", ":"):
            found = re.compile(r":(\w+):\]").match(self.text, self.at)
            if found is None or found[1] not in _CLASSES:
                raise self.wrong("unknown class between brackets")
            self.at = found.end()
            is_letter = self.ignore_case and found[1] in ("upper", "lower")
            return _of(_CLASSES["alpha" if is_letter else found[1]])
        return _of(one)
