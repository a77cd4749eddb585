"""SQL as Postgres writes it, on lake tables, run by Spark.

`parse` owns the syntax and the parameters, `relations` the names of tables, `rows` the statements that change rows,
`ddl` those that change tables, `runner` all of them. Expressions mean what they mean in Spark.
"""
