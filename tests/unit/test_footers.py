"""Statistics from Parquet footers, and the check of a file's schema against the table."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.engines.arrow.write.parquet_footers import indexed_columns, plan_footers
from deltasql.protocol.schema import arrow_schema, schema_string
from tests.effort import rounds


def footer(table: pa.Table, **options: Any) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def column(values: list[Any], type_: pa.DataType | None = None) -> pa.Table:
    return pa.table({"c": pa.array(values, type_)})


def table_schema(schema: Any) -> pa.Schema:
    return arrow_schema(schema_string(schema))


def stats_json(meta: pq.FileMetaData, schema: pa.Schema, partition_columns: list[str], **options: Any) -> str:
    indexed = indexed_columns(schema, partition_columns, **options)
    return plan_footers(meta.schema, schema, partition_columns, indexed).stats(meta)


def stats_of(table: pa.Table, schema: Any = None, partition_columns: list[str] | None = None, **options: Any) -> Any:
    """Return the decoded statistics of a table written to one file."""
    indexing = {key: options.pop(key) for key in ("num_indexed_cols", "stats_columns") if key in options}
    schema = table_schema(table.schema if schema is None else schema)
    text = stats_json(footer(table, **options), schema, partition_columns or [], **indexing)
    return json.loads(text, parse_float=Decimal, parse_constant=pytest.fail)


def bounds(table: pa.Table, schema: Any = None, **options: Any) -> tuple[Any, Any]:
    stats = stats_of(table, schema, **options)
    return stats.get("minValues", {}).get("c"), stats.get("maxValues", {}).get("c")


def problems(table: pa.Table, ddl: str, partition_columns: list[str] | None = None, **options: Any) -> list[str]:
    schema = table_schema(ddl)
    return list(plan_footers(footer(table, **options).schema, schema, partition_columns or [], set()).problems)


# --- the text


def test_the_json_is_canonical() -> None:
    table = pa.table({"b": ["x", None], "a": pa.array([2, 1], pa.int64())})
    schema = table_schema("a BIGINT, b STRING")
    assert stats_json(footer(table), schema, []) == (
        '{"numRecords":2,"minValues":{"a":1,"b":"x"},"maxValues":{"a":2,"b":"x"},"nullCount":{"a":0,"b":1}}'
    )


def test_a_file_without_rows() -> None:
    assert stats_of(column([], pa.int64())) == {"numRecords": 0}


def test_special_characters_are_escaped_and_others_are_not() -> None:
    text = stats_json(footer(column(['"\x00\n', "é\U0001f600"])), table_schema("c STRING"), [])
    assert r'"minValues":{"c":"\"\u0000\n"}' in text
    assert '"maxValues":{"c":"é\U0001f600"}' in text


# --- bounds by type


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int8(), [-128, 127]),
        (pa.int16(), [-(2**15), 2**15 - 1]),
        (pa.int32(), [-(2**31), 2**31 - 1]),
        (pa.int64(), [-(2**63), 2**63 - 1]),
        (pa.uint8(), [0, 255]),
        (pa.uint16(), [0, 2**16 - 1]),
        (pa.uint32(), [0, 2**32 - 1]),
    ],
)
def test_whole_numbers(type_: pa.DataType, values: list[int]) -> None:
    assert bounds(column([*values, None], type_)) == tuple(values)


def test_unsigned_bounds_over_row_groups() -> None:
    assert bounds(column([2**32 - 1, 5], pa.uint32()), row_group_size=1) == (5, 2**32 - 1)


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_floats_have_no_bounds_because_a_nan_may_hide(type_: pa.DataType) -> None:
    assert stats_of(column([1.0, float("nan"), float("inf"), None], type_)) == {
        "numRecords": 4,
        "nullCount": {"c": 1},
    }


@pytest.mark.parametrize("values", [[True, False], [b"a", b"b"]])
def test_booleans_and_binaries_have_no_bounds(values: list[Any]) -> None:
    assert stats_of(column(values)) == {"numRecords": 2, "nullCount": {"c": 0}}


def test_dates() -> None:
    days = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]
    assert bounds(column(days)) == ("0001-01-01", "9999-12-31")


def test_dates_beyond_the_calendar_are_left_out() -> None:
    assert bounds(column([0, 10**7], pa.date32())) == ("1970-01-01", None)


@pytest.mark.parametrize(
    ("unit", "ticks", "low", "high"),
    [
        (
            "us",
            [1_600_000_000_123_999, 1_600_000_000_456_999],
            "2020-09-13T12:26:40.123",
            "2020-09-13T12:26:40.456",
        ),
        ("us", [-1, 0], "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000"),
        ("us", [-1_000_001, -999_001], "1969-12-31T23:59:58.999", "1969-12-31T23:59:59.000"),
        ("ms", [-1, 1], "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.001"),
    ],
)
def test_timestamps_are_truncated_down_to_milliseconds(unit: str, ticks: list[int], low: str, high: str) -> None:
    assert bounds(column(ticks, pa.timestamp(unit, "Europe/Paris"))) == (low + "Z", high + "Z")
    assert bounds(column(ticks, pa.timestamp(unit))) == (low, high)


def test_timestamps_beyond_the_calendar_are_left_out() -> None:
    assert bounds(column([-(2**62), 2**62], pa.timestamp("us"))) == (None, None)


def test_int96_has_no_statistics() -> None:
    table = column([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    assert stats_of(table, use_deprecated_int96_timestamps=True) == {"numRecords": 1}


@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize(
    ("precision", "scale", "texts"),
    [
        (5, 2, ["-1.23", "0.05", "999.99"]),
        (15, 0, ["-999999999999999", "7"]),
        (18, 18, ["-0.000000000000000001", "0.999999999999999999"]),
        (38, 10, ["-9999999999999999999999999999.9999999999", "1234567890123456789012345678.0123456789"]),
    ],
)
def test_decimals_of_each_physical_type_are_exact(
    as_integer: bool, precision: int, scale: int, texts: list[str]
) -> None:
    table = column([Decimal(text) for text in texts], pa.decimal128(precision, scale))
    found = stats_json(footer(table, store_decimal_as_integer=as_integer), table_schema(table.schema), [])
    assert f'"minValues":{{"c":{texts[0]}}},"maxValues":{{"c":{texts[-1]}}}' in found


def test_decimals_over_row_groups_are_compared_as_numbers() -> None:
    values = [Decimal("-5.00"), Decimal("3.00"), Decimal("-7.00")]
    assert bounds(column(values, pa.decimal128(20, 2)), row_group_size=1) == (Decimal(-7), Decimal(3))


# --- strings


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("x" * 32, "x" * 32, "x" * 32),
        ("x" * 33, "x" * 32, "x" * 32 + "\x7f"),
        ("x" * 32 + "\x7f!", "x" * 32, "x" * 32 + "\U0010ffff"),
        ("x" * 32 + "é", "x" * 32, "x" * 32 + "\U0010ffff"),
        ("x" * 31 + "\U0001f600\U0001f600", "x" * 31 + "\U0001f600", "x" * 31 + "\U0001f600\U0010ffff"),
        ("\U0001f600" * 40, "\U0001f600" * 32, "\U0001f600" * 32 + "\U0010ffff"),
        ("x" * 32 + "\ufffd\ue000", "x" * 32, "x" * 32 + "\U0010ffff"),
        ("x" * 32 + "\U0010ffff" + "a", "x" * 32, "x" * 32 + "\U0010ffff\x7f"),
        ("x" * 32 + "\U0010ffff" * 32, "x" * 32, "x" * 32 + "\U0010ffff" * 32),
        ("x" * 32 + "\U0010ffff" * 33, "x" * 32, None),
        ("", "", ""),
    ],
)
def test_strings_are_truncated_to_32_characters_and_the_maximum_stays_above(
    text: str, low: str, high: str | None
) -> None:
    assert bounds(column([text])) == (low, high)
    assert high is None or high >= text


def test_strings_too_long_for_a_footer_have_no_bounds() -> None:
    assert stats_of(column(["x" * 5000, None])) == {"numRecords": 2, "nullCount": {"c": 1}}


# --- nulls and row groups


def test_a_column_of_nulls() -> None:
    assert stats_of(column([None, None], pa.int64())) == {"numRecords": 2, "nullCount": {"c": 2}}


def test_row_groups_are_merged() -> None:
    stats = stats_of(column([5, None, 3, 9, None, None], pa.int64()), row_group_size=2)
    assert stats == {"numRecords": 6, "minValues": {"c": 3}, "maxValues": {"c": 9}, "nullCount": {"c": 3}}


def test_a_row_group_without_bounds_removes_the_bounds() -> None:
    table = column(["a", "b" * 5000, "c"])
    assert stats_of(table, row_group_size=1) == {"numRecords": 3, "nullCount": {"c": 0}}


def test_a_row_group_of_nulls_keeps_the_bounds() -> None:
    assert bounds(column(["a", None, "c"]), row_group_size=1) == ("a", "c")


def foreign_stats(*groups: SimpleNamespace | None) -> Any:
    """Return the statistics of a string column with row groups that pyarrow never writes."""
    row_groups = [
        SimpleNamespace(num_rows=1, column=lambda _, s=group: SimpleNamespace(statistics=s)) for group in groups
    ]
    meta = SimpleNamespace(
        created_by="foreign writer", num_rows=len(groups), num_row_groups=len(groups), row_group=row_groups.__getitem__
    )
    plan = plan_footers(footer(column(["x"])).schema, table_schema("c STRING"), [], {("c",)})
    return json.loads(plan.stats(meta))


def group(low: bytes, high: bytes, nulls: int | None = 0) -> SimpleNamespace:
    return SimpleNamespace(null_count=nulls, has_min_max=True, min_raw=low, max_raw=high)


def test_a_row_group_without_statistics_leaves_nothing_known() -> None:
    assert foreign_stats(group(b"a", b"b"), None) == {"numRecords": 2}


def test_an_unknown_null_count_is_not_zero() -> None:
    unknown = SimpleNamespace(null_count=None, has_min_max=False)
    assert foreign_stats(group(b"a", b"b"), unknown) == {"numRecords": 2}
    assert foreign_stats(group(b"a", b"b", None), group(b"c", b"d")) == {
        "numRecords": 2,
        "minValues": {"c": "a"},
        "maxValues": {"c": "d"},
    }


def test_bounds_in_the_wrong_order_are_left_out() -> None:
    """A footer with only a minimum reads as a footer with an empty maximum."""
    assert foreign_stats(group(b"m", b"")) == {"numRecords": 1, "nullCount": {"c": 0}}


def test_bounds_truncated_inside_a_character_are_left_out() -> None:
    assert foreign_stats(group(b"a", b"\xc3")) == {
        "numRecords": 1,
        "minValues": {"c": "a"},
        "nullCount": {"c": 0},
    }
    assert foreign_stats(group(b"\xc3", b"\xff")) == {"numRecords": 1, "nullCount": {"c": 0}}


def test_a_column_without_statistics_is_left_out() -> None:
    table = pa.table({"c": [1], "d": [2]})
    assert stats_of(table, write_statistics=["d"]) == {
        "numRecords": 1,
        "minValues": {"d": 2},
        "maxValues": {"d": 2},
        "nullCount": {"d": 0},
    }


# --- nesting


def test_structs_are_nested_objects_and_lists_and_maps_are_left_out() -> None:
    table = pa.table(
        {
            "l": pa.array([[1, 2], None], pa.list_(pa.int64())),
            "s": pa.array(
                [{"x": 1, "t": {"y": "a"}, "m": [("k", 1)]}, None],
                pa.struct(
                    [
                        ("x", pa.int64()),
                        ("t", pa.struct([("y", pa.string())])),
                        ("m", pa.map_(pa.string(), pa.int64())),
                    ]
                ),
            ),
            "z": [7, 8],
        }
    )
    assert stats_of(table) == {
        "numRecords": 2,
        "minValues": {"s": {"x": 1, "t": {"y": "a"}}, "z": 7},
        "maxValues": {"s": {"x": 1, "t": {"y": "a"}}, "z": 8},
        "nullCount": {"s": {"x": 1, "t": {"y": 1}}, "z": 0},
    }


def test_a_column_with_a_dot_is_not_a_field() -> None:
    table = pa.table({"a.b": [1], "a": pa.array([{"b": 2}])})
    assert stats_of(table)["minValues"] == {"a.b": 1, "a": {"b": 2}}
    assert stats_of(table, stats_columns=["a.b"])["minValues"] == {"a": {"b": 2}}
    assert stats_of(table, stats_columns=["`a.b`"])["minValues"] == {"a.b": 1}


def test_plans_distinguish_structs_with_other_names() -> None:
    one, other = (footer(pa.table({name: pa.array([{"x": 1}])})) for name in ("a", "b"))
    assert one.schema.equals(other.schema)
    plan = plan_footers(one.schema, table_schema("a STRUCT<x: BIGINT>"), [], set())
    assert plan.serves(one)
    assert not plan.serves(other)


# --- which columns


def test_the_first_columns_in_schema_order_are_indexed() -> None:
    schema = table_schema("p INT, l ARRAY<INT>, s STRUCT<x: INT, y: INT>, " + ", ".join(f"c{i} INT" for i in range(40)))
    indexed = indexed_columns(schema, ["p"])
    assert len(indexed) == 32
    assert {("l",), ("s", "x"), ("s", "y"), ("c28",)} <= indexed
    assert not {("p",), ("c29",)} & indexed
    assert len(indexed_columns(schema, ["p"], -1)) == 43
    assert indexed_columns(schema, ["p"], 0) == frozenset()


def test_no_indexed_columns_leave_the_row_count() -> None:
    assert stats_of(column([1]), num_indexed_cols=0) == {"numRecords": 1}


def test_named_columns_are_indexed_wherever_they_stand() -> None:
    schema = table_schema(", ".join(f"c{i} INT" for i in range(40)) + ", s STRUCT<x: INT, t: STRUCT<y: INT, z: INT>>")
    assert indexed_columns(schema, [], 1, ["C39", "s.t"]) == {("c39",), ("s", "t", "y"), ("s", "t", "z")}
    assert indexed_columns(schema, [], 32, []) == frozenset()
    assert indexed_columns(schema, ["c39"], 32, ["c39", "unknown"]) == frozenset()


def test_partition_columns_and_columns_of_the_file_alone_have_no_statistics() -> None:
    table = pa.table({"p": [1], "c": [2], "other": [3]})
    assert stats_of(table, "c BIGINT, p BIGINT", ["p"])["minValues"] == {"c": 2}


# --- schema of the file and schema of the table


@pytest.mark.parametrize(
    ("type_", "ddl"),
    [
        (pa.int8(), "BYTE"),
        (pa.int8(), "SHORT"),
        (pa.int16(), "INT"),
        (pa.uint8(), "SHORT"),
        (pa.uint16(), "INT"),
        (pa.uint32(), "BIGINT"),
        (pa.large_string(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.large_binary(), "BINARY"),
        (pa.timestamp("us", "Asia/Tokyo"), "TIMESTAMP"),
        (pa.timestamp("ms", "UTC"), "TIMESTAMP"),
        (pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (pa.decimal128(10, 2), "DECIMAL(10,2)"),
        (pa.null(), "VOID"),
        (pa.list_(pa.int32(), 2), "ARRAY<INT>"),
        (pa.large_list(pa.int32()), "ARRAY<INT>"),
        (pa.map_(pa.string(), pa.list_(pa.int64())), "MAP<STRING, ARRAY<BIGINT>>"),
        (pa.struct([("x", pa.int8())]), "STRUCT<x: BYTE, missing: INT>"),
    ],
)
def test_types_that_fit(type_: pa.DataType, ddl: str) -> None:
    assert problems(column([], type_), f"c {ddl}") == []


def test_legacy_int96_timestamps_fit() -> None:
    assert problems(column([], pa.timestamp("us", "UTC")), "c TIMESTAMP", use_deprecated_int96_timestamps=True) == []


@pytest.mark.parametrize(
    ("type_", "ddl", "problem"),
    [
        (pa.int32(), "BIGINT", "'c' is integer in the file and long in the table"),
        (pa.int64(), "INT", "'c' is long in the file and integer in the table"),
        (pa.int64(), "BYTE", "'c' is long in the file and byte in the table"),
        (pa.uint64(), "BIGINT", "'c' is uint64 in the file"),
        (pa.float32(), "DOUBLE", "'c' is float in the file and double in the table"),
        (pa.float16(), "FLOAT", "'c' is float16 in the file"),
        (pa.string(), "BINARY", "'c' is string in the file and binary in the table"),
        (pa.binary(), "STRING", "'c' is binary in the file"),
        (pa.binary(16), "BINARY", "'c' is fixed size binary in the file"),
        (pa.uuid(), "BINARY", "'c' is uuid in the file"),
        (pa.time64("us"), "BIGINT", "'c' is time in the file"),
        (pa.timestamp("us"), "TIMESTAMP", "'c' is timestamp_ntz in the file and timestamp in the table"),
        (
            pa.timestamp("ns", "UTC"),
            "TIMESTAMP",
            "timestamp in nanoseconds in the file (write it in microseconds)",
        ),
        (
            pa.decimal128(12, 2),
            "DECIMAL(10,2)",
            "'c' is decimal(12,2) in the file and decimal(10,2) in the table",
        ),
        (pa.null(), "STRING", "'c' is void in the file and string in the table"),
        (pa.list_(pa.int64()), "BIGINT", "'c' is list<element: int64> in the file and int64 in the table"),
        (pa.int64(), "ARRAY<BIGINT>", "'c' is int64 in the file and list<element: int64> in the table"),
        (pa.list_(pa.int64()), "ARRAY<INT>", "'c.element' is long in the file and integer in the table"),
        (pa.map_(pa.string(), pa.int64()), "MAP<STRING, INT>", "'c.value' is long in the file"),
        (pa.map_(pa.int32(), pa.int64()), "MAP<STRING, BIGINT>", "'c.key' is integer in the file"),
        (pa.struct([("x", pa.int8())]), "STRUCT<X: BYTE>", "'c.x' is not in the table (the table has 'X')"),
        (
            pa.struct([("x", pa.int8())]),
            "STRUCT<x: BYTE, y: INT NOT NULL>",
            "'c.y' is NOT NULL but missing in the file",
        ),
    ],
)
def test_types_that_do_not_fit_show_the_difference(type_: pa.DataType, ddl: str, problem: str) -> None:
    (found,) = problems(column([], type_), f"c {ddl}")
    assert problem in found


def test_every_problem_is_named() -> None:
    table = pa.table({"ID": [1], "extra": [2], "day": ["x"]})
    assert problems(table, "id BIGINT NOT NULL, day DATE, note STRING") == [
        "column 'id' is NOT NULL but missing in the file",
        "column 'day' is string in the file and date in the table",
        "column 'ID' is not in the table (the table has 'id')",
        "column 'extra' is not in the table",
    ]


def test_a_partition_column_may_be_missing_or_present() -> None:
    assert problems(pa.table({"a": [1]}), "a BIGINT, p BIGINT NOT NULL", ["p"]) == []
    assert problems(pa.table({"a": [1], "p": [1]}), "a BIGINT, p BIGINT NOT NULL", ["p"]) == []


def test_the_column_that_spark_leaves_beside_a_change_data_feed_is_no_problem() -> None:
    table = pa.table({"a": [1], "_change_type": pa.array([None], pa.string())})
    assert problems(table, "a BIGINT") == []


def test_a_duplicate_column_in_the_file_is_a_problem() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert problems(table, "a BIGINT") == ["column 'a' occurs twice in the file"]


def test_nulls_in_not_null_columns_are_found() -> None:
    table = pa.table({"a": [1, None], "b": [1, 2], "s": pa.array([{"x": 1}, {"x": None}])})
    meta = footer(table)
    schema = table_schema("a BIGINT NOT NULL, b BIGINT NOT NULL, s STRUCT<x: BIGINT NOT NULL> NOT NULL")
    assert plan_footers(meta.schema, schema, [], set()).nulls(meta) == ["'a'", "'s.x'"]
    loose = table_schema("a BIGINT, b BIGINT, s STRUCT<x: BIGINT NOT NULL>")
    assert plan_footers(meta.schema, loose, [], set()).nulls(meta) == []


# --- all values are within the bounds

_COLUMNS = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "u": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "s": (pa.string(), st.text(max_size=3) | st.text("a\x7fé\U0010ffff", min_size=30, max_size=70)),
    "d": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us"), st.datetimes()),
    "m": (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3, allow_nan=False)),
}
_rows = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in _COLUMNS.items()})


def _decoded(name: str, bound: Any, *, upper: bool) -> Any:
    if name == "d":
        return dt.date.fromisoformat(bound)
    if name == "t":
        # Readers add a millisecond to the maximum, where the calendar allows it.
        moment = dt.datetime.fromisoformat(bound)
        return min(moment, dt.datetime.max - dt.timedelta(milliseconds=1)) + dt.timedelta(milliseconds=upper)
    return bound


@settings(max_examples=rounds(80), deadline=None)
@given(st.lists(_rows, min_size=1, max_size=12), st.integers(1, 5))
def test_every_value_read_back_is_within_the_bounds(rows: list[dict[str, Any]], rows_per_group: int) -> None:
    table = pa.table({name: pa.array([row[name] for row in rows], type_) for name, (type_, _) in _COLUMNS.items()})
    stats = stats_of(table, row_group_size=rows_per_group)
    assert stats["numRecords"] == len(rows)
    for name in _COLUMNS:
        values = [row[name] for row in rows if row[name] is not None]
        assert stats["nullCount"][name] == len(rows) - len(values)
        low, high = stats.get("minValues", {}).get(name), stats.get("maxValues", {}).get(name)
        assert low is None or all(_decoded(name, low, upper=False) <= value for value in values)
        assert high is None or all(value <= _decoded(name, high, upper=True) for value in values)
        assert not values or low is not None


@pytest.mark.parametrize(
    ("values", "ddl", "fits"),
    [
        ([-128, 127, None], "BYTE", True),
        ([128], "BYTE", False),
        ([-129], "BYTE", False),
        ([-32768, 32767], "SMALLINT", True),
        ([32768], "SMALLINT", False),
        ([None], "BYTE", True),
        ([], "BYTE", True),
    ],
)
def test_small_integers_stored_as_plain_integers(values: list[Any], ddl: str, fits: bool) -> None:
    meta = footer(column(values, pa.int32()))
    plan = plan_footers(meta.schema, table_schema(f"c {ddl}"), [], set())
    assert plan.problems == ()
    assert plan.too_wide(meta) == ([] if fits else ["'c'"])


def test_small_integers_without_bounds_may_not_fit() -> None:
    meta = footer(column([1], pa.int32()), write_statistics=False)
    assert plan_footers(meta.schema, table_schema("c BYTE"), [], set()).too_wide(meta) == ["'c'"]
