"""Accept rows from the user: a Spark DataFrame, or any object that exports Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltasql.errors import UsageError
from deltasql.protocol.schema import Json, schema_string
from deltasql.protocol.schema_fit import parse_struct


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Arrow rows, which can be read once."""

    reader: pa.RecordBatchReader
    struct: Json
    """Their columns as a Delta struct type."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield from self.reader


def is_spark_frame(data: Any) -> bool:
    """Return whether an object is a Spark DataFrame, classic or Connect, without importing Spark."""
    return type(data).__module__.startswith("pyspark.sql") and hasattr(data, "sparkSession")


def arrow_rows(data: Any, table: str | None = None) -> ArrowRows:
    """Return the rows of pyarrow, pandas, Polars, DuckDB or any other object with an Arrow stream.

    Args:
        data: The rows.
        table: The table that they are written to; None if they are the source of a change.

    Raises:
        UsageError: The object holds no rows.
    """
    reader = _reader(data, table)
    return ArrowRows(reader, parse_struct(schema_string(reader.schema, table=table)))


def _reader(data: Any, table: str | None) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if type(data).__module__.startswith("pandas."):
        # The index of a pandas DataFrame is no column of the table.
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    kinds = "a Spark, pandas or Polars DataFrame, a pyarrow.Table or a RecordBatchReader"
    expected = f"table {table}: rows must be {kinds}" if table else f"rows must be {kinds}, or a table of the lake"
    raise UsageError(f"{expected}, got {type(data).__name__}", table=table, value=type(data).__name__)
