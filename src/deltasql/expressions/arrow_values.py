"""Arrow arrays and scalars from Python values, without pandas.

`pa.array` and `pa.scalar` import pandas where it is installed, which takes longer than reading a small table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_NUMPY_TYPES = {pa.int64(): np.int64, pa.int32(): np.int32, pa.int16(): np.int16, pa.float64(): np.float64}


def array_of(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Return an array of numbers, booleans, texts or bytes; None becomes null."""
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    validity = None if present.all() else _bits(present)
    return pa.Array.from_buffers(type, len(values), [validity, *_buffers(values, type)])


def scalar_of(value: Any, type: pa.DataType) -> pa.Scalar:
    """Return one number, boolean, text or null as a scalar."""
    return array_of([value], type)[0]


def _buffers(values: Sequence[Any], type: pa.DataType) -> list[pa.Buffer]:
    if type == pa.bool_():
        return [_bits(np.fromiter(map(bool, values), np.bool_, len(values)))]
    if type == pa.string():
        return _variable(["" if value is None else value for value in values])
    if type == pa.binary():
        return _variable([b"" if value is None else value for value in values])
    return [pa.py_buffer(np.array([0 if value is None else value for value in values], _NUMPY_TYPES[type]))]


def _variable(values: Sequence[str | bytes]) -> list[pa.Buffer]:
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(part) for part in encoded], out=offsets[1:])
    return [pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]


def _bits(flags: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
