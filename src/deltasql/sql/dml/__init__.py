"""INSERT, UPDATE, DELETE and MERGE: from a syntax tree to the description of a row change."""
