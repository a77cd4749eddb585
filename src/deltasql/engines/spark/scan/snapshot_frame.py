"""A snapshot of a table as a DataFrame: exactly its files, by the schema and the partition values of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltasql.engines.arrow.read.deletion_vector_read import bitmaps, descriptors, parted
from deltasql.engines.arrow.read.file_constant_columns import with_file_constants
from deltasql.engines.spark.scan.file_index import indexed
from deltasql.engines.spark.scan.hadoop_options import hadoop_options
from deltasql.engines.spark.scan.plain_scan import plain
from deltasql.engines.spark.scan.row_ids import FILE, ROW, places
from deltasql.engines.spark.scan.scan_files import READ_OPTIONS, SnapshotFiles, altered_fields
from deltasql.engines.spark.scan.worker_scan import has_file_system, read_by_workers
from deltasql.protocol.constraints import quoted
from deltasql.protocol.deletion_vectors import num_words, words_of
from deltasql.storage import Directory
from deltasql.store import Snapshot

_SHIFT, _START, _END = "__deltasql_shift", "__deltasql_start", "__deltasql_end"
_WORDS = "__deltasql_words"
_MOST_WORDS = 8 << 20
"""64 MiB: what goes to all tasks. Larger vectors are read by the tasks themselves, with Arrow."""


def read_snapshot(
    spark: SparkSession,
    snapshot: Snapshot,
    where: str | None = None,
    *,
    fast: bool = True,
    options: Mapping[str, str] | None = None,
    row_ids: bool = False,
) -> DataFrame:
    """The rows of a snapshot; with a predicate those that match it. `fast` allows what is not Spark's public API;
    `options` are those of the object store; `row_ids` adds the columns `FILE` and `ROW`, which tell a row's place."""
    asked = options or {}
    reading = _Reading(spark, fast, asked, row_ids)
    found = _with_metadata(reading.rows(snapshot), snapshot)
    if where is None:
        return found
    return found.alias(snapshot.name.rpartition(".")[2]).where(where)


@dataclass(frozen=True, slots=True)
class _Reading:
    spark: SparkSession
    fast: bool
    options: Mapping[str, str]
    row_ids: bool

    def rows(self, snapshot: Snapshot) -> DataFrame:
        """All rows but those that are deleted. Files without deleted rows are read for themselves: they pay nothing."""
        if is_read_by_workers(self.spark, snapshot, self.options):
            return read_by_workers(self.spark, snapshot, self.options, row_ids=self.row_ids)
        clean, marked = parted(snapshot)
        if not marked.files.num_rows:
            return self._scan(snapshot, row_ids=self.row_ids)
        rest = self._without_deleted(marked)
        return self._scan(clean, row_ids=self.row_ids).union(rest) if clean.files.num_rows else rest

    def _scan(self, snapshot: Snapshot, *, row_ids: bool, numbered: bool = False) -> DataFrame:
        """The rows of all files, with `FILE` and `ROW`, or at least with `ROW`, if they are asked for."""
        files = SnapshotFiles.of(snapshot)
        reading = {**READ_OPTIONS, **(hadoop_options(snapshot.location, self.options) or {})}
        rows = indexed(self.spark, files, reading, numbered=numbered and not row_ids) if self.fast else None
        if rows is None:
            return plain(self.spark, files, reading, row_ids=row_ids or numbered)
        return rows.select("*", *places(rows)) if row_ids else rows

    def _without_deleted(self, marked: Snapshot) -> DataFrame:
        """All files' bits are one array, a word for 64 rows, which every task gets; each file knows its part of it."""
        vectors = [vector for vector in descriptors(marked.files) if vector is not None]
        deleted = bitmaps(Directory(marked.location, self.options), vectors, marked.name)
        if sum(map(num_words, deleted)) > _MOST_WORDS:
            return read_by_workers(self.spark, marked, self.options, row_ids=self.row_ids)
        firsts, words = zip(*map(words_of, deleted), strict=True)
        ends = np.cumsum([len(one) for one in words])
        starts = ends - [len(one) for one in words]
        labels = {_SHIFT: starts - np.array(firsts), _START: starts, _END: ends}
        known = {name: ("long", list(map(str, values.tolist()))) for name, values in labels.items()}
        rows = self._scan(with_file_constants(marked, known), row_ids=self.row_ids, numbered=True)
        whole = pa.table({_WORDS: pa.array([np.concatenate(words)], pa.list_(pa.int64()))})
        place = f"{_SHIFT} + shiftright({ROW}, 6)"
        word = F.get(self.spark.createDataFrame(whole).scalar(), F.expr(f"int({place})"))
        is_set = F.getbit(word, F.expr(f"int({ROW} & 63)")) == 1
        left = rows.where(F.expr(f"{place} < {_START} OR {place} >= {_END}") | ~is_set)
        gone = {*labels, *(() if self.row_ids else (FILE, ROW))}
        return left.selectExpr(*(quoted(name) for name in rows.columns if name not in gone))


def is_read_by_workers(spark: SparkSession, snapshot: Snapshot, options: Mapping[str, str]) -> bool:
    """Has Spark no way to the files of its own, so that Python workers read them?"""
    told = hadoop_options(snapshot.location, options)
    return told is None or not has_file_system(spark, snapshot.location, options)


def _with_metadata(data: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Give columns back the metadata that Spark must not see while it reads."""
    altered = {field["name"]: field["metadata"] for field in altered_fields(snapshot.metadata.schema_string)}
    if not altered:
        return data
    columns = {name: F.col(quoted(name)) for name in data.columns}
    return data.select(*(c.alias(n, metadata=altered[n]) if n in altered else c for n, c in columns.items()))
