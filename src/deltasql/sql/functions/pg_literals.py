"""Literals: read the text of a constant as PostgreSQL reads it, and write it in Spark SQL."""

from __future__ import annotations

import datetime as dt
import re
import sys
from decimal import Decimal
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import (
    BOOL,
    INT4,
    INT8,
    INTERVAL,
    MOST_DIGITS,
    SqlType,
    array_of,
    common_numeric,
    numeric,
)
from deltasql.sql.functions.dates import time_zones
from deltasql.sql.functions.templates import Template, Typed

Tree = Any
_LARGEST_REAL = 3.4028235e38
_RANGES = {"int2": 15, "int4": 31, "int8": 63}
_WHOLE = re.compile(r"[+-]?(?:\d+(?:_\d+)*|0[xX][\da-fA-F]+|0[oO][0-7]+|0[bB][01]+)")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_FLOAT_WORDS = {
    "nan": "NaN", "infinity": "Infinity", "inf": "Infinity", "+infinity": "Infinity", "-infinity": "-Infinity",
    "-inf": "-Infinity",
}  # fmt: skip
_DATE = re.compile(r"(\d{4,6})-(\d{1,2})-(\d{1,2})")
_TIME = re.compile(r"[ T](\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?")
_ZONE = re.compile(r" ?(Z|UTC|GMT|[A-Z][A-Za-z_]+(?:/[A-Za-z_]+)+|[+-]\d{1,2}(?::?\d{2})?)$")
_UNITS = {
    "microsecond": (0, 0, 1), "millisecond": (0, 0, 1000), "second": (0, 0, 10**6), "sec": (0, 0, 10**6),
    "s": (0, 0, 10**6), "minute": (0, 0, 60 * 10**6), "min": (0, 0, 60 * 10**6), "m": (0, 0, 60 * 10**6),
    "hour": (0, 0, 3600 * 10**6), "hr": (0, 0, 3600 * 10**6), "h": (0, 0, 3600 * 10**6), "day": (0, 1, 0),
    "d": (0, 1, 0), "week": (0, 7, 0), "w": (0, 7, 0), "month": (1, 0, 0), "mon": (1, 0, 0), "year": (12, 0, 0),
    "yr": (12, 0, 0), "y": (12, 0, 0), "decade": (120, 0, 0), "century": (1200, 0, 0), "millennium": (12000, 0, 0),
}  # fmt: skip
_PLURALS = {"centuries": "century", "millennia": "millennium", "mins": "min", "secs": "sec"}


class InvalidLiteral(ValueError):
    """The text is not a value of the type, or deltasql does not read it."""


def number(text: str) -> Typed:
    """Return a number as it stands in a statement: an integer, a bigint, or a numeric."""
    plain = text.replace("_", "")
    if plain.isdigit() and int(plain) < 2**63:
        return Typed(exp.Literal.number(plain), INT4 if int(plain) < 2**31 else INT8)
    return _numeric_literal(Decimal(plain), numeric(*_digits(Decimal(plain))))


def boolean(value: bool) -> Typed:
    """Return TRUE or FALSE."""
    return Typed(exp.Boolean(this=value), BOOL)


def of_text(text: str, target: SqlType) -> Typed:
    """Return a text as a constant of a type; raise InvalidLiteral if it is not one."""
    read = _READERS.get(target.name)
    if read is None:
        raise InvalidLiteral(f"a text cannot be read as {target}: cast it")
    return read(text, target)


def _invalid(text: str, target: SqlType) -> InvalidLiteral:
    return InvalidLiteral(f'invalid input syntax for type {target}: "{text}"')


def _text(text: str, target: SqlType) -> Typed:
    if target.name == "bpchar" and target.size:
        text = text[: target.size[0]].ljust(target.size[0])
    elif target.size:
        text = text[: target.size[0]]
    return Typed(exp.Literal.string(text), target)


def _integer(text: str, target: SqlType) -> Typed:
    stripped = text.strip()
    if not _WHOLE.fullmatch(stripped):
        raise _invalid(text, target)
    value = int(
        stripped.replace("_", ""),
        0 if "x" in stripped.lower() or "o" in stripped.lower() or "b" in stripped.lower() else 10,
    )
    bits = _RANGES[target.name]
    if not -(2**bits) <= value < 2**bits:
        raise InvalidLiteral(f'value "{text}" is out of range for type {target}')
    return Typed(_signed(value, target), target)


def _signed(value: int, target: SqlType) -> Tree:
    if value == -(2**63):
        return Template(this=f"CAST('{value}' AS BIGINT)", expressions=[])
    plain = exp.Literal.number(str(abs(value)))
    tree = exp.Paren(this=exp.Neg(this=plain)) if value < 0 else plain
    fits_int = -(2**31) < value < 2**31
    if (target.name == "int4" and fits_int) or (target.name == "int8" and not fits_int):
        return tree
    return exp.cast(tree, {"int2": "smallint", "int4": "int", "int8": "bigint"}[target.name])


def _digits(value: Decimal) -> tuple[int, int]:
    """Return precision and scale of a number."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return max(len(digits) + max(0, int(exponent)), scale, 1), scale


def _numeric(text: str, target: SqlType) -> Typed:
    if not _NUMBER.fullmatch(text.strip()):
        raise _invalid(text, target)
    value = Decimal(text.strip().replace("_", ""))
    return _numeric_literal(value, target if target.size else numeric(*_digits(value)))


def _numeric_literal(value: Decimal, target: SqlType) -> Typed:
    precision, scale = target.size
    rounded = _rounded(value, scale)
    if _digits(value)[0] > MOST_DIGITS or _digits(rounded)[0] - scale > precision - scale:
        raise InvalidLiteral(
            f"the number {value} has too many digits: {target.ddl} holds {precision}, {scale} of them decimals"
        )
    digits, decimals = _digits(rounded)
    text = f"{rounded:f}"
    if (digits, decimals) == (precision, scale) and decimals and not rounded.is_signed():
        return Typed(exp.Literal.number(text), target)
    return Typed(Template(this=f"CAST('{text}' AS {target.ddl})", expressions=[]), target)


def _rounded(value: Decimal, scale: int) -> Decimal:
    """Round half away from zero."""
    import decimal

    with decimal.localcontext() as context:
        context.prec = 1100
        return value.quantize(Decimal(1).scaleb(-scale), rounding=decimal.ROUND_HALF_UP)


def _float(text: str, target: SqlType) -> Typed:
    stripped = text.strip()
    word = _FLOAT_WORDS.get(stripped.lower())
    if word is None and not _NUMBER.fullmatch(stripped):
        raise _invalid(text, target)
    plain = word or stripped.replace("_", "")
    largest = _LARGEST_REAL if target.name == "float4" else sys.float_info.max
    if word is None and abs(float(plain)) > largest:
        raise InvalidLiteral(f'"{text}" is out of range for type {target}')
    return Typed(Template(this=f"CAST('{plain}' AS {target.ddl})", expressions=[]), target)


def _boolean(text: str, target: SqlType) -> Typed:
    word = text.strip().lower()
    for value, words in ((True, ("true", "yes")), (False, ("false", "no"))):
        if (word and any(one.startswith(word) for one in words)) or word == ("1" if value else "0"):
            return boolean(value)
    if word in ("on", "off", "of"):
        return boolean(word == "on")
    raise _invalid(text, target)


def _date(text: str, target: SqlType) -> Typed:
    day, rest = _day_of(text.strip(), target)
    if rest and not _TIME.match(rest):
        raise _invalid(text, target)
    tree = exp.cast(exp.Literal.string(day), "date")
    tree.meta["value"] = dt.date.fromisoformat(day)
    return Typed(tree, target)


def _day_of(text: str, target: SqlType) -> tuple[str, str]:
    found = _DATE.match(text)
    if found is None:
        if text.lower() in ("today", "now", "yesterday", "tomorrow", "epoch", "infinity", "-infinity"):
            raise InvalidLiteral(f'"{text}" is not supported as {target}: write the value, such as 2026-01-31')
        raise InvalidLiteral(f'"{text}" is not read as {target}: write it as YYYY-MM-DD')
    try:
        day = dt.date(*(int(part) for part in found.groups()))
    except ValueError:
        raise InvalidLiteral(f'date/time field value out of range: "{text}"') from None
    return day.isoformat(), text[found.end() :]


def _moment(text: str, target: SqlType) -> Typed:
    day, rest = _day_of(text.strip(), target)
    found = _TIME.match(rest)
    clock, zone = (found[0][1:], rest[found.end() :]) if found else ("00:00", rest)
    if found:
        clock = _clock(found, text)
    if zone and not _ZONE.fullmatch(zone):  # an abbreviation, such as IST, has another meaning in Spark
        raise InvalidLiteral(f'"{text}" is not read as {target}: write it as YYYY-MM-DD HH:MM:SS')
    local = Template(this=f"TIMESTAMP_NTZ'{day} {clock}'", expressions=[])
    local.meta["value"] = dt.datetime.fromisoformat(f"{day} {clock}")
    if target.name == "timestamp":
        return Typed(local, target)
    if not zone.strip():
        return Typed(time_zones.instant_of_literal(f"{day} {clock}"), target)
    if "/" in zone:
        return Typed(time_zones.instant_in_zone(exp.Literal.string(zone.strip()), local), target)
    return Typed(Template(this=f"TIMESTAMP_LTZ'{day} {clock}{_zone(zone.strip())}'", expressions=[]), target)


def _clock(found: re.Match[str], text: str) -> str:
    hour, minute, second, fraction = found.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59 or len(fraction or "") > 7:
        raise InvalidLiteral(f'date/time field value out of range, or more than 6 decimals: "{text}"')
    return f"{int(hour):02}:{minute}:{second or '00'}{fraction or ''}"


def _zone(text: str) -> str:
    found = re.fullmatch(r"([+-])(\d{1,2}):?(\d{2})?", text)
    return f"{found[1]}{int(found[2]):02}:{found[3] or '00'}" if found else (f" {text}" if text else "")


def _bytea(text: str, target: SqlType) -> Typed:
    if not text.startswith("\\x"):
        if "\\" in text:
            raise InvalidLiteral(f"bytea is written in hexadecimal, '\\x00ff', got '{text}'")
        return Typed(Template(this=f"X'{text.encode().hex()}'", expressions=[]), target)
    digits = text[2:].replace(" ", "")
    if not re.fullmatch(r"(?:[\da-fA-F]{2})*", digits):
        raise InvalidLiteral(f'invalid hexadecimal data: "{text}"')
    return Typed(Template(this=f"X'{digits}'", expressions=[]), target)


def _array(text: str, target: SqlType) -> Typed:
    found = [None if item is None else of_text(item, target.element) for item in _array_items(text.strip())]
    kind = target.element
    if kind.name == "numeric" and not kind.size:
        kind = common_numeric([one.type for one in found if one is not None] or [numeric(1, 0)])
    trees = [exp.Null() if one is None else one.tree for one in found]
    array = Template(this="array({*})", expressions=trees)
    return Typed(Template(this=f"CAST({{0}} AS {array_of(kind).ddl})", expressions=[array]), array_of(kind))


def _array_items(text: str) -> list[str | None]:
    if not re.fullmatch(r"\{.*\}", text, re.DOTALL):
        raise InvalidLiteral(f'malformed array literal: "{text}"')
    inner = text[1:-1]
    if not inner.strip():
        return []
    found: list[str | None] = []
    for item in re.finditer(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^,{}"]*?))\s*(,|$)', inner):
        quoted, plain = item[1], item[2]
        if quoted is None and not plain and item[3] == "" and item.start() == len(inner):
            continue
        if quoted is None and not plain:
            raise InvalidLiteral(f'malformed array literal: "{text}"')
        is_null = quoted is None and plain.upper() == "NULL"
        found.append(None if is_null else re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain)
    if "{" in inner.replace('\\"', "") and '"' not in inner:
        raise InvalidLiteral(f"arrays of arrays are not read from a text: write ARRAY[…], got '{text}'")
    return found


def interval(text: str, target: SqlType = INTERVAL) -> Typed:
    """Return an interval, such as '1 day 02:03:04' or '2 months ago'."""
    months, days, micros = _interval_parts(text)
    seconds = Decimal(micros) / 10**6
    tree = Template(this=f"make_interval(0, {months}, 0, {days}, 0, 0, {seconds:f})", expressions=[])
    tree.meta["interval"] = (months, days, micros)  # a comparison needs the parts
    return Typed(tree, target)


def _interval_parts(text: str) -> tuple[int, int, int]:
    words = text.strip().removeprefix("@").lower()
    sign = -1 if words.endswith("ago") else 1
    words = words.removesuffix("ago").strip()
    total = [0, 0, 0]
    pattern = re.compile(
        r"\s*(?:([+-]?)(\d+):(\d{2})(?::(\d{2}(?:\.\d{1,6})?))?(?![\d:])|([+-]?\d+(?:\.\d+)?)\s*([a-z]+))\s*"
    )
    at = 0
    while at < len(words):
        found = pattern.match(words, at)
        if found is None:
            raise InvalidLiteral(f'invalid input syntax for type interval: "{text}"')
        at = found.end()
        parts = _clock_parts(found) if found[3] else _unit_parts(found[5], found[6], text)
        total = [have + new for have, new in zip(total, parts, strict=True)]
    if not words:
        raise InvalidLiteral(f'invalid input syntax for type interval: "{text}"')
    return sign * total[0], sign * total[1], sign * total[2]


def _clock_parts(found: re.Match[str]) -> tuple[int, int, int]:
    seconds = int(found[2]) * 3600 + int(found[3]) * 60
    micros = seconds * 10**6 + int(Decimal(found[4] or 0) * 10**6)
    return 0, 0, -micros if found[1] == "-" else micros


def _unit_parts(amount: str, unit: str, text: str) -> tuple[int, int, int]:
    name = _PLURALS.get(unit, unit if unit in _UNITS else unit.removesuffix("s"))
    if name not in _UNITS:
        raise InvalidLiteral(f'invalid input syntax for type interval: "{text}"')
    months, days, micros = _UNITS[name]
    count = Decimal(amount)
    if micros:
        exact = count * micros
        if exact != int(exact):
            raise InvalidLiteral(f'an interval has microseconds at most: "{text}"')
        return 0, 0, int(exact)
    if count != int(count):
        raise InvalidLiteral(f'fractions of days and months are not supported in an interval: "{text}"')
    return months * int(count), days * int(count), 0


_READERS = {
    "text": _text, "varchar": _text, "bpchar": _text, "json": _text, "int2": _integer, "int4": _integer,
    "int8": _integer, "numeric": _numeric, "float4": _float, "float8": _float, "bool": _boolean, "date": _date,
    "timestamp": _moment, "timestamptz": _moment, "bytea": _bytea, "array": _array, "interval": interval,
}  # fmt: skip
