"""Encoding and decoding of deletion vectors and their descriptors."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deltasql
from deltasql.engines.arrow.read.deletion_vector_read import bitmaps, live_mask
from deltasql.protocol.actions import DeletionVector
from deltasql.protocol.deletion_vectors import (
    MAX_INLINE_BYTES,
    VectorFile,
    bitmap_of,
    decode,
    encode,
    file_of,
    from_z85,
    inline,
    inline_bytes,
    num_words,
    numbers_of,
    span_of,
    unframed,
    words_of,
    z85,
)
from deltasql.storage import Directory

_NUMBERS = st.sets(st.integers(0, 2**34) | st.integers(0, 200), max_size=50)


@given(_NUMBERS)
def test_round_trip(numbers: set[int]) -> None:
    data = encode(bitmap_of(numbers))
    assert struct.unpack_from("<I", data) == (1681511377,)
    assert numbers_of(decode(data)).tolist() == sorted(numbers)
    vector = inline(data, len(numbers))
    assert inline_bytes(vector) == data
    assert len(vector.path_or_inline_dv) % 5 == 0


@given(st.binary(max_size=40))
def test_z85(data: bytes) -> None:
    assert from_z85(z85(data))[: len(data)] == data


def test_z85_follows_the_standard() -> None:
    assert z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    for bad in ('"""""', "ä0000"):
        with pytest.raises(ValueError, match=r"."):
            from_z85(bad)


def test_the_older_format() -> None:
    """The example of the Delta protocol."""
    data = from_z85("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L")[:40]
    assert numbers_of(decode(data)).tolist() == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize("data", [b"", b"short", bytes(40), b"\xd1\xd3\x39\x64" + b"\xff" * 20])
def test_invalid_bitmaps(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


@given(st.sets(st.integers(0, 300) | st.integers(10_000, 10_300), max_size=40))
def test_words(numbers: set[int]) -> None:
    first, words = words_of(bitmap_of(numbers))
    assert num_words(bitmap_of(numbers)) == len(words)
    found = enumerate(words.view(np.uint64).tolist(), first)
    assert {64 * i + bit for i, word in found for bit in range(64) if word >> bit & 1} == numbers


@given(st.sets(st.integers(0, 100)), st.integers(0, 60), st.integers(0, 60))
def test_live_mask(numbers: set[int], start: int, count: int) -> None:
    mask = live_mask(np.array(sorted(numbers), np.int64), start, count)
    assert mask.tolist() == [n not in numbers for n in range(start, start + count)]


def vectors_in(folder: Path, *numbers: set[int]) -> list[DeletionVector]:
    file = VectorFile()
    found = [file.put(encode(bitmap_of(rows)), len(rows)) for rows in numbers]
    (folder / file.path).write_bytes(file.content)
    return found


def test_several_vectors_in_one_file(tmp_path: Path) -> None:
    sets = [{1, 5}, set(range(100_000)), {2**33}]
    vectors = vectors_in(tmp_path, *sets)
    small = encode(bitmap_of({7}))
    vectors.insert(1, inline(small, 1))
    assert len(small) < MAX_INLINE_BYTES
    assert vectors[0].offset == 1
    found = bitmaps(Directory(str(tmp_path), {}), vectors, "t")
    assert [set(one) for one in found] == [sets[0], {7}, *sets[1:]]


def test_a_random_prefix_and_an_absolute_path(tmp_path: Path) -> None:
    (one,) = vectors_in(tmp_path, {1, 2})
    (name,) = tmp_path.iterdir()
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / name.name).write_bytes(name.read_bytes())
    prefixed = DeletionVector("u", "ab" + one.path_or_inline_dv, one.size_in_bytes, 2, one.offset)
    assert file_of(prefixed, str(tmp_path), "t") == f"ab/{name.name}"
    absolute = DeletionVector("p", f"file://{tmp_path}/{name.name}", one.size_in_bytes, 2, one.offset)
    found = bitmaps(Directory(str(tmp_path), {}), [prefixed, absolute], "t")
    assert [set(rows) for rows in found] == [{1, 2}, {1, 2}]


@pytest.mark.parametrize("path", ["file:///elsewhere/x.bin", "s3://bucket/x.bin", "{root}/../x.bin", "{root}x.bin"])
def test_nothing_outside_the_table_is_read(tmp_path: Path, path: str) -> None:
    vector = DeletionVector("p", path.format(root=tmp_path), 10, 1, 1)
    with pytest.raises(deltasql.ValidationError, match="outside the table's location"):
        file_of(vector, str(tmp_path), "t")


@pytest.mark.parametrize("prefix", ["..", "../../x", "/etc", "a/b", "s3:", ".hidden", "a\\b"])
def test_a_prefix_is_one_directory(tmp_path: Path, prefix: str) -> None:
    (one,) = vectors_in(tmp_path, {1})
    vector = DeletionVector("u", prefix + one.path_or_inline_dv, one.size_in_bytes, 1, one.offset)
    with pytest.raises(deltasql.ValidationError, match="invalid file name of a deletion vector"):
        file_of(vector, str(tmp_path), "t")


def test_a_damaged_descriptor_is_reported(tmp_path: Path) -> None:
    for text in ("wi5b=000010000siXQKl0rr91000f55c8X", '"' * 40, ""):
        with pytest.raises(deltasql.StorageError, match="table t: a deletion vector in the log is damaged"):
            bitmaps(Directory(str(tmp_path), {}), [DeletionVector("i", text, 40, 6)], "t")


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    vectors = vectors_in(tmp_path, {1, 2}, {3})
    (path,) = tmp_path.iterdir()
    directory = Directory(str(tmp_path), {})
    whole = path.read_bytes()
    start, end = span_of(vectors[0])
    assert unframed(whole[start:end], vectors[0])
    for at in (start, start + 10, end - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(deltasql.StorageError, match=r"table t: .*damaged"):
            bitmaps(directory, vectors[:1], "t")
    path.write_bytes(whole[:-3])
    with pytest.raises(deltasql.StorageError, match="damaged"):
        bitmaps(directory, vectors, "t")
    wrong = DeletionVector("u", vectors[0].path_or_inline_dv, vectors[0].size_in_bytes, 5, vectors[0].offset)
    path.write_bytes(whole)
    with pytest.raises(deltasql.StorageError, match="2 rows, but 5 in the log"):
        bitmaps(directory, [wrong], "t")
    path.unlink()
    with pytest.raises(deltasql.StorageError, match="cannot be read"):
        bitmaps(directory, vectors, "t")
