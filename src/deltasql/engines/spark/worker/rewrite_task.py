"""The worker's part of a row change: rewrite files without the removed rows, or extend their deletion vectors.

The input is pairs of a file's index in the snapshot and a row number. All rows of a file go to one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltasql.engines.arrow.read.scan import single_file
from deltasql.engines.arrow.write.deletion_vector_write import extended_vectors
from deltasql.engines.arrow.write.file_writer import FilePlan, encode_adds
from deltasql.engines.arrow.write.rewrite import Rows, rows_by_number, without_rows
from deltasql.engines.row_change import FILE, ROW
from deltasql.protocol.actions import Add
from deltasql.protocol.deletion_vectors import bitmap_of
from deltasql.protocol.schema import loose_schema
from deltasql.protocol.table_changes import Snapshot

FILE_INDEX, ADD = "__deltasql_file_index", "__deltasql_add"


def remove_rows(snapshot: Snapshot, plan: FilePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rewrite files without the given rows, and yield the new files."""
    adds: list[Add] = []
    for index, rows in rows_by_file(batches):
        for _ in without_rows(single_file(snapshot, index), rows, plan.options, plan, adds):
            pass
    yield pa.RecordBatch.from_arrays([pa.array(encode_adds(adds), pa.string())], names=[ADD])


def extend_vectors(
    snapshot: Snapshot, options: Mapping[str, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Add the given rows to the deletion vectors of their files, and yield the serialized vectors."""
    removed = {index: bitmap_of(numbers) for index, numbers in rows_by_file(batches)}
    vectors = extended_vectors(snapshot, removed, options)
    data, counts = [data for data, _ in vectors.values()], [count for _, count in vectors.values()]
    arrays = [pa.array(list(vectors), pa.int32()), pa.array(data, pa.binary()), pa.array(counts, pa.int64())]
    yield pa.RecordBatch.from_arrays(arrays, names=[FILE_INDEX, "data", "rows"])


@dataclass(frozen=True, slots=True)
class RowExtraction:
    """Extract rows from the files of a snapshot, and rewrite those files that do not get a deletion vector."""

    snapshot: Snapshot
    plan: FilePlan
    file_ids: Sequence[int]
    """The id of each file, in the order of the snapshot."""
    with_vector: frozenset[int]
    """The ids of files that stay and get a deletion vector."""

    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the extracted rows with their row ids, then the new files."""
        adds: list[Add] = []
        for index, rows in rows_by_file(batches):
            for extracted in self.from_file(index, rows, adds):
                yield extracted.append_column(ADD, pa.nulls(extracted.num_rows, pa.string()))
        schema = loose_schema(self.snapshot.schema)
        texts = pa.array(encode_adds(adds), pa.string())
        nulls = [pa.nulls(len(texts), kind) for kind in (*schema.types, pa.int64(), pa.int64())]
        yield pa.RecordBatch.from_arrays([*nulls, texts], names=[*schema.names, FILE, ROW, ADD])

    def from_file(self, index: int, rows: Rows, adds: list[Add]) -> Iterator[pa.RecordBatch]:
        """Yield the given rows of one file with their row ids, and append its new file to `adds` if it is rewritten."""
        file_id, file, options = self.file_ids[index], single_file(self.snapshot, index), self.plan.options
        if file_id in self.with_vector:
            parts = rows_by_number(file, rows, options)
        else:
            parts = without_rows(file, rows, options, self.plan, adds)
        for extracted, numbers in parts:
            ids = [pa.repeat(pa.scalar(file_id, pa.int64()), len(numbers)), pa.array(numbers)]
            yield pa.RecordBatch.from_arrays([*extracted.columns, *ids], names=[*extracted.schema.names, FILE, ROW])


def rows_by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Rows]]:
    """Return the row numbers of each file, from batches whose first two columns are file and row number."""
    parts: dict[int, list[Rows]] = {}
    for batch in batches:
        files, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        order = np.argsort(files, kind="stable")
        distinct, starts = np.unique(files[order], return_index=True)
        for file, part in zip(distinct.tolist(), np.split(rows[order], starts[1:]), strict=True):
            parts.setdefault(file, []).append(part)
    return ((file, np.concatenate(numbers)) for file, numbers in parts.items())
