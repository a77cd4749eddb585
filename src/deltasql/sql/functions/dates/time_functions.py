"""The table of functions of dates, timestamps and intervals. `{0}`, `{1}` … are the arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import INTERVAL, TIMESTAMP, TIMESTAMPTZ
from deltasql.sql.functions.dates.date_formats import FORMAT_FUNCTIONS
from deltasql.sql.functions.dates.intervals import (
    DAY_MICROS,
    DAYS,
    MICROS,
    MONTHS,
    add_to_instant,
    interval_of,
    subtract_from_instant,
)
from deltasql.sql.functions.dates.time_fields import FIELD_FUNCTIONS, field_name
from deltasql.sql.functions.dates.time_zones import (
    DAY,
    at_time_zone,
    instant,
    instant_in_zone,
    let,
    local_in_zone,
    micros_of,
    of_micros,
    zone_of,
)
from deltasql.sql.functions.operator_table import Build
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Typed, filled

Tree = Any

# --- date_trunc and date_bin

_UNITS = {
    "microseconds": 1, "milliseconds": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
}  # fmt: skip
_FIRST_DAYS = {
    "day": "CAST({0} AS DATE)", "week": "trunc({0}, 'WEEK')", "month": "trunc({0}, 'MONTH')",
    "quarter": "trunc({0}, 'QUARTER')", "year": "trunc({0}, 'YEAR')",
    "decade": "make_date(CAST(floor(year({0}) / 10) * 10 AS INT), 1, 1)",
    "century": "make_date(CAST(floor((year({0}) - 1) / 100) * 100 + 1 AS INT), 1, 1)",
    "millennium": "make_date(CAST(floor((year({0}) - 1) / 1000) * 1000 + 1 AS INT), 1, 1)",
}  # fmt: skip


def _unit(field: Typed) -> str:
    name = field_name(field)
    if name not in _UNITS and name not in _FIRST_DAYS:
        raise InvalidLiteral(f'unit "{name}" is not supported')
    return name


def _first_day(name: str, local: Tree) -> Tree:
    """Return midnight of the first day of a unit, as a timestamp without time zone."""
    return filled(f"CAST({_FIRST_DAYS[name]} AS TIMESTAMP_NTZ)", [local])


def _truncated(arguments: Sequence[Typed]) -> Typed:
    """Return `date_trunc(unit, timestamp)`."""
    name, value = _unit(arguments[0]), arguments[1].tree
    if name in _FIRST_DAYS:
        return Typed(_first_day(name, value), TIMESTAMP)
    micros = micros_of("{0}")
    return Typed(filled(of_micros(f"{micros} - pmod({micros}, {_UNITS[name]})"), [value]), TIMESTAMP)


def _truncated_instant(arguments: Sequence[Typed]) -> Typed:
    """Return `date_trunc(unit, timestamptz)`, or with a time zone."""
    name, value = _unit(arguments[0]), arguments[1].tree
    zone = zone_of(arguments[2]) if len(arguments) == 3 else None
    local = local_in_zone(zone, value) if zone is not None else filled("CAST({0} AS TIMESTAMP_NTZ)", [value])
    if name in _UNITS:
        text = f"timestamp_micros(unix_micros({{0}}) - pmod({micros_of('{1}')}, {_UNITS[name]}))"
        return Typed(filled(text, [value, local]), TIMESTAMPTZ)
    first = _first_day(name, local)
    return Typed(instant_in_zone(zone, first) if zone is not None else instant(first), TIMESTAMPTZ)


def _truncated_interval(arguments: Sequence[Typed]) -> Typed:
    """Return `date_trunc(unit, interval)`."""
    name, value = _unit(arguments[0]), arguments[1].tree
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12000}
    if name == "week":
        raise InvalidLiteral('unit "week" is not supported for type interval')
    if name in months:
        parts = (f"{MONTHS} DIV {months[name]} * {months[name]}", "0", "0")
    else:
        unit = _UNITS.get(name)
        parts = (MONTHS, DAYS, f"{MICROS} DIV {unit} * {unit}" if unit else "0")
    return Typed(filled(let("__i", "{0}", interval_of(*parts).replace("{0}", "__i")), [value]), INTERVAL)


def _binned(difference: str, result: str) -> str:
    """Return a template of date_bin: the last start of a bin that is not after the time."""
    span = DAY_MICROS
    stride = (
        f"CASE WHEN {MONTHS} <> 0 THEN raise_error('date_bin does not support months and years') "
        f"WHEN {span} <= 0 THEN raise_error('stride must be greater than zero') ELSE {span} END"
    )
    return let("__i", "{0}", let("__s", stride.replace("{0}", "__i"), let("__d", difference, result)))


_BIN = _binned(
    f"{micros_of('{1}')} - {micros_of('{2}')}", "timestampadd(MICROSECOND, __d - pmod(__d, __s), {2})"
)  # fmt: skip
_BIN_INSTANT = _binned(
    "unix_micros({1}) - unix_micros({2})", "timestamp_micros(unix_micros({2}) + __d - pmod(__d, __s))"
)  # fmt: skip


# --- age


def _age_of(later: str, earlier: str) -> str:
    """Return the years, months, days and time from a time to a later one; months have the days of the earlier one."""
    clock = f"(pmod({micros_of(later)}, {DAY}) - pmod({micros_of(earlier)}, {DAY}))"
    days = f"(day({later}) - day({earlier}) - CASE WHEN {clock} < 0 THEN 1 ELSE 0 END)"
    months = f"((year({later}) - year({earlier})) * 12 + month({later}) - month({earlier}))"
    less = f"CASE WHEN {days} < 0 THEN 1 ELSE 0 END"
    borrowed = f"({days} + CASE WHEN {days} < 0 THEN day(last_day({earlier})) ELSE 0 END)"
    return interval_of(f"__g * ({months} - {less})", f"__g * {borrowed}", f"__g * pmod({clock}, {DAY})")


_LATER = "CASE WHEN {0} >= {1} THEN {0} WHEN {0} < {1} THEN {1} END"
_EARLIER = "CASE WHEN {0} >= {1} THEN {1} WHEN {0} < {1} THEN {0} END"
_SIGN = "CASE WHEN {0} < {1} THEN -1 ELSE 1 END"
_AGE = let("__a", _LATER, let("__b", _EARLIER, let("__g", _SIGN, _age_of("__a", "__b"))))


def _age(arguments: Sequence[Typed]) -> Typed:
    """Return the age of a time at another, or today."""
    trees = [argument.tree for argument in arguments]
    if len(trees) == 1:
        trees.insert(0, filled("current_date()", []))
    locals_ = [filled("CAST({0} AS TIMESTAMP_NTZ)", [tree]) for tree in trees]
    found = filled(_AGE, locals_)
    if arguments[0].type == TIMESTAMPTZ and len(arguments) == 2:
        wrong = "raise_error('age: the clock shows the two times in the other order')"
        text = f"CASE WHEN ({{0}} < {{1}}) <> ({{2}} < {{3}}) THEN {wrong} ELSE {{4}} END"
        found = filled(text, [*trees, *locals_, found])
    return Typed(found, INTERVAL)


# --- Times of their parts

_YEAR = "CASE WHEN {0} = 0 THEN raise_error('there is no year 0') WHEN {0} < 0 THEN {0} + 1 ELSE {0} END"
_DATE = f"make_date({_YEAR}, {{1}}, {{2}})"
_SECONDS = "rint({5} * 1000000)"
_CLOCK = f"(({{3}} * 60L + {{4}}) * 60000000 + CAST({_SECONDS} AS BIGINT))"
_TIMESTAMP = (
    f"CASE WHEN {{3}} NOT BETWEEN 0 AND 24 OR {{4}} NOT BETWEEN 0 AND 59 OR {_SECONDS} NOT BETWEEN 0 AND 60000000 "
    f"OR {_CLOCK} > {DAY} THEN raise_error('time field value out of range') "
    f"ELSE timestampadd(MICROSECOND, {_CLOCK}, CAST({_DATE} AS TIMESTAMP_NTZ)) END"
)


def _made_instant(arguments: Sequence[Typed]) -> Typed:
    """Return make_timestamptz, in the session's time zone or in another."""
    local = filled(_TIMESTAMP, [argument.tree for argument in arguments[:6]])
    if len(arguments) == 7:
        return Typed(instant_in_zone(zone_of(arguments[6]), local), TIMESTAMPTZ)
    return Typed(instant(local), TIMESTAMPTZ)


def _made_interval(arguments: Sequence[Typed]) -> Typed:
    """Return make_interval; arguments that are left out at the end are 0."""
    trees = [argument.tree for argument in arguments]
    trees += [exp.Literal.number(0)] * (7 - len(trees))
    micros = "{4} * 3600000000 + {5} * 60000000 + CAST(rint(CAST({6} AS DOUBLE) * 1000000) AS BIGINT)"
    return Typed(filled(interval_of("{0} * 12 + {1}", "{2} * 7 + {3}", micros), trees), INTERVAL)


_2000 = 946684800
"""The seconds from 1970 to 2000, where PostgreSQL starts to count."""
_OF_SECONDS = f"timestamp_micros(CAST(rint(({{0}} - {_2000}D) * 1000000) AS BIGINT) + {_2000}000000)"
_FINITE = "CASE WHEN {0} IS NULL THEN NULL ELSE true END"
_NOW = "current_timestamp()"


# --- Days and months of intervals


def _justified(months: str, days: str, micros: str) -> str:
    """Return a template of an interval of new parts; a month has 30 days, and a day 24 hours."""
    return let("__i", "{0}", interval_of(months, days, micros).replace("{0}", "__i"))


_ALL_DAYS = f"({MONTHS} * 30 + {DAYS})"
_ALL_MICROS = f"(CAST({MONTHS} AS DECIMAL(10, 0)) * {30 * DAY} + {DAY_MICROS})"
_JUSTIFY = {
    "justify_hours(interval)": _justified(MONTHS, f"CAST({DAY_MICROS} DIV {DAY} AS INT)", f"{DAY_MICROS} % {DAY}"),
    "justify_days(interval)": _justified(f"CAST({_ALL_DAYS} DIV 30 AS INT)", f"{_ALL_DAYS} % 30", MICROS),
    "justify_interval(interval)": _justified(
        f"CAST({_ALL_MICROS} DIV {30 * DAY} AS INT)",
        f"CAST({_ALL_MICROS} % {30 * DAY} DIV {DAY} AS INT)",
        f"{_ALL_MICROS} % {DAY}",
    ),
}


TIME_FUNCTIONS: Mapping[str, str | Build] = {
    **FIELD_FUNCTIONS,
    **FORMAT_FUNCTIONS,
    "date_trunc(text,timestamp)": _truncated,
    "date_trunc(text,timestamptz)": _truncated_instant,
    "date_trunc(text,timestamptz,text)": _truncated_instant,
    "date_trunc(text,interval)": _truncated_interval,
    "date_bin(interval,timestamp,timestamp)": _BIN,
    "date_bin(interval,timestamptz,timestamptz)": _BIN_INSTANT,
    **{f"age({kind})": _age for kind in ("timestamp", "timestamptz")},
    **{f"age({kind},{kind})": _age for kind in ("timestamp", "timestamptz")},
    "make_date(int4,int4,int4)": _DATE,
    "make_timestamp(int4,int4,int4,int4,int4,float8)": _TIMESTAMP,
    "make_timestamptz(int4,int4,int4,int4,int4,float8)": _made_instant,
    "make_timestamptz(int4,int4,int4,int4,int4,float8,text)": _made_instant,
    "make_interval(int4,int4,int4,int4,int4,int4,float8)": _made_interval,
    **{f"{name}()": _NOW for name in ("now", "transaction_timestamp", "statement_timestamp")},
    "timezone(text,timestamp)": at_time_zone,
    "timezone(text,timestamptz)": at_time_zone,
    "to_timestamp(float8)": _OF_SECONDS,
    **{f"isfinite({kind})": _FINITE for kind in ("date", "timestamp", "timestamptz", "interval")},
    **_JUSTIFY,
    "date_add(timestamptz,interval)": add_to_instant,
    "date_subtract(timestamptz,interval)": subtract_from_instant,
    "date(timestamp)": "CAST({0} AS DATE)",
    "date(timestamptz)": "CAST({0} AS DATE)",
    "timestamp(date)": "CAST({0} AS TIMESTAMP_NTZ)",
    "timestamp(timestamptz)": "CAST({0} AS TIMESTAMP_NTZ)",
}  # fmt: skip
