"""Values of PostgreSQL's types for the comparison of expressions, and a comparison of results."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

VALUES: dict[str, list[str]] = {
    "bool": ["true", "false", "NULL"],
    "int2": ["0", "1", "-1", "2", "7", "-8", "32767", "-32768", "NULL"],
    "int4": ["0", "1", "-1", "2", "3", "-3", "10", "1000000", "2147483647", "-2147483648", "NULL"],
    "int8": ["0", "1", "-1", "2", "12", "-7", "4294967296", "9223372036854775807", "-9223372036854775808", "NULL"],
    "numeric": ["0", "1", "-1", "2.5", "-2.5", "0.001", "3.14159", "-99999999.99", "123456.789", "1000000", "NULL"],
    "float4": ["0", "1.5", "-2.5", "0.1", "3e38", "NaN", "-Infinity", "NULL"],
    "float8": ["0", "1", "-1", "0.5", "-2.5", "3.14159", "1e300", "1e-300", "NaN", "Infinity", "NULL"],
    "text": ["", "a", "abc", "Hello World", "äöü ß", "  x ", "a_b%c", "-12", "3.5", "a,b,,c", "😀é", "2024-02-29", "NULL"],
    "bytea": ["", "\\x00ff41", "abc", "NULL"],
    "date": ["2024-02-29", "2023-12-31", "1969-07-20", "2021-01-03", "0044-03-15", "NULL"],
    "timestamp": ["2024-02-29 23:59:59.999999", "2023-12-31 00:00:00", "1969-07-20 20:17:40.5", "NULL"],
    "timestamptz": ["2024-02-29 23:59:59.999999+00", "2023-12-31 00:00:00+05:30", "1969-07-20 20:17:40-07", "NULL"],
    "interval": ["1 day", "-3 hours", "1 month", "1 year 2 months 3 days 04:05:06.789", "0 seconds", "NULL"],
    "_int4": ["{}", "{1}", "{1,2,3}", "{3,NULL,1}", "NULL"],
    "_text": ["{}", "{a}", "{b,NULL,a}", "{x,y,x}", "NULL"],
    "_float8": ["{}", "{0.5}", "{2.5,-1,NULL}", "NULL"],
}  # fmt: skip
FIELDS = [
    "year", "month", "day", "hour", "minute", "second", "dow", "isodow", "doy", "week", "isoyear", "quarter", "epoch",
    "century", "decade", "millennium", "milliseconds", "microseconds", "julian",
]  # fmt: skip
UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "decade", "century"]
CONSTANTS: dict[str, list[str]] = {
    "extract": FIELDS, "date_part": FIELDS, "date_trunc": UNITS, "timezone": ["UTC", "America/New_York", "Asia/Kolkata"],
    "encode": ["hex", "base64"], "decode": ["hex", "base64"], "to_char": ["YYYY-MM-DD", "HH24:MI:SS", "DD Mon YYYY"],
    "to_date": ["YYYY-MM-DD"], "to_timestamp": ["YYYY-MM-DD HH24:MI:SS"],
}  # fmt: skip
"""Texts for functions whose argument is a keyword or a format."""


def type_text(type_name: str) -> str:
    """Return the name of a type as users write it."""
    return f"{type_name[1:]}[]" if type_name.startswith("_") else type_name


def literal(type_name: str, value: str) -> str:
    """Return a value as an expression of a type."""
    name = type_text(type_name)
    if value == "NULL":
        return f"CAST(NULL AS {name})"
    quoted = value.replace("'", "''")
    return f"'{quoted}'" if name == "text" else f"CAST('{quoted}' AS {name})"


def _real(value: float) -> float:
    """Return the nearest number of four bytes."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf


def same(ours: Any, theirs: Any, tolerance: float = 0.0) -> bool:
    """Return whether two results are equal; floats may differ in the last digits, or by the tolerance."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(same(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, bytearray | memoryview | bytes):
        return bytes(ours) == bytes(theirs)
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        near = ours == theirs or abs(ours - theirs) <= max(tolerance, 1e-12 * max(abs(ours), abs(theirs)))
        return near or (ours == _real(ours) and ours == _real(theirs))
    if isinstance(ours, dt.datetime) and isinstance(theirs, dt.datetime):  # Spark returns local times of the process
        return ours == (theirs.astimezone() if theirs.tzinfo else theirs).replace(tzinfo=None)
    if isinstance(ours, Decimal) and isinstance(theirs, Decimal):
        return ours == theirs
    return type(ours) is type(theirs) and bool(ours == theirs)
