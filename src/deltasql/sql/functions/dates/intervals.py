"""Intervals: their months, days and microseconds, their text, and their sums with times.

PostgreSQL keeps the days of an interval apart from its hours: 24 hours are not a day. Spark keeps them apart too, but
`extract` of Spark does not tell them apart, so the days are read from the interval's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import DURATION, TEXT, TIMESTAMPTZ
from deltasql.sql.functions.dates.time_zones import (
    let,
    of_micros,
    second_of_two,
    session_local,
    unless_utc,
)
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
YEARS = "CAST(extract(YEAR FROM {0}) AS INT)"
MONTHS = "(CAST(extract(YEAR FROM {0}) AS INT) * 12 + CAST(extract(MONTH FROM {0}) AS INT))"
DAYS = "CAST(regexp_extract(concat('0 days ', CAST({0} AS STRING)), '^(?:.* )?(-?[0-9]+) days', 1) AS INT)"
"""The days without the hours."""
DAY_MICROS = (
    "((CAST(extract(DAY FROM {0}) AS BIGINT) * 86400 + extract(HOUR FROM {0}) * 3600 + extract(MINUTE FROM {0}) * 60)"
    " * 1000000 + CAST(extract(SECOND FROM {0}) * 1000000 AS BIGINT))"
)
"""The microseconds of days, hours, minutes and seconds."""
MICROS = f"({DAY_MICROS} - CAST({DAYS} AS BIGINT) * 86400000000)"
"""The microseconds of hours, minutes and seconds."""


def interval_of(months: str, days: str, micros: str) -> str:
    """Return an interval of its parts, in Spark SQL."""
    seconds = f"CAST(CAST({micros} AS DECIMAL(20, 0)) * 0.000001BD AS DECIMAL(18, 6))"
    return f"make_interval(0, {months}, 0, {days}, 0, 0, {seconds})"


def difference(arguments: Sequence[Typed]) -> Typed:
    """Return the difference of two instants: the time that passed, whatever the clocks showed."""
    trees = [argument.tree for argument in arguments]
    return Typed(filled(f"({of_micros('unix_micros({0})')} - {of_micros('unix_micros({1})')})", trees), DURATION)


def add_to_instant(arguments: Sequence[Typed]) -> Typed:
    """Return an instant plus an interval, or an interval plus an instant."""
    moment, span = arguments if arguments[0].type == TIMESTAMPTZ else arguments[::-1]
    return _moved(moment, span, "+")


def subtract_from_instant(arguments: Sequence[Typed]) -> Typed:
    """Return an instant minus an interval."""
    moment, span = arguments
    return _moved(moment, span, "-")


def _moved(moment: Typed, span: Typed, sign: str) -> Typed:
    """Return an instant moved by months and days of the calendar, and then by time that passes."""
    trees = [_in_parentheses(moment.tree), _in_parentheses(span.tree)]
    simple = f"({{0}} {sign} {{1}})"
    parts = span.tree.meta.get("interval")
    if parts is not None and not parts[0] and not parts[1]:
        return Typed(filled(simple, trees), TIMESTAMPTZ)
    whole = f"make_interval(0, {MONTHS}, 0, {DAYS})".replace("{0}", "__i")
    moved = second_of_two(f"{{0}} {sign} {whole}", session_local)
    exact = let("__i", "{1}", f"{moved} {sign} (__i - {whole})")
    return Typed(unless_utc(simple, exact, trees), TIMESTAMPTZ)


def _in_parentheses(tree: Tree) -> Tree:
    return tree if isinstance(tree, exp.Column | exp.Literal | exp.Paren | exp.Func) else exp.Paren(this=tree)


def add_days(sign: str, days: int) -> str:
    """Return a template of a date plus or minus days, which fails if there is no such date."""
    return f"date_from_unix_date(unix_date({{{1 - days}}}) {sign} {{{days}}})"


# --- Intervals as texts


def as_text(value: Typed) -> Typed:
    """Return an interval as PostgreSQL writes it: `1 year 2 mons -3 days +04:05:06.5`."""
    months, days, micros = (part.replace("{0}", "__i") for part in (MONTHS, DAYS, MICROS))
    parts = f"array({months} DIV 12, {months} % 12, {days})"
    words = _words("__p")
    last = "coalesce(try_element_at(filter(__p, x -> x <> 0), -1), 0)"
    clock = _clock("__m", f"{last} < 0")
    text = f"CASE WHEN __m = 0 AND {words} <> '' THEN {words} ELSE concat_ws(' ', nullif({words}, ''), {clock}) END"
    whole = let("__p", parts, let("__m", micros, text))
    return Typed(filled(let("__i", "{0}", f"CASE WHEN __i IS NULL THEN NULL ELSE {whole} END"), [value.tree]), TEXT)


def _words(parts: str) -> str:
    """Return the years, months and days in words; a plus sign follows a negative part."""
    found = []
    for index, unit in enumerate(("year", "mon", "day")):
        number = f"get({parts}, {index})"
        before = [f"get({parts}, {n})" for n in range(index - 1, -1, -1)]
        negative = f"coalesce({', '.join(f'nullif({one}, 0)' for one in before)}, 0) < 0" if before else "false"
        plus = f"CASE WHEN {number} > 0 AND {negative} THEN '+' ELSE '' END"
        plural = f"CASE WHEN {number} = 1 THEN ' {unit}' ELSE ' {unit}s' END"
        found.append(f"CASE WHEN {number} = 0 THEN NULL ELSE concat({plus}, {number}, {plural}) END")
    return f"concat_ws(' ', {', '.join(found)})"


def _clock(micros: str, after_negative: str) -> str:
    sign = f"CASE WHEN {micros} < 0 THEN '-' WHEN {after_negative} THEN '+' ELSE '' END"
    whole = (
        f"format_string('%02d:%02d:%02d', abs({micros}) DIV 3600000000, abs({micros}) DIV 60000000 % 60, "
        f"abs({micros}) DIV 1000000 % 60)"
    )
    fraction = f"rtrim('0', format_string('.%06d', abs({micros}) % 1000000))"
    return f"concat({sign}, {whole}, CASE WHEN {micros} % 1000000 = 0 THEN '' ELSE {fraction} END)"
