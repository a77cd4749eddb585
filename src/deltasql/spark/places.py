"""Where a row lies: the columns that name its file, by Hadoop's URI, and its number in there."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import LongType, StringType, StructField

from deltasql.data.statements import FILE, ROW

PLACE_FIELDS = (StructField(FILE, StringType()), StructField(ROW, LongType()))


def places(rows: DataFrame) -> list[Column]:
    """Both, of a scan of Spark's own."""
    metadata = rows.metadataColumn("_metadata")
    return [metadata.getField("file_path").alias(FILE), metadata.getField("row_index").alias(ROW)]


__all__ = ["FILE", "PLACE_FIELDS", "ROW", "places"]
