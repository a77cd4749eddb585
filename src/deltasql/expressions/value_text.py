"""The text forms of values in partition values, statistics and SQL literals: one parser for each form.

Days and microseconds count from 1970. A text in any other form is None, never a guess. A date or timestamp is
*plain* if every engine reads its text the same way: only those decide which files or rows match a predicate.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

DAY_MICROS = 86_400_000_000
# java.time knows no zone further from UTC: a time of an unknown zone is this near to the same time in UTC.
ZONE_SLACK = 18 * 3_600_000_000

_INTEGER = re.compile(r"[+-]?\d{1,99}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_NOT_FINITE = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
_DATE_PATTERN = r"([+-]?\d{4,6})-(\d\d)-(\d\d)"
_DATE = re.compile(_DATE_PATTERN, re.ASCII)
_TIMESTAMP = re.compile(
    _DATE_PATTERN + r"(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(Z|[+-]\d\d:?\d\d(?::?\d\d)?)?", re.ASCII
)
_PLAIN_YEAR = re.compile(r"(?!0000)\d{4}", re.ASCII)
# Old Spark prints local mean times (before 1900) without the seconds of their offset, which falsifies the
# instant; those are the offsets that are no multiple of 15 minutes.
OFFSET_PATTERN = r"[+-](?:0[0-9]|1[0-8]):(?:00|15|30|45)"
_PLAIN_ZONE = re.compile(rf"Z|{OFFSET_PATTERN}", re.ASCII)
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Timestamp(NamedTuple):
    """A timestamp text: `micros` is the instant if the text has a zone, else the time on the clock that it shows."""

    micros: int
    zone: str | None
    has_seconds: bool
    is_plain: bool


def parse_integer(text: str) -> int | None:
    """Parse a whole number in decimal digits."""
    return int(text) if _INTEGER.fullmatch(text) else None


def parse_decimal(text: str) -> Decimal | None:
    """Parse a finite number, with or without a fraction and an exponent."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def parse_double(text: str) -> float | None:
    """Parse a number, or the name of NaN or of an infinity in any case."""
    return float(text) if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) else None


def parse_boolean(text: str) -> bool | None:
    """Parse `true` or `false` in any case."""
    return {"true": True, "false": False}.get(text.lower())


def parse_date(text: str) -> int | None:
    """Parse the day of `[±]yyyy-MM-dd`, with a year of four to six digits."""
    match = _DATE.fullmatch(text)
    return _days(*map(int, match.groups())) if match else None


def parse_plain_date(text: str) -> int | None:
    """Parse the day of `yyyy-MM-dd`, with a year from 0001 to 9999."""
    return parse_date(text) if has_plain_year(text) else None


def has_plain_year(text: str) -> bool:
    """Return whether a date or timestamp begins with an unsigned year of four digits from 0001 on."""
    return _PLAIN_YEAR.match(text) is not None and not text[4:5].isdigit()


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse the time of `[±]yyyy-MM-dd[ HH:mm[:ss[.f]]][zone]`, with a blank or a T, a zone of Z or ±HH[:]mm[[:]ss].

    Digits of the fraction after the sixth are cut off, as Spark does.
    """
    match = _TIMESTAMP.fullmatch(text)
    days = _days(*map(int, match.groups()[:3])) if match else None
    if match is None or days is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[3:6])
    fraction, zone = match[7] or "", match[8]
    if hour > 23 or minute > 59 or second > 59:
        return None
    clock = days * DAY_MICROS + (hour * 3600 + minute * 60 + second) * 1_000_000 + int(f"{fraction:0<6}"[:6])
    has_plain_zone = zone is None or (match[4] is not None and _PLAIN_ZONE.fullmatch(zone) is not None)
    is_plain = has_plain_year(text) and len(fraction) <= 6 and has_plain_zone
    return Timestamp(clock - _offset_micros(zone), zone, match[6] is not None, is_plain)


def parse_plain_timestamp(text: str) -> Timestamp | None:
    """Parse a timestamp that every engine reads the same way."""
    timestamp = parse_timestamp(text)
    return timestamp if timestamp is not None and timestamp.is_plain else None


def _days(year: int, month: int, day: int) -> int | None:
    """Return the day in the Gregorian calendar, extended both ways further than Python's dates go."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + (leap and month == 2):
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + sum(_MONTH_DAYS[: month - 1]) + (leap and month > 2) + day - 719_163


def _offset_micros(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
    return (-seconds if zone[0] == "-" else seconds) * 1_000_000
