"""The rows of a table that a statement may change, each with its row id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from deltasql.engines.spark.scan.hadoop_paths import hadoop_paths, hadoop_uri
from deltasql.engines.spark.scan.row_ids import FILE, file_id
from deltasql.engines.spark.scan.snapshot_frame import read_snapshot
from deltasql.errors import StorageError
from deltasql.protocol.table_changes import Snapshot


@dataclass(frozen=True, slots=True)
class TargetTable:
    """Reads a snapshot of a table with row ids."""

    spark: SparkSession
    snapshot: Snapshot
    fast: bool
    options: Mapping[str, str]
    most_marked: Fraction = Fraction(0)
    """The share of deleted rows up to which a file gets a deletion vector; 0 without deletion vectors."""

    def rows(self) -> DataFrame:
        """Return all rows, with `FILE` and `ROW`."""
        return read_snapshot(self.spark, self.snapshot, fast=self.fast, options=self.options, row_ids=True)

    def tally(self, held: DataFrame, *aggregates: Column) -> list[tuple[int | None, Row]]:
        """Aggregate rows by file; return the index of each file in the snapshot, or None for rows without a file."""
        rows: list[Row] = held.groupBy(FILE).agg(*aggregates).collect()
        indexes = self._file_indexes()
        if (
            any(row[FILE] is not None and row[FILE] not in indexes for row in rows)
            or len(indexes) < self.snapshot.files.num_rows
        ):
            raise StorageError(
                f"table {self.snapshot.name}: two files have the same id, or a file is unknown; nothing was changed"
            )
        return [(None if row[FILE] is None else indexes[row[FILE]], row) for row in rows]

    def _file_indexes(self) -> dict[int, int]:
        """Return the indexes of the snapshot's files by file id. (Spark needs no job for local data.)"""
        if not self.snapshot.files.num_rows:  # Spark Connect cannot make a frame of an empty Arrow table
            return {}
        paths = hadoop_paths(self.snapshot.location, self.snapshot.files["path"].to_pylist())
        uris = pa.table({FILE: pa.array(map(hadoop_uri, paths), pa.string())})
        ids = self.spark.createDataFrame(uris).select(file_id(F.col(FILE)).alias(FILE)).collect()
        return {row[FILE]: index for index, row in enumerate(ids)}
