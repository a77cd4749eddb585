"""Local times and instants: PostgreSQL's rules for times that a change to or from summer time skips or repeats.

Spark and PostgreSQL agree on a local time that the clock skips. One that it shows twice is the second for
PostgreSQL (standard time) and the first for Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from deltasql.sql.catalog.pg_types import TIMESTAMP, TIMESTAMPTZ
from deltasql.sql.functions.templates import Template, Typed, filled

Tree = Any
DAY = 86_400_000_000
"""The microseconds of a day."""
EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
SESSION_ZONE: ContextVar[Callable[[], str] | None] = ContextVar("SESSION_ZONE", default=None)
"""Returns the time zone of the session while a statement is bound: constants are computed with it."""
_UTC = ("UTC", "Etc/UTC", "GMT", "Z")
NO_SUMMER_TIME = "current_timezone() IN ('UTC', 'Etc/UTC', 'GMT', 'Z')"
"""Whether the session's time zone is known to have no summer time; Spark computes it before it runs a query."""
_ZONE_NAME = "^[A-Z][A-Za-z]+(/[A-Za-z0-9_+-]+)+$"
_WRONG_ZONE = "raise_error(concat('the time zone is written as UTC or Europe/Berlin, not as ', {0}))"


def micros_of(local: str) -> str:
    """Return the microseconds since 1970 of a timestamp without time zone, in Spark SQL."""
    return f"CAST(CAST(CAST({local} - {EPOCH} AS INTERVAL SECOND) AS DECIMAL(19, 6)) * 1000000 AS BIGINT)"


def of_micros(micros: str) -> str:
    """Return the timestamp without time zone of microseconds since 1970, in Spark SQL."""
    return f"timestampadd(MICROSECOND, {micros}, {EPOCH})"


def shifted(moment: str, micros: str) -> str:
    """Return an instant so many microseconds later, in Spark SQL."""
    return f"timestamp_micros(unix_micros({moment}) + {micros})"


def let(name: str, value: str, body: str) -> str:
    """Return a body in which a name stands for a value, in Spark SQL. A name starts with `__`, as no column does."""
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


def session_local(moment: str) -> str:
    """Return the local time of an instant in the session's time zone, in Spark SQL."""
    return f"CAST({moment} AS TIMESTAMP_NTZ)"


def local_in(zone: str) -> Callable[[str], str]:
    """Return a function that returns the local time of an instant in a time zone, in Spark SQL."""
    return lambda moment: of_micros(f"unix_micros(from_utc_timestamp({moment}, {zone}))")


def second_of_two(moment: str, local: Callable[[str], str]) -> str:
    """Return the later instant that has the same local time as an instant, or the instant itself, in Spark SQL."""
    chosen = f"CASE WHEN {local('__n')} = {local('__m')} THEN __n ELSE __m END"
    return let("__m", moment, let("__n", _one_day_later("__m", local), chosen))


def _one_day_later(moment: str, local: Callable[[str], str]) -> str:
    """Return an instant with the offset that the local time has one day later, in Spark SQL."""
    passed = f"{micros_of(local(shifted(moment, str(DAY))))} - {micros_of(local(moment))}"
    return shifted(moment, f"{DAY} - ({passed})")


def unless_utc(simple: str, exact: str, trees: list[Tree]) -> Tree:
    """Return a simple text for sessions whose time zone has no summer time, and an exact one for the others."""
    return Template(this=f"CASE WHEN {NO_SUMMER_TIME} THEN {simple} ELSE {exact} END", expressions=trees)


def instant(local: Tree) -> Tree:
    """Return the instant of a date or of a timestamp without time zone in the session's time zone."""
    constant = _constant(local)
    found = None if constant is None else _instant_of_constant(constant)
    if found is not None:
        return found
    simple = "CAST({0} AS TIMESTAMP_LTZ)"
    return unless_utc(simple, second_of_two(simple, session_local), [local])


def instant_of_literal(day_and_time: str) -> Tree:
    """Return the instant of a constant such as `2026-01-31 12:00:00`; Spark can compute it before it reads a table."""
    found = _instant_of_constant(dt.datetime.fromisoformat(day_and_time))
    if found is not None:
        return found
    first = f"TIMESTAMP_LTZ'{day_and_time}'"
    later = _one_day_later(first, session_local)
    exact = f"CASE WHEN {session_local(later)} = {session_local(first)} THEN {later} ELSE {first} END"
    return unless_utc(first, exact, [])


def _constant(local: Tree) -> dt.datetime | None:
    """Return the value of a constant date or timestamp, or None."""
    value = local.meta.get("value")
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time())
    return None


def _instant_of_constant(local: dt.datetime) -> Tree | None:
    """Return the instant of a local time as a literal, or None if Python does not know the session's time zone."""
    zone = SESSION_ZONE.get()
    try:
        known = ZoneInfo(zone()) if zone is not None else None
    except (ZoneInfoNotFoundError, ValueError):
        known = None
    if known is None:
        return None
    # The smaller offset is standard time: for a time that the clock shows twice, and for one that it skips.
    offsets = [known.utcoffset(local.replace(fold=fold)) for fold in (0, 1)]
    offset = min(one for one in offsets if one is not None)
    try:
        moment = local - offset
    except OverflowError:
        return None
    return Template(this=f"TIMESTAMP_LTZ'{moment.isoformat(sep=' ')}Z'", expressions=[])


def zone_of(zone: Typed) -> Tree:
    """Return the name of a time zone that means the same in Spark; others are an error."""
    if isinstance(zone.tree, exp.Literal) and zone.tree.name.upper() in ("UTC", "GMT"):
        return exp.Literal.string("UTC")
    text = (
        f"CASE WHEN {{0}} IS NULL THEN NULL WHEN upper({{0}}) IN ('UTC', 'GMT') THEN 'UTC' "
        f"WHEN {{0}} RLIKE '{_ZONE_NAME}' THEN {{0}} ELSE {_WRONG_ZONE} END"
    )
    return filled(text, [zone.tree])


def instant_in_zone(zone: Tree, local: Tree) -> Tree:
    """Return the instant of a timestamp without time zone in a time zone."""
    utc = "convert_timezone(__z, 'UTC', {0})"
    first = f"timestamp_micros({micros_of(utc)})"
    return filled(let("__z", "{1}", second_of_two(first, local_in("__z"))), [local, zone])


def local_in_zone(zone: Tree, moment: Tree) -> Tree:
    """Return the local time of an instant in a time zone."""
    return filled(local_in("{1}")("{0}"), [moment, zone])


def at_time_zone(arguments: Sequence[Typed]) -> Typed:
    """Return `timezone(zone, time)`, which is `time AT TIME ZONE zone`."""
    zone, value = arguments
    if value.type == TIMESTAMP:
        return Typed(instant_in_zone(zone_of(zone), value.tree), TIMESTAMPTZ)
    return Typed(local_in_zone(zone_of(zone), value.tree), TIMESTAMP)
