"""Deletion vectors: the numbers of the deleted rows of a file, in Delta's format.

A vector is a 64-bit Roaring bitmap. It is stored in a deletion vector file below the table, or inline in the log if it
is small. docs/decisions/0011-merge-on-read.md describes how vectors are used.
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
MAX_INLINE_BYTES = 512
"""The maximum size of an inline vector in bytes. Every reader reads the whole log, so larger vectors go to files."""

_PORTABLE, _NATIVE = struct.pack("<I", 1681511377), struct.pack(">I", 1681511376)
_VERSION = b"\x01"
_UUID_CHARACTERS = 20
_PREFIX = re.compile(r"[^/.\\:][^/\\:]*")
# Z85, which Python has since 3.13, is the base 85 of RFC 1924 with other characters.
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_RFC1924, _Z85), bytes.maketrans(_Z85, _RFC1924)


def z85(data: bytes) -> str:
    """Encode bytes as Z85, padded with zeros to a multiple of four."""
    return base64.b85encode(data + bytes(-len(data) % 4)).translate(_TO_Z85).decode()


def from_z85(text: str) -> bytes:
    """Decode a Z85 text; raise ValueError if it has other characters."""
    try:
        return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
    except UnicodeEncodeError as error:
        raise ValueError(str(error)) from error


# --- Bitmaps


def encode(rows: BitMap64) -> bytes:
    """Encode a bitmap, without the frame that it gets in a file."""
    rows.run_optimize()
    data: bytes = rows.serialize()
    return _PORTABLE + data


def decode(data: bytes) -> BitMap64:
    """Decode a bitmap; raise ValueError if the bytes are not a bitmap."""
    if len(data) < 8:
        raise ValueError(f"{len(data)} bytes are too few for a bitmap")
    if data.startswith(_PORTABLE):
        rows: BitMap64 = BitMap64.deserialize(data[4:])
        return rows
    if data.startswith(_NATIVE):
        try:
            return _native(data[4:])
        except struct.error as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"a bitmap does not begin with {data[:4].hex()}")


def _native(data: bytes) -> BitMap64:
    """Decode the older format: the number of 32-bit bitmaps, and each bitmap with its size."""
    (count,) = struct.unpack_from(">I", data)
    rows, position = BitMap64(), 4
    for high in range(count):
        (size,) = struct.unpack_from(">I", data, position)
        low = np.frombuffer(BitMap.deserialize(data[position + 4 : position + 4 + size]).to_array(), np.uint32)
        rows.update(low.astype(np.uint64) + np.uint64(high << 32))
        position += 4 + size
    return rows


def numbers_of(rows: BitMap64) -> Numbers:
    """Return the row numbers of a bitmap in ascending order."""
    return np.frombuffer(rows.to_array(), np.uint64).astype(np.int64)


def bitmap_of(numbers: Iterable[int] | Numbers) -> BitMap64:
    """Return the bitmap of row numbers."""
    given = np.asarray(numbers, np.int64) if isinstance(numbers, np.ndarray) else np.array(list(numbers), np.int64)
    return BitMap64(given.astype(np.uint64))


# --- Descriptors in the log


def parse(text: str) -> DeletionVector:
    """Return the descriptor of its JSON text in a snapshot."""
    return from_dict(DeletionVector, msgspec.json.decode(text))


def cardinality_of(text: str | None) -> int:
    """Return the number of deleted rows of a file, from the JSON text of its descriptor."""
    return 0 if text is None else parse(text).cardinality


def inline(data: bytes, cardinality: int) -> DeletionVector:
    """Return the descriptor of an inline vector."""
    return DeletionVector(INLINE, z85(data), len(data), cardinality)


def inline_bytes(vector: DeletionVector) -> bytes:
    """Return the encoded bitmap of an inline vector."""
    return from_z85(vector.path_or_inline_dv)[: vector.size_in_bytes]


def check_confined(vector: DeletionVector, location: str, table: str) -> None:
    """Raise ValidationError if a vector is stored outside its table, or in an unknown way."""
    text = vector.path_or_inline_dv
    if vector.storage_type == IN_FILE:
        prefix = text[:-_UUID_CHARACTERS]
        if prefix and not _PREFIX.fullmatch(prefix):
            raise _invalid_file_name(text, table)
    elif vector.storage_type == ABSOLUTE:
        _below(text, location, table)
    elif vector.storage_type != INLINE:
        raise ValidationError(
            f"table {table}: the storage type of a deletion vector must be 'u', 'i' or 'p', got "
            f"{vector.storage_type!r}: upgrade deltasql",
            table=table,
            value=vector.storage_type,
        )


def file_of(vector: DeletionVector, location: str, table: str) -> str | None:
    """Return the decoded path of a vector's file below the table; None for inline vectors."""
    check_confined(vector, location, table)
    text = vector.path_or_inline_dv
    if vector.storage_type == INLINE:
        return None
    if vector.storage_type == ABSOLUTE:
        return _below(text, location, table)
    try:
        return _path(text[:-_UUID_CHARACTERS], UUID(bytes=from_z85(text[-_UUID_CHARACTERS:])))
    except ValueError as error:
        raise _invalid_file_name(text, table) from error


def _invalid_file_name(text: str, table: str) -> ValidationError:
    return ValidationError(f"table {table}: invalid file name of a deletion vector {text!r}", table=table, value=text)


def _below(uri: str, location: str, table: str) -> str:
    """Return an absolute path relative to the table; raise ValidationError if it is outside the table."""
    root, path = (unquote(text.removeprefix("file://").removeprefix("file:")) for text in (location, uri))
    below = path.removeprefix(root.rstrip("/") + "/")
    if below == path or ".." in below.split("/"):
        raise ValidationError(
            f"table {table}: the deletion vector {uri!r} is outside the table's location {location}: copy the table "
            f"with a deep clone",
            table=table,
            value=uri,
        )
    return below


def _path(prefix: str, name: UUID) -> str:
    return f"{prefix}{'/' if prefix else ''}deletion_vector_{name}.bin"


# --- Deletion vector files


class VectorFile:
    """A new deletion vector file: put bitmaps in, then write `content` to `path`."""

    def __init__(self) -> None:
        self._id = uuid4()
        self._parts: list[bytes] = [_VERSION]
        self.size = 1

    @property
    def path(self) -> str:
        """Return the path below the table."""
        return _path("", self._id)

    @property
    def content(self) -> bytes:
        """Return the bytes of the file."""
        return b"".join(self._parts)

    @property
    def is_empty(self) -> bool:
        """Return whether the file has no vectors."""
        return len(self._parts) == 1

    def put(self, data: bytes, cardinality: int) -> DeletionVector:
        """Add a bitmap and return its descriptor."""
        offset = self.size
        self._parts += (struct.pack(">I", len(data)), data, struct.pack(">I", zlib.crc32(data)))
        self.size += len(data) + 8
        return DeletionVector(IN_FILE, z85(self._id.bytes), len(data), cardinality, offset)


def span_of(vector: DeletionVector) -> tuple[int, int]:
    """Return the start and the end of a vector with its frame in its file."""
    start = vector.offset or 0
    return start, start + vector.size_in_bytes + 8


def unframed(framed: bytes, vector: DeletionVector) -> bytes:
    """Return the bitmap inside a frame; raise ValueError if it is damaged."""
    size = vector.size_in_bytes
    if len(framed) < size + 8 or struct.unpack_from(">I", framed) != (size,):
        raise ValueError(f"expected {size} bytes of a deletion vector at offset {vector.offset}")
    data = framed[4 : 4 + size]
    if struct.unpack_from(">I", framed, 4 + size) != (zlib.crc32(data),):
        raise ValueError(f"the checksum of the deletion vector at offset {vector.offset} is wrong")
    return data


def checked(data: bytes, vector: DeletionVector) -> BitMap64:
    """Return the bitmap of a vector; raise ValueError if its number of rows differs from the log."""
    rows = decode(data)
    if len(rows) != vector.cardinality:
        raise ValueError(f"a deletion vector has {len(rows)} rows, but {vector.cardinality} in the log")
    return rows


def words_of(rows: BitMap64) -> tuple[int, Numbers]:
    """Return the index of the first 64-bit word with a bit, and the words from there to the last."""
    if not rows:
        return 0, np.zeros(0, np.int64)
    first, last = rows.min() // 64, rows.max() // 64
    bits = np.zeros((last - first + 1) * 64, np.uint8)
    bits[numbers_of(rows) - first * 64] = 1
    return first, np.packbits(bits, bitorder="little").view("<i8")


def num_words(rows: BitMap64) -> int:
    """Return the number of words that `words_of` returns."""
    return int(rows.max() // 64 - rows.min() // 64 + 1) if rows else 0
