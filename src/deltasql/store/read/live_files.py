"""The files of a table as Arrow: their partitions, their bounds, and the columns that users get."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.expressions.arrow_values import array_of
from deltasql.protocol.actions import Add
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.statistics import Bounds, ColumnPath, parse_stats, partition_bounds
from deltasql.protocol.table_changes import Changes, TableState
from deltasql.store.action_rows import loads, map_text, vector_text
from deltasql.store.database import Row

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate


_PUBLIC_COLUMNS = {
    "path": pa.string(),
    "size": pa.int64(),
    "modification_time": pa.int64(),
    "partition_values": None,
    "stats": pa.string(),
    "data_change": pa.bool_(),
    "tags": pa.string(),
    "deletion_vector": pa.string(),
    "base_row_id": pa.int64(),
    "default_row_commit_version": pa.int64(),
    "clustering_provider": pa.string(),
}


class PartitionTable:
    """The distinct partitions of a table, by key. Partitions are never removed: an unknown key is a new partition."""

    def __init__(self, columns: Sequence[str], fetch: Callable[[], Sequence[Row]]) -> None:
        self.columns = tuple(columns)
        self._fetch = fetch
        self._set([])

    def load(self) -> None:
        """Read the partitions from the database."""
        self._set(self._fetch() if self.columns else [])

    def _set(self, rows: Sequence[Row]) -> None:
        values = [loads(row["partition_values"]) for row in rows]
        self.keys = array_of([row["partition_key"] for row in rows], pa.int64())
        self._values = {c: array_of([v.get(c) for v in values], pa.string()) for c in self.columns}
        self._bounds: dict[str, Bounds] = {}

    def values(self, column: str, keys: pa.ChunkedArray) -> pa.Array:
        """Return the serialised values of a partition column for files with the given partition keys."""
        indices = self._indices(keys)  # first: this may load new partitions
        return self._values[column].take(indices)

    def distinct(self) -> dict[str, pa.Array]:
        """Return the serialised values of each partition column, one per partition, after reading all partitions."""
        self.load()
        return dict(self._values)

    def bounds(self, column: str, kind: pa.DataType) -> Bounds:
        """Return the exact bounds of a partition column, one per partition."""
        if column not in self._bounds:
            self._bounds[column] = partition_bounds(self._values[column], kind)
        return self._bounds[column]

    def bounds_of_files(self, column: str, kind: pa.DataType, keys: pa.ChunkedArray) -> Bounds:
        """Return the exact bounds of a partition column for files with the given partition keys."""
        indices = self._indices(keys)
        exact = self.bounds(column, kind)
        return Bounds(*(part.take(indices) for part in (exact.min, exact.max, exact.has_nulls, exact.all_null)))

    def _indices(self, keys: pa.ChunkedArray) -> pa.Array:
        indices = pc.index_in(keys, self.keys)
        if indices.null_count:
            self.load()
            indices = pc.index_in(keys, self.keys)
        return indices.combine_chunks()


class FileBounds:
    """The bounds of the columns of a table, partition columns included, for any of its files."""

    def __init__(self, state: TableState, fetch_partitions: Callable[[], Sequence[Row]]) -> None:
        self.key = state.table_key
        self.metadata = state.metadata
        self.schema = arrow_schema(state.metadata.schema_string) if state.metadata else pa.schema([])
        self.partitions = PartitionTable(state.metadata.partition_columns if state.metadata else (), fetch_partitions)

    def data_columns(self, predicate: Predicate) -> frozenset[ColumnPath]:
        """Return the columns of a predicate that are not partition columns."""
        return frozenset(path for path in predicate.columns if path[0] not in self.partitions.columns)

    def of_partitions(self) -> dict[ColumnPath, Bounds]:
        """Return the bounds of every partition column, one row per partition."""
        return {(c,): self.partitions.bounds(c, self.schema.field(c).type) for c in self.partitions.columns}

    def of_files(self, paths: Collection[ColumnPath], files: pa.Table) -> dict[ColumnPath, Bounds]:
        """Return the bounds of some columns, one row per file."""
        partitioned = {path for path in paths if path[0] in self.partitions.columns}
        bounds = parse_stats(files["stats"], self.schema, [path for path in paths if path not in partitioned])
        for path in partitioned:
            kind = self.schema.field(path[0]).type
            bounds[path] = self.partitions.bounds_of_files(path[0], kind, files["partition_key"])
        return bounds


def public_columns(files: pa.Table, partitions: PartitionTable) -> pa.Table:
    """Return files with the columns that users get: Delta's fields, with partition values as a struct of strings."""
    columns = {
        "path": files["path"],
        "size": files["size"],
        "modification_time": files["modification_time"],
        "partition_values": _partition_values(files, partitions),
        "stats": files["stats"],
        "data_change": files["data_change"],
        "tags": files["tags"],
        "deletion_vector": files["deletion_vector"],
        "base_row_id": files["base_row_id"],
        "default_row_commit_version": files["default_row_commit_version"],
        "clustering_provider": files["clustering_provider"],
    }
    return pa.table(columns)


def files_of_adds(adds: Sequence[Add], partition_columns: Sequence[str]) -> pa.Table:
    """Return add actions that are not in the log yet, with the columns that users get."""
    changes = Changes(adds=tuple(adds))
    values = [{c: add.partition_values.get(c) for c in partition_columns} for add in adds]
    kind = pa.struct([(c, pa.string()) for c in partition_columns])
    known = {
        "partition_values": pa.array(values, kind),
        "tags": pa.array([map_text(add.tags) for add in adds], pa.string()),
        "deletion_vector": pa.array([vector_text(add.deletion_vector) for add in adds], pa.string()),
    }
    columns_of = {n: known[n] if n in known else pa.array(changes.of_adds(n), k) for n, k in _PUBLIC_COLUMNS.items()}
    return pa.table(columns_of)


def _partition_values(files: pa.Table, partitions: PartitionTable) -> pa.Array:
    if not partitions.columns:
        buffers = [None]
        return pa.StructArray.from_buffers(pa.struct([]), files.num_rows, buffers)
    arrays = [partitions.values(c, files["partition_key"]) for c in partitions.columns]
    return pa.StructArray.from_arrays(arrays, names=list(partitions.columns))


def select(files: pa.Table, mask: np.ndarray) -> pa.Table:
    """Return the rows whose mask is set, without a copy if all are."""
    if mask.all():
        return files
    if np.count_nonzero(mask) * 20 < len(mask):
        return files.take(indices(np.flatnonzero(mask)))
    return files.filter(pa.array(mask))


def indices(numbers: np.ndarray) -> pa.Array:
    """Return row numbers for `take`, without a copy. `pa.array` would import numpy.ma, which is slow."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers.astype(np.int64, copy=False))])
