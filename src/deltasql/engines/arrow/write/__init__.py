"""Write rows to Parquet files of a table, and rewrite files that lose rows."""
