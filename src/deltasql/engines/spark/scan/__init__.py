"""Read a snapshot as a Spark DataFrame."""
