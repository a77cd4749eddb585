"""The worker's part of a write: write the rows of one task to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from deltasql.engines.arrow.write.align import conformed
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles, encode_adds
from deltasql.protocol.schema import arrow_schema, loose_schema


def write_batches(plan: FilePlan, table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows, whose columns are in the table's order, and yield the new files."""
    schema = loose_schema(arrow_schema(plan.schema_string))
    with TableFiles(plan) as files:
        for batch in batches:
            arrays = [conformed(values, field, table) for values, field in zip(batch.columns, schema, strict=True)]
            files.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
    yield pa.RecordBatch.from_arrays([pa.array(encode_adds(files.adds), pa.string())], names=["add"])
