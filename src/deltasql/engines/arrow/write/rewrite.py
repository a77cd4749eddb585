"""Writing files anew without some of their rows, which are told by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from deltasql.engines.arrow.read.deletion_vector_read import Mask, bitmaps, descriptors, stays, unmarked
from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles
from deltasql.protocol.actions import Add
from deltasql.protocol.deletion_vectors import numbers_of
from deltasql.protocol.schema import loose_schema
from deltasql.storage import Directory
from deltasql.store import Snapshot

Rows = np.ndarray[Any, np.dtype[np.int64]]


def numbered(file: Snapshot, options: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """The rows of a snapshot of one file that are not deleted, with their numbers in the file."""
    schema = loose_schema(file.schema)
    deleted = deleted_rows(file, options)
    start = 0
    for rows in scan(replace(unmarked(file), predicate=None), options).batches():
        batch, numbers = rows.cast(schema), np.arange(start, start + rows.num_rows)
        start += rows.num_rows
        if len(deleted):
            mask = stays(deleted, start - rows.num_rows, rows.num_rows)
            batch, numbers = batch.filter(pa.array(mask)), numbers[mask]
        yield batch, numbers


def deleted_rows(file: Snapshot, options: Mapping[str, str]) -> Rows:
    """The numbers of rows that are deleted from a snapshot's one file."""
    (vector,) = descriptors(file.files)
    if vector is None:
        return np.zeros(0, np.int64)
    (found,) = bitmaps(Directory(file.location, options), [vector], file.name)
    return numbers_of(found)


def without_rows(
    file: Snapshot, gone: Rows, options: Mapping[str, str], plan: FilePlan, adds: list[Add]
) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """Write the other rows of a snapshot of one file to a new one, which `adds` gets; to none if there are no others.
    Those that go pass by, with their numbers."""
    wanted = np.sort(gone)
    with TableFiles(plan) as files:
        for batch, numbers in numbered(file, options):
            goes = _inside(numbers, wanted)
            if goes.any():
                yield batch.filter(pa.array(goes)), numbers[goes]
            files.write(batch.filter(pa.array(~goes)) if goes.any() else batch)
    adds += files.adds


def picked(file: Snapshot, wanted: Rows, options: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """Rows of a snapshot of one file by their numbers; nothing is written."""
    numbers = np.sort(wanted)
    for batch, there in numbered(file, options):
        goes = _inside(there, numbers)
        if goes.any():
            yield batch.filter(pa.array(goes)), there[goes]


def _inside(numbers: Rows, wanted: Rows) -> Mask:
    """Which of the numbers are wanted; both are in order."""
    mask = np.zeros(len(numbers), np.bool_)
    if len(numbers):
        first, last = np.searchsorted(wanted, [numbers[0], numbers[-1] + 1])
        mask = np.isin(numbers, wanted[first:last], assume_unique=True)
    return mask
