"""Rows in Parquet files, without Spark."""
