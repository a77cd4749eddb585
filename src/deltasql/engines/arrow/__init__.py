"""Read and write Parquet rows in this process, without Spark."""
