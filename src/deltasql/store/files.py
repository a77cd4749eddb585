"""A table's files as Arrow: rows of the log in, the public shape out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.core.changes import TableState
from deltasql.core.schema import arrow_schema
from deltasql.core.stats import Bounds, ColumnPath, parse_stats, partition_bounds
from deltasql.store.rows import loads

if TYPE_CHECKING:
    from deltasql.core.predicates import Predicate


class PartitionTable:
    """The distinct partitions of a table, by key."""

    def __init__(self, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.keys = pa.array([row["partition_key"] for row in rows], pa.int64())
        values = [loads(str(row["partition_values"])) for row in rows]
        self._values = {c: pa.array([v.get(c) for v in values], pa.string()) for c in columns}

    def values(self, column: str, keys: pa.ChunkedArray | pa.Array) -> pa.Array:
        """The serialised values of one partition column for files with these keys."""
        return self._values[column].take(self._places(keys))

    def bounds(self, column: str, kind: pa.DataType) -> Bounds:
        """The exact bounds of one partition column, a partition each."""
        return partition_bounds(self._values[column], kind)

    def spread(self, bounds: Bounds, keys: pa.ChunkedArray | pa.Array) -> Bounds:
        """Bounds per partition → bounds per file."""
        places = self._places(keys)
        return Bounds(*(part.take(places) for part in (bounds.min, bounds.max, bounds.has_nulls, bounds.all_null)))

    def _places(self, keys: pa.ChunkedArray | pa.Array) -> pa.Array:
        places = pc.index_in(keys, self.keys)
        return places.combine_chunks() if isinstance(places, pa.ChunkedArray) else places


class FileBounds:
    """The bounds of a table's columns over any of its files, partition columns included."""

    def __init__(self, state: TableState, partitions: PartitionTable) -> None:
        self.key = state.table_key
        self.partitions = partitions
        self.schema = arrow_schema(state.metadata.schema_string) if state.metadata else pa.schema([])

    def data_columns(self, predicate: Predicate) -> frozenset[ColumnPath]:
        """The columns of a predicate that are not partition columns."""
        return frozenset(path for path in predicate.columns if path[0] not in self.partitions.columns)

    def of_partitions(self) -> dict[ColumnPath, Bounds]:
        """Every partition column, a row per partition."""
        return {(c,): self._exact(c) for c in self.partitions.columns}

    def of_files(self, path: ColumnPath, files: pa.Table) -> Bounds:
        """One column, a row per file."""
        if path[0] in self.partitions.columns:
            return self.partitions.spread(self._exact(path[0]), files["partition_key"])
        return parse_stats(files["stats"], self.schema, [path])[path]

    def _exact(self, column: str) -> Bounds:
        return self.partitions.bounds(column, self.schema.field(column).type)


def present(files: pa.Table, partitions: PartitionTable) -> pa.Table:
    """The columns that users see: Delta's fields, with partition values as a struct of strings."""
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


def _partition_values(files: pa.Table, partitions: PartitionTable) -> pa.Array:
    if not partitions.columns:
        buffers = [None]
        return pa.StructArray.from_buffers(pa.struct([]), files.num_rows, buffers)
    arrays = [partitions.values(c, files["partition_key"]) for c in partitions.columns]
    return pa.StructArray.from_arrays(arrays, names=list(partitions.columns))


def select(files: pa.Table, mask: np.ndarray) -> pa.Table:
    """The rows whose mask is set; all of them without a copy if all are."""
    if mask.all():
        return files
    places = np.flatnonzero(mask)
    return files.take(pa.array(places)) if len(places) * 20 < len(mask) else files.filter(pa.array(mask))
