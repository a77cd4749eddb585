r"""The table of functions of texts and bytes. `{0}`, `{1}` … are the arguments.

Upper and lower case are those of the locale C, which the embedded PostgreSQL has: only the letters A to Z. Bytes are
handled as texts of the encoding ISO-8859-1, which has one character for each byte.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence

from sqlglot import exp

from deltasql.sql.catalog.pg_types import BYTEA, TEXT, SqlType, array_of
from deltasql.sql.functions.casts import cast, castable
from deltasql.sql.functions.operator_table import Build, ascii_lower
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.regex.regular_expressions import REGEX_FUNCTIONS, constant_text
from deltasql.sql.functions.templates import Tree, Typed, filled


def _upper(text: str) -> str:
    return f"translate({text}, '{string.ascii_lowercase}', '{string.ascii_uppercase}')"


def _strict(condition: str, error: str, result: str, arguments: int) -> str:
    """Return a result, or an error under a condition; null comes before errors, as PostgreSQL does not call at all."""
    known = " AND ".join(f"({{{index}}}) IS NOT NULL" for index in range(arguments))
    return f"CASE WHEN {condition} AND {known} THEN raise_error('{error}') ELSE {result} END"


def _number(value: Typed) -> int | None:
    """Return the value of an integer that is written as a number, or None."""
    tree = value.tree.this if isinstance(value.tree, exp.Paren) else value.tree
    sign, tree = (-1, tree.this) if isinstance(tree, exp.Neg) else (1, tree)
    return sign * int(tree.name) if isinstance(tree, exp.Literal) and not tree.is_string else None


# --- Parts of texts

_NEGATIVE_LENGTH = "negative substring length not allowed"
_LEFT = "left({0}, CASE WHEN {1} < 0 THEN length({0}) + {1} ELSE {1} END)"
_RIGHT = (
    "CASE WHEN {1} >= 0 THEN right({0}, {1}) ELSE substring({0}, CASE WHEN {1} = -2147483648 THEN 1 "
    "WHEN {1} = -2147483647 THEN 2147483647 ELSE 1 - {1} END) END"
)
"""PostgreSQL cannot negate the smallest integer either, and takes the whole text."""
_START = "CASE WHEN {1} < 1 THEN 1 ELSE {1} END"
_REST = f"substring({{0}}, {_START})"
_COUNT = "CASE WHEN {1} >= 1 OR {2} IS NULL THEN {2} ELSE CAST(greatest(CAST({1} AS BIGINT) + {2} - 1, 0) AS INT) END"
_PART = _strict("{2} < 0", _NEGATIVE_LENGTH, f"substring({{0}}, {_START}, {_COUNT})", 2)
_OVERLAY = _strict(
    "{2} <= 0",
    _NEGATIVE_LENGTH,
    "concat(substring({0}, 1, {2} - 1), {1}, substring({0}, CASE WHEN {2} + {3} < 1 THEN 1 ELSE {2} + {3} END))",
    4,
)
_OVERLAY_ALL = _strict(
    "{2} <= 0",
    _NEGATIVE_LENGTH,
    "concat(substring({0}, 1, {2} - 1), {1}, substring({0}, {2} + length({1})))",
    3,
)


def _left(values: Sequence[Typed]) -> Typed:
    """Return the start of a text; a negative number says how many characters at the end are left out."""
    trees = [value.tree for value in values]
    number = _number(values[1])
    text = _LEFT if number is None else "left({0}, {1})" if number >= 0 else "left({0}, length({0}) + {1})"
    return Typed(filled(text, trees), TEXT)


def _right(values: Sequence[Typed]) -> Typed:
    """Return the end of a text; a negative number says how many characters at the start are left out."""
    trees = [value.tree for value in values]
    number = _number(values[1])
    if number is not None and -(2**31) + 1 < number < 0:
        return Typed(filled(f"substring({{0}}, {1 - number})", trees), TEXT)
    return Typed(filled(_RIGHT if number is None or number < 0 else "right({0}, {1})", trees), TEXT)


def _substring(result: SqlType) -> Build:
    """Return a part of a text or of bytes; short if the numbers are constants."""

    def build(values: Sequence[Typed]) -> Typed:
        trees = [value.tree for value in values]
        start = _number(values[1])
        length = _number(values[2]) if len(values) > 2 else None
        if start is not None and len(values) == 2:
            return Typed(filled(f"substring({{0}}, {max(start, 1)})", trees), result)
        if start is not None and length is not None and length >= 0:
            rest = length if start >= 1 else max(start + length - 1, 0)
            return Typed(filled(f"substring({{0}}, {max(start, 1)}, {rest})", trees), result)
        return Typed(filled(_REST if len(values) == 2 else _PART, trees), result)

    return build


def _as_texts(text: str, *, is_bytes: bool = True) -> str:
    """Return a template for texts as one for bytes; `is_bytes` says that the result is bytes too."""
    decoded = re.sub(r"(\{[01]\})", r"decode(\1, 'ISO-8859-1')", text)
    return f"encode({decoded}, 'ISO-8859-1')" if is_bytes else decoded


_TRIMS = {"btrim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_TRIM = {
    **{f"{name}(text)": f"trim({side} FROM {{0}})" for name, side in _TRIMS.items()},
    **{f"{name}(text,text)": f"trim({side} {{1}} FROM {{0}})" for name, side in _TRIMS.items()},
    **{f"{name}(bytea,bytea)": _as_texts(f"trim({side} {{1}} FROM {{0}})") for name, side in _TRIMS.items()},
}
_WORD_START = "(?<![a-z0-9])(?=[a-z0-9])"
_INITCAP = (
    f"array_join(transform(split({ascii_lower('{0}')}, '{_WORD_START}'), "
    f"w -> concat({_upper('left(w, 1)')}, substring(w, 2))), '')"
)

# --- Texts of values


def _shown(value: Typed, *, is_output: bool = True) -> Tree:
    """Return the text of a value: as its type writes it, or as a cast to text, which differ for booleans."""
    if value.type.name == "bool" and is_output:
        return filled("CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END", [value.tree])
    if value.type.padded:
        raise InvalidLiteral("round this numeric before it becomes a text: its number of decimals is not known")
    if value.type.name in ("bpchar", "array") or not castable(value.type, TEXT, "assignment"):
        raise InvalidLiteral(f"a value of type {value.type} cannot become a text here")
    return cast(value, TEXT).tree


def _concat(values: Sequence[Typed]) -> Typed:
    parts = [filled("coalesce({0}, '')", [_shown(value)]) for value in values]
    return Typed(filled("concat({*})", parts), TEXT)


def _concat_ws(values: Sequence[Typed]) -> Typed:
    return Typed(filled("concat_ws({*})", [values[0].tree, *map(_shown, values[1:])]), TEXT)


_ESCAPED = r"replace(replace({0}, '\'', '\'\''), '\\', '\\\\')"
_QUOTE = rf"concat(CASE WHEN contains({{0}}, '\\') THEN 'E\'' ELSE '\'' END, {_ESCAPED}, '\'')"


def _quote(text: str) -> Build:
    return lambda values: Typed(filled(text, [_shown(values[0], is_output=False)]), TEXT)


_DIRECTIVE = re.compile(r"%(?:(%)|(?:([1-9][0-9]*)\$)?([sL]))")


def _format(values: Sequence[Typed]) -> Typed:
    """Return format with %s, %L, %1$s and %%: a constant format is a list of texts and values."""
    text = constant_text(values[0], "format")
    if "%" in _DIRECTIVE.sub("", text):
        raise InvalidLiteral(f"the format '{text}' can have %s, %L, %1$s and %%, and no other directives")
    parts: list[Tree] = []
    at, following = 0, 1
    for found in _DIRECTIVE.finditer(text):
        parts.append(exp.Literal.string(text[at : found.start()] + (found[1] or "")))
        at = found.end()
        if found[3]:
            number = int(found[2] or following)
            following = number + 1
            if number >= len(values):
                raise InvalidLiteral(f"too few arguments for the format '{text}'")
            quote = "coalesce({0}, '')" if found[3] == "s" else f"coalesce({_QUOTE}, 'NULL')"
            parts.append(filled(quote, [_shown(values[number])]))
    return Typed(filled("concat({*})", [*parts, exp.Literal.string(text[at:])]), TEXT)


# --- Characters and bytes

_BAD_CHARACTER = "{0} <= 0 OR {0} > 1114111 OR {0} BETWEEN 55296 AND 57343"
_CHR = _strict(
    f"({_BAD_CHARACTER})",
    "there is no character of this number",
    "decode(unhex(concat('0000FEFF', lpad(hex({0}), 8, '0'))), 'UTF-32')",
    1,
)
_UNSIGNED = "hex(({0}) & 4294967295)"
_HEX, _HEX8 = f"lower({_UNSIGNED})", "lower(hex({0}))"


def _byte(start: str) -> str:
    return f"ascii(decode(substring({{0}}, CAST({start} AS INT), 1), 'ISO-8859-1'))"


_OUT_OF_RANGE = "the index is out of the valid range"
_GET_BYTE = _strict("({1} < 0 OR {1} >= length({0}))", _OUT_OF_RANGE, _byte("{1} + 1"), 2)
_GET_BIT = _strict(
    "({1} < 0 OR {1} >= length({0}) * 8L)",
    _OUT_OF_RANGE,
    f"CAST(getbit({_byte('{1} DIV 8 + 1')}, CAST({{1}} % 8 AS INT)) AS INT)",
    2,
)
_SET_BYTE = _strict(
    "({1} < 0 OR {1} >= length({0}))",
    _OUT_OF_RANGE,
    "concat(substring({0}, 1, {1}), unhex(lpad(hex(({2}) & 255), 2, '0')), substring({0}, {1} + 2))",
    3,
)
_LINE = "([^=]{76})"
_ENCODINGS = {
    "hex": "lower(hex({0}))",
    "base64": r"regexp_replace(replace(base64({0}), '\r\n', ''), {1}, '$1\n')",
    "escape": (
        r"array_join(transform(filter(split(decode({0}, 'ISO-8859-1'), ''), c -> c <> ''), c -> CASE "
        r"WHEN c = '\\' THEN '\\\\' WHEN ascii(c) BETWEEN 1 AND 127 THEN c "
        r"ELSE concat('\\', lpad(conv(CAST(ascii(c) AS STRING), 10, 8), 3, '0')) END), '')"
    ),
}
_SPACES = r"regexp_replace({0}, '[ \t\n\r]', '')"
_DECODINGS = {
    "hex": (
        f"CASE WHEN {_SPACES} RLIKE '^([0-9a-fA-F][0-9a-fA-F])*\\\\z' THEN unhex({_SPACES}) "
        "WHEN ({0}) IS NOT NULL THEN raise_error('invalid hexadecimal data') END"
    ),
    "base64": (
        f"CASE WHEN length({_SPACES}) % 4 = 0 THEN to_binary({_SPACES}, 'base64') "
        "WHEN ({0}) IS NOT NULL THEN raise_error('invalid base64 end sequence') END"
    ),
}


def _encoding(texts: Mapping[str, str], result: SqlType) -> Build:
    """Return encode or decode with a constant format."""

    def build(values: Sequence[Typed]) -> Typed:
        name = constant_text(values[1], "encoding").lower()
        if name not in texts:
            raise InvalidLiteral(f"the encoding can be {', '.join(texts)}, got '{name}'")
        return Typed(filled(texts[name], [values[0].tree, exp.Literal.string(_LINE)]), result)

    return build


# --- Arrays

_SPECIAL = r"([\\\[\](){}.*+?^$|&#~-])"
_SPLIT = (
    "CASE WHEN ({0}) = '' THEN CAST(array() AS ARRAY<STRING>) WHEN ({0}) IS NULL THEN NULL WHEN ({1}) IS NULL THEN "
    r"split({0}, '(?s)(?<=.)(?=.)') WHEN ({1}) = '' THEN array({0}) "
    r"ELSE split({0}, regexp_replace({1}, {2}, '\\\\$1')) END"
)


def _string_to_array(values: Sequence[Typed]) -> Typed:
    """Return the parts of a text; those that are the third argument become null."""
    parts = filled(_SPLIT, [values[0].tree, values[1].tree, exp.Literal.string(_SPECIAL)])
    if len(values) == 3:
        parts = filled("transform({0}, p -> CASE WHEN NOT p <=> ({1}) THEN p END)", [parts, values[2].tree])
    return Typed(parts, array_of(TEXT))


def _limited(is_too_long: str, spark: str) -> str:
    """Return a text, or PostgreSQL's error if it would have more than a gigabyte."""
    return f"CASE WHEN {is_too_long} THEN raise_error('requested length too large') ELSE {spark} END"


_SHA = (224, 256, 384, 512)

TEXT_FUNCTIONS: Mapping[str, str | Build] = {
    "gen_random_uuid()": "uuid()",
    **dict.fromkeys(("length(text)", "char_length(text)", "character_length(text)", "length(bytea)"), "length({0})"),
    **{f"{name}({kind})": f"{name}({{0}})" for name in ("octet_length", "bit_length") for kind in ("text", "bytea")},
    "lower(text)": ascii_lower("{0}"),
    "casefold(text)": ascii_lower("{0}"),
    "upper(text)": _upper("{0}"),
    "initcap(text)": _INITCAP,
    "left(text,int4)": _left,
    "right(text,int4)": _right,
    **{
        f"{name}({kind.name}{numbers})": _substring(kind)
        for name in ("substr", "substring") for kind in (TEXT, BYTEA) for numbers in (",int4", ",int4,int4")
    },
    "position(text,text)": "instr({0}, {1})",
    "strpos(text,text)": "instr({0}, {1})",
    "position(bytea,bytea)": _as_texts("instr({0}, {1})", is_bytes=False),
    **{f"overlay({kind},{kind},int4)": _OVERLAY_ALL for kind in ("text", "bytea")},
    **{f"overlay({kind},{kind},int4,int4)": _OVERLAY for kind in ("text", "bytea")},
    **_TRIM,
    **{f"{name}(text,int4)": _limited("{1} > 268435454", f"{name}({{0}}, {{1}}, ' ')") for name in ("lpad", "rpad")},
    **{
        f"{name}(text,int4,text)": _limited("{1} > 268435454 AND {2} <> ''", f"{name}({{0}}, {{1}}, {{2}})")
        for name in ("lpad", "rpad")
    },
    "repeat(text,int4)": _limited("CAST({1} AS BIGINT) * octet_length({0}) > 1073741819", "repeat({0}, {1})"),
    "replace(text,text,text)": "replace({0}, {1}, {2})",
    "reverse(text)": "reverse({0})",
    "reverse(bytea)": _as_texts("reverse({0})"),
    "translate(text,text,text)": "translate({0}, {1}, {2})",
    "split_part(text,text,int4)": "split_part({0}, {1}, {2})",
    "starts_with(text,text)": "startswith({0}, {1})",
    "concat(any)": _concat,
    "concat_ws(text,any)": _concat_ws,
    "format(text)": _format,
    "format(text,any)": _format,
    "quote_literal(text)": _QUOTE,
    "quote_literal(anyelement)": _quote(_QUOTE),
    "quote_nullable(text)": f"coalesce({_QUOTE}, 'NULL')",
    "quote_nullable(anyelement)": _quote(f"coalesce({_QUOTE}, 'NULL')"),
    "chr(int4)": _CHR,
    "ascii(text)": "ascii({0})",
    "to_hex(int4)": _HEX,
    "to_hex(int8)": _HEX8,
    "to_oct(int4)": f"conv({_UNSIGNED}, 16, 8)",
    "to_oct(int8)": "conv(hex({0}), 16, 8)",
    "to_bin(int4)": "bin(({0}) & 4294967295)",
    "to_bin(int8)": "bin({0})",
    "md5(text)": "md5(CAST({0} AS BINARY))",
    "md5(bytea)": "md5({0})",
    **{f"sha{bits}(bytea)": f"unhex(sha2({{0}}, {bits}))" for bits in _SHA},
    "crc32(bytea)": "crc32({0})",
    "encode(bytea,text)": _encoding(_ENCODINGS, TEXT),
    "decode(text,text)": _encoding(_DECODINGS, BYTEA),
    "get_byte(bytea,int4)": _GET_BYTE,
    "get_bit(bytea,int8)": _GET_BIT,
    "set_byte(bytea,int4,int4)": _SET_BYTE,
    "string_to_array(text,text)": _string_to_array,
    "string_to_array(text,text,text)": _string_to_array,
    **REGEX_FUNCTIONS,
}  # fmt: skip
