"""Regular expressions of PostgreSQL: write a constant pattern as a pattern of Java, which Spark uses.

PostgreSQL finds the longest match and Java the first one in the order of the pattern. `Pattern.is_longest` says whether
both are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from deltasql.sql.functions.regex.regex_syntax import MOST_REPEATS, Node, PatternReader, Ranges, complement

_MANY = 99
_MOST_POSITIONS = 400


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that PostgreSQL and Java can both run."""

    text: str
    root: Node
    is_lazy: bool
    """Whether it has quantifiers such as `*?`."""

    def java(self, *, captured: bool = False) -> str:
        """Return the pattern of Java, with its groups numbered or not."""
        return f"(?s){_java(self.root, captured, is_possessive=_is_possessive(self.root))}"

    @property
    def groups(self) -> int:
        """The number of groups in parentheses."""
        return sum(node.is_captured for node in _all(self.root))

    @property
    def is_nullable(self) -> bool:
        """Whether it may match an empty text."""
        return _is_nullable(self.root)

    @property
    def is_longest(self) -> bool:
        """Whether Java's match is the longest match, and its groups are those of PostgreSQL."""
        if self.is_lazy:
            return False
        return _is_longest(_same_at_both_ends(self.root) or self.root)

    @property
    def ends_at_end(self) -> bool:
        """Whether every match goes to the end of the text."""
        return not self.is_lazy and _ends_at_end(self.root)

    @property
    def has_single_groups(self) -> bool:
        """Whether every group takes part in every match at most once."""
        return not any(
            inner.is_captured
            for node in _all(self.root)
            if node.kind == "repeat" and node.most != 1
            for inner in _all(node)
        )

    @property
    def has_plain_groups(self) -> bool:
        """Whether every group takes part in every match exactly once."""
        return all(
            not any(inner.is_captured for inner in _all(node))
            for node in _all(self.root)
            if node.kind == "alt" or (node.kind == "repeat" and (node.least, node.most) != (1, 1))
        )


def read(text: str, *, ignore_case: bool = False) -> Pattern:
    """Read a pattern of PostgreSQL; raise InvalidLiteral if it is wrong, or cannot be run by Java."""
    reader = PatternReader(text, ignore_case=ignore_case)
    if text.startswith("***"):
        raise reader.wrong("directors *** are not supported")
    root = reader.whole()
    if _rounds(root) > MOST_REPEATS and not _is_possessive(root):
        raise reader.wrong(
            "Spark could run out of memory for a group that is repeated without limit, unless the next character "
            "always decides how the expression goes on"
        )
    return Pattern(text, root, reader.is_lazy)


# --- Write


def _java(node: Node, captured: bool, *, is_possessive: bool) -> str:
    parts = [_java(item, captured, is_possessive=is_possessive) for item in node.items]
    match node.kind:
        case "set":
            return _java_set(node.ranges)
        case "start" | "end":
            return r"\A" if node.kind == "start" else r"\z"
        case "cat":
            return "".join(parts)
        case "alt":
            return "|".join(parts)
        case "group":
            return f"({parts[0]})" if captured and node.is_captured else f"(?:{parts[0]})"
    count = f"{{{node.least},{'' if node.most is None else node.most}}}"
    return parts[0] + count + ("+" if is_possessive and node.most != 1 and _branches(node.items[0]) else "")


def _java_set(ranges: Ranges) -> str:
    if ranges == complement(()):
        return "."
    if not ranges:
        return r"(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _java_character(ranges[0][0])
    return "[" + "".join(_java_character(a) + (f"-{_java_character(b)}" if b > a else "") for a, b in ranges) + "]"


def _java_character(code: int) -> str:
    one = chr(code)
    return one if one.isascii() and one.isalnum() else f"\\x{{{code:x}}}"


# --- Ask


def _all(node: Node) -> Iterable[Node]:
    yield node
    for item in node.items:
        yield from _all(item)


def _is_nullable(node: Node) -> bool:
    match node.kind:
        case "set":
            return False
        case "alt":
            return any(map(_is_nullable, node.items))
        case "repeat":
            return node.least == 0 or _is_nullable(node.items[0])
    return all(map(_is_nullable, node.items))


def _ends_at_end(node: Node) -> bool:
    match node.kind:
        case "alt":
            return all(map(_ends_at_end, node.items))
        case "cat" | "group":
            return bool(node.items) and _ends_at_end(node.items[-1])
    return node.kind == "end"


def _same_at_both_ends(node: Node) -> Node | None:
    """Return X of `^X|X$`: where both match, both are the longest match."""
    if node.kind != "alt" or len(node.items) != 2 or any(one.is_captured for one in _all(node)):
        return None
    for one, other in (node.items, node.items[::-1]):
        is_both = one.items[:1] == (Node("start"),) and other.items[-1:] == (Node("end"),)
        if is_both and one.items[1:] == other.items[:-1]:
            return Node("cat", items=one.items[1:])
    return None


def _is_longest(node: Node) -> bool:
    if _variable_parts(node) <= 1:
        return True
    return _prefers_more(node, continues=False) and _Positions(node).is_deterministic


def _is_possessive(node: Node) -> bool:
    """Return whether a repeat never gives back what it has matched. Java then needs no stack for its rounds."""
    is_at_start = [one.kind for one in _all(node)].count("start") == int(node.items[:1] == (Node("start"),))
    return is_at_start and _prefers_more(node, continues=False) and _Positions(node).is_deterministic


def _branches(node: Node) -> bool:
    """Return whether a part can match in several ways or lengths: Java repeats it by recursion."""
    return any(one.kind == "alt" or (one.kind == "repeat" and one.least != one.most) for one in _all(node))


def _rounds(node: Node) -> int:
    """Return how deep Java's recursion gets by repeats."""
    inner = max(map(_rounds, node.items), default=1)
    if node.kind != "repeat" or not _branches(node.items[0]):
        return inner
    return inner * (MOST_REPEATS + 1 if node.most is None else max(node.most, 1))


def _variable_parts(node: Node) -> int:
    """Return how many parts have several lengths; a length of the match then has only one greedy way."""
    match node.kind:
        case "set" | "start" | "end":
            return 0
        case "cat" | "group":
            return sum(map(_variable_parts, node.items))
        case "alt":
            is_captured = any(one.is_captured for one in _all(node))
            return 0 if _length(node) is not None and not is_captured else _MANY
    body = node.items[0]
    if node.least == node.most:
        return 0 if _variable_parts(body) == 0 else _MANY
    return 1 if body.kind == "set" else _MANY


def _length(node: Node) -> int | None:
    """Return the length of all matches, or None if they have several."""
    if node.kind in ("set", "start", "end"):
        return int(node.kind == "set")
    lengths = [_length(item) for item in node.items]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or (node.kind == "alt" and len(set(known)) > 1):
        return None
    if node.kind == "repeat":
        return known[0] * node.least if node.least == node.most else None
    return known[0] if node.kind == "alt" else sum(known)


def _prefers_more(node: Node, *, continues: bool) -> bool:
    """Return whether Java tries to match more before less. `continues` says that more text must follow."""
    if node.kind == "alt" and not continues and any(map(_is_nullable, node.items[:-1])):
        return False
    if node.kind == "repeat" and _is_nullable(node.items[0]):
        return False
    if node.kind != "cat":
        return all(_prefers_more(item, continues=continues and node.kind != "repeat") for item in node.items)
    return all(
        _prefers_more(item, continues=continues or not all(map(_is_nullable, node.items[index + 1 :])))
        for index, item in enumerate(node.items)
    )


class _Positions:
    """The positions of characters in a pattern, and which may follow which (Glushkov's automaton)."""

    def __init__(self, root: Node) -> None:
        self.ranges: list[Ranges] = []
        self.follow: list[set[int]] = []
        self.first, _ = self.added(root)

    @property
    def is_deterministic(self) -> bool:
        """Whether the next character always decides the position: then a text has one way to match."""
        if len(self.ranges) >= _MOST_POSITIONS:
            return False
        return all(self.are_apart(positions) for positions in (self.first, *self.follow))

    def are_apart(self, positions: set[int]) -> bool:
        every = sorted(pair for position in positions for pair in self.ranges[position])
        return all(before[1] < after[0] for before, after in pairwise(every))

    def added(self, node: Node) -> tuple[set[int], set[int]]:
        """Add a part, and return its first and its last positions."""
        if len(self.ranges) >= _MOST_POSITIONS:
            return set(), set()
        match node.kind:
            case "set":
                self.ranges.append(node.ranges)
                self.follow.append(set())
                return {len(self.ranges) - 1}, {len(self.ranges) - 1}
            case "alt":
                ends = [self.added(item) for item in node.items]
                return set().union(*(one for one, _ in ends)), set().union(*(one for _, one in ends))
            case "repeat":
                return self.repeated(node)
        return self.chained([(self.added(item), _is_nullable(item)) for item in node.items])

    def repeated(self, node: Node) -> tuple[set[int], set[int]]:
        body = node.items[0]
        if node.most is None:
            count = max(node.least, 1)
            needed = [(self.added(body), False) for _ in range(count) if len(self.ranges) < _MOST_POSITIONS]
            (first, last), is_optional = needed.pop()
            self.link(last, first)
            return self.chained([*needed, ((first, last), is_optional or node.least == 0)])
        copies = [self.added(body) for _ in range(node.most) if len(self.ranges) < _MOST_POSITIONS]
        for (_, tails), (heads, _) in pairwise(copies):
            self.link(tails, heads)
        last = set().union(*(tails for _, tails in copies[max(node.least - 1, 0) :]))
        return (copies[0][0] if copies else set()), last

    def chained(self, parts: list[tuple[tuple[set[int], set[int]], bool]]) -> tuple[set[int], set[int]]:
        first: set[int] = set()
        last: set[int] = set()
        is_start = True
        for (heads, tails), is_optional in parts:
            self.link(last, heads)
            first |= heads if is_start else set()
            last = tails | last if is_optional else set(tails)
            is_start = is_start and is_optional
        return first, last

    def link(self, before: set[int], after: set[int]) -> None:
        for position in before:
            self.follow[position] |= after
