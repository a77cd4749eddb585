"""Reading and registering a damaged Parquet file fails with an error that names the table; nothing is committed."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from tests.effort import rounds
from tests.fuzz.inputs import damaged
from tests.fuzz.limits import only_own_errors, trace

SCHEMA = "id BIGINT, name STRING, x DOUBLE, l ARRAY<INT>, s STRUCT<a: INT>"
ROWS = pa.table(
    {
        "id": range(50),
        "name": [f"name {number % 7}" for number in range(50)],
        "x": [number / 2 for number in range(50)],
        "l": pa.array([[number] * (number % 3) for number in range(50)], pa.list_(pa.int32())),
        "s": pa.array([{"a": number} for number in range(50)], pa.struct({"a": pa.int32()})),
    }
)


def parquet(**options: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(ROWS, file, **options)
    return file.getvalue()


FILES = (
    parquet(row_group_size=20),
    parquet(compression="none", use_dictionary=False, write_page_index=True),
    parquet(compression="zstd", data_page_version="2.0", write_page_checksum=True),
)


def footer_of(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """Draw a Parquet file with changes anywhere, or only in its footer, which all readers parse first."""
    data = draw(st.sampled_from(FILES))
    start = draw(st.sampled_from([0, footer_of(data), len(data) - 8]))
    return data[:start] + draw(damaged(data[start:]))


@pytest.fixture(scope="module")
def table(embedded_lake: deltasql.Lake) -> deltasql.Table:
    made = embedded_lake.create_table("fuzz_parquet.t", SCHEMA)
    made.append(ROWS)
    return made


@settings(max_examples=rounds(60, 2_500))
@given(damaged_files())
def test_reading(table: deltasql.Table, data: bytes) -> None:
    (path,) = table.files()["path"].to_pylist()
    (Path(table.location) / path).write_bytes(data)
    for read in (
        lambda: table.arrow(),
        lambda: table.arrow(where="id = 7 AND name > 'a'", columns=["x"]),
        lambda: list(table.batches()),
    ):
        with only_own_errors() as outcome:
            read()
        if outcome.error is not None:
            assert table.name in str(outcome.error)


@settings(max_examples=rounds(30, 1_500))
@given(damaged_files())
def test_registering(table: deltasql.Table, data: bytes) -> None:
    path = Path(table.location) / "given.parquet"
    path.write_bytes(data)
    before = trace(table)
    with only_own_errors() as outcome:
        table.add_files(["given.parquet"])
    if outcome.error is not None:
        assert trace(table) == before
    else:
        assert table.lake.mirror.validate(table.name) == []
        table.overwrite(ROWS)


@settings(max_examples=rounds(20, 500))
@given(damaged_files())
def test_writing_over_damaged_files(table: deltasql.Table, data: bytes) -> None:
    for path in table.files()["path"].to_pylist():
        (Path(table.location) / path).write_bytes(data)
    before = trace(table)
    with only_own_errors() as outcome:
        table.overwrite(ROWS.slice(0, 3), where="id < 3")
    if outcome.error is not None:
        assert trace(table) == before
    table.overwrite(ROWS)
