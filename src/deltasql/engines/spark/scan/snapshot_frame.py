"""Read a snapshot as a Spark DataFrame: its files, with the schema and the partition values of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltasql.engines.arrow.read.deletion_vector_read import bitmaps, descriptors, split_by_vector
from deltasql.engines.arrow.read.file_constant_columns import with_file_constants
from deltasql.engines.spark.scan.file_index import read_with_index
from deltasql.engines.spark.scan.hadoop_options import hadoop_options
from deltasql.engines.spark.scan.plain_scan import read_plain
from deltasql.engines.spark.scan.row_ids import FILE, ROW, row_id_columns
from deltasql.engines.spark.scan.scan_files import READ_OPTIONS, SnapshotFiles, altered_fields
from deltasql.engines.spark.scan.worker_scan import has_file_system, read_by_workers
from deltasql.engines.spark.sql_text import verbatim
from deltasql.protocol.constraints import quoted
from deltasql.protocol.deletion_vectors import num_words, words_of
from deltasql.protocol.table_changes import Snapshot
from deltasql.storage import Directory

_SHIFT, _START, _END = "__deltasql_shift", "__deltasql_start", "__deltasql_end"
_WORDS = "__deltasql_words"
_MOST_WORDS = 8 << 20
"""64 MiB: the size of deletion vectors that are broadcast. The Arrow scan of the workers reads larger ones."""


def read_snapshot(
    spark: SparkSession,
    snapshot: Snapshot,
    where: str | None = None,
    *,
    fast: bool = True,
    options: Mapping[str, str] | None = None,
    row_ids: bool = False,
) -> DataFrame:
    """Return the rows of a snapshot, filtered by a predicate if one is given.

    Args:
        spark: The session that reads.
        snapshot: The table's files.
        where: A condition in Spark's SQL.
        fast: Whether the fast scan may be used, which needs Spark's internal API.
        options: The storage options of the table.
        row_ids: Whether to add the columns `FILE` and `ROW`.
    """
    rows = _SnapshotScan(spark, fast, options or {}, row_ids).rows(snapshot)
    frame = _with_metadata(rows, snapshot)
    if where is None:
        return frame
    return frame.alias(snapshot.name.rpartition(".")[2]).where(verbatim(where))


@dataclass(frozen=True, slots=True)
class _SnapshotScan:
    spark: SparkSession
    fast: bool
    options: Mapping[str, str]
    row_ids: bool

    def rows(self, snapshot: Snapshot) -> DataFrame:
        """Return the rows that are not deleted. Files without deletion vectors are scanned apart, at no extra cost."""
        if is_read_by_workers(self.spark, snapshot, self.options):
            return read_by_workers(self.spark, snapshot, self.options, row_ids=self.row_ids)
        clean, with_vectors = split_by_vector(snapshot)
        if not with_vectors.files.num_rows:
            return self._scan(snapshot, row_ids=self.row_ids)
        rest = self._without_deleted(with_vectors)
        return self._scan(clean, row_ids=self.row_ids).union(rest) if clean.files.num_rows else rest

    def _scan(self, snapshot: Snapshot, *, row_ids: bool, numbered: bool = False) -> DataFrame:
        """Return all rows of the files; `row_ids` adds `FILE` and `ROW`, `numbered` at least `ROW`."""
        files = SnapshotFiles.of(snapshot)
        read_options = {**READ_OPTIONS, **(hadoop_options(snapshot.location, self.options) or {})}
        rows = None
        if self.fast:
            rows = read_with_index(self.spark, files, read_options, numbered=numbered and not row_ids)
        if rows is None:
            return read_plain(self.spark, files, read_options, row_ids=row_ids or numbered)
        return rows.select("*", *row_id_columns(rows)) if row_ids else rows

    def _without_deleted(self, snapshot: Snapshot) -> DataFrame:
        """Return the rows of files with deletion vectors that are not deleted.

        The bits of all files are one broadcast array with a word for each 64 rows. File-constant columns hold the
        range of the array that belongs to a file.
        """
        vectors = [vector for vector in descriptors(snapshot.files) if vector is not None]
        deleted = bitmaps(Directory(snapshot.location, self.options), vectors, snapshot.name)
        if sum(map(num_words, deleted)) > _MOST_WORDS:
            return read_by_workers(self.spark, snapshot, self.options, row_ids=self.row_ids)
        first_words, words = zip(*map(words_of, deleted), strict=True)
        lengths = [len(file_words) for file_words in words]
        ends = np.cumsum(lengths)
        starts = ends - lengths
        ranges = {_SHIFT: starts - np.array(first_words), _START: starts, _END: ends}
        constants = {name: ("long", list(map(str, values.tolist()))) for name, values in ranges.items()}
        rows = self._scan(with_file_constants(snapshot, constants), row_ids=self.row_ids, numbered=True)
        array = pa.table({_WORDS: pa.array([np.concatenate(words)], pa.list_(pa.int64()))})
        index = f"{_SHIFT} + shiftright({ROW}, 6)"
        word = F.get(self.spark.createDataFrame(array).scalar(), F.expr(f"int({index})"))
        is_deleted = F.getbit(word, F.expr(f"int({ROW} & 63)")) == 1
        live = rows.where(F.expr(f"{index} < {_START} OR {index} >= {_END}") | ~is_deleted)
        helpers = {*ranges, *(() if self.row_ids else (FILE, ROW))}
        return live.selectExpr(*(quoted(name) for name in rows.columns if name not in helpers))


def is_read_by_workers(spark: SparkSession, snapshot: Snapshot, options: Mapping[str, str]) -> bool:
    """Return whether Python workers read the files, because Spark has no file system for them."""
    if hadoop_options(snapshot.location, options) is None:
        return True
    return not has_file_system(spark, snapshot.location, options)


def _with_metadata(data: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Restore the column metadata that Spark must not see while it reads."""
    altered = {field["name"]: field["metadata"] for field in altered_fields(snapshot.metadata.schema_string)}
    if not altered:
        return data
    columns = {name: F.col(quoted(name)) for name in data.columns}
    return data.select(*(c.alias(n, metadata=altered[n]) if n in altered else c for n, c in columns.items()))
