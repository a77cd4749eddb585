"""Row ids: the columns that hold a row's file, as a hash of its Hadoop URI, and its row number in that file.

A hash takes eight bytes where a URI takes hundreds, which matters when many rows are shuffled.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField

from deltasql.engines.row_change import FILE, ROW

URI_FIELDS = (StructField(FILE, StringType()), StructField(ROW, LongType()))
"""The row id columns as Python workers return them: the file as its URI."""


def row_id_columns(rows: DataFrame) -> list[Column]:
    """Return both columns for a native scan of Spark."""
    metadata = rows.metadataColumn("_metadata")
    return [file_id(metadata.getField("file_path")).alias(FILE), metadata.getField("row_index").alias(ROW)]


def file_id(uri: Column) -> Column:
    """Return the id of a file from its URI."""
    return F.xxhash64(uri)


__all__ = ["FILE", "ROW", "URI_FIELDS", "file_id", "row_id_columns"]
