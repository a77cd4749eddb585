"""A damaged deletion vector fails every read and every write of its file, and stages nothing."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from deltasql import Add
from deltasql.protocol.actions import DeletionVector, from_dict
from deltasql.protocol.deletion_vectors import (
    VectorFile,
    bitmap_of,
    checked,
    decode,
    encode,
    file_of,
    from_z85,
    inline,
    inline_bytes,
    numbers_of,
    z85,
)
from tests.effort import rounds
from tests.fuzz.inputs import changed_json, changed_text, damaged, odd_texts, odd_values
from tests.fuzz.limits import only_own_errors, trace

ROWS = 50
NUMBERS = [0, 1, 2, 7, 30, 49]
BITMAPS = (
    encode(bitmap_of(NUMBERS)),
    encode(bitmap_of([0, 2**33, 2**40])),
    encode(bitmap_of(range(5_000, 9_000))),
    encode(bitmap_of([])),
)


@settings(max_examples=rounds(100, 5_000))
@given(st.sampled_from(BITMAPS).flatmap(damaged) | st.binary(max_size=100))
def test_bitmaps(data: bytes) -> None:
    with _only_value_errors(), only_own_errors():
        numbers_of(decode(data))
    with _only_value_errors(), only_own_errors():
        checked(data, DeletionVector("i", "", len(data), 6))


@settings(max_examples=rounds(100, 5_000))
@given(changed_text([z85(BITMAPS[0])]) | odd_texts)
def test_texts(text: str) -> None:
    with _only_value_errors(), only_own_errors():
        from_z85(text)
    for kind in "uip":
        vector = DeletionVector(kind, text, 40, 6, 1)
        with only_own_errors():
            file_of(vector, "/some/where", "t")
        with _only_value_errors(), only_own_errors():
            checked(inline_bytes(vector), vector)


class _only_value_errors:
    """Accept ValueError, which the functions of the protocol raise for damage, and callers translate."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        return kind is ValueError


@pytest.fixture(scope="module")
def table(embedded_lake: deltasql.Lake) -> deltasql.Table:
    """A table whose file has a deletion vector in a file."""
    made = embedded_lake.create_table("fuzz_vectors.t", "id BIGINT", properties={"delta.enableDeletionVectors": "true"})
    made.append(pa.table({"id": range(ROWS)}))
    (path,) = made.files()["path"].to_pylist()
    file = VectorFile()
    vector = file.put(BITMAPS[0], len(NUMBERS))
    (Path(made.location) / file.path).write_bytes(file.content)
    with embedded_lake.begin() as tx:
        tx.stage(made, [deltasql.Remove(path, 1), add(path, vector)])
    assert made.arrow().num_rows == ROWS - len(NUMBERS)
    return made


def add(path: str, vector: DeletionVector) -> Add:
    return Add(path, 100, 1, stats=f'{{"numRecords":{ROWS}}}', deletion_vector=vector)


def vector_file(table: deltasql.Table) -> Path:
    (text,) = table.files()["deletion_vector"].to_pylist()
    vector = from_dict(DeletionVector, msgspec.json.decode(text))
    return Path(table.location) / (file_of(vector, table.location, table.name) or "")


@settings(max_examples=rounds(50, 2_000))
@given(damaged(b"\x01" + len(BITMAPS[0]).to_bytes(4, "big") + BITMAPS[0] + zlib.crc32(BITMAPS[0]).to_bytes(4, "big")))
def test_files(table: deltasql.Table, data: bytes) -> None:
    path = vector_file(table)
    whole = path.read_bytes()
    path.write_bytes(data)
    before = trace(table)
    with only_own_errors() as reading:
        assert table.arrow().num_rows == ROWS - len(NUMBERS)
    with only_own_errors() as writing:
        with table.lake.begin() as tx:
            tx.write(table, pa.table({"id": [1]}), mode="overwrite", where="id = 1")
            tx.rollback()
    path.write_bytes(whole)
    assert (reading.error is None) == (writing.error is None)
    assert trace(table) == before


@settings(max_examples=rounds(30, 1_000))
@given(st.data())
def test_valid_frames_of_damaged_bitmaps(table: deltasql.Table, data: st.DataObject) -> None:
    path = vector_file(table)
    whole = path.read_bytes()
    bitmap = data.draw(damaged(BITMAPS[0]))[: len(BITMAPS[0])].ljust(len(BITMAPS[0]), b"\x00")
    path.write_bytes(b"\x01" + len(bitmap).to_bytes(4, "big") + bitmap + zlib.crc32(bitmap).to_bytes(4, "big"))
    with only_own_errors():
        table.arrow()
    path.write_bytes(whole)


@settings(max_examples=rounds(50, 1_500))
@given(changed_json([inline(BITMAPS[0], len(NUMBERS)).to_dict(), VectorFile().put(BITMAPS[0], len(NUMBERS)).to_dict()]))
def test_descriptors(table: deltasql.Table, fields: dict[str, Any]) -> None:
    try:
        vector = from_dict(DeletionVector, fields)
    except TypeError:
        return  # a field is missing
    before = trace(table)
    with only_own_errors():
        with table.lake.begin() as tx:
            tx.stage(table, [add("new.parquet", vector)])
            tx.rollback()
    assert trace(table) == before


@settings(max_examples=rounds(30, 1_000))
@given(odd_values, odd_values)
def test_values_that_are_no_vectors(table: deltasql.Table, value: Any, other: Any) -> None:
    before = trace(table)
    for vector in (value, DeletionVector("i", value, other, other), DeletionVector(value, "", 0, 0, other)):  # type: ignore[arg-type]
        with only_own_errors() as outcome:
            with table.lake.begin() as tx:
                tx.stage(table, [Add("new.parquet", 1, 1, stats='{"numRecords":3}', deletion_vector=vector)])  # type: ignore[arg-type]
                tx.rollback()
        assert outcome.error is not None or vector is None
    assert trace(table) == before
