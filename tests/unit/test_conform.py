"""`conform` converts arrays to the types of the table, keeps the values, and shares buffers where possible."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql.engines.arrow.read.conform import FieldIndex, Misfit, conform

INNER = pa.struct([("x", pa.int32()), ("t", pa.string())])
LONGER = pa.struct(
    [pa.field("new", pa.date32()), pa.field("T", pa.string()), pa.field("x", pa.int64(), nullable=False)]
)


def nested(inner: pa.DataType) -> dict[str, pa.DataType]:
    return {
        "struct": inner,
        "list": pa.list_(inner),
        "map": pa.map_(pa.string(), inner),
        "deep": pa.struct([("many", pa.list_(pa.list_(inner))), ("m", pa.map_(pa.int32(), pa.list_(inner)))]),
    }


def longer(value: Any) -> Any:
    """Return the expected value: each inner struct with the new field, the new order and the new types."""
    match value:
        case {"x": x, "t": t}:
            return {"new": None, "T": t, "x": x}
        case dict():
            return {key: longer(inner) for key, inner in value.items()}
        case list():
            return [longer(inner) for inner in value]
        case (key, inner):
            return (key, longer(inner))
    return value


inners = st.none() | st.fixed_dictionaries({"x": st.integers(-9, 9), "t": st.none() | st.text(max_size=3)})
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "struct": inners,
    "list": st.none() | st.lists(inners, max_size=3),
    "map": st.none() | st.lists(st.tuples(st.text(max_size=2), inners), max_size=3),
    "deep": st.none()
    | st.fixed_dictionaries(
        {
            "many": st.none() | st.lists(st.none() | st.lists(inners, max_size=2), max_size=2),
            "m": st.none()
            | st.lists(st.tuples(st.integers(0, 9), st.none() | st.lists(inners, max_size=2)), max_size=2),
        }
    ),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_nested_fields_are_added_widened_and_ordered(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], max_size=8))
    start = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - start))
    array = pa.array(values, nested(INNER)[kind]).slice(start, length)
    found = conform(array, nested(LONGER)[kind], "c")
    found.validate(full=True)
    assert found.type.equals(nested(LONGER)[kind])
    assert found.to_pylist() == [longer(value) for value in values[start : start + length]]


def test_equal_types_are_unchanged() -> None:
    array = pa.array([{"x": 1, "t": "a"}], INNER)
    assert conform(array, INNER, "c") is array


def test_buffers_are_shared() -> None:
    array = pa.array([[1, 2], None], pa.list_(pa.field("item", pa.int64())))
    found = conform(array, pa.list_(pa.field("element", pa.int64())), "c")
    assert [b and b.address for b in found.buffers()] == [b and b.address for b in array.buffers()]


@pytest.mark.parametrize(
    ("array", "kind", "problem"),
    [
        (pa.array([{"x": "1"}]), pa.struct([("x", pa.int64())]), r"column 'c\.x' is string in the file and int64"),
        (pa.array([["1"]]), pa.list_(pa.int64()), r"column 'c\.element' is string"),
        (pa.array([[("k", "1")]], pa.map_(pa.string(), pa.string())), pa.map_(pa.string(), pa.int64()), r"c\.value"),
        (pa.array([b"\xff"]), pa.string(), "a value does not fit string"),
        (pa.array([1], pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC"), "a value does not fit timestamp"),
        (pa.array([1]), pa.timestamp("us"), "int64 in the file"),
    ],
    ids=str,
)
def test_differences_are_named(array: pa.Array, kind: pa.DataType, problem: str) -> None:
    with pytest.raises(Misfit, match=problem):
        conform(array, kind, "c")


def test_nulls_fit_everything() -> None:
    for kind in nested(LONGER).values():
        assert conform(pa.nulls(2), kind, "c").to_pylist() == [None, None]
    assert conform(pa.array([1]), pa.null(), "c").to_pylist() == [None]


def test_names_ignore_case_but_prefer_an_exact_match() -> None:
    places = FieldIndex(pa.schema([("A", pa.int8()), ("a", pa.int8()), ("Bé", pa.int8())]))
    assert [places.find(name) for name in ("a", "A", "bÉ", "c")] == [1, 0, 2, None]
