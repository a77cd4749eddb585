"""A snapshot of a table as a DataFrame: exactly its files, by the schema and the partition values of the log."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltasql.core.constraints import quoted
from deltasql.spark.fileindex import indexed
from deltasql.spark.files import READ_OPTIONS, SnapshotFiles
from deltasql.spark.hadoop import hadoop_options
from deltasql.spark.places import places
from deltasql.spark.plain import plain
from deltasql.spark.remote import has_file_system, read_by_workers
from deltasql.store import Snapshot


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
    files = SnapshotFiles.of(snapshot)
    asked = options or {}
    if is_read_by_workers(spark, snapshot, asked):
        found = read_by_workers(spark, snapshot, asked, row_ids=row_ids)
    else:
        reading = {**READ_OPTIONS, **(hadoop_options(snapshot.location, asked) or {})}
        rows = indexed(spark, files, reading) if fast else None
        if rows is None:
            found = plain(spark, files, reading, row_ids=row_ids)
        else:
            found = rows.select("*", *places(rows)) if row_ids else rows
    found = _with_metadata(found, files)
    if where is None:
        return found
    return found.alias(snapshot.name.rpartition(".")[2]).where(where)


def is_read_by_workers(spark: SparkSession, snapshot: Snapshot, options: Mapping[str, str]) -> bool:
    """Has Spark no way to the files of its own, so that Python workers read them?"""
    told = hadoop_options(snapshot.location, options)
    return told is None or not has_file_system(spark, snapshot.location, options)


def _with_metadata(data: DataFrame, files: SnapshotFiles) -> DataFrame:
    """Give columns back the metadata that Spark must not see while it reads."""
    altered = {field["name"]: field["metadata"] for field in files.altered_fields()}
    if not altered:
        return data
    columns = {name: F.col(quoted(name)) for name in data.columns}
    return data.select(*(c.alias(n, metadata=altered[n]) if n in altered else c for n, c in columns.items()))
