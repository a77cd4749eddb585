"""Fields of dates, timestamps and intervals: extract and date_part. `{0}` is the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.catalog.pg_types import FLOAT8, TIMESTAMP, SqlType, numeric
from deltasql.sql.functions.dates.intervals import DAY_MICROS, DAYS, MICROS, MONTHS, YEARS
from deltasql.sql.functions.dates.time_zones import DAY, micros_of
from deltasql.sql.functions.numeric_arithmetic import quotient
from deltasql.sql.functions.operator_table import Build
from deltasql.sql.functions.pg_literals import InvalidLiteral
from deltasql.sql.functions.templates import Typed, filled

Tree = Any
_FIELDS = {
    "century": ("century", "c", "cent", "centuries"), "day": ("day", "d", "days"),
    "decade": ("decade", "dec", "decades", "decs"), "hour": ("hour", "h", "hours", "hr", "hrs"),
    "microseconds": ("microseconds", "microsecond", "us", "usec", "usecs"),
    "millennium": ("millennium", "mil", "millennia", "mils"),
    "milliseconds": ("milliseconds", "millisecond", "ms", "msec", "msecs"),
    "minute": ("minute", "m", "min", "mins", "minutes"), "month": ("month", "mon", "mons", "months"),
    "quarter": ("quarter", "qtr"), "second": ("second", "s", "sec", "secs", "seconds"),
    "week": ("week", "w", "weeks"), "year": ("year", "y", "years", "yr", "yrs"),
    **{name: (name,) for name in ("dow", "doy", "epoch", "isodow", "isoyear", "julian", "timezone")},
    **{name: (name,) for name in ("timezone_hour", "timezone_minute")},
}  # fmt: skip
_FIELD_OF = {word: name for name, words in _FIELDS.items() for word in words}


def field_name(field: Typed) -> str:
    """Return the name of a field, such as year."""
    if not isinstance(field.tree, exp.Literal):
        raise InvalidLiteral("the field must be a constant, such as 'month'")
    found = _FIELD_OF.get(field.tree.name.lower())
    if found is None:
        raise InvalidLiteral(f'unit "{field.tree.name}" is not recognized: write one of {", ".join(sorted(_FIELDS))}')
    return found


# --- extract and date_part

_WHOLE = numeric(10, 0)
_YEAR = "year({0})"
_ISO_YEAR = "extract(YEAROFWEEK FROM {0})"
_SECOND = "extract(SECOND FROM {0})"
_OFFSET = f"({micros_of('CAST({0} AS TIMESTAMP_NTZ)')} - unix_micros({{0}})) DIV 1000000"


def _no_year_zero(year: str) -> str:
    """Return a year of PostgreSQL: the year before the year 1 is -1."""
    return f"CASE WHEN {year} > 0 THEN {year} ELSE {year} - 1 END"


def _from_one(years: int) -> str:
    """Return the number of a century or millennium, which starts with the year 1; there is no number 0."""
    last = years - 1
    return f"CASE WHEN {_YEAR} > 0 THEN ({_YEAR} + {last}) DIV {years} ELSE -(({years} - {_YEAR}) DIV {years}) END"


_OF_DAY = {
    "day": "day({0})", "month": "month({0})", "year": _no_year_zero(_YEAR), "quarter": "quarter({0})",
    "week": "weekofyear({0})", "isoyear": _no_year_zero(_ISO_YEAR), "dow": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)", "doy": "dayofyear({0})", "decade": f"floor({_YEAR} / 10)",
    "century": _from_one(100), "millennium": _from_one(1000),
}  # fmt: skip
_OF_DATE = {
    **{name: (text, _WHOLE) for name, text in _OF_DAY.items()},
    "julian": ("(unix_date({0}) + 2440588)", _WHOLE),
    "epoch": ("(CAST(unix_date({0}) AS BIGINT) * 86400)", numeric(15, 0)),
}
_EPOCH = numeric(19, 6)
_OF_TIMESTAMP = {
    **{name: (text, _WHOLE) for name, text in _OF_DAY.items()},
    "hour": ("hour({0})", _WHOLE),
    "minute": ("minute({0})", _WHOLE),
    "second": (_SECOND, numeric(8, 6)),
    "milliseconds": (f"{_SECOND} * 1000", numeric(8, 3)),
    "microseconds": (f"{_SECOND} * 1000000", numeric(8, 0)),
    "epoch": (f"CAST({micros_of('{0}')} AS DECIMAL(19, 0)) * 0.000001BD", _EPOCH),
}
_OF_INSTANT = {
    **_OF_TIMESTAMP,
    "epoch": ("CAST(unix_micros({0}) AS DECIMAL(19, 0)) * 0.000001BD", _EPOCH),
    "timezone": (_OFFSET, _WHOLE),
    "timezone_hour": (f"{_OFFSET} DIV 3600", _WHOLE),
    "timezone_minute": (f"{_OFFSET} DIV 60 % 60", _WHOLE),
}
_SECONDS_OF_MONTHS = f"(({MONTHS} DIV 12) * 31557600L + ({MONTHS} % 12) * 2592000L)"
_OF_INTERVAL = {
    "year": (YEARS, _WHOLE), "decade": (f"{YEARS} DIV 10", _WHOLE), "century": (f"{YEARS} DIV 100", _WHOLE),
    "millennium": (f"{YEARS} DIV 1000", _WHOLE), "month": ("extract(MONTH FROM {0})", _WHOLE),
    "quarter": (
        "CASE WHEN extract(MONTH FROM {0}) >= 0 THEN extract(MONTH FROM {0}) DIV 3 + 1 "
        "ELSE extract(MONTH FROM {0}) DIV 3 - 1 END", _WHOLE,
    ),
    "week": (f"{DAYS} DIV 7", _WHOLE), "day": (DAYS, _WHOLE), "hour": (f"{MICROS} DIV 3600000000", _WHOLE),
    "minute": ("extract(MINUTE FROM {0})", _WHOLE), "second": (_SECOND, numeric(8, 6)),
    "milliseconds": (f"{_SECOND} * 1000", numeric(8, 3)), "microseconds": (f"{_SECOND} * 1000000", numeric(8, 0)),
    "epoch": (
        f"CAST({_SECONDS_OF_MONTHS} AS DECIMAL(19, 0)) + CAST({DAY_MICROS} AS DECIMAL(19, 0)) * 0.000001BD",
        numeric(21, 6),
    ),
}  # fmt: skip


def _extracted(fields: Mapping[str, tuple[str, SqlType]], kind: str) -> Build:
    """Return a function that builds `extract(field FROM time)`."""

    def build(arguments: Sequence[Typed]) -> Typed:
        field, value = arguments
        name = field_name(field)
        if name == "julian" and name not in fields and kind != "interval":
            return _julian(value)
        if name not in fields:
            raise InvalidLiteral(f'unit "{name}" is not supported for type {kind}')
        text, size = fields[name]
        return Typed(filled(f"CAST({text} AS {size.ddl})", [value.tree]), size)

    return build


def _julian(value: Typed) -> Typed:
    """Return the Julian day with the part of the day that passed."""
    clock = "CAST(CAST({0} AS TIMESTAMP_NTZ) - CAST(CAST({0} AS DATE) AS TIMESTAMP_NTZ) AS INTERVAL SECOND)"
    passed = filled(f"CAST(CAST({clock} AS DECIMAL(18, 6)) * 1000000 AS DECIMAL(11, 0))", [value.tree])
    share = quotient(Typed(passed, numeric(11, 0)), Typed(filled(f"{DAY}BD", []), numeric(11, 0)))
    scale = share.type.size[1]
    days = filled("CAST(unix_date(CAST({0} AS DATE)) + 2440588 AS DECIMAL(10, 0))", [value.tree])
    whole = filled(f"({{0}} + CAST({{1}} AS DECIMAL({scale + 1}, {scale})))", [days, share.tree])
    return Typed(whole, numeric(scale + 11, scale, padded=True))


def _as_float(build: Build) -> Build:
    """Return a function that builds a numeric as a float8."""
    return lambda arguments: Typed(filled("CAST({0} AS DOUBLE)", [build(arguments).tree]), FLOAT8)


_DATE, _TIMESTAMP = _extracted(_OF_DATE, "date"), _extracted(_OF_TIMESTAMP, "timestamp without time zone")
_INSTANT, _INTERVAL = _extracted(_OF_INSTANT, "timestamp with time zone"), _extracted(_OF_INTERVAL, "interval")


def _part_of_date(arguments: Sequence[Typed]) -> Typed:
    """Return date_part of a date, which PostgreSQL casts to a timestamp."""
    field, value = arguments
    local = Typed(filled("CAST({0} AS TIMESTAMP_NTZ)", [value.tree]), TIMESTAMP)
    return _as_float(_TIMESTAMP)([field, local])


FIELD_FUNCTIONS: Mapping[str, str | Build] = {
    "extract(text,date)": _DATE,
    "extract(text,timestamp)": _TIMESTAMP,
    "extract(text,timestamptz)": _INSTANT,
    "extract(text,interval)": _INTERVAL,
    "date_part(text,date)": _part_of_date,
    "date_part(text,timestamp)": _as_float(_TIMESTAMP),
    "date_part(text,timestamptz)": _as_float(_INSTANT),
    "date_part(text,interval)": _as_float(_INTERVAL),
}
