"""Read the deletion vectors of files, and apply them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from deltasql.errors import StorageError, ValidationError
from deltasql.protocol.actions import DeletionVector
from deltasql.protocol.deletion_vectors import (
    Numbers,
    checked,
    file_of,
    inline_bytes,
    numbers_of,
    parse,
    span_of,
    unframed,
)
from deltasql.protocol.table_changes import Changes, Snapshot, TableState
from deltasql.protocol.validation.staged_values import check_rows, check_vectors
from deltasql.storage import Directory, is_local

_THREADS = 16
_GAP = 1 << 20
"""Vectors with a smaller gap between them are read with one request."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def bitmaps(directory: Directory, vectors: Sequence[DeletionVector], table: str) -> list[BitMap64]:
    """Return the deleted rows of each vector."""
    deleted: dict[int, BitMap64] = {}
    by_path: dict[str, list[int]] = {}
    for index, vector in enumerate(vectors):
        path = file_of(vector, directory.location, table)
        if path is None:
            deleted[index] = _inline(vector, table)
        else:
            by_path.setdefault(path, []).append(index)

    def read(path: str) -> dict[int, BitMap64]:
        indexes = sorted(by_path[path], key=lambda index: vectors[index].offset or 0)
        framed = _read_spans(directory, path, [span_of(vectors[index]) for index in indexes], table)
        return {i: _framed(data, vectors[i], path, table) for i, data in zip(indexes, framed, strict=True)}

    if len(by_path) == 1 or is_local(directory.location):
        parts = list(map(read, by_path))
    else:
        with ThreadPoolExecutor(max(1, min(_THREADS, len(by_path)))) as pool:
            parts = list(pool.map(read, by_path))
    for part in parts:
        deleted |= part
    return [deleted[index] for index in range(len(vectors))]


def check_vector_files(changes: Changes, state: TableState, options: Mapping[str, str]) -> None:
    """Raise for deletion vectors in files that are damaged or have rows which their data files do not have.

    A file that does not exist is left to the caller, as data files are.
    """
    if all(vector is None for vector in changes.of_adds("deletion_vector")):
        return
    check_vectors(changes, state)
    directory = Directory(state.location, options)
    for add in changes.adds:
        path = None if add.deletion_vector is None else file_of(add.deletion_vector, state.location, state.name)
        if add.deletion_vector is None or path is None or directory.size(path) is None:
            continue
        try:
            (rows,) = bitmaps(directory, [add.deletion_vector], state.name)
        except StorageError as error:
            raise ValidationError(str(error), table=state.name, value=add.path) from error
        check_rows(add, rows, state.name)


def _read_spans(directory: Directory, path: str, spans: Sequence[tuple[int, int]], table: str) -> list[bytes]:
    """Read byte ranges of a file, in order; ranges close to each other with one request."""
    parts: list[bytes] = []
    try:
        with directory.reading(path) as file:
            at = 0
            while at < len(spans):
                last = at + 1
                while last < len(spans) and spans[last][0] - spans[last - 1][1] < _GAP:
                    last += 1
                begin, end = spans[at][0], max(stop for _, stop in spans[at:last])
                file.seek(begin)
                data = bytes(file.read(end - begin))
                parts += [data[start - begin : stop - begin] for start, stop in spans[at:last]]
                at = last
    except StorageError as error:
        problem = f"table {table}: the deletion vectors in {path!r} cannot be read: {error}"
        raise StorageError(problem) from error
    return parts


def _framed(framed: bytes, vector: DeletionVector, path: str, table: str) -> BitMap64:
    try:
        return checked(unframed(framed, vector), vector)
    except ValueError as error:
        raise StorageError(f"table {table}: a deletion vector in {path!r} is damaged: {error}") from error


def _inline(vector: DeletionVector, table: str) -> BitMap64:
    try:
        return checked(inline_bytes(vector), vector)
    except ValueError as error:
        raise StorageError(f"table {table}: a deletion vector in the log is damaged: {error}") from error


# --- snapshots with deletion vectors


def split_by_vector(snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Return a snapshot of the files without a deletion vector, and one of the files with a vector."""
    has_vector = snapshot.files["deletion_vector"].is_valid()
    if not pc.any(has_vector).as_py():
        return snapshot, replace(snapshot, files=snapshot.files.slice(0, 0))
    clean, with_vectors = snapshot.files.filter(pc.invert(has_vector)), snapshot.files.filter(has_vector)
    return replace(snapshot, files=clean), replace(snapshot, files=with_vectors)


def descriptors(files: pa.Table) -> list[DeletionVector | None]:
    """Return the deletion vector of each file, or None."""
    return [None if text is None else parse(text) for text in files["deletion_vector"].to_pylist()]


def without_vectors(snapshot: Snapshot) -> Snapshot:
    """Return the same files without deletion vectors, so that all their rows are read."""
    index = snapshot.files.schema.get_field_index("deletion_vector")
    nulls = pa.nulls(snapshot.files.num_rows, snapshot.files.schema.field(index).type)
    return replace(snapshot, files=snapshot.files.set_column(index, "deletion_vector", nulls))


def live_mask(deleted: Numbers, start: int, count: int) -> Mask:
    """Return which of `count` rows from row `start` on are not deleted; `deleted` is sorted."""
    first, last = np.searchsorted(deleted, [start, start + count])
    mask = np.ones(count, np.bool_)
    mask[deleted[first:last] - start] = False
    return mask


class LazyDeletedRows:
    """The deleted rows of one file, read on first use, by any thread."""

    def __init__(self, directory: Directory, text: str, table: str) -> None:
        self._directory = directory
        self._vector = parse(text)
        self._table = table
        self._lock = threading.Lock()
        self._numbers: Numbers | None = None

    def numbers(self) -> Numbers:
        """Return the row numbers, sorted."""
        with self._lock:
            if self._numbers is None:
                (deleted,) = bitmaps(self._directory, [self._vector], self._table)
                self._numbers = numbers_of(deleted)
            return self._numbers
