"""Delete rows with deletion vectors, so that their files are not rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from deltasql.engines.arrow.read.deletion_vector_read import bitmaps, descriptors
from deltasql.engines.arrow.write.file_writer import FilePlan
from deltasql.errors import StorageError
from deltasql.protocol.actions import Add, DeletionVector
from deltasql.protocol.deletion_vectors import MAX_INLINE_BYTES, VectorFile, cardinality_of, encode, inline
from deltasql.protocol.statistics import num_records
from deltasql.protocol.table_changes import Snapshot
from deltasql.storage import Directory

_FILE_BYTES = 64 << 20
"""The size from which another file of deletion vectors is started."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The files that replace those that lost rows."""

    rewritten: list[Add] = field(default_factory=list)
    """New files with the retained rows."""
    marked: list[Add] = field(default_factory=list)
    """Files that stay, with new deletion vectors."""
    vector_files: list[str] = field(default_factory=list)
    """New files that hold deletion vectors."""


def live_row_counts(files: pa.Table) -> list[int | None]:
    """Return the number of rows of each file that are not deleted; None if the statistics lack it."""
    counts = map(num_records, files["stats"].to_pylist())
    deleted = map(cardinality_of, files["deletion_vector"].to_pylist())
    return [None if count is None else count - less for count, less in zip(counts, deleted, strict=True)]


def can_use_vector(files: pa.Table, index: int, removed: int, max_share: Fraction) -> bool:
    """Return whether at most the given share of a file's rows is deleted after some more are removed."""
    count = num_records(files["stats"][index].as_py())
    if count is None:
        return False  # a file with a deletion vector must have numRecords
    return removed + cardinality_of(files["deletion_vector"][index].as_py()) <= max_share * count


def extended_vectors(
    snapshot: Snapshot, rows: Mapping[int, BitMap64], options: Mapping[str, str]
) -> dict[int, tuple[bytes, int]]:
    """Add deleted rows to the vectors of files.

    Args:
        snapshot: The files.
        rows: The rows to delete, by the index of their file.
        options: The storage options of the table.

    Returns:
        The serialized vector and its cardinality, by the index of the file.
    """
    vectors = descriptors(snapshot.files.take(pa.array(list(rows), pa.int64())))
    existing = [vector for vector in vectors if vector is not None]
    before = iter(bitmaps(Directory(snapshot.location, options), existing, snapshot.name))
    extended = {}
    for (index, added), vector in zip(rows.items(), vectors, strict=True):
        union = added if vector is None else added | next(before)
        if len(union) != len(added) + (vector.cardinality if vector is not None else 0):
            raise StorageError(
                f"table {snapshot.name}: some rows to delete are already deleted, so nothing was changed"
            )
        extended[index] = encode(union), len(union)
    return extended


def write_vectors(snapshot: Snapshot, vectors: Mapping[int, tuple[bytes, int]], plan: FilePlan) -> RewriteResult:
    """Write the deletion vectors of files; small vectors are stored inline in the log."""
    directory = Directory(snapshot.location, plan.options)
    result, file = RewriteResult(), VectorFile()
    for index, (data, cardinality) in vectors.items():
        if len(data) <= MAX_INLINE_BYTES:
            vector = inline(data, cardinality)
        else:
            if file.size > _FILE_BYTES:
                _write(directory, file, result, plan)
                file = VectorFile()
            vector = file.put(data, cardinality)
        result.marked.append(_with_vector(snapshot.files, index, vector))
    _write(directory, file, result, plan)
    return result


def _write(directory: Directory, file: VectorFile, result: RewriteResult, plan: FilePlan) -> None:
    if not file.is_empty:
        if plan.written is not None:
            plan.written.add(file.path)
        directory.put(file.path, file.content)
        result.vector_files.append(file.path)


def _with_vector(files: pa.Table, index: int, vector: DeletionVector) -> Add:
    """Return a file with a new vector. Its bounds still cover the deleted rows, so they are no longer tight."""
    row = files.slice(index, 1).to_pylist()[0]
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
