"""Deletion vectors: the numbers of a file's rows that are deleted, as Delta stores them.

A vector is a 64-bit Roaring bitmap, which lies in a file of vectors below the table, or in the log itself when it is
small. docs/decisions/0011-merge-on-read.md tells how they are used.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote
from uuid import UUID, uuid4

import msgspec
import numpy as np
from pyroaring import BitMap, BitMap64

from deltasql.errors import ValidationError
from deltasql.protocol.actions import DeletionVector, from_dict

Numbers = np.ndarray[Any, np.dtype[np.int64]]

INLINE, IN_FILE, ABSOLUTE = "i", "u", "p"
MOST_INLINE = 512
"""Bytes: a vector that takes more is not kept in the log, which every reader reads whole."""

_PORTABLE, _NATIVE = struct.pack("<I", 1681511377), struct.pack(">I", 1681511376)
_VERSION = b"\x01"
_UUID_CHARACTERS = 20
_PREFIX = re.compile(r"[^/.\\:][^/\\:]*")
"""Of a directory below the table."""
# Z85, which Python has from 3.13 on, is the base 85 of RFC 1924 with other characters.
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_RFC1924, _Z85), bytes.maketrans(_Z85, _RFC1924)


def z85(data: bytes) -> str:
    """Bytes as text; to a multiple of four, zeros are added."""
    return base64.b85encode(data + bytes(-len(data) % 4)).translate(_TO_Z85).decode()


def from_z85(text: str) -> bytes:
    """The bytes of a text; a character that is none of Z85's is a ValueError."""
    try:
        return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
    except UnicodeEncodeError as error:
        raise ValueError(str(error)) from error


# --- Bitmaps


def encode(rows: BitMap64) -> bytes:
    """A bitmap as it is stored, without what frames it in a file."""
    rows.run_optimize()
    data: bytes = rows.serialize()
    return _PORTABLE + data


def decode(data: bytes) -> BitMap64:
    """The bitmap of stored bytes; ValueError if they are none."""
    if len(data) < 8:
        raise ValueError(f"{len(data)} bytes are no bitmap")
    if data.startswith(_PORTABLE):
        found: BitMap64 = BitMap64.deserialize(data[4:])
        return found
    if data.startswith(_NATIVE):
        try:
            return _native(data[4:])
        except struct.error as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"no bitmap begins with {data[:4].hex()}")


def _native(data: bytes) -> BitMap64:
    """An older form: how many bitmaps of 32 bits there are, and each with its size."""
    (count,) = struct.unpack_from(">I", data)
    rows, at = BitMap64(), 4
    for high in range(count):
        (size,) = struct.unpack_from(">I", data, at)
        low = np.frombuffer(BitMap.deserialize(data[at + 4 : at + 4 + size]).to_array(), np.uint32)
        rows.update(low.astype(np.uint64) + np.uint64(high << 32))
        at += 4 + size
    return rows


def numbers_of(rows: BitMap64) -> Numbers:
    """The row numbers of a bitmap, in order."""
    return np.frombuffer(rows.to_array(), np.uint64).astype(np.int64)


def bitmap_of(numbers: Iterable[int] | Numbers) -> BitMap64:
    """The bitmap of row numbers."""
    given = np.asarray(numbers, np.int64) if isinstance(numbers, np.ndarray) else np.array(list(numbers), np.int64)
    return BitMap64(given.astype(np.uint64))


# --- What the log has of them


def parse(text: str) -> DeletionVector:
    """A descriptor, from the text that a snapshot has of it."""
    return from_dict(DeletionVector, msgspec.json.decode(text))


def cardinality_of(text: str | None) -> int:
    """How many rows of a file are deleted, from the text that a snapshot has of its vector."""
    return 0 if text is None else parse(text).cardinality


def inline(data: bytes, cardinality: int) -> DeletionVector:
    """A descriptor that has the bitmap itself."""
    return DeletionVector(INLINE, z85(data), len(data), cardinality)


def inline_bytes(vector: DeletionVector) -> bytes:
    """The bitmap that is in a descriptor."""
    return from_z85(vector.path_or_inline_dv)[: vector.size_in_bytes]


def check_confined(vector: DeletionVector, location: str, table: str) -> None:
    """Refuse a vector that lies elsewhere than below its table, or nobody knows where."""
    text = vector.path_or_inline_dv
    if vector.storage_type == IN_FILE:
        prefix = text[:-_UUID_CHARACTERS]
        if prefix and not _PREFIX.fullmatch(prefix):
            raise _no_file(text, table)
    elif vector.storage_type == ABSOLUTE:
        _below(text, location, table)
    elif vector.storage_type != INLINE:
        raise ValidationError(
            f"table {table}: a deletion vector is kept as 'u', 'i' or 'p', and not as {vector.storage_type!r}: upgrade "
            f"deltasql",
            table=table,
            value=vector.storage_type,
        )


def file_of(vector: DeletionVector, location: str, table: str) -> str | None:
    """The path of a vector's file below the table, as a file system has it; none if it has no file."""
    check_confined(vector, location, table)
    text = vector.path_or_inline_dv
    if vector.storage_type == INLINE:
        return None
    if vector.storage_type == ABSOLUTE:
        return _below(text, location, table)
    try:
        return _path(text[:-_UUID_CHARACTERS], UUID(bytes=from_z85(text[-_UUID_CHARACTERS:])))
    except ValueError as error:
        raise _no_file(text, table) from error


def _no_file(text: str, table: str) -> ValidationError:
    return ValidationError(f"table {table}: {text!r} names no file of deletion vectors", table=table, value=text)


def _below(uri: str, location: str, table: str) -> str:
    """Where an absolute path leads below the table. Anywhere else nothing of it may lie."""
    root, path = (unquote(text.removeprefix("file://").removeprefix("file:")) for text in (location, uri))
    below = path.removeprefix(root.rstrip("/") + "/")
    if below == path or ".." in below.split("/"):
        raise ValidationError(
            f"table {table}: the deletion vector {uri!r} lies outside the table's location {location}: copy the table, "
            f"as a deep clone does",
            table=table,
            value=uri,
        )
    return below


def _path(prefix: str, name: UUID) -> str:
    return f"{prefix}{'/' if prefix else ''}deletion_vector_{name}.bin"


# --- Files of them


class VectorFile:
    """A new file of vectors: put bitmaps in, then write `content` to `path`."""

    def __init__(self) -> None:
        self._id = uuid4()
        self._parts: list[bytes] = [_VERSION]
        self.size = 1

    @property
    def path(self) -> str:
        """Where it belongs, below the table."""
        return _path("", self._id)

    @property
    def content(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)

    @property
    def is_empty(self) -> bool:
        """Is there nothing in it?"""
        return len(self._parts) == 1

    def put(self, data: bytes, cardinality: int) -> DeletionVector:
        """A descriptor of a bitmap that is in there from now on."""
        offset = self.size
        self._parts += (struct.pack(">I", len(data)), data, struct.pack(">I", zlib.crc32(data)))
        self.size += len(data) + 8
        return DeletionVector(IN_FILE, z85(self._id.bytes), len(data), cardinality, offset)


def span_of(vector: DeletionVector) -> tuple[int, int]:
    """From where to where a vector lies in its file, with what frames it."""
    start = vector.offset or 0
    return start, start + vector.size_in_bytes + 8


def unframed(framed: bytes, vector: DeletionVector) -> bytes:
    """The bitmap of what lies there; ValueError if it is not whole."""
    size = vector.size_in_bytes
    if len(framed) < size + 8 or struct.unpack_from(">I", framed) != (size,):
        raise ValueError(f"there are no {size} bytes of a deletion vector at {vector.offset}")
    data = framed[4 : 4 + size]
    if struct.unpack_from(">I", framed, 4 + size) != (zlib.crc32(data),):
        raise ValueError(f"the checksum of the deletion vector at {vector.offset} is wrong")
    return data


def checked(data: bytes, vector: DeletionVector) -> BitMap64:
    """The bitmap of a vector, which has as many rows as the log says."""
    rows = decode(data)
    if len(rows) != vector.cardinality:
        raise ValueError(f"a deletion vector has {len(rows)} rows, and {vector.cardinality} by the log")
    return rows


def words_of(rows: BitMap64) -> tuple[int, Numbers]:
    """A bitmap as 64-bit words, from the first one that has a bit, whose number is told, to the last."""
    if not rows:
        return 0, np.zeros(0, np.int64)
    first, last = rows.min() // 64, rows.max() // 64
    bits = np.zeros((last - first + 1) * 64, np.uint8)
    bits[numbers_of(rows) - first * 64] = 1
    return first, np.packbits(bits, bitorder="little").view("<i8")


def num_words(rows: BitMap64) -> int:
    """How many words that takes."""
    return int(rows.max() // 64 - rows.min() // 64 + 1) if rows else 0
