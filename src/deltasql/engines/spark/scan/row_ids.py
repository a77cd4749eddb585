"""Where a row lies: the columns that name its file, by a hash of Hadoop's URI, and its number in there.

A URI is long and there may be many rows: they are shuffled and held with eight bytes instead.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField

from deltasql.engines.row_change import FILE, ROW

URI_FIELDS = (StructField(FILE, StringType()), StructField(ROW, LongType()))
"""Places as Python workers tell them: the file by its URI."""


def places(rows: DataFrame) -> list[Column]:
    """Both, of a scan of Spark's own."""
    metadata = rows.metadataColumn("_metadata")
    return [file_id(metadata.getField("file_path")).alias(FILE), metadata.getField("row_index").alias(ROW)]


def file_id(uri: Column) -> Column:
    """What stands for a file."""
    return F.xxhash64(uri)


__all__ = ["FILE", "ROW", "URI_FIELDS", "file_id", "places"]
