"""The rows of a table that a statement may change, each with its place."""

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
    """A snapshot of a table, and how it is read."""

    spark: SparkSession
    snapshot: Snapshot
    fast: bool
    options: Mapping[str, str]
    most_marked: Fraction = Fraction(0)
    """The share of a file's rows up to which they are marked as deleted; 0 if the table has no deletion vectors."""

    def rows(self) -> DataFrame:
        """All rows, with `FILE` and `ROW`."""
        return read_snapshot(self.spark, self.snapshot, fast=self.fast, options=self.options, row_ids=True)

    def tally(self, held: DataFrame, *aggregates: Column) -> list[tuple[int | None, Row]]:
        """What there is of each file, and which of the snapshot's it is; of rows that have no file as well."""
        rows: list[Row] = held.groupBy(FILE).agg(*aggregates).collect()
        places = self._places()
        if (
            any(row[FILE] is not None and row[FILE] not in places for row in rows)
            or len(places) < self.snapshot.files.num_rows
        ):
            raise StorageError(
                f"table {self.snapshot.name}: rows of files that cannot be told apart: nothing was changed"
            )
        return [(None if row[FILE] is None else places[row[FILE]], row) for row in rows]

    def _places(self) -> dict[int, int]:
        """The files of the snapshot by what stands for them. (Spark computes this at once, without a job.)"""
        paths = hadoop_paths(self.snapshot.location, self.snapshot.files["path"].to_pylist())
        uris = pa.table({FILE: pa.array(map(hadoop_uri, paths), pa.string())})
        found = self.spark.createDataFrame(uris).select(file_id(F.col(FILE)).alias(FILE)).collect()
        return {row[FILE]: place for place, row in enumerate(found)}
