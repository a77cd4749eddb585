"""The columns of one file as columns of its table.

What a file does not hold is the same for all its rows: partition values, which the log keeps, and null for columns
that the table got later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from deltasql.engines.arrow.read.conform import Misfit, Places, conform
from deltasql.protocol.partition_values import partition_scalar


class Columns:
    """From batches of a file to batches of the table's schema."""

    def __init__(
        self, schema: pa.Schema, partitions: Collection[str], values: Mapping[str, str | None], file: pa.Schema
    ) -> None:
        self._schema = schema
        self._texts = {name: values.get(name) for name in partitions}
        places, names = Places(file), file.names
        found = {name: places.find(name) for name in schema.names if name not in self._texts}
        self._names = {name: names[place] for name, place in found.items() if place is not None}
        self._constants: dict[str, pa.Array] = {}

    @property
    def stored(self) -> list[str]:
        """The names, in the file, of the columns that it holds."""
        return list(self._names.values())

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of the file."""
        arrays = [
            conform(batch.column(self._names[field.name]), field.type, field.name)
            if field.name in self._names
            else self._constant(field, batch.num_rows)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def alone(self, length: int) -> pa.RecordBatch:
        """So many rows of a file that holds none of the columns."""
        arrays = [self._constant(field, length) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, field: pa.Field, length: int) -> pa.Array:
        known = self._constants.get(field.name)
        if known is None or len(known) < length:
            known = self._constants[field.name] = self._repeated(field, length)
        return known.slice(0, length)

    def _repeated(self, field: pa.Field, length: int) -> pa.Array:
        text = self._texts.get(field.name)
        try:
            value = partition_scalar(text, field.type)
        except ValueError:
            raise Misfit(f"its partition value {text!r} for {field.name!r} is no {field.type}") from None
        return pa.repeat(value, length) if value.is_valid else pa.nulls(length, field.type)
