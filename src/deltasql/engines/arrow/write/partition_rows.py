"""Split rows by partition, and serialize partition values for the log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Values = tuple[str | None, ...]

_EPOCH = datetime(1970, 1, 1)


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each partition without the partition columns, in input order."""
    if not columns:
        yield (), batch
        return
    rest = batch.select([n for n in batch.schema.names if n not in columns])
    codes, texts = _partitions(batch, columns)
    if len(texts) == 1:
        yield texts[0], rest
        return
    order = np.argsort(codes, kind="stable")
    ordered = rest.take(pa.array(order))
    ends = np.cumsum(np.bincount(codes, minlength=len(texts)))
    start = 0
    for values, end in zip(texts, ends.tolist(), strict=True):
        yield values, ordered.slice(start, end - start)
        start = end


def _partitions(batch: pa.RecordBatch, columns: Sequence[str]) -> tuple[np.ndarray, list[Values]]:
    """Return the partition number of each row, and the values of each partition."""
    codes = np.zeros(batch.num_rows, np.int64)
    texts: list[Values] = [()]
    for column in columns:
        encoded = pc.dictionary_encode(batch.column(column), null_encoding="encode")
        values = [partition_value(value, encoded.dictionary.type) for value in encoded.dictionary]
        pairs = codes * len(values) + encoded.indices.to_numpy(zero_copy_only=False)
        distinct, codes = np.unique(pairs, return_inverse=True)
        texts = [(*texts[pair // len(values)], values[pair % len(values)]) for pair in distinct.tolist()]
    return _merged(codes, texts)


def _merged(codes: np.ndarray, texts: list[Values]) -> tuple[np.ndarray, list[Values]]:
    """Merge partitions whose values serialize alike, such as null and an empty string."""
    numbers = {values: number for number, values in enumerate(dict.fromkeys(texts))}
    if len(numbers) == len(texts):
        return codes, texts
    return np.array([numbers[values] for values in texts])[codes], list(numbers)


def partition_value(scalar: pa.Scalar, kind: pa.DataType) -> str | None:
    """Serialize a partition value. An empty string becomes null, because readers disagree on its meaning."""
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(kind):
        return _timestamp(scalar.cast(pa.timestamp("us", kind.tz)).value, zoned=kind.tz is not None)
    value = scalar.as_py()
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_floating(kind):
        return _float(value, scalar)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        value = value.decode("latin-1")
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    return str(value) or None


def _timestamp(micros: int, *, zoned: bool) -> str:
    moment = _EPOCH + timedelta(microseconds=micros)
    if zoned:
        return f"{moment.isoformat(timespec='microseconds')}Z"
    return moment.isoformat(sep=" ")


def _float(value: float, scalar: pa.Scalar) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    exact: Any = np.float32(value) if pa.types.is_float32(scalar.type) else value
    return str(exact)
