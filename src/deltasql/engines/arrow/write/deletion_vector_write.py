"""Deleting rows by marking them: a file stays as it is and gets a deletion vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from deltasql.engines.arrow.read.deletion_vector_read import bitmaps, descriptors
from deltasql.engines.row_change import num_records
from deltasql.errors import StorageError
from deltasql.protocol.actions import Add, DeletionVector
from deltasql.protocol.deletion_vectors import MOST_INLINE, VectorFile, cardinality_of, encode, inline
from deltasql.storage import Directory
from deltasql.store import Snapshot

_FILE_BYTES = 64 << 20
"""When a file of vectors has this much, another one begins."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What is left of files that lost rows."""

    rewritten: list[Add] = field(default_factory=list)
    """New files with their other rows."""
    marked: list[Add] = field(default_factory=list)
    """Those that stay, with their vectors."""
    vector_files: list[str] = field(default_factory=list)
    """The files that hold the vectors."""


def live_row_counts(files: pa.Table) -> list[int | None]:
    """How many rows each file has that are not deleted, if its statistics tell."""
    counts = map(num_records, files["stats"].to_pylist())
    deleted = map(cardinality_of, files["deletion_vector"].to_pylist())
    return [None if count is None else count - less for count, less in zip(counts, deleted, strict=True)]


def can_use_vector(files: pa.Table, place: int, lost: int, most: Fraction) -> bool:
    """Is a file that loses so many rows to stay? Of its rows at most this share may be deleted."""
    count = num_records(files["stats"][place].as_py())
    if count is None:
        return False  # a file with a vector has to say how many rows it has
    return lost + cardinality_of(files["deletion_vector"][place].as_py()) <= most * count


def extended_vectors(
    snapshot: Snapshot, rows: Mapping[int, BitMap64], options: Mapping[str, str]
) -> dict[int, tuple[bytes, int]]:
    """The vectors of files, by their places, that are to lose more rows: as they are stored, and how many rows they
    have."""
    vectors = descriptors(snapshot.files.take(pa.array(list(rows), pa.int64())))
    before = [vector for vector in vectors if vector is not None]
    old = iter(bitmaps(Directory(snapshot.location, options), before, snapshot.name))
    found = {}
    for (place, more), vector in zip(rows.items(), vectors, strict=True):
        whole = more if vector is None else more | next(old)
        if len(whole) != len(more) + (vector.cardinality if vector is not None else 0):
            raise StorageError(f"table {snapshot.name}: rows are deleted that were deleted before: nothing was changed")
        found[place] = encode(whole), len(whole)
    return found


def write_vectors(
    snapshot: Snapshot, vectors: Mapping[int, tuple[bytes, int]], options: Mapping[str, str]
) -> RewriteResult:
    """Write the vectors of files; small ones go into the log."""
    directory = Directory(snapshot.location, options)
    result, file = RewriteResult(), VectorFile()
    for place, (data, cardinality) in vectors.items():
        if len(data) <= MOST_INLINE:
            vector = inline(data, cardinality)
        else:
            if file.size > _FILE_BYTES:
                _write(directory, file, result)
                file = VectorFile()
            vector = file.put(data, cardinality)
        result.marked.append(_with_vector(snapshot.files, place, vector))
    _write(directory, file, result)
    return result


def _write(directory: Directory, file: VectorFile, result: RewriteResult) -> None:
    if not file.is_empty:
        directory.put(file.path, file.content)
        result.vector_files.append(file.path)


def _with_vector(files: pa.Table, place: int, vector: DeletionVector) -> Add:
    """A file of a snapshot as it becomes. Its bounds are those of all its rows, so they may be too wide now."""
    row = files.slice(place, 1).to_pylist()[0]
    stats = msgspec.json.decode(row["stats"], type=dict[str, msgspec.Raw])
    text = msgspec.json.encode({**stats, "tightBounds": False}).decode()
    tags = row["tags"]
    return Add(
        path=row["path"],
        size=row["size"],
        modification_time=row["modification_time"],
        partition_values=row["partition_values"] or {},
        stats=text,
        tags=None if tags is None else msgspec.json.decode(tags),
        deletion_vector=vector,
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=row["clustering_provider"],
    )
