"""PostgreSQL's meaning of expressions, in Spark SQL: types, casts, operators, functions, and the binder of names."""
