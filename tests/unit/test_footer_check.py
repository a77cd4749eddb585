"""Damaged footers are rejected before pyarrow, which would end the process, is asked for their column chunks."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.engines.arrow.file_footer import FileFooter
from deltasql.engines.arrow.footer_check import DamagedFooter
from tests.effort import rounds

NUMBER = 0x4142434445464748
WIDE = pa.table(
    {
        "id": [NUMBER, NUMBER + 1],
        "flag": [True, False],
        "x": [1.5, 2.5],
        "name": ["a", "b"],
        "fixed": pa.array([b"0123456789", b"1123456789"], pa.binary(10)),
        "list": [[1], [2, 3]],
        "struct": [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
    }
)


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def split(file: bytes) -> tuple[bytes, bytes]:
    """Return what stands before the footer, and the footer."""
    start = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    return file[:start], file[start:-8]


def joined(rows: bytes, footer: bytes) -> bytes:
    return rows + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def chunks(file: bytes) -> list[Any]:
    """Return the statistics of all column chunks, which are read as far as pyarrow can."""
    footer = FileFooter(pa.BufferReader(file))
    groups, columns = range(footer.metadata.num_row_groups), range(footer.metadata.num_columns)
    found = []
    for statistics in (footer.chunk(group, column).statistics for group in groups for column in columns):
        found.append(statistics and (statistics.null_count, statistics.has_min_max and statistics.min_raw))
    return found


@pytest.mark.parametrize("options", [{}, {"row_group_size": 1}, {"write_page_index": True}, {"compression": "zstd"}])
def test_sound_footers_pass(options: dict[str, Any]) -> None:
    assert len(chunks(parquet(WIDE, **options))) == (20 if "row_group_size" in options else 10)


def test_footers_longer_than_the_first_read_pass() -> None:
    table = pa.table({f"column {number}": [number] for number in range(1_000)})
    assert chunks(parquet(table)) == [(0, number) for number in range(1_000)]


@pytest.mark.parametrize("length", [0, 1, 7, 9])
def test_bounds_of_another_length_are_rejected(length: int) -> None:
    rows, footer = split(parquet(WIDE.select(["id"])))
    value = NUMBER.to_bytes(8, "little")
    changed = footer.replace(bytes([8]) + value, bytes([length]) + (value + b"\0")[:length])
    assert changed != footer
    with pytest.raises(
        DamagedFooter, match=f"column 0 of row group 0 has a bound of {length} bytes, its values have 8"
    ):
        chunks(joined(rows, changed))


def test_columns_of_another_type_are_rejected() -> None:
    rows, footer = split(parquet(WIDE.select(["id"]), store_schema=False))
    doubles = split(parquet(pa.table({"id": [0.0, 0.0]}), store_schema=False))[1]
    at = next(i for i, pair in enumerate(zip(footer, doubles, strict=False)) if pair == (4, 10))  # the schema's type
    with pytest.raises(DamagedFooter, match=r"column 0 of row group 0 has a physical type .* the schema's, DOUBLE"):
        chunks(joined(rows, footer[:at] + bytes([10]) + footer[at + 1 :]))


@pytest.mark.parametrize("end", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x08\0\0\0RAP1"])
def test_ends_that_are_none_are_rejected(end: bytes) -> None:
    with pytest.raises(DamagedFooter):
        FileFooter(pa.BufferReader(end))


FILES = [parquet(WIDE, row_group_size=1), parquet(WIDE, write_page_index=True, store_schema=False)]


@settings(max_examples=rounds(400, 40_000))
@given(
    st.sampled_from(FILES).map(split),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_footers_do_not_end_the_process(parts: tuple[bytes, bytes], changes: list[tuple[int, int]]) -> None:
    footer = bytearray(parts[1])
    for place, byte in changes:
        footer[place % len(footer)] = byte
    with contextlib.suppress(ValueError, OSError, pa.ArrowException):
        chunks(joined(parts[0], bytes(footer)))
