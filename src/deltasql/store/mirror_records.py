"""Records that the mirror reads from the database."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from deltasql.config import Config
from deltasql.errors import UsageError
from deltasql.store.database import Row

UNKNOWN_MODE = "unknown"
"""The mode of a table whose properties this release cannot read."""


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table with the values that publishing needs."""

    key: int
    id: str
    name: str
    location: str
    properties: Mapping[str, str]
    version: int

    @classmethod
    def of(cls, row: Row) -> MirroredTable:
        """Return the table of a row of the `mirror_tables` query."""
        return cls(
            row["table_key"],
            str(row["table_id"]),
            row["name"],
            row["location"],
            row["properties"],
            row["current_version"],
        )


@dataclass(frozen=True, slots=True)
class OpenVersion:
    """A version that is not published yet.

    Attributes:
        version: The version.
        attempts: The number of failed attempts to publish it.
        due: Whether the next attempt may be made now.
        has_predecessor: Whether the database has the version and the version before it.
        checkpoint: The last version of the table that has a checkpoint.
    """

    version: int
    attempts: int
    due: bool
    has_predecessor: bool
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The latest version of a table, its latest published version and its latest checkpoint; -1 if there is none."""

    head: int
    published: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The publishing status of one table.

    Attributes:
        table: The table's full name.
        table_id: The table's UUID.
        location: The directory of the table.
        mode: The value of `mirror.mode` for the table: `sync`, `async` or `off`, or `unknown` if this release cannot
            read the table's properties.
        version: The latest committed version.
        published: The latest published version, -1 if none is.
        checkpoint: The version of the latest checkpoint, -1 if there is none.
        lag_versions: The number of versions that are not published yet.
        lag_seconds: The age of the oldest version that is not published yet, 0 if there is none.
        status: The status of that version, `PENDING` or `FAILED`; `SUCCESS` if all versions are published.
        attempts: The number of failed attempts to publish that version.
        error: The error of the last failed attempt, or of the last checkpoint that could not be written.
        last_attempt_at: The time of the last attempt.
        log_ahead: The first version in `_delta_log` that the database does not have, None if there is none.
    """

    table: str
    table_id: str
    location: str
    mode: str
    version: int
    published: int
    checkpoint: int
    lag_versions: int
    lag_seconds: float
    status: str
    attempts: int
    error: str | None
    last_attempt_at: datetime | None
    log_ahead: int | None = None

    @classmethod
    def of(cls, row: Row, config: Config) -> MirrorStatus:
        """Return the status of a row of the `mirror_status` query."""
        mode, problem = _mode(row["properties"], config)
        lag = row["current_version"] - row["published"]
        return cls(
            table=row["name"],
            table_id=str(row["table_id"]),
            location=row["location"],
            mode=mode,
            version=row["current_version"],
            published=row["published"],
            checkpoint=row["checkpoint"],
            lag_versions=lag,
            lag_seconds=math.ceil(1000 * (row["lag_seconds"] or 0)) / 1000 if lag else 0.0,
            status=row["status"] or "SUCCESS",
            attempts=row["retry_count"] or 0,
            error=problem or row["error_message"],
            last_attempt_at=row["last_attempt_at"],
        )


def _mode(properties: Mapping[str, str], config: Config) -> tuple[str, str | None]:
    """Return the mode of a table, and the problem if this release cannot read its properties."""
    try:
        return config.override(properties)["mirror.mode"], None
    except UsageError as error:
        return UNKNOWN_MODE, f"not published by this release: {error}"


@dataclass(frozen=True, slots=True)
class CommittedTable:
    """One table of a multi-table commit."""

    table_id: str
    name: str
    location: str
    version: int
    published: bool

    @classmethod
    def of(cls, row: Row) -> CommittedTable:
        """Return the table of a row of the `manifest_open` query."""
        return cls(str(row["table_id"]), row["name"], row["location"], row["version"], bool(row["published"]))


@dataclass(frozen=True, slots=True)
class MultiTableCommit:
    """A transaction that committed to more than one table."""

    txn_id: str
    committed_at: datetime
    author: str | None
    message: str | None
    tables: Sequence[CommittedTable]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> MultiTableCommit:
        """Return the transaction of its rows of the `manifest_open` query, one per table."""
        first = rows[0]
        tables = [CommittedTable.of(row) for row in rows]
        return cls(str(first["txn_id"]), first["committed_at"], first["author"], first["message"], tables)
