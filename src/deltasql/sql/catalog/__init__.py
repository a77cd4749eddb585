"""PostgreSQL's catalog: its types, the names of its functions, operators and casts, and the choice between overloads."""
