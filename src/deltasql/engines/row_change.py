"""The description of a row change (INSERT, UPDATE, DELETE, MERGE) as plain values, for methods and SQL alike.

Expressions are texts in Spark SQL or Columns. They refer to the table and to the source by their aliases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltasql.protocol.actions import Add, Cdc

FILE, ROW = "__deltasql_file", "__deltasql_row"
"""The columns of a row id: the file, and the number of the row in the file."""
ACTION = "__deltasql_action"
"""The column that holds the action of a changed row; RETURNING may read it."""
OLD_ROW, NEW_ROW = "__deltasql_old_row", "__deltasql_new_row"
"""The names of the row before and after the change in expressions of RETURNING."""
TARGET, SOURCE = "t", "s"
"""The aliases of the table and of the source in the expressions of methods."""
UPDATE, DELETE, INSERT, NOTHING = "UPDATE", "DELETE", "INSERT", "NOTHING"
MERGE, WRITE = "MERGE", "WRITE"
"""Names of operations in the history besides UPDATE and DELETE."""
UNMATCHED = {UPDATE: "UPDATE of rows not matched by source", DELETE: "DELETE of rows not matched by source"}
"""The keys of the counts of rows that match no source row, by action."""
MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "matched", "not matched", "not matched by source"

Expression = Any
"""A text in Spark SQL, a Column, or a plain value."""


@dataclass(frozen=True, slots=True)
class Clause:
    """The action for the rows to which this clause is the first to apply."""

    action: str
    of: str = MATCHED
    condition: Expression | None = None
    values: Mapping[str, Expression] = field(default_factory=dict)
    """The values of columns. UPDATE keeps the columns that are left out, INSERT gives them their defaults."""


def unreachable(clauses: Sequence[Clause]) -> int | None:
    """Return the index of the first clause that no row reaches, because an earlier one of its kind takes all rows."""
    taken: set[str] = set()
    for index, clause in enumerate(clauses):
        if clause.of in taken:
            return index
        if clause.condition is None:
            taken.add(clause.of)
    return None


@dataclass(frozen=True, slots=True)
class Source:
    """The rows that a change reads besides the table."""

    rows: Any
    """A Spark frame. With several aliases its columns are qualified by them."""
    columns: Mapping[str, Sequence[str]]
    """The columns of each alias."""

    @classmethod
    def of(cls, rows: Any, alias: str = SOURCE) -> Source:
        """Return the source with one alias."""
        return cls(rows, {alias: unique_names(rows.columns)})


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names that occur once; Spark cannot resolve the others."""
    lower = [name.lower() for name in names]
    return [name for name in names if lower.count(name.lower()) == 1]


@dataclass(frozen=True, slots=True)
class Output:
    """An expression to return for each changed row; without a name Spark chooses one."""

    expression: Expression
    name: str | None = None


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of rows, independent of the version of the table."""

    clauses: Sequence[Clause]
    condition: Expression | None = None
    """Which rows match: pairs of table and source rows, or table rows without a source."""
    source: Source | None = None
    returning: Sequence[Output] | None = None
    """Read from new values of inserted and updated rows, and from old values of deleted rows."""
    target: str = TARGET
    """The alias of the table."""
    relations: Mapping[str, Any] = field(default_factory=dict)
    """Spark frames by the names that subqueries in expressions have for them."""

    @property
    def updates(self) -> bool:
        """Whether rows may be updated."""
        return any(clause.action == UPDATE for clause in self.clauses)

    @property
    def deletes_all_matched(self) -> bool:
        """Whether every row that matches is deleted, so that it does not matter how many source rows match it."""
        matched = [clause for clause in self.clauses if clause.of == MATCHED]
        return len(matched) == 1 and matched[0].action == DELETE and matched[0].condition is None

    @property
    def inserts(self) -> bool:
        """Whether source rows may be inserted."""
        return any(clause.of == NOT_MATCHED for clause in self.clauses)

    @property
    def reads_unmatched_rows(self) -> bool:
        """Whether table rows that match no source row may change, so that no file can be pruned."""
        return any(clause.of == NOT_MATCHED_BY_SOURCE for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class TableFields:
    """The fields of a table as in its Delta schema, and its partition columns."""

    all: Sequence[Any]
    partitions: Sequence[str]

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [one["name"] for one in self.all]


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The files that a change removed and wrote, with counts and times for the history."""

    removed: pa.Table
    """Files that lost rows, as the snapshot lists them."""
    rewritten: list[Add] = field(default_factory=list)
    """New files with the carried-over rows of removed files."""
    marked: list[Add] = field(default_factory=list)
    """Removed files that are added again with deletion vectors."""
    change_files: list[Cdc] = field(default_factory=list)
    """New files of the change data feed."""
    added: list[Add] = field(default_factory=list)
    """New files with new rows."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of rows by action."""
    source_rows: int = 0
    """The number of source rows of a merge."""
    source_ms: float = 0
    """The time that computing the source took."""
    scan_ms: float = 0
    """The time that finding the changed rows took."""
    returned: Any = None
    """A Spark frame of the returned rows."""
