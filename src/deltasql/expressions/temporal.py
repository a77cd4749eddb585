"""Dates and timestamps as Delta and Spark write them, read as days and microseconds since 1970.

Owns the text forms and nothing else: a text in any other form is None, never a guess.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import NamedTuple

DAY_MICROS = 86_400_000_000
# java.time knows no zone further from UTC: a time of an unknown zone is this near to the same time in UTC.
ZONE_SLACK = 18 * 3_600_000_000

_EPOCH = datetime(1970, 1, 1)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Old Spark prints local mean times (before 1900) without the seconds of their offset, which falsifies the
# instant; those are the offsets that are no multiple of 15 minutes.
OFFSET_PATTERN = r"[+-](?:0[0-9]|1[0-8]):(?:00|15|30|45)"
_TIMESTAMP = re.compile(
    rf"(\d{{4}})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{{1,6}}))?)?(Z|{OFFSET_PATTERN})?)?",
    re.ASCII,
)


class Timestamp(NamedTuple):
    """A wall-clock time; with a zone, `micros` is the instant."""

    micros: int
    zoned: bool


def parse_date(text: str) -> int | None:
    """The day of `yyyy-MM-dd`."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return (date.fromisoformat(text) - _EPOCH.date()).days
    except ValueError:
        return None


def parse_timestamp(text: str) -> Timestamp | None:
    """The time of `yyyy-MM-dd[ HH:mm[:ss[.ffffff]][zone]]`, with a blank or a T, a zone of Z or ±HH:mm."""
    found = _TIMESTAMP.fullmatch(text)
    if not found:
        return None
    *fields, fraction, zone = found.groups()
    try:
        moment = datetime(*(int(field or 0) for field in fields))  # type: ignore[arg-type]
    except ValueError:
        return None
    micros = (moment - _EPOCH) // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0"))
    return Timestamp(micros - _offset_micros(zone), zone is not None)


def _offset_micros(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    return (-minutes if zone[0] == "-" else minutes) * 60_000_000
