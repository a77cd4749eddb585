"""Read and write rows with Spark. Only this package and `datasource` import pyspark; `session` works without it."""
