"""Spark's types, for signatures elsewhere: to be imported where types are checked, and only there."""

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "SparkSession"]
