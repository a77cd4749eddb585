"""Sessions that hold a lock of the mirror: to publish a table, or to publish manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from deltasql.config import Config
from deltasql.protocol.table_changes import LoggedCommit
from deltasql.store import action_rows
from deltasql.store.database import Connection, Row, fetch
from deltasql.store.mirror_records import MirroredTable, MultiTableCommit, OpenVersion
from deltasql.store.queries import queries
from deltasql.store.read.logged_commits import read_commits

PUBLISH_BATCH = 64
"""The number of versions that are read and published under one lock."""


class PublishSession:
    """Holds the lock to publish a table until its database transaction ends."""

    def __init__(
        self, connection: Connection, table: MirroredTable, config: Config, backoff: Mapping[str, float]
    ) -> None:
        self._connection = connection
        self._table = table
        self._attempts = config["mirror.max_retry_attempts"]
        self._backoff = backoff
        self._open: psycopg.Cursor[Row] | None = None
        self._published: list[int] = []

    def request_open_versions(self) -> None:
        """Send the query for the unpublished versions; `open_versions` returns its result."""
        params = {"table_key": self._table.key, "limit": PUBLISH_BATCH, **self._backoff}
        self._open = self._connection.execute(queries()["mirror_open"], params)

    def open_versions(self) -> list[OpenVersion]:
        """Return the first unpublished versions, in order."""
        rows = self._open.fetchall() if self._open else []
        return [
            OpenVersion(r["version"], r["retry_count"], r["due"], r["has_predecessor"], r["checkpoint"]) for r in rows
        ]

    def head(self) -> int:
        """Return the latest version of the table."""
        return int(fetch(self._connection, "mirror_head", {"table_key": self._table.key})[0]["current_version"])

    def commits(self, versions: Sequence[int]) -> dict[int, LoggedCommit]:
        """Return versions of the table with all their actions."""
        return read_commits(self._connection, self._table.key, versions)

    def extend_timeout(self, seconds: float) -> None:
        """Extend the idle timeout of the session, to hold the lock while a large file is written."""
        self._connection.execute(queries()["mirror_extend_timeout"], {"milliseconds": round(seconds * 1000)})

    def mark_published(self, versions: Sequence[int]) -> None:
        """Mark versions as published; `record` writes this to the database."""
        self._published += versions

    def record(self) -> None:
        """Write the published versions to the database."""
        if self._published:
            params = {"table_key": self._table.key, "versions": self._published}
            self._connection.execute(queries()["mirror_succeeded"], params)

    def record_failure(self, version: int, error: str, *, final: bool) -> bool:
        """Record a failed attempt. Return whether this attempt changed the status of the version to FAILED."""
        params = {"table_key": self._table.key, "version": version, "error": error, "final": final}
        row = fetch(self._connection, "mirror_failed", params | {"attempts": self._attempts})[0]
        return bool(row["status"] == "FAILED" != row["was"])


class ManifestSession:
    """Holds the lock to publish manifests until its database transaction ends."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tables(self) -> list[MirroredTable]:
        """Return all tables of the lake."""
        return [MirroredTable.of(row) for row in fetch(self._connection, "mirror_tables", {"table_key": None})]

    def last(self) -> tuple[int, dict[str, Any]]:
        """Return the number of the last manifest and its snapshot, -1 and an empty one if there is no manifest."""
        rows = fetch(self._connection, "manifest_last", {})
        return (rows[0]["manifest"], action_rows.loads(rows[0]["snapshot"])) if rows else (-1, {})

    def open_commits(self) -> list[MultiTableCommit]:
        """Return the next transactions without a manifest, in the order of their commits."""
        rows_by_txn: dict[str, list[Row]] = {}
        for row in fetch(self._connection, "manifest_open", {"limit": PUBLISH_BATCH}):
            rows_by_txn.setdefault(str(row["txn_id"]), []).append(row)
        return [MultiTableCommit.of(rows) for rows in rows_by_txn.values()]

    def record(self, txn_id: str, number: int, snapshot: Mapping[str, Any]) -> bool:
        """Record the manifest of a transaction. Return False if the transaction does not exist or has a manifest."""
        params = {"txn_id": txn_id, "manifest": number, "snapshot": action_rows.dumps(snapshot)}
        return bool(fetch(self._connection, "manifest_written", params)[0]["written"])
