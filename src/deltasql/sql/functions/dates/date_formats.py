"""Times as texts in a format, and texts in a format as times: to_char, to_date and to_timestamp."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import DATE, TEXT, TIMESTAMPTZ
from deltasql.sql.functions.dates.time_zones import instant, micros_of
from deltasql.sql.functions.operator_table import Build
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_YEAR = "CASE WHEN year({0}) > 0 THEN year({0}) ELSE 1 - year({0}) END"
_ISO_YEAR = _YEAR.replace("year({0})", "extract(YEAROFWEEK FROM {0})")
_MICROS = "CAST(extract(SECOND FROM {0}) * 1000000 AS INT) % 1000000"
_OFFSET = f"CAST(({micros_of('CAST({0} AS TIMESTAMP_NTZ)')} - unix_micros({{0}})) DIV 1000000 AS INT)"
_CENTURY = "CASE WHEN year({0}) > 0 THEN (year({0}) + 99) DIV 100 ELSE -((100 - year({0})) DIV 100) END"
_NUMBERS = {
    "YYYY": (_YEAR, 4), "YYY": (f"({_YEAR}) % 1000", 3), "YY": (f"({_YEAR}) % 100", 2), "Y": (f"({_YEAR}) % 10", 1),
    "IYYY": (_ISO_YEAR, 4), "IYY": (f"({_ISO_YEAR}) % 1000", 3), "IY": (f"({_ISO_YEAR}) % 100", 2),
    "I": (f"({_ISO_YEAR}) % 10", 1), "MM": ("month({0})", 2), "DD": ("day({0})", 2), "DDD": ("dayofyear({0})", 3),
    "HH24": ("hour({0})", 2), "HH12": ("(hour({0}) + 11) % 12 + 1", 2), "HH": ("(hour({0}) + 11) % 12 + 1", 2),
    "MI": ("minute({0})", 2), "SS": ("CAST(floor(extract(SECOND FROM {0})) AS INT)", 2),
    "D": ("dayofweek({0})", 1), "ID": ("weekday({0}) + 1", 1), "Q": ("quarter({0})", 1), "IW": ("weekofyear({0})", 2),
    "IDDD": ("(weekofyear({0}) - 1) * 7 + weekday({0}) + 1", 3), "WW": ("(dayofyear({0}) + 6) DIV 7", 2),
    "W": ("(day({0}) + 6) DIV 7", 1), "J": ("unix_date(CAST({0} AS DATE)) + 2440588", 1), "CC": (_CENTURY, 2),
    "SSSS": ("hour({0}) * 3600 + minute({0}) * 60 + CAST(floor(extract(SECOND FROM {0})) AS INT)", 1),
}  # fmt: skip
"""The numbers of a format, and how many digits they have at least; after FM they have no zeros in front."""
_NUMBERS["SSSSS"] = _NUMBERS["SSSS"]
_FRACTIONS = {"MS": 3, "US": 6, **{f"FF{digits}": digits for digits in range(1, 7)}}
_HALVES = {"AM": ("AM", "PM"), "PM": ("AM", "PM"), "A.M.": ("A.M.", "P.M."), "P.M.": ("A.M.", "P.M.")}
_ERAS = {"AD": ("BC", "AD"), "BC": ("BC", "AD"), "A.D.": ("B.C.", "A.D."), "B.C.": ("B.C.", "A.D.")}
_NAMES = {
    **dict.fromkeys(("MONTH", "Month", "month", "MON", "Mon", "mon"), "month"),
    **dict.fromkeys(("DAY", "Day", "day", "DY", "Dy", "dy"), "day"),
}  # fmt: skip
_BOTH_CASES = {*_NUMBERS, *_FRACTIONS, *_HALVES, *_ERAS, "RM", "OF", "TZH", "TZM", "Y,YYY"}
_OTHERS = {"TZ", "tz", "FX", "fx"}
_WORDS = sorted({*_BOTH_CASES, *(word.lower() for word in _BOTH_CASES), *_NAMES, *_OTHERS}, key=len, reverse=True)
_PART = re.compile(
    rf"(?P<prefix>(?:FM|fm|TM|tm)*)(?P<word>{'|'.join(map(re.escape, _WORDS))})(?P<suffix>TH|th|SP)?"
    r'|(?P<other>FM|fm|TM|tm)|"(?P<quoted>(?:[^"\\]|\\.)*)"|\\(?P<escaped>")|(?P<plain>.)',
    re.DOTALL,
)


def _parts(format_: Typed) -> list[re.Match[str]]:
    """Return the parts of a constant format."""
    if not isinstance(format_.tree, exp.Literal):
        raise InvalidLiteral("the format must be a constant, such as 'YYYY-MM-DD'")
    text = format_.tree.name
    found = list(_PART.finditer(text))
    for part in found:
        prefix = (part["prefix"] or "").upper()
        is_other = (part["word"] or "").upper() in ("TZ", "FX") or part["other"] or part["plain"] == '"'
        if part["suffix"] or "TM" in prefix or is_other:
            raise InvalidLiteral(f"{part[0]} is not supported in the format '{text}'")
    return found


def _literal(part: re.Match[str]) -> str | None:
    """Return the text of a part that stands for itself, or None."""
    if part["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", part["quoted"])
    if part["escaped"] is not None:
        return part["escaped"]
    return part["plain"]


# --- to_char


def _as_text(arguments: Sequence[Typed]) -> Typed:
    """Return a timestamp as a text in a format."""
    value, format_ = arguments
    texts: list[str] = []
    trees = [value.tree]
    plain = ""
    for part in [*_parts(format_), None]:
        literal = _literal(part) if part is not None else None
        if literal is not None:
            plain += literal
            continue
        if plain:
            texts.append(f"{{{len(trees)}}}")
            trees.append(exp.Literal.string(plain))
            plain = ""
        if part is not None:
            texts.append(_shown(part, value.type == TIMESTAMPTZ))
    if not texts:
        return Typed(filled("CAST(NULL AS STRING)", []), TEXT)
    text = f"CASE WHEN {{0}} IS NULL THEN NULL ELSE concat({', '.join(texts)}) END"
    return Typed(filled(text, trees), TEXT)


def _shown(part: re.Match[str], has_zone: bool) -> str:
    """Return the Spark SQL of a pattern."""
    word = part["word"]
    filled_up = "FM" not in part["prefix"].upper()
    upper = word.upper()
    if word in _NAMES:
        return _name(word, filled_up)
    if upper in _NUMBERS:
        number, digits = _NUMBERS[upper]
        if upper == "CC" and filled_up:
            return (
                f"CASE WHEN {number} < 0 THEN format_string('%03d', {number}) ELSE format_string('%02d', {number}) END"
            )
        return f"format_string('%0{digits}d', {number})" if filled_up and digits > 1 else f"CAST({number} AS STRING)"
    if upper in _FRACTIONS:
        digits = _FRACTIONS[upper]
        return f"format_string('%0{digits}d', {_MICROS} DIV {10 ** (6 - digits)})"
    if upper in ("OF", "TZH", "TZM"):
        return _offset(upper, filled_up, _OFFSET if has_zone else "0")
    return _words_of(word, filled_up)


def _words_of(word: str, filled_up: bool) -> str:
    """Return the Spark SQL of a pattern for a Roman month, a half of the day, an era, or a year with a comma."""
    upper = word.upper()
    if upper == "Y,YYY":
        return f"format_string('%d,%03d', {_YEAR} DIV 1000, {_YEAR} % 1000)"
    if upper == "RM":
        names = _ROMAN if word == "RM" else tuple(name.lower() for name in _ROMAN)
        return _of_list([name.ljust(4) if filled_up else name for name in names], "month({0})")
    first, second = _HALVES.get(upper) or _ERAS[upper]
    condition = "hour({0}) < 12" if upper in _HALVES else "year({0}) <= 0"
    texts = (first, second) if word == upper else (first.lower(), second.lower())
    return f"CASE WHEN {condition} THEN '{texts[0]}' ELSE '{texts[1]}' END"


def _of_list(items: Sequence[str], number: str) -> str:
    listed = ", ".join(f"'{item}'" for item in items)
    return f"elt({number}, {listed})"


def _name(word: str, filled_up: bool) -> str:
    """Return the name of a month or day in the letters of the pattern, filled up to nine if it is not short."""
    names, number = (_MONTHS, "month({0})") if _NAMES[word] == "month" else (_DAYS, "weekday({0}) + 1")
    short = word.upper() in ("MON", "DY")
    shown = [name[:3] if short else name for name in names]
    shown = [name.upper() if word.isupper() else name.lower() if word.islower() else name for name in shown]
    return _of_list([name if short or not filled_up else name.ljust(9) for name in shown], number)


def _offset(word: str, filled_up: bool, seconds: str) -> str:
    sign = f"CASE WHEN {seconds} < 0 THEN '-' ELSE '+' END"
    minutes = f"format_string('%02d', abs({seconds}) % 3600 DIV 60)"
    if word == "TZM":
        return minutes
    digits = "%02d" if filled_up or word == "TZH" else "%d"
    hours = f"concat({sign}, format_string('{digits}', abs({seconds}) DIV 3600))"
    if word == "TZH":
        return hours
    return f"concat({hours}, CASE WHEN {seconds} % 3600 = 0 THEN '' ELSE concat(':', {minutes}) END)"


# --- to_date and to_timestamp

_DIGITS = {"YYYY": 4, "MM": 2, "DD": 2, "HH24": 2, "HH12": 2, "HH": 2, "MI": 2, "SS": 2, "MS": 3, "US": 6, "DDD": 3}
_FIXED = {"YYYY", "MS", "US"}
_UNIT_OF = {"HH24": "hour", "HH12": "half", "HH": "half", "MI": "minute", "SS": "second", "DDD": "DDD"}
_SEPARATORS = set(" -/.,:;_T")


def _pattern(format_: Typed) -> tuple[str, dict[str, int]]:
    """Return the regular expression of a format, and the number of the group of each unit."""
    pattern = "^"
    groups: dict[str, int] = {}
    parts = _parts(format_)
    for index, part in enumerate(parts):
        literal = _literal(part)
        if literal is not None:
            if not literal or not set(literal) <= _SEPARATORS or (literal.isalpha() and part["quoted"] is None):
                raise InvalidLiteral(f"{part[0]} is not supported in a format to read")
            pattern += "".join(f"[{character}]" for character in literal)
            continue
        word = part["word"].upper()
        unit = {"MONTH": "MON"}.get(word, _UNIT_OF.get(word, "AM" if word in ("AM", "PM") else word))
        if part["prefix"] or unit in groups or (word not in _DIGITS and unit not in ("MON", "AM")):
            raise InvalidLiteral(f"{part[0]} is not supported in a format to read")
        groups[unit] = len(groups) + 1
        ends = index + 1 == len(parts) or _literal(parts[index + 1]) is not None
        pattern += _group(word, unit, ends)
    return pattern + "$", groups


def _group(word: str, unit: str, ends: bool) -> str:
    if unit == "AM":
        return "([AaPp][Mm])"
    if unit == "MON":
        names = [name if word == "MONTH" else name[:3] for name in _MONTHS]
        return "(" + "|".join("".join(f"[{c.upper()}{c.lower()}]" for c in name) for name in names) + ")"
    digits = _DIGITS[word]
    return "(" + "[0-9]" * digits + ")" if word in _FIXED or not ends else "([0-9]" + "[0-9]?" * (digits - 1) + ")"


def _read(arguments: Sequence[Typed], *, with_time: bool) -> Tree:
    """Return a text in a format as a timestamp or a date; a text that does not match the format is an error."""
    value, format_ = arguments
    pattern, groups = _pattern(format_)
    if "YYYY" not in groups or ("half" in groups) != ("AM" in groups) or ("half" in groups and "hour" in groups):
        raise InvalidLiteral("a format to read has YYYY, and HH24 or HH12 with AM")
    if ("MS" in groups and "US" in groups) or ("DDD" in groups and {"MM", "MON", "DD"} & groups.keys()):
        raise InvalidLiteral("a format to read names a unit once")
    if "MM" in groups and "MON" in groups:
        raise InvalidLiteral("a format to read names the month once")

    def number(unit: str, otherwise: int) -> str:
        return f"CAST(regexp_extract({{0}}, {{1}}, {groups[unit]}) AS INT)" if unit in groups else str(otherwise)

    month = number("MM", 1)
    if "MON" in groups:
        listed = "".join(name[:3].lower() for name in _MONTHS)
        month = f"((locate(lower(left(regexp_extract({{0}}, {{1}}, {groups['MON']}), 3)), '{listed}') + 2) DIV 3)"
    year = f"CASE WHEN {number('YYYY', 1)} = 0 THEN raise_error('there is no year 0') ELSE {number('YYYY', 1)} END"
    day = f"make_date({year}, {month}, {number('DD', 1)})"
    if "DDD" in groups:
        days = number("DDD", 1)
        last = f"dayofyear(make_date({number('YYYY', 1)}, 12, 31))"
        wrong = "raise_error('date/time field value out of range')"
        found = f"date_add(make_date({year}, 1, 1), {days} - 1)"
        day = f"CASE WHEN {days} NOT BETWEEN 1 AND {last} THEN {wrong} ELSE {found} END"
    if not with_time and groups.keys() - {"YYYY", "MM", "MON", "DD", "DDD"}:
        raise InvalidLiteral("the format of a date has no hours: write to_timestamp(…)::date")
    clock = _clock(groups, number)
    result = f"timestampadd(MICROSECOND, {clock}, CAST({day} AS TIMESTAMP_NTZ))" if with_time else day
    wrong = "raise_error(concat('the text does not match the format: ', {0}))"
    text = f"CASE WHEN {{0}} IS NULL THEN NULL WHEN {{0}} RLIKE {{1}} THEN {result} ELSE {wrong} END"
    return filled(text, [value.tree, exp.Literal.string(pattern)])


def _clock(groups: Mapping[str, int], number: Any) -> str:
    """Return the microseconds since midnight; a unit out of range is an error."""

    def checked(unit: str, first: int, last: int) -> str:
        wrong = "raise_error('date/time field value out of range')"
        found = number(unit, 0)
        return (
            f"CASE WHEN {found} NOT BETWEEN {first} AND {last} THEN {wrong} ELSE {found} END" if unit in groups else "0"
        )

    hour = checked("hour", 0, 23)
    if "half" in groups:
        afternoon = f"CASE WHEN upper(regexp_extract({{0}}, {{1}}, {groups['AM']})) = 'PM' THEN 12 ELSE 0 END"
        hour = f"({checked('half', 1, 12)}) % 12 + {afternoon}"
    fraction = f"{number('MS', 0)} * 1000 + {number('US', 0)}"
    return (
        f"(({hour}) * 3600L + ({checked('minute', 0, 59)}) * 60 + ({checked('second', 0, 59)})) * 1000000 + {fraction}"
    )


def _date(arguments: Sequence[Typed]) -> Typed:
    return Typed(_read(arguments, with_time=False), DATE)


def _instant(arguments: Sequence[Typed]) -> Typed:
    return Typed(instant(_read(arguments, with_time=True)), TIMESTAMPTZ)


FORMAT_FUNCTIONS: Mapping[str, str | Build] = {
    "to_char(timestamp,text)": _as_text,
    "to_char(timestamptz,text)": _as_text,
    "to_date(text,text)": _date,
    "to_timestamp(text,text)": _instant,
}
