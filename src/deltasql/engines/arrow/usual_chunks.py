"""Regular expressions for the column chunks of sound Parquet footers, as all usual writers write them.

They recognise a chunk about ten times as fast as Python can walk through its fields. A chunk that is not recognised is
not damaged for that reason: `footer_check` walks through it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

# The first byte of a field is 16 times the distance of its number from the previous field's, plus its type.
_INTEGERS, _BINARY, _BOOLEANS = (4, 5, 6), (8,), (1, 2)

_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
# Texts of up to 127 bytes, whose length is one byte.
_TEXT = b"(?:%b)" % b"|".join(b"%b.{%d}" % (re.escape(bytes([length])), length) for length in range(128))


def _heads(types: Iterable[int]) -> bytes:
    return b"[%b]" % b"".join(re.escape(bytes([step << 4 | type_])) for type_ in types for step in range(1, 16))


_NUMBER_FIELD = _heads(_INTEGERS) + _NUMBER


def _list(element: bytes, type_: int, lengths: Iterable[int]) -> bytes:
    items = (re.escape(bytes([length << 4 | type_])) + b"(?:%b){%d}" % (element, length) for length in lengths)
    return b"(?:%b)" % b"|".join(items)


@cache
def usual_chunk(type_: int, width: int | None, repetition: int, definition: int) -> re.Pattern[bytes]:
    """Return an expression that matches the usual column chunks of a leaf column.

    Args:
        type_: The number of the physical type.
        width: The number of bytes of a value, None if it varies.
        repetition: The highest repetition level.
        definition: The highest definition level.
    """
    bound = _TEXT if width is None else re.escape(bytes([width])) + b".{%d}" % width if width < 128 else b"(?!)"
    statistics = b"(?:%b%b|%b|%b)*" % (_heads(_BINARY), bound, _NUMBER_FIELD, _heads(_BOOLEANS))
    repetitions, definitions = (_list(_NUMBER, 6, (0, level + 1)) for level in (repetition, definition))
    bytes_size = rb"\x16" + _NUMBER if type_ == 6 else b"(?!)"
    sizes = (
        rb"(?:%b(?:\x19%b)?(?:\x19%b)?|\x29%b(?:\x19%b)?|\x39%b)?"
        % (bytes_size, repetitions, definitions, repetitions, definitions, definitions)
        if max(repetition, definition) < 14
        else b"(?!)"
    )
    metadata = (
        rb"\x15" + re.escape(bytes([type_ << 1])),  # 1: type
        rb"\x19" + _list(_NUMBER, 5, range(8)),  # 2: encodings
        rb"\x19" + _list(_TEXT, 8, range(1, 5)),  # 3: path
        rb"\x15" + _NUMBER,  # 4: codec
        rb"(?:\x16%b){3}" % _NUMBER,  # 5 to 7: the number of values, and sizes
        rb"\x26" + _NUMBER,  # 9: the first data page
        rb"(?:\x26%b)?" % _NUMBER,  # 11: the dictionary page
        rb"(?:[\x1c\x3c]%b\x00" % statistics,  # 12: statistics
        rb"(?:\x19%b)?)?" % _list(rb"(?:%b)*\x00" % _NUMBER_FIELD, 12, range(8)),  # 13: encodings of pages
        rb"(?:[\x3c\x4c]%b\x00)?" % sizes,  # 16: sizes and levels
    )
    return re.compile(rb"\x26%b\x1c%b\x00(?:%b)*\x00" % (_NUMBER, b"".join(metadata), _NUMBER_FIELD), re.DOTALL)
