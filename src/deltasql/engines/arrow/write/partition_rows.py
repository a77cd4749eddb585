"""Rows by their partition, and partition values as the log keeps them."""

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
    """The rows of each partition, without the partition columns, in the order given."""
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
    """A number for each row's partition, and the values of the partition with each number."""
    codes = np.zeros(batch.num_rows, np.int64)
    texts: list[Values] = [()]
    for column in columns:
        encoded = pc.dictionary_encode(batch.column(column), null_encoding="encode")
        own = [partition_value(value, encoded.dictionary.type) for value in encoded.dictionary]
        pairs = codes * len(own) + encoded.indices.to_numpy(zero_copy_only=False)
        distinct, codes = np.unique(pairs, return_inverse=True)
        texts = [(*texts[pair // len(own)], own[pair % len(own)]) for pair in distinct.tolist()]
    return _merged(codes, texts)


def _merged(codes: np.ndarray, texts: list[Values]) -> tuple[np.ndarray, list[Values]]:
    """Values that differ but are written alike, as null and an empty text, are one partition."""
    numbers = {values: number for number, values in enumerate(dict.fromkeys(texts))}
    if len(numbers) == len(texts):
        return codes, texts
    return np.array([numbers[values] for values in texts])[codes], list(numbers)


def partition_value(scalar: pa.Scalar, kind: pa.DataType) -> str | None:
    """A value as the log keeps it. An empty text counts as null: readers disagree on what else it might be."""
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
