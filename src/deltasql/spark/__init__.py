"""Tables as Spark DataFrames. The only package that knows pyspark, an extra: only `session` works without it."""
