"""The rows of a table that a statement may change, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from deltasql.errors import StorageError
from deltasql.spark.paths import hadoop_paths, hadoop_uri
from deltasql.spark.places import FILE, file_id
from deltasql.spark.reading import read_snapshot
from deltasql.store import Snapshot

PLACE = "__deltasql_place"
"""The column that tells which file of the snapshot it is."""
_PLACES = pa.schema([(FILE, pa.string()), (PLACE, pa.int32())])


@dataclass(frozen=True, slots=True)
class Target:
    """A snapshot of a table, and how it is read."""

    spark: SparkSession
    snapshot: Snapshot
    fast: bool
    options: Mapping[str, str]
    most_marked: float = 0
    """The share of a file's rows up to which they are marked as deleted; 0 if the table has no deletion vectors."""

    def rows(self) -> DataFrame:
        """All rows, with `FILE` and `ROW`."""
        return read_snapshot(self.spark, self.snapshot, fast=self.fast, options=self.options, row_ids=True)

    def tally(self, held: DataFrame, *aggregates: Column) -> list[Row]:
        """What there is of each file, and `PLACE`; of rows that have no file as well."""
        paths = hadoop_paths(self.snapshot.location, self.snapshot.files["path"].to_pylist())
        table = pa.table({FILE: list(map(hadoop_uri, paths)), PLACE: pa.array(range(len(paths)), pa.int32())})
        numbers = self.spark.createDataFrame(table.cast(_PLACES)).withColumn(FILE, file_id(F.col(FILE)))
        rows: list[Row] = held.groupBy(FILE).agg(*aggregates).join(F.broadcast(numbers), FILE, "left").collect()
        told = [row for row in rows if row[FILE] is not None]
        if len({row[FILE] for row in told}) < len(told) or any(row[PLACE] is None for row in told):
            raise StorageError(
                f"table {self.snapshot.name}: rows of files that cannot be told apart: nothing was changed"
            )
        return rows
