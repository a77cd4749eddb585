"""Which expressions may be stored in a table: they run in the process of everyone who writes to it.

CHECK constraints, generated columns and defaults may only call functions of a list. All other functions of Spark, such
as those that call Java methods or read files, functions of users, and subqueries are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

_PARTS = r"""
    (?P<comment>--|/\*)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<text>'(?:{inside}|[^'{escape}])*'|"(?:{inside}|[^"{escape}])*")
  | (?P<name>`(?:[^`]|``)*`)
  | (?P<word>[^\W\d]\w*)
  | (?P<number>\d\w*)
  | (?P<space>\s+)
  | (?P<other>.)
"""
# A session may switch escapes in texts off, so both ways of reading a text count.
_LEXERS = (
    re.compile(_PARTS.format(inside=r"\\.", escape=r"\\"), re.VERBOSE | re.DOTALL),
    re.compile(_PARTS.format(inside=r"(?!)", escape=""), re.VERBOSE | re.DOTALL),
)
_QUERIES = {"select", "table", "values", "with"}
_KEYWORDS = {
    "all", "and", "any", "as", "between", "binary", "case", "char", "character", "date", "dec", "decimal", "div",
    "else", "end", "escape", "for", "from", "ilike", "in", "interval", "is", "like", "not", "numeric", "or", "regexp",
    "rlike",
    "some", "string", "then", "timestamp", "varchar", "when",
}  # fmt: skip
ALLOWED_FUNCTIONS = frozenset(
    _KEYWORDS
    | {
        # numbers
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bigint", "bin", "bit_count", "bit_get",
        "boolean", "bround", "cbrt", "ceil", "ceiling", "conv", "cos", "cosh", "cot", "csc", "degrees", "double", "e",
        "exp", "expm1", "factorial", "float", "floor", "getbit", "greatest", "hypot", "int", "isnan", "least", "ln",
        "log", "log10", "log1p", "log2", "mod", "nanvl", "negative", "pi", "pmod", "positive", "pow", "power",
        "radians", "rint", "round", "sec", "shiftleft", "shiftright", "shiftrightunsigned", "sign", "signum", "sin",
        "sinh",
        "smallint", "sqrt", "tan", "tanh", "tinyint", "try_add", "try_divide", "try_mod", "try_multiply",
        "try_subtract", "width_bucket",
        # texts and bytes
        "ascii", "base64", "bit_length", "btrim", "char_length", "character_length", "chr", "concat", "concat_ws",
        "contains", "crc32", "decode", "elt", "encode", "endswith", "find_in_set", "format_number", "format_string",
        "hash", "hex", "initcap", "instr", "is_valid_utf8", "lcase", "left", "len", "length", "levenshtein", "locate",
        "lower", "lpad", "ltrim", "luhn_check", "make_valid_utf8", "mask", "md5", "octet_length", "overlay",
        "parse_url", "position", "printf", "regexp_count", "regexp_extract", "regexp_extract_all", "regexp_instr",
        "regexp_like", "regexp_replace", "regexp_substr", "repeat", "replace", "reverse", "right", "rpad", "rtrim",
        "sentences", "sha", "sha1", "sha2", "soundex", "space", "split", "split_part", "startswith", "substr",
        "substring", "substring_index", "to_binary", "to_char", "to_number", "to_varchar", "translate", "trim",
        "try_parse_url", "try_to_binary", "try_to_number", "ucase", "unbase64", "unhex", "upper", "url_decode",
        "url_encode", "validate_utf8", "xxhash64",
        # dates and times
        "add_months", "convert_timezone", "date_add", "date_diff", "date_format", "date_from_unix_date", "date_part",
        "date_sub", "date_trunc", "dateadd", "datediff", "datepart", "day", "dayname", "dayofmonth", "dayofweek",
        "dayofyear", "extract", "from_unixtime", "from_utc_timestamp", "hour", "last_day", "make_date",
        "make_dt_interval", "make_interval", "make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz",
        "make_ym_interval", "minute", "month", "monthname", "months_between", "next_day", "quarter", "second",
        "timestamp_micros", "timestamp_millis", "timestamp_seconds", "timestampadd", "timestampdiff", "to_date",
        "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz", "to_unix_timestamp", "to_utc_timestamp", "trunc",
        "try_to_timestamp", "unix_date", "unix_micros", "unix_millis", "unix_seconds", "unix_timestamp", "weekday",
        "weekofyear", "window_time", "year",
        # arrays, maps, structs and JSON
        "aggregate", "array", "array_append", "array_compact", "array_contains", "array_distinct", "array_except",
        "array_insert", "array_intersect", "array_join", "array_max", "array_min", "array_position", "array_prepend",
        "array_remove", "array_repeat", "array_size", "array_sort", "array_union", "arrays_overlap", "arrays_zip",
        "cardinality", "element_at", "exists", "filter", "flatten", "forall", "from_json", "get", "get_json_object",
        "json_array_length", "json_object_keys", "map", "map_concat", "map_contains_key", "map_entries", "map_filter",
        "map_from_arrays", "map_from_entries", "map_keys", "map_values", "named_struct", "reduce", "sequence", "size",
        "slice", "sort_array", "str_to_map", "struct", "to_json", "transform", "transform_keys", "transform_values",
        "try_element_at", "zip_with",
        # conditions and casts
        "assert_true", "cast", "coalesce", "equal_null", "if", "ifnull", "isnotnull", "isnull", "nullif", "nullifzero",
        "nvl", "nvl2", "raise_error", "try_cast", "typeof", "zeroifnull",
    }
)  # fmt: skip
"""The functions, and the keywords that stand before a parenthesis."""
_DEFAULTS = frozenset({
    "current_date", "current_timestamp", "curdate", "now", "localtimestamp", "current_timezone", "current_user", "user",
    "session_user", "uuid", "rand", "randn", "random", "monotonically_increasing_id",
})  # fmt: skip
"""Functions that only a default may call: their result is stored once, with the row."""


@lru_cache(maxsize=512)
def problem_of(expression: str, *, is_default: bool = False) -> str | None:
    """Return why an expression must not be stored, None if it may be."""
    allowed = ALLOWED_FUNCTIONS | _DEFAULTS if is_default else ALLOWED_FUNCTIONS
    for lexer in _LEXERS:
        before, previous = "", ("", "")
        for kind, text in _tokens(lexer, expression):
            if kind == "comment":
                return "it has a comment"
            if kind == "word" and text.lower() in _QUERIES:
                return f"it has a query, or a column {text!r} that must be quoted as `{text}`"
            if text == "(" and previous[0] in ("word", "name", "text"):
                name = _bare(previous[1])
                if name.lower() not in allowed or before == ".":  # a qualified name is one of a user's function
                    return f"function {name} is not allowed there"
            before, previous = previous[1], (kind, text)
    return None


def _tokens(lexer: re.Pattern[str], expression: str) -> Iterator[tuple[str, str]]:
    for found in lexer.finditer(expression):
        if found.lastgroup != "space":
            yield found.lastgroup or "", found[0]


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[:1] in "`'\"" else name
