"""UPDATE, DELETE and MERGE as values: what becomes of which rows. Nothing here knows Spark.

The table's rows are called `t`, those of a source `s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from deltasql.core.actions import Add

TARGET, SOURCE = "t", "s"
UPDATE, DELETE, INSERT = "UPDATE", "DELETE", "INSERT"
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


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of rows, before it meets the table."""

    clauses: Sequence[Clause]
    condition: Expression | None = None
    """Which rows match, or which of the table's if there is no source."""
    source: Any = None
    """A Spark frame of structs, one for each name of the source."""
    returning: Sequence[Expression] | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a table's files."""

    gone: pa.Table
    """Files that lost rows, as a snapshot has them."""
    kept: list[Add] = field(default_factory=list)
    """New files with the rows that those had besides."""
    added: list[Add] = field(default_factory=list)
    """New files with new rows."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many rows were updated, deleted and inserted."""
    returned: Any = None
    """A Spark frame of what the statement returns."""


def num_records(stats: str | None) -> int | None:
    """How many rows a file has, if its statistics say so."""
    found: Any = msgspec.json.decode(stats) if stats else {}
    return found.get("numRecords") if isinstance(found, dict) else None
