"""Tables of functions, operators and casts with their Spark SQL: a new function is one row of a table here."""
