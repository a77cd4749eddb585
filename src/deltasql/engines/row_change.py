"""UPDATE, DELETE and MERGE as values: what becomes of which rows. Nothing here knows Spark.

The table's rows are called `t`, those of a source `s`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltasql.protocol.actions import Add, Cdc

FILE, ROW = "__deltasql_file", "__deltasql_row"
"""The columns that tell where a row lies: its file, by Hadoop's URI, and its number in there."""
ALONE = "__deltasql_alone"
"""The column that tells whether a row matches none of the source, where such rows may change."""
CLAUSE = "__deltasql_clause"
"""The column that tells which clause applies to a row, if there are several."""
TARGET, SOURCE = "t", "s"
ACTION = "__deltasql_action"
"""The column that tells what becomes of a row."""
UPDATE, DELETE, INSERT, NOTHING = "UPDATE", "DELETE", "INSERT", "NOTHING"
MERGE, WRITE = "MERGE", "WRITE"
"""What statements are called besides in history."""
UNMATCHED = {UPDATE: "UPDATE of rows that match none", DELETE: "DELETE of rows that match none"}
"""How these are counted."""
MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "matched", "not matched", "not matched by source"

Expression = Any
"""A text in Spark's SQL, or a Column."""


@dataclass(frozen=True, slots=True)
class Clause:
    """What becomes of the rows that it is the first to apply to."""

    action: str
    of: str = MATCHED
    condition: Expression | None = None
    values: Mapping[str, Expression] = field(default_factory=dict)
    """The values of columns; an update leaves the others as they are, an insert leaves them out."""


def unreachable(clauses: Sequence[Clause]) -> int | None:
    """The first clause that no row can reach: one of its kind that takes all of them comes before."""
    taken: set[str] = set()
    for number, clause in enumerate(clauses):
        if clause.of in taken:
            return number
        if clause.condition is None:
            taken.add(clause.of)
    return None


@dataclass(frozen=True, slots=True)
class Fields:
    """A table's columns, in Delta's words, and which of them are its partition columns."""

    all: Sequence[Any]
    partitions: Sequence[str]


def raw_name(clause: int, column: str) -> str:
    """The column that has the value which a clause gives to a column."""
    return f"__deltasql_{clause}_{column}"


@dataclass(frozen=True, slots=True)
class Queries:
    """A statement whose rows are found by queries."""

    target: str
    """What the table's row is called."""
    rows: Callable[..., Any]
    """From the table's rows, with their places, and those of a merge's source to those that change: where they lie,
    structs of the table's and the sources' rows, and the values by `raw_name`. With `found` these are all that match
    the condition already."""
    places: Callable[[Any], Any] | None = None
    """From the table's rows to the places of those that match; None if it takes other tables to tell."""
    seen: Callable[[Any, str], Any] | None = None
    """From the rows as they became to the same with what is returned of each, as a struct of that name."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of rows, before it meets the table."""

    clauses: Sequence[Clause]
    condition: Expression | None = None
    """Which rows match, or which of the table's if there is no source."""
    source: Any = None
    """A Spark frame; with queries, whatever tells that there is one."""
    returning: Sequence[Expression] | None = None
    queries: Queries | None = None

    @property
    def updates(self) -> bool:
        """May rows be updated?"""
        return any(clause.action == UPDATE for clause in self.clauses)

    @property
    def inserts(self) -> bool:
        """May rows of the source come in?"""
        return any(clause.of == NOT_MATCHED for clause in self.clauses)

    @property
    def takes_whole(self) -> bool:
        """May rows change that no row of the source matches? These are all that are left: none may be missing."""
        return any(clause.of == NOT_MATCHED_BY_SOURCE for clause in self.clauses)

    @property
    def returns(self) -> bool:
        """Are rows to be seen?"""
        return self.returning is not None or (self.queries is not None and self.queries.seen is not None)


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a table's files."""

    gone: pa.Table
    """Files that lost rows, as a snapshot has them."""
    kept: list[Add] = field(default_factory=list)
    """New files with the rows that those had besides."""
    marked: list[Add] = field(default_factory=list)
    """Those of them that stay, with deletion vectors."""
    vectors: list[str] = field(default_factory=list)
    """New files that hold these."""
    changes: list[Cdc] = field(default_factory=list)
    """New files that tell what happened to rows, if the files above do not."""
    added: list[Add] = field(default_factory=list)
    """New files with new rows."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many rows were updated, deleted and inserted."""
    source_rows: int = 0
    """How many rows were merged."""
    source_ms: float = 0
    """How long it took to compute these, and"""
    scan_ms: float = 0
    """to find the rows that change."""
    returned: Any = None
    """A Spark frame of what the statement returns."""
