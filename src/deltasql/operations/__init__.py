"""One module per verb: create, write, change rows, alter, optimize, commit."""
