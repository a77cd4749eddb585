"""Parsing of partition values in the text format of Delta."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql import ValidationError
from deltasql.protocol.partition_values import partition_value

DAY = 86_400_000_000


def read(kind: str, text: str | None) -> Any:
    return partition_value(kind, text, table="t", column="p")


@pytest.mark.parametrize("kind", ["string", "integer", "date", "timestamp", "decimal(5,2)", "binary", "void"])
def test_null_and_the_empty_text_are_null(kind: str) -> None:
    assert read(kind, None) is read(kind, "") is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", " a\n", " a\n"),
        ("varchar(3)", "abc", "abc"),
        ("binary", "\x01ü", b"\x01\xc3\xbc"),
        ("byte", "-128", -128),
        ("long", "+9223372036854775807", 2**63 - 1),
        ("boolean", "False", False),
        ("double", "1e-3", 0.001),
        ("double", "-Infinity", -math.inf),
        ("decimal(4,2)", "1.5", "1.50"),
        ("decimal(4,2)", "1.500", "1.50"),
        ("decimal(38,0)", "-" + "9" * 38, "-" + "9" * 38),
        ("decimal(3,0)", "1E2", "100"),
        ("date", "1970-01-02", 1),
        ("date", "+12024-02-29", 3672207),
        ("date", "-0001-12-31", -719529),
        ("timestamp", "1970-01-02", DAY),
        ("timestamp", "1970-01-02 00:00:00.000001", DAY + 1),
        ("timestamp", "1970-01-02T00:00:00.0000019Z", DAY + 1),
        ("timestamp", "1970-01-02T05:45:00+05:45", DAY),
        ("timestamp", "1970-01-01T16:07:02-07:52:58", DAY),
        ("timestamp", "1970-01-01T19:00:00-0500", DAY),
        ("timestamp_ntz", "1970-01-02 00:00", DAY),
        ("timestamp_ntz", "1970-01-02T00:00:00Z", DAY),
    ],
)
def test_values(kind: str, text: str, value: Any) -> None:
    found = read(kind, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("byte", "128"), ("integer", "1.0"), ("integer", " 1"), ("long", "9223372036854775808"), ("long", "٣"),
        ("double", "1_0"), ("double", "0x1"), ("boolean", "1"), ("decimal(4,2)", "1.555"), ("decimal(4,2)", "100"),
        ("decimal(4,2)", "NaN"), ("decimal(4,2)", "1e9999"), ("date", "2023-02-29"), ("date", "2023-13-01"),
        ("date", "2023-01-01 00:00:00"), ("timestamp", "2023-01-01 24:00:00"), ("timestamp", "2023-01-01 00:60"),
        ("timestamp", "now"), ("timestamp_ntz", "2023-01-01T00:00:00+01:00"), ("void", "x"), ("array", "[]"),
    ],
)  # fmt: skip
def test_invalid_values_are_rejected(kind: str, text: str) -> None:
    with pytest.raises(ValidationError, match="table t: partition column 'p'") as error:
        read(kind, text)
    assert error.value.value == text


@given(st.dates())
def test_days(day: dt.date) -> None:
    assert read("date", day.isoformat()) == (day - dt.date(1970, 1, 1)).days


@given(
    st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30)), st.integers(-18 * 60, 18 * 60)
)
def test_microseconds(moment: dt.datetime, offset: int) -> None:
    micros = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert read("timestamp_ntz", moment.isoformat(" ")) == read("timestamp", moment.isoformat(" ")) == micros
    zoned = moment.replace(tzinfo=dt.timezone(dt.timedelta(minutes=offset)))
    assert read("timestamp", zoned.isoformat()) == micros - offset * 60_000_000
