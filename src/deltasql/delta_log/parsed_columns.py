"""`stats_parsed` and `partitionValues_parsed`: the typed statistics and partition values of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from deltasql.expressions.partition_bounds import partition_bounds
from deltasql.protocol.partition_values import partition_scalar
from deltasql.protocol.schema import is_list

Json = dict[str, Any]
_FRACTIONS = msgspec.json.Decoder(float_hook=Decimal)


class ParsedColumns:
    """The typed columns beside `add.stats`, none if they are disabled.

    `partitions` has the distinct values of each partition column. If one of them cannot be parsed, there is no column
    for partition values, because a null would mean another partition, and readers would skip the file."""

    def __init__(self, schema: pa.Schema, partitions: Mapping[str, pa.Array], enabled: bool) -> None:
        self._partitions = {c: schema.field(c).type for c in partitions}
        self._bounded = _bounded([f for f in schema if f.name not in partitions])
        self._counted = _counted([f for f in schema if f.name not in partitions])
        self.types: dict[str, pa.DataType] = {}
        if enabled and partitions and all(_is_unambiguous(partitions[c], kind) for c, kind in self._partitions.items()):
            self.types["partitionValues_parsed"] = pa.struct(self._partitions)
        if enabled:
            self.types["stats_parsed"] = pa.struct(
                {
                    "numRecords": pa.int64(),
                    **({"minValues": self._bounded, "maxValues": self._bounded} if self._bounded else {}),
                    **({"nullCount": self._counted} if self._counted else {}),
                    "tightBounds": pa.bool_(),
                }
            )

    def arrays(self, stats: pa.Array, values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns for a batch of files."""
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
    """Return the columns that have a minimum and a maximum."""
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
    """Return a function that reads JSON values of a type, and returns None for a value of another type."""
    if pa.types.is_struct(kind):
        inner = {f.name: _reader(f.type) for f in kind}
        return lambda value: {n: read(value.get(n)) for n, read in inner.items()} if isinstance(value, dict) else None
    read = _leaf_reader(kind)

    def safely(value: Any) -> Any:
        try:
            parsed = None if value is None else read(value)
            pa.scalar(parsed, kind)
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
            return None
        return parsed

    return safely


def _leaf_reader(kind: pa.DataType) -> Callable[[Any], Any]:
    types = pa.types
    if types.is_timestamp(kind):
        return datetime.fromisoformat
    if types.is_date(kind):
        return date.fromisoformat
    if types.is_decimal(kind):
        unit = Decimal((0, (1,), -kind.scale))
        exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
        return lambda value: Decimal(value).quantize(unit, context=exact)
    if types.is_floating(kind):
        return float
    return lambda value: int(value) if isinstance(value, Decimal) and types.is_integer(kind) else value


def _is_unambiguous(texts: pa.Array, kind: pa.DataType) -> bool:
    """Return whether all readers parse these serialised partition values to the same values."""
    bounds = partition_bounds(texts, kind)
    if pa.types.is_timestamp(kind) and bounds.min != bounds.max:
        return False  # a timestamp without a time zone
    try:
        _partition_column(texts, kind)
    except ValueError:
        return False
    return not bounds.has_nulls.null_count


def _partition_column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return serialised partition values in their type."""
    distinct = texts.dictionary_encode()
    values = [partition_scalar(text, kind) for text in distinct.dictionary.to_pylist()]
    return pa.array(values, kind).take(distinct.indices)
