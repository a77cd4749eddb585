"""The tables of operators and functions with regular expressions. Patterns, replacements and flags are constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import BOOL, INT4, TEXT, array_of
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.regex.regex_patterns import Pattern, read
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
_Build = Callable[[Sequence[Typed]], Typed]


def constant_text(value: Typed, what: str) -> str:
    """Return the text of a literal; raise InvalidLiteral if it is not one."""
    if isinstance(value.tree, exp.Placeholder) and isinstance(value.tree.meta.get("value"), str):
        return str(value.tree.meta["value"])
    if not isinstance(value.tree, exp.Literal) or not value.tree.is_string:
        raise InvalidLiteral(f"the {what} must be written in the statement as a quoted text, or be a parameter")
    return str(value.tree.name)


def constant_number(value: Typed, what: str) -> int:
    """Return the value of an integer literal; raise InvalidLiteral if it is not one."""
    if not isinstance(value.tree, exp.Literal) or value.tree.is_string:
        raise InvalidLiteral(f"the {what} must be written in the statement as a number that is not negative")
    return int(value.tree.name)


def _text(text: str) -> Tree:
    return exp.Literal.string(text)


def _flags(values: Sequence[Typed], index: int, allowed: str) -> str:
    flags = constant_text(values[index], "flags") if index < len(values) else ""
    if set(flags) - set(allowed):
        raise InvalidLiteral(f"the flags of a regular expression can be {' and '.join(allowed)}, got '{flags}'")
    return flags


def _pattern(values: Sequence[Typed], flags: str = "") -> Pattern:
    return read(constant_text(values[1], "regular expression"), ignore_case="i" in flags)


def _matched(values: Sequence[Typed], flags: str = "", *, several: bool = False, groups: bool = False) -> Pattern:
    """Return a pattern whose matched part is the same in PostgreSQL and Java; raise InvalidLiteral for another."""
    pattern = _pattern(values, flags)
    if not (pattern.is_longest or (pattern.ends_at_end and not groups)):
        raise InvalidLiteral(
            f"the regular expression '{pattern.text}' can match a text in several ways, and Spark would not always "
            "take the longest match: write it so that the next character decides how it goes on"
        )
    if several and pattern.is_nullable:
        raise InvalidLiteral(f"the regular expression '{pattern.text}' matches an empty text")
    if groups and not pattern.has_plain_groups:
        raise InvalidLiteral(f"a group of '{pattern.text}' is optional, repeated, or one of several alternatives")
    return pattern


def _like(spark: str, flags: str = "") -> _Build:
    """Return a test whether a text has a match."""

    def build(values: Sequence[Typed]) -> Typed:
        pattern = _pattern(values, flags or _flags(values, 2, "i"))
        return Typed(filled(spark, [values[0].tree, _text(pattern.java())]), BOOL)

    return build


def similar(value: Typed, pattern: Typed) -> Typed:
    """Return value SIMILAR TO pattern."""
    text = _of_similar(constant_text(pattern, "pattern of SIMILAR TO"))
    return Typed(filled("(({0}) RLIKE {1})", [value.tree, _text(read(text).java())]), BOOL)


def _of_similar(text: str) -> str:
    """Return the regular expression of a pattern of SIMILAR TO."""
    parts = []
    for found in re.finditer(r"\\(.?)|\[\^?\]?([^]]*)(\]?)|.", text, re.DOTALL):
        part = found[0]
        if part == "\\" or (part[0] == "\\" and part[1] == '"') or (part[0] == "[" and re.search(r"[\\[]", part[1:])):
            raise InvalidLiteral(f"the pattern '{text}' of SIMILAR TO is not supported: {part}")
        parts.append({"%": ".*", "_": ".", "(": "(?:", ".": r"\.", "^": r"\^", "$": r"\$"}.get(part, part))
    return f"^(?:{''.join(parts)})$"


# --- Replace


def _replace(values: Sequence[Typed]) -> Typed:
    """Return a text with its first match, or all of them, replaced."""
    flags = _flags(values, 3, "gi")
    written = constant_text(values[2], "replacement")
    pattern = _matched(values, flags, several="g" in flags)
    has_groups = re.search(r"\\[1-9]", written) is not None
    if has_groups and not (pattern.is_longest and pattern.has_single_groups):
        raise InvalidLiteral(f"a group of '{pattern.text}' can match in several ways, so \\1 may not be the same")
    java = pattern.java(captured=has_groups)
    if "g" in flags:
        trees = [_text(java), _text(_replacement(written, pattern.groups, 0))]
    else:  # the first group is the text before the first match, the second one is the match
        trees = [_text(rf"(?s)\A(.*?)({java})"), _text("$1" + _replacement(written, pattern.groups, 2))]
    return Typed(filled("regexp_replace({0}, {1}, {2})", [values[0].tree, *trees]), TEXT)


def _replacement(written: str, groups: int, whole: int) -> str:
    r"""Return a replacement for Java: `$1` instead of `\1`. `whole` is the group that is the match."""

    def part(found: re.Match[str]) -> str:
        if found[1]:
            number = 0 if found[1] == "&" else int(found[1])
            return f"${whole + number}" if number <= groups else ""
        return "\\\\" if found[0] in ("\\\\", "\\") else f"\\{found[0]}"

    return re.sub(r"\\([1-9&])|\\\\|[\\$0-9]", part, written)


# --- Find


def _part(value: Tree, pattern: Pattern, group: int) -> Tree:
    """Return the part of a text that the pattern or a group of it matches; null without a match."""
    trees = [value, _text(pattern.java()), _text(pattern.java(captured=group > 0)), exp.Literal.number(group)]
    return filled("CASE WHEN ({0}) RLIKE {1} THEN regexp_extract({0}, {2}, {3}) END", trees)


def _match(values: Sequence[Typed]) -> Typed:
    """Return the groups of the first match, or the match if there are none."""
    flags = _flags(values, 2, "i")
    pattern = _matched(values, flags, groups=bool(_pattern(values, flags).groups))
    numbers = [exp.Literal.number(group) for group in (range(1, pattern.groups + 1) if pattern.groups else (0,))]
    holes = ", ".join(f"regexp_extract({{0}}, {{1}}, {{{index + 2}}})" for index, _ in enumerate(numbers))
    tree = filled(
        f"CASE WHEN ({{0}}) RLIKE {{1}} THEN array({holes}) END",
        [values[0].tree, _text(pattern.java(captured=True)), *numbers],
    )
    return Typed(tree, array_of(TEXT))


def _substring(values: Sequence[Typed]) -> Typed:
    """Return the first group of the first match, or the match if there is no group."""
    has_groups = _pattern(values).groups > 0
    return Typed(_part(values[0].tree, _matched(values, groups=has_groups), int(has_groups)), TEXT)


def _from_start(values: Sequence[Typed]) -> None:
    if len(values) > 2 and constant_number(values[2], "start") != 1:
        raise InvalidLiteral("a search starts at 1: give it a substring to start later")


def _substr(values: Sequence[Typed]) -> Typed:
    """Return the n-th match, or a group of it."""
    _from_start(values)
    number = constant_number(values[3], "number of the match") if len(values) > 3 else 1
    group = constant_number(values[5], "number of the group") if len(values) > 5 else 0
    pattern = _matched(values, _flags(values, 4, "i"), several=number != 1, groups=group > 0)
    if number == 0:
        raise InvalidLiteral("the first match has the number 1")
    if group > pattern.groups:
        return Typed(filled("CAST(NULL AS STRING)", []), TEXT)
    if number == 1:
        return Typed(_part(values[0].tree, pattern, group), TEXT)
    trees = [_text(pattern.java(captured=True)), exp.Literal.number(group), exp.Literal.number(number - 1)]
    return Typed(filled("get(regexp_extract_all({0}, {1}, {2}), {3})", [values[0].tree, *trees]), TEXT)


def _instr(values: Sequence[Typed]) -> Typed:
    """Return where the first match starts, or 0."""
    pattern = _pattern(values)
    trees = [_text(pattern.java()), _text(rf"(?s)\A(.*?)(?:{pattern.java()})")]
    text = "CASE WHEN ({0}) RLIKE {1} THEN length(regexp_extract({0}, {2}, 1)) + 1 WHEN ({0}) IS NOT NULL THEN 0 END"
    return Typed(filled(text, [values[0].tree, *trees]), INT4)


def _count(values: Sequence[Typed]) -> Typed:
    """Return the number of matches."""
    _from_start(values)
    pattern = _matched(values, _flags(values, 3, "i"), several=True)
    return Typed(filled("regexp_count({0}, {1})", [values[0].tree, _text(pattern.java())]), INT4)


def _split(values: Sequence[Typed]) -> Typed:
    """Return the parts between the matches."""
    pattern = _matched(values, _flags(values, 2, "i"), several=True)
    return Typed(filled("split({0}, {1}, -1)", [values[0].tree, _text(pattern.java())]), array_of(TEXT))


REGEX_OPERATORS: Mapping[str, _Build] = {
    "~(text,text)": _like("(({0}) RLIKE {1})", "c"),
    "!~(text,text)": _like("(NOT ({0}) RLIKE {1})", "c"),
    "~*(text,text)": _like("(({0}) RLIKE {1})", "i"),
    "!~*(text,text)": _like("(NOT ({0}) RLIKE {1})", "i"),
}
REGEX_FUNCTIONS: Mapping[str, _Build] = {
    "regexp_like(text,text)": _like("(({0}) RLIKE {1})"),
    "regexp_like(text,text,text)": _like("(({0}) RLIKE {1})"),
    "regexp_replace(text,text,text)": _replace,
    "regexp_replace(text,text,text,text)": _replace,
    "regexp_match(text,text)": _match,
    "regexp_match(text,text,text)": _match,
    "substring(text,text)": _substring,
    "regexp_substr(text,text)": _substr,
    "regexp_substr(text,text,int4)": _substr,
    "regexp_substr(text,text,int4,int4)": _substr,
    "regexp_substr(text,text,int4,int4,text)": _substr,
    "regexp_substr(text,text,int4,int4,text,int4)": _substr,
    "regexp_instr(text,text)": _instr,
    "regexp_count(text,text)": _count,
    "regexp_count(text,text,int4)": _count,
    "regexp_count(text,text,int4,text)": _count,
    "regexp_split_to_array(text,text)": _split,
    "regexp_split_to_array(text,text,text)": _split,
}
