"""Convert batches of one file to the columns of its table.

Columns that a file lacks are constant: partition columns have the value in the log, columns added later are null.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from deltasql.engines.arrow.read.conform import FieldIndex, Misfit, conform
from deltasql.protocol.partition_values import partition_scalar


class FileColumns:
    """The mapping of one file's columns to the table's schema."""

    def __init__(
        self, schema: pa.Schema, partitions: Collection[str], values: Mapping[str, str | None], file: pa.Schema
    ) -> None:
        self._schema = schema
        self._texts = {name: values.get(name) for name in partitions}
        fields, names = FieldIndex(file), file.names
        indexes = {name: fields.find(name) for name in schema.names if name not in self._texts}
        self._names = {name: names[index] for name, index in indexes.items() if index is not None}
        self._constants: dict[str, pa.Array] = {}

    @property
    def stored(self) -> list[str]:
        """Return the names of the table's columns that the file holds, as spelled in the file."""
        return list(self._names.values())

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of the file."""
        arrays = [
            conform(batch.column(self._names[field.name]), field.type, field.name)
            if field.name in self._names
            else self._constant(field, batch.num_rows)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def constants(self, length: int) -> pa.RecordBatch:
        """Return rows of a file that holds none of the columns."""
        arrays = [self._constant(field, length) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, field: pa.Field, length: int) -> pa.Array:
        array = self._constants.get(field.name)
        if array is None or len(array) < length:
            array = self._constants[field.name] = self._repeated(field, length)
        return array.slice(0, length)

    def _repeated(self, field: pa.Field, length: int) -> pa.Array:
        text = self._texts.get(field.name)
        try:
            value = partition_scalar(text, field.type)
        except ValueError:
            raise Misfit(f"partition value {text!r} of column {field.name!r} is not a valid {field.type}") from None
        return pa.repeat(value, length) if value.is_valid else pa.nulls(length, field.type)
