"""Spark's types for annotations in other packages. Import this module under TYPE_CHECKING only."""

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "SparkSession"]
