"""Rewrite files without some of their rows, which are given by row numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from deltasql.engines.arrow.read.deletion_vector_read import Mask, bitmaps, descriptors, live_mask, without_vectors
from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles
from deltasql.protocol.actions import Add
from deltasql.protocol.deletion_vectors import numbers_of
from deltasql.protocol.schema import loose_schema
from deltasql.protocol.table_changes import Snapshot
from deltasql.storage import Directory

Rows = np.ndarray[Any, np.dtype[np.int64]]


def numbered(file: Snapshot, options: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """Yield the rows of a single-file snapshot that are not deleted, with their row numbers."""
    schema = loose_schema(file.schema)
    deleted = deleted_rows(file, options)
    start = 0
    for rows in scan(replace(without_vectors(file), predicate=None), options).batches():
        batch, numbers = rows.cast(schema), np.arange(start, start + rows.num_rows)
        start += rows.num_rows
        if len(deleted):
            mask = live_mask(deleted, start - rows.num_rows, rows.num_rows)
            batch, numbers = batch.filter(pa.array(mask)), numbers[mask]
        yield batch, numbers


def deleted_rows(file: Snapshot, options: Mapping[str, str]) -> Rows:
    """Return the row numbers that are deleted in a single-file snapshot."""
    (vector,) = descriptors(file.files)
    if vector is None:
        return np.zeros(0, np.int64)
    (deleted,) = bitmaps(Directory(file.location, options), [vector], file.name)
    return numbers_of(deleted)


def without_rows(
    file: Snapshot, removed: Rows, options: Mapping[str, str], plan: FilePlan, adds: list[Add]
) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """Rewrite a single-file snapshot without some rows, and yield the removed rows with their row numbers. Append the
    new file, if any rows are retained, to `adds`."""
    ordered = np.sort(removed)
    with TableFiles(plan) as files:
        for batch, numbers in numbered(file, options):
            mask = _contained(numbers, ordered)
            if mask.any():
                yield batch.filter(pa.array(mask)), numbers[mask]
            files.write(batch.filter(pa.array(~mask)) if mask.any() else batch)
    adds += files.adds


def rows_by_number(file: Snapshot, chosen: Rows, options: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """Yield the chosen rows of a single-file snapshot with their row numbers; write nothing."""
    ordered = np.sort(chosen)
    for batch, numbers in numbered(file, options):
        mask = _contained(numbers, ordered)
        if mask.any():
            yield batch.filter(pa.array(mask)), numbers[mask]


def _contained(numbers: Rows, chosen: Rows) -> Mask:
    """Return which numbers are among the chosen ones; both are sorted."""
    mask = np.zeros(len(numbers), np.bool_)
    if len(numbers):
        first, last = np.searchsorted(chosen, [numbers[0], numbers[-1] + 1])
        mask = np.isin(numbers, chosen[first:last], assume_unique=True)
    return mask
