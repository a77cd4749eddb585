"""Rows that a user gives: Spark's DataFrame, or anything that speaks Arrow."""

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
    """Rows in Arrow form. They can be read once."""

    reader: pa.RecordBatchReader
    struct: Json
    """Their columns in Delta's words."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.reader


def is_spark_frame(data: Any) -> bool:
    """Is it a DataFrame of Spark's, classic or Connect? Asked without importing Spark."""
    return type(data).__module__.startswith("pyspark.sql") and hasattr(data, "sparkSession")


def arrow_rows(data: Any, table: str | None = None) -> ArrowRows:
    """Rows of pyarrow, pandas, Polars, DuckDB or whatever else has an Arrow stream; `table` is the one that they are
    for, None if they are a source, which may be a table as well."""
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
        # The index is a matter of pandas': what belongs to the table is a column.
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    kinds = "a Spark, pandas or Polars DataFrame, a pyarrow.Table or a RecordBatchReader"
    asked = f"table {table}: rows are {kinds}" if table else f"rows come from {kinds}, or from a table of the lake"
    raise UsageError(f"{asked}, got {type(data).__name__}", table=table, value=type(data).__name__)
