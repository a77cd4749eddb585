"""Conversions between Python, Arrow and NumPy values that do not need pandas."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deltasql.expressions.arrow_values import array_of, numpy_of, scalar_of

CASES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, None, 127]),
    (pa.int16(), [None, 1]),
    (pa.int32(), [0, -(2**31)]),
    (pa.int64(), [2**63 - 1, None, -(2**63)]),
    (pa.float64(), [0.5, None, float("inf")]),
    (pa.float32(), [0.5, None]),
    (pa.bool_(), [True, None, False] * 5),
    (pa.string(), ["", None, "Zürich", "\N{GRINNING FACE}"]),
    (pa.binary(), [b"", None, b"\x00\xff"]),
    (pa.decimal128(5, 2), [Decimal("1.25"), None]),
]


@pytest.mark.parametrize(("type", "values"), CASES, ids=[str(case[0]) for case in CASES])
def test_array_equals_pyarrow_array(type: pa.DataType, values: list[Any]) -> None:
    for part in (values, [], [None], [None] * 9, values * 3):
        array = array_of(part, type)
        array.validate(full=True)
        assert array.equals(pa.array(part, type))
    assert scalar_of(values[0], type) == pa.scalar(values[0], type)


def test_numpy_from_chunks() -> None:
    numbers = pa.chunked_array([pa.array([1, 2, 3]).slice(1), pa.array([4])])
    np.testing.assert_array_equal(numpy_of(numbers), [2, 3, 4])
    assert len(numpy_of(pa.chunked_array([], pa.int32()))) == 0
