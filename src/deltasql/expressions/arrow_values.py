"""Arrow arrays and scalars from Python values, and NumPy arrays from Arrow, without pandas.

Where pandas is installed, `pa.array`, `pa.scalar` and `to_numpy` import it, which takes longer than a small read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_NUMPY_TYPES = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float64(): np.float64,
}
_TEXT_TYPES = (pa.string(), pa.binary())


def array_of(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Return an array of whole numbers, doubles, booleans, texts or bytes, in which None is null.

    Values of other types go through `pa.array`.
    """
    if type not in _NUMPY_TYPES and type not in _TEXT_TYPES and type != pa.bool_():
        return pa.array(values, type)
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    validity = None if valid.all() else _bits(valid)
    return pa.Array.from_buffers(type, len(values), [validity, *_buffers(values, type)])


def scalar_of(value: Any, type: pa.DataType) -> pa.Scalar:
    """Return one value as `array_of` converts it."""
    return array_of([value], type)[0]


def numpy_of(numbers: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers without nulls as a NumPy array."""
    return np.from_dlpack(numbers.combine_chunks())


def _buffers(values: Sequence[Any], type: pa.DataType) -> list[pa.Buffer]:
    if type == pa.bool_():
        return [_bits(np.fromiter(map(bool, values), np.bool_, len(values)))]
    if type in _NUMPY_TYPES:
        return [pa.py_buffer(np.array([0 if value is None else value for value in values], _NUMPY_TYPES[type]))]
    encoded = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(part) for part in encoded], out=offsets[1:])
    return [pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]


def _bits(flags: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
