"""Reading the deletion vectors of files, and which rows they leave."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from deltasql.errors import StorageError
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
from deltasql.storage import Directory, is_local
from deltasql.store import Snapshot

_THREADS = 16
_GAP = 1 << 20
"""Vectors that lie closer than this in a file are read at once."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def bitmaps(directory: Directory, vectors: Sequence[DeletionVector], table: str) -> list[BitMap64]:
    """The deleted rows of each vector."""
    found: dict[int, BitMap64] = {}
    places: dict[str, list[int]] = {}
    for place, vector in enumerate(vectors):
        path = file_of(vector, directory.location, table)
        if path is None:
            found[place] = _inline(vector, table)
        else:
            places.setdefault(path, []).append(place)

    def read(path: str) -> dict[int, BitMap64]:
        inside = sorted(places[path], key=lambda place: vectors[place].offset or 0)
        framed = _spans(directory, path, [span_of(vectors[place]) for place in inside], table)
        return {p: _framed(data, vectors[p], path, table) for p, data in zip(inside, framed, strict=True)}

    if len(places) == 1 or is_local(directory.location):
        parts = list(map(read, places))
    else:
        with ThreadPoolExecutor(max(1, min(_THREADS, len(places)))) as pool:
            parts = list(pool.map(read, places))
    for part in parts:
        found |= part
    return [found[place] for place in range(len(vectors))]


def _spans(directory: Directory, path: str, spans: Sequence[tuple[int, int]], table: str) -> list[bytes]:
    """Parts of a file, in order; those that lie close to each other by one request."""
    found: list[bytes] = []
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
                found += [data[start - begin : stop - begin] for start, stop in spans[at:last]]
                at = last
    except StorageError as error:
        problem = f"table {table}: the deletion vectors in {path!r} cannot be read: {error}"
        raise StorageError(problem) from error
    return found


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


# --- Of a snapshot


def split_by_vector(snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
    """A snapshot of the files that have no vector, and one of those that have."""
    marked = snapshot.files["deletion_vector"].is_valid()
    if not pc.any(marked).as_py():
        return snapshot, replace(snapshot, files=snapshot.files.slice(0, 0))
    clean, rest = snapshot.files.filter(pc.invert(marked)), snapshot.files.filter(marked)
    return replace(snapshot, files=clean), replace(snapshot, files=rest)


def descriptors(files: pa.Table) -> list[DeletionVector | None]:
    """The vector of each file, or None."""
    return [None if text is None else parse(text) for text in files["deletion_vector"].to_pylist()]


def without_vectors(snapshot: Snapshot) -> Snapshot:
    """The same files with all the rows that are in them."""
    place = snapshot.files.schema.get_field_index("deletion_vector")
    nothing = pa.nulls(snapshot.files.num_rows, snapshot.files.schema.field(place).type)
    return replace(snapshot, files=snapshot.files.set_column(place, "deletion_vector", nothing))


def live_mask(deleted: Numbers, start: int, count: int) -> Mask:
    """Which of so many rows from one on are not deleted; the numbers of those that are come in order."""
    first, last = np.searchsorted(deleted, [start, start + count])
    mask = np.ones(count, np.bool_)
    mask[deleted[first:last] - start] = False
    return mask


class Deleted:
    """The deleted rows of one file, read when they are first asked for, by whichever thread does."""

    def __init__(self, directory: Directory, text: str, table: str) -> None:
        self._directory = directory
        self._vector = parse(text)
        self._table = table
        self._lock = threading.Lock()
        self._numbers: Numbers | None = None

    def numbers(self) -> Numbers:
        """In order."""
        with self._lock:
            if self._numbers is None:
                (found,) = bitmaps(self._directory, [self._vector], self._table)
                self._numbers = numbers_of(found)
            return self._numbers
