"""PostgreSQL's catalog: types, functions, operators and casts, and the choice between overloads."""
