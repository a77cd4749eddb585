"""SQL as Postgres writes it, on lake tables, run by Spark.

`parse` owns the syntax and the parameters, `tokens` and `shapes` what sqlglot or Spark would not understand, `places`
where something is in the text, `failures` what Spark finds wrong with it, `relations` the names of tables, `rows` the
statements that change rows, `ddl` those that change tables, `runner` all of them. Expressions mean what they mean in
Spark.
"""
