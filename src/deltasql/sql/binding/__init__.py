"""Bind the names of statements to columns and functions, and give every expression its type and its Spark SQL."""
