"""Read the rows of a snapshot from its Parquet files."""
