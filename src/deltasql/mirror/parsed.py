"""`stats_parsed` and `partitionValues_parsed`: statistics and partition values of a checkpoint in their own types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from deltasql.core.partition_bounds import partition_bounds
from deltasql.core.schema import is_list

Json = dict[str, Any]
_FRACTIONS = msgspec.json.Decoder(float_hook=Decimal)


class ParsedColumns:
    """The typed columns beside `add.stats`; none at all unless the table asks for them."""

    def __init__(self, schema: pa.Schema, partition_columns: Sequence[str], wanted: bool) -> None:
        self._partitions = {c: schema.field(c).type for c in partition_columns}
        self._bounded = _bounded([f for f in schema if f.name not in partition_columns])
        self._counted = _counted([f for f in schema if f.name not in partition_columns])
        self.types: dict[str, pa.DataType] = {}
        if wanted and self._partitions:
            self.types["partitionValues_parsed"] = pa.struct(self._partitions)
        if wanted:
            self.types["stats_parsed"] = pa.struct(
                {
                    "numRecords": pa.int64(),
                    **({"minValues": self._bounded, "maxValues": self._bounded} if self._bounded else {}),
                    **({"nullCount": self._counted} if self._counted else {}),
                    "tightBounds": pa.bool_(),
                }
            )

    def arrays(self, stats: pa.Array, values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The columns for a batch of files."""
        arrays: dict[str, pa.Array] = {}
        if "partitionValues_parsed" in self.types:
            parsed = [_partition_column(values[name], kind) for name, kind in self._partitions.items()]
            arrays["partitionValues_parsed"] = pa.StructArray.from_arrays(parsed, names=list(self._partitions))
        if "stats_parsed" in self.types:
            kind = self.types["stats_parsed"]
            read = _reader(kind)
            arrays["stats_parsed"] = pa.array([None if t is None else read(_loads(t)) for t in stats.to_pylist()], kind)
        return arrays


def _bounded(fields: Sequence[pa.Field]) -> pa.StructType | None:
    """The columns that have a smallest and a largest value."""
    return _struct(fields, lambda kind: None if _unordered(kind) else kind)


def _counted(fields: Sequence[pa.Field]) -> pa.StructType | None:
    return _struct(fields, lambda _: pa.int64())


def _struct(fields: Sequence[pa.Field], leaf: Callable[[pa.DataType], pa.DataType | None]) -> pa.StructType | None:
    inner = {f.name: _struct(list(f.type), leaf) if pa.types.is_struct(f.type) else leaf(f.type) for f in fields}
    present = {name: kind for name, kind in inner.items() if kind is not None}
    return pa.struct(present) if present else None


def _unordered(kind: pa.DataType) -> bool:
    types = pa.types
    return is_list(kind) or types.is_map(kind) or types.is_binary(kind) or types.is_boolean(kind) or types.is_null(kind)


def _loads(text: str) -> Any:
    return _FRACTIONS.decode(text)


def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    """JSON values of the type; null for what is none of it."""
    if pa.types.is_struct(kind):
        inner = {f.name: _reader(f.type) for f in kind}
        return lambda value: {n: read(value.get(n)) for n, read in inner.items()} if isinstance(value, dict) else None
    read = _leaf_reader(kind)

    def safely(value: Any) -> Any:
        try:
            found = None if value is None else read(value)
            pa.scalar(found, kind)
        except (ValueError, TypeError, InvalidOperation, OverflowError, pa.ArrowException):
            return None
        return found

    return safely


def _leaf_reader(kind: pa.DataType) -> Callable[[Any], Any]:
    types = pa.types
    if types.is_timestamp(kind):
        return datetime.fromisoformat
    if types.is_date(kind):
        return date.fromisoformat
    if types.is_decimal(kind):
        return lambda value: Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    if types.is_floating(kind):
        return float
    return lambda value: int(value) if isinstance(value, Decimal) and types.is_integer(kind) else value


def _partition_column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Serialised partition values in their type, where they are exact."""
    bounds = partition_bounds(texts, kind)
    pairs = zip(bounds.min.to_pylist(), bounds.max.to_pylist(), strict=True)
    return pa.array([low if low == high else None for low, high in pairs], bounds.min.type).cast(kind)
