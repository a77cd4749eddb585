"""Statistics JSON and partition values as typed bounds."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltasql.protocol.statistics import (
    Bounds,
    concat_bounds,
    decode_bounds,
    encode_bounds,
    leaf_columns,
    parse_stats,
    partition_bounds,
    unknown_bounds,
)

UTC = pa.timestamp("us", "UTC")
NTZ = pa.timestamp("us")
MS = 1000
HOUR = 3_600_000_000
NEW_YEAR = 1_704_067_200_000_000  # 2024-01-01T00:00:00Z


def stats_of(low: Any = None, high: Any = None, **more: Any) -> str:
    return json.dumps({"minValues": {"c": low}, "maxValues": {"c": high}, **more})


def bounds_of(texts: list[str | None], type: pa.DataType) -> Bounds:
    return parse_stats(pa.array(texts, pa.string()), pa.schema([("c", type)]), [("c",)])[("c",)]


def pairs(bounds: Bounds) -> list[tuple[Any, Any]]:
    """Return pairs of minimum and maximum, with timestamps as microseconds."""
    low, high = (x.cast(pa.int64()) if pa.types.is_timestamp(x.type) else x for x in (bounds.min, bounds.max))
    return list(zip(low.to_pylist(), high.to_pylist(), strict=True))


def pair(low: Any, high: Any, type: pa.DataType) -> tuple[Any, Any]:
    return pairs(bounds_of([stats_of(low, high)], type))[0]


def test_leaf_columns_go_through_structs_but_not_into_lists_and_maps() -> None:
    inner = pa.struct([("b", pa.int32()), ("deep", pa.struct([("c", pa.date32())]))])
    schema = pa.schema(
        [
            ("a", pa.int64()),
            ("s", inner),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("x", pa.binary()),
        ]
    )
    assert leaf_columns(schema) == {
        ("a",): pa.int64(),
        ("s", "b"): pa.int32(),
        ("s", "deep", "c"): pa.date32(),
        ("x",): pa.binary(),
    }


# --- One value


@pytest.mark.parametrize("type", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integers_are_int64(type: pa.DataType) -> None:
    bounds = bounds_of([stats_of(-5, 7)], type)
    assert bounds.min.type == bounds.max.type == pa.int64()
    assert pairs(bounds) == [(-5, 7)]


def test_longs_beyond_doubles_are_exact() -> None:
    assert pair(2**53 + 1, 2**63 - 1, pa.int64()) == (2**53 + 1, 2**63 - 1)


@pytest.mark.parametrize("value", ["5", 5.0, True, 2**63, [5], {"x": 5}])
def test_invalid_longs_are_unknown(value: Any) -> None:
    assert pair(value, 7, pa.int64()) == (None, 7)


def test_doubles_are_exact() -> None:
    assert pair(0.1, 1.7976931348623157e308, pa.float64()) == (0.1, 1.7976931348623157e308)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", float("nan"), float("inf"), "0.1"])
def test_infinite_numbers_and_nan_are_unknown(value: Any) -> None:
    assert pair(value, 1.5, pa.float64()) == (None, 1.5)
    assert pair(-1.5, value, pa.float32())[1] is None
    assert pair(value, 1.5, pa.decimal128(9, 2)) == (None, Decimal("1.50"))


def test_a_number_too_large_for_a_double_is_unknown() -> None:
    assert pairs(bounds_of(['{"minValues":{"c":1},"maxValues":{"c":1e400}}'], pa.float64())) == [(1.0, None)]


def test_floats_hold_what_the_shortest_text_stands_for() -> None:
    low, high = pair(0.1, 0.1, pa.float32())
    assert low < 0.1 < 0.10000000149011612 < high
    assert high - low < 1e-7


def test_a_column_widened_from_float_keeps_the_float_tolerance() -> None:
    changes = json.dumps([{"fromType": "float", "toType": "double"}])
    schema = pa.schema([pa.field("c", pa.float64(), metadata={"delta.typeChanges": changes})])
    bounds = parse_stats(pa.array([stats_of(0.1, 0.1)]), schema, [("c",)])[("c",)]
    assert bounds.max[0].as_py() > 0.10000000149011612


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("0.00", pa.decimal128(4, 2)),
        ("-0.01", pa.decimal128(4, 2)),
        ("1234567890123.45", pa.decimal128(18, 2)),
        ("-1234567890123.45", pa.decimal128(38, 2)),
        ("99999", pa.decimal128(5, 0)),
        ("0.00000000000001", pa.decimal128(38, 14)),
    ],
)
def test_decimals_of_few_digits_are_exact(text: str, type: pa.DataType) -> None:
    bounds = bounds_of([f'{{"minValues":{{"c":{text}}},"maxValues":{{"c":{text}}}}}'], type)
    assert bounds.min.type == type
    assert pairs(bounds) == [(Decimal(text), Decimal(text))]


@pytest.mark.parametrize("text", ["12345678901234567.89", "-9876543210987654321.12", "0.1234567890123456789"])
@pytest.mark.parametrize("through_double", [False, True])
def test_long_decimals_lie_within_their_bounds(text: str, through_double: bool) -> None:
    printed = repr(float(text)) if through_double else text
    bounds = bounds_of([f'{{"minValues":{{"c":{printed}}},"maxValues":{{"c":{printed}}}}}'], pa.decimal128(38, 19))
    bounds.min.validate(full=True)
    low, high = pairs(bounds)[0]
    assert low <= Decimal(text) <= high
    assert high - low <= abs(Decimal(text)) * Decimal("1e-14")


def test_a_decimal_beyond_its_precision_is_unknown() -> None:
    assert pair(1000, 99, pa.decimal128(4, 2)) == (None, Decimal("99.00"))


def test_strings_are_taken_as_they_are() -> None:
    assert pair("", "zürich 日本 \U0001f600\U0010ffff", pa.string()) == ("", "zürich 日本 \U0001f600\U0010ffff")
    assert pair(5, "\ud83d", pa.string()) == (None, None)


def test_booleans_may_have_bounds() -> None:
    assert pair(False, True, pa.bool_()) == (False, True)
    assert pair(0, "true", pa.bool_()) == (None, None)


def test_dates() -> None:
    bounds = bounds_of([stats_of("2024-02-29", "9999-12-31"), stats_of("2024-02-30", "today")], pa.date32())
    assert [str(x) for x in bounds.min.to_pylist()] == ["2024-02-29", "None"]
    assert [str(x) for x in bounds.max.to_pylist()] == ["9999-12-31", "None"]


def test_binary_has_only_null_flags() -> None:
    bounds = bounds_of([stats_of("00", "ff", numRecords=3, nullCount={"c": 3})], pa.binary())
    assert bounds.min.null_count == 1
    assert bounds.all_null.to_pylist() == [True]


# --- Timestamps


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2024-01-01T00:00:00.000Z", 0),
        ("2024-01-01T00:00:00.123Z", 123 * MS),
        ("2024-01-01 00:00:00.123456Z", 123_456),
        ("2023-12-31T16:00:00.000-08:00", 0),
        ("2024-01-01T05:30:00.000+05:30", 0),
    ],
)
def test_maxima_of_timestamps_end_a_millisecond_later(text: str, micros: int) -> None:
    assert pair(text, text, UTC) == (NEW_YEAR + micros, NEW_YEAR + micros + MS)


def test_a_timestamp_without_zone_may_be_in_any_zone() -> None:
    low, high = pair("2024-01-01T00:00:00", "2024-01-01T00:00:00", UTC)
    assert (low, high) == (NEW_YEAR - 18 * HOUR, NEW_YEAR + 18 * HOUR + MS)


def test_an_offset_of_local_mean_time_is_unknown() -> None:
    assert pair("1850-01-01T00:00:00.000-07:52", "1850-01-01T00:00:00.000Z", UTC)[0] is None


def test_timestamps_without_time_zone() -> None:
    assert pair("2024-01-01", "2024-01-01T00:00:00.123", NTZ) == (NEW_YEAR, NEW_YEAR + 124 * MS)
    assert pair("2024-01-01T00:00:00.123Z", None, NTZ) == (None, None)


def test_the_offset_of_every_row_counts() -> None:
    texts = [stats_of(f"2024-01-01T00:00:00.000{zone}") for zone in ("Z", "+01:00", "", "Z")]
    lows = [low for low, _ in pairs(bounds_of(texts * 300, UTC))]
    assert lows == [NEW_YEAR, NEW_YEAR - HOUR, NEW_YEAR - 18 * HOUR, NEW_YEAR] * 300


# --- Nulls


@pytest.mark.parametrize(
    ("records", "nulls", "tight", "has_nulls", "all_null"),
    [
        (5, 0, None, False, False),
        (5, 2, None, True, False),
        (5, 5, None, True, True),
        (5, 0, False, False, False),
        (5, 2, False, True, None),
        (5, 5, False, True, True),
        (None, 0, None, False, None),
        (None, 5, None, True, None),
        (5, None, None, None, None),
    ],
)
def test_null_counts(
    records: int | None, nulls: int | None, tight: bool | None, has_nulls: bool | None, all_null: bool | None
) -> None:
    text = json.dumps({"numRecords": records, "nullCount": {"c": nulls}, "tightBounds": tight})
    bounds = bounds_of([text], pa.int64())
    assert (bounds.has_nulls[0].as_py(), bounds.all_null[0].as_py()) == (has_nulls, all_null)


# --- Invalid statistics


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "",
        "oops",
        "{}",
        "[]",
        "null",
        '{"minValues":{"c":1}',
        '{"minValues":{"c":1}}{"minValues":{"c":2}}',
        '{"minValues":{"c":1}}\n{"minValues":{"c":2}}',
        '{"minValues":7}',
        "[" * 100_000,
    ],
)
def test_a_bad_text_is_unknown_and_its_neighbours_are_exact(bad: str | None) -> None:
    texts = [stats_of(n, n + 1) for n in range(2000)]
    texts[700] = bad  # type: ignore[call-overload]
    expected: list[tuple[Any, Any]] = [(n, n + 1) for n in range(2000)]
    expected[700] = (None, None)
    assert pairs(bounds_of(texts, pa.int64())) == expected


def test_unbalanced_texts_do_not_shift_rows() -> None:
    for bad in (
        ['{"minValues":{"c":1}}{"minValues":{"c":2}}', "{", "}"],
        ['{"minValues":{"c":1}}}\n{"stats":{"minValues":{"c":2}}', '{"x":"', '"}'],
        ["{}}", '{"stats":{"minValues":{"c":2}}', "\n"],
    ):
        assert pairs(bounds_of([*bad, stats_of(4, 4)], pa.int64())) == [(None, None)] * 3 + [(4, 4)], bad


def test_a_minimum_above_the_maximum_is_unknown() -> None:
    assert pairs(bounds_of([stats_of(9, 3), stats_of(3, 9)], pa.int64())) == [(None, None), (3, 9)]


def test_pretty_printed_and_very_long_texts() -> None:
    spread = json.dumps(json.loads(stats_of(1, 2)), indent=2)
    long = stats_of(3, 4, padding="x" * 3_000_000)
    assert pairs(bounds_of([spread, long, stats_of(5, 6)], pa.int64())) == [(1, 2), (3, 4), (5, 6)]


# --- Columns


def test_only_the_requested_columns_are_read() -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("b", pa.string()), ("c.d", pa.int64())]))])
    text = '{"minValues":{"a":"wrong","s":{"b":"x","c.d":5},"new":1},"maxValues":{"s":{"b":"y"}}}'
    found = parse_stats(pa.array([text]), schema, [("s", "b"), ("s", "c.d")])
    assert {path: pairs(bounds) for path, bounds in found.items()} == {
        ("s", "b"): [("x", "y")],
        ("s", "c.d"): [(5, None)],
    }


@pytest.mark.parametrize("quote", ['"', ""])
def test_a_renamed_column_is_found_by_its_physical_name(quote: str) -> None:
    """After a and b swap their names, the statistics of b are stored under a."""
    names = {"a": "b", "b": "a"}
    schema = pa.schema(
        [
            pa.field(name, pa.int64(), metadata={"delta.columnMapping.physicalName": f"{quote}{physical}{quote}"})
            for name, physical in names.items()
        ]
    )
    found = parse_stats(pa.array(['{"minValues":{"a":1,"b":2}}']), schema, [("a",), ("b",)])
    assert found[("a",)].min.to_pylist() == [2]
    assert found[("b",)].min.to_pylist() == [1]


def test_texts_come_in_any_shape() -> None:
    schema = pa.schema([("c", pa.int64())])
    chunks = pa.chunked_array([[stats_of(1, 1), None], [], [stats_of(2, 2)]], pa.large_string())
    found = parse_stats(chunks, schema, [("c",)])[("c",)]
    assert isinstance(found.min, pa.Array)
    assert found.min.to_pylist() == [1, None, 2]
    assert parse_stats(chunks, schema, []) == {}
    assert parse_stats(pa.array([], pa.string()), schema, [("c",)]) == {("c",): unknown_bounds(0, pa.int64())}
    sliced = pa.array([stats_of(n, n) for n in range(9)])[3:6]
    assert parse_stats(sliced, schema, [("c",)])[("c",)].min.to_pylist() == [3, 4, 5]


# --- Partition values


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (pa.int32(), "-7", -7),
        (pa.int64(), "9007199254740993", 2**53 + 1),
        (pa.string(), "Zürich / 1=2", "Zürich / 1=2"),
        (pa.bool_(), "true", True),
        (pa.float64(), "1.5E10", 1.5e10),
        (pa.decimal128(20, 2), "123456789012345678.91", Decimal("123456789012345678.91")),
        (UTC, "1970-01-01T00:00:00.123456Z", 123_456),
        (NTZ, "1970-01-01 00:00:01", 1_000_000),
        (NTZ, "1970-01-01T00:00:01.5", 1_500_000),
    ],
)
def test_partition_values_are_exact(type: pa.DataType, text: str, value: Any) -> None:
    bounds = partition_bounds(pa.array([text, None, text]), type)
    assert pairs(bounds) == [(value, value), (None, None), (value, value)]
    assert bounds.has_nulls.to_pylist() == bounds.all_null.to_pylist() == [False, True, False]


def test_a_date_as_partition_value() -> None:
    assert str(partition_bounds(pa.array(["2024-02-29"]), pa.date32()).min[0]) == "2024-02-29"


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (pa.int32(), "x"),
        (pa.int8(), "300"),
        (pa.int64(), "9" * 30),
        (pa.date32(), "2024-02-30"),
        (UTC, "yesterday"),
        (NTZ, "2024-01-01T00:00:00Z"),
        (pa.bool_(), "yes"),
        (pa.decimal128(4, 2), "1.234"),
        (pa.decimal128(4, 2), "12345"),
    ],
)
def test_a_partition_value_that_cannot_be_read_is_unknown(type: pa.DataType, text: str) -> None:
    assert partition_bounds(pa.array([text]), type) == unknown_bounds(1, type)


def test_a_partition_timestamp_without_zone_is_in_that_of_its_writer() -> None:
    bounds = partition_bounds(pa.array(["2024-01-01 00:00:00"]), UTC)
    assert pairs(bounds) == [(NEW_YEAR - 18 * HOUR, NEW_YEAR + 18 * HOUR)]


def test_a_partition_float_holds_its_value() -> None:
    low, high = pairs(partition_bounds(pa.array(["0.1"]), pa.float32()))[0]
    assert low < 0.10000000149011612 < high


def test_nan_is_a_value_without_bounds() -> None:
    bounds = partition_bounds(pa.array(["NaN", "-Infinity"]), pa.float64())
    assert pairs(bounds) == [(None, None)] * 2
    assert bounds.has_nulls.to_pylist() == [False, False]


def test_the_empty_string_is_null_but_for_strings_some_readers_differ() -> None:
    assert partition_bounds(pa.array([""]), pa.int32()).all_null.to_pylist() == [True]
    bounds = partition_bounds(pa.array([""]), pa.string())
    assert pairs(bounds) == [("", "")]
    assert bounds.has_nulls.to_pylist() == bounds.all_null.to_pylist() == [None]


# --- Bytes and joining

SAMPLES = [
    pa.array([1, None, 2**60]),
    pa.array([0.5, None, 1e300]),
    pa.array(["a", None, "é"]),
    pa.array([1, None, 3], pa.date32()),
    pa.array([1, None, 3], UTC),
    pa.array([1, None, 3], NTZ),
    pa.array([Decimal("1.25"), None, Decimal("-9.99")], pa.decimal128(38, 2)),
    pa.array([True, None, False]),
    pa.nulls(3),
]


@pytest.mark.parametrize("values", SAMPLES, ids=lambda values: str(values.type))
def test_encoded_values_are_decoded(values: pa.Array) -> None:
    flags = pa.array([True, False, None])
    bounds = Bounds(values, values, flags, flags)
    for part in (bounds, Bounds(values[1:2], values[1:2], flags[1:2], flags[1:2]), unknown_bounds(0, values.type)):
        assert decode_bounds(encode_bounds(part)) == part
    assert decode_bounds(encode_bounds(bounds)) != unknown_bounds(3, values.type)


def part_of(values: pa.Array) -> Bounds:
    flags = pa.array([False] * len(values))
    return Bounds(values, values, flags, flags)


@pytest.mark.parametrize(
    ("first", "second", "type", "values"),
    [
        (pa.array([1]), pa.array([2]), pa.int64(), [1, 2]),
        (pa.array([1]), pa.array([2.5]), pa.float64(), [1.0, 2.5]),
        (pa.array([2.5]), pa.array([1]), pa.float64(), [2.5, 1.0]),
        (
            pa.array([1]),
            pa.array([Decimal("2.50")], pa.decimal128(12, 2)),
            pa.decimal128(12, 2),
            [Decimal("1.00"), Decimal("2.50")],
        ),
        (
            pa.array([Decimal("1.5")], pa.decimal128(4, 1)),
            pa.array([Decimal("2.25")], pa.decimal128(4, 2)),
            pa.decimal128(5, 2),
            [Decimal("1.50"), Decimal("2.25")],
        ),
        (pa.array([1], pa.date32()), pa.array([5], NTZ), NTZ, None),
        (pa.array(["x"]), pa.array([2]), pa.int64(), [None, 2]),
        (pa.array([2**60]), pa.array([0.5]), pa.float64(), [None, 0.5]),
        (pa.nulls(1), pa.array([2]), pa.int64(), [None, 2]),
    ],
)
def test_joining_unifies_the_types(first: pa.Array, second: pa.Array, type: pa.DataType, values: Any) -> None:
    joined = concat_bounds([part_of(first), part_of(second)])
    assert joined.min.type == joined.max.type == type
    assert joined.has_nulls.to_pylist() == [False, False]
    if values is not None:
        assert joined.min.to_pylist() == values


def test_joining_one_or_none() -> None:
    part = part_of(pa.array([1, 2]))
    assert concat_bounds([part]) is part
    assert len(concat_bounds([]).min) == 0
