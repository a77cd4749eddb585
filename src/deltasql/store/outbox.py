"""The outbox of the log: which versions are not published yet, what they hold, and how publishing them went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from deltasql.config import Config
from deltasql.errors import UsageError
from deltasql.protocol.table_changes import LoggedCommit, with_tables
from deltasql.store import action_rows
from deltasql.store.database import Connection, Database, Row, fetch
from deltasql.store.queries import queries
from deltasql.store.sqlstate import translated

# The locks of a table are named by its schema, one of these and its key.
_PUBLISHING = ".publishing"
_CHECKPOINTING = ".checkpointing"
_MANIFESTS = ".manifests"
# A version that failed for good is still tried now and then: the store may have come back.
_LONGEST_PAUSE = 300.0
UNKNOWN_MODE = "unknown"
"""The mode of a table whose properties this release cannot read."""
OPEN_AT_ONCE = 64
"""So many versions are read and published under one lock."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table, as far as publishing needs to know it."""

    key: int
    id: str
    name: str
    location: str
    properties: Mapping[str, str]
    version: int

    @classmethod
    def of(cls, row: Row) -> MirroredTable:
        """From a row of the `mirror_tables` query."""
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
    """A version that is not published yet."""

    version: int
    attempts: int
    due: bool
    whole: bool
    """Are it and the version before it in the database?"""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a table's log is published."""

    head: int
    published: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """How publishing a table stands."""

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


class Outbox:
    """What publishers ask the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._config = database.config

    def tables(self, key: int | None = None) -> list[MirroredTable]:
        """All tables, or one."""
        return [MirroredTable.of(row) for row in self._database.rows("mirror_tables", table_key=key)]

    def due(self) -> list[MirroredTable]:
        """The tables whose next version may be published now."""
        found = self._database.rows("mirror_waiting", **self._pauses())
        return [MirroredTable.of(row) for row in found if row["seconds"] <= 0]

    def pauses(self) -> dict[str, float]:
        """In how many seconds the next attempt is due, of the tables where one has failed."""
        found = self._database.rows("mirror_waiting", **self._pauses())
        return {str(row["table_id"]): row["seconds"] for row in found if row["tried"]}

    def progress(self, table: MirroredTable) -> Progress:
        """How far a table's log is published and checkpointed; of a table that was dropped, nothing is."""
        row = self._database.row("mirror_progress", table_key=table.key)
        if row is None:
            return Progress(-1, -1, -1)
        return Progress(row["current_version"], row["published"], row["checkpoint"])

    def status(self, key: int | None = None) -> list[MirrorStatus]:
        """Every table, by name, or one."""
        return [_status(row, self._config) for row in self._database.rows("mirror_status", table_key=key)]

    def cleaned(self, table: MirroredTable, version: int) -> None:
        """The log of a table begins at a version from now on: those before are cleaned up."""
        self._database.execute("mirror_cleaned", table_key=table.key, version=version)

    def kept_from(self, table: MirroredTable) -> int:
        """The first version of a table that was not cleaned up."""
        return int(self._database.rows("mirror_kept", table_key=table.key)[0]["version"])

    def commits(self, table: MirroredTable, versions: Sequence[int]) -> dict[int, LoggedCommit]:
        """What versions hold."""
        with translated(), self._database.connection() as connection:
            return read_commits(connection, table.key, versions)

    def reopen(self, table: MirroredTable, versions: Sequence[int]) -> list[int]:
        """Have versions published again; those that were published."""
        found = self._database.rows("mirror_reopen", table_key=table.key, versions=list(versions))
        return [row["version"] for row in found]

    def close(self, table: MirroredTable, version: int) -> None:
        """Have a version count as published."""
        self._database.execute("mirror_succeeded", table_key=table.key, versions=[version])

    def transaction(self, table: MirroredTable, version: int) -> str:
        """The id of the transaction that made a version."""
        return str(self._database.rows("mirror_transaction", table_key=table.key, version=version)[0]["txn_id"])

    def retry(self, table: MirroredTable) -> None:
        """Have the open versions tried at once, as if for the first time."""
        self._database.execute("mirror_retry", table_key=table.key)

    def checkpointed(self, table: MirroredTable, version: int) -> None:
        """A version has a checkpoint."""
        self._database.execute("mirror_checkpointed", table_key=table.key, version=version)

    def checkpoint_failed(self, table: MirroredTable, version: int, error: str) -> None:
        """Writing the checkpoint of a version failed."""
        self._database.execute("mirror_checkpoint_failed", table_key=table.key, version=version, error=error)

    def notify(self, key: int) -> None:
        """Wake a reconciler that waits."""
        self._database.rows("mirror_notify", table_key=key)

    @contextmanager
    def publishing(self, table: MirroredTable, *, wait: bool) -> Iterator[Publishing | None]:
        """Be the one publisher of a table. None if there is another one and `wait` is off."""
        key = {"kind": _PUBLISHING, "table_key": table.key}
        with translated(), self._database.connection() as connection:
            session = Publishing(connection, table, self._config, self._pauses())
            # A commit waits for this: what need not wait for an answer is sent at once.
            with connection.pipeline():
                connection.execute("begin isolation level read committed")
                lock = connection.execute(queries()["lock_mirror" if wait else "try_lock_mirror"], key)
                session.ask()
            yield session if wait or (lock.fetchone() or {})["locked"] else None
            with connection.pipeline():
                session.record()
                connection.execute("commit")

    def is_publishing(self, table: MirroredTable) -> bool:
        """Is somebody publishing a table right now?"""
        with self.publishing(table, wait=False) as session:
            return session is None

    @contextmanager
    def checkpointing(self, table: MirroredTable, *, wait: bool) -> Iterator[bool]:
        """Be the one that writes checkpoints and cleans the log of a table. False if there is another one and `wait`
        is off. The session is not one of the pool: it may last for minutes."""
        key = {"kind": _CHECKPOINTING, "table_key": table.key}
        with translated(), psycopg.connect(self._database.conninfo, autocommit=True) as connection:
            if wait:
                connection.execute(queries()["lock_checkpoint"], key)
            found = connection.execute(queries()["try_lock_checkpoint"], key).fetchone()
            yield bool(found and found[0])

    @contextmanager
    def ending(self, table_key: int) -> Iterator[None]:
        """Keep publishers and writers of checkpoints off a table, in whichever process they are, and have them find
        nothing to do once it is dropped in there."""
        with translated(), psycopg.connect(self._database.conninfo, autocommit=True) as connection:
            for kind in (_CHECKPOINTING, _PUBLISHING):
                connection.execute(queries()["lock_checkpoint"], {"kind": kind, "table_key": table_key})
            yield
            connection.execute(queries()["mirror_give_up"], {"table_key": table_key})

    @contextmanager
    def manifests(self, *, wait: bool) -> Iterator[ManifestSession | None]:
        """Be the one that publishes manifests. None if there is another one and `wait` is off."""
        key = {"kind": _MANIFESTS, "table_key": 0}
        with translated(), self._database.connection() as connection:
            connection.execute("begin isolation level read committed")
            lock = connection.execute(queries()["lock_mirror" if wait else "try_lock_mirror"], key).fetchone()
            yield ManifestSession(connection) if wait or (lock or {})["locked"] else None
            connection.execute("commit")

    def _pauses(self) -> dict[str, float]:
        return {"base": self._config["mirror.retry_backoff_base"], "longest": _LONGEST_PAUSE}

    @contextmanager
    def listening(self) -> Iterator[Callable[[float], bool]]:
        """A function that waits for a commit to be announced, so many seconds at most; True if one was."""
        with translated(), psycopg.connect(self._database.conninfo, autocommit=True) as connection:
            connection.execute(queries()["mirror_listen"])
            yield lambda seconds: bool(list(connection.notifies(timeout=seconds, stop_after=1)))


class Publishing:
    """The right to publish a table, as long as its transaction lasts."""

    def __init__(
        self, connection: Connection, table: MirroredTable, config: Config, pauses: Mapping[str, float]
    ) -> None:
        self._connection = connection
        self._table = table
        self._attempts = config["mirror.max_retry_attempts"]
        self._pauses = pauses
        self._asked: psycopg.Cursor[Row] | None = None
        self._published: list[int] = []

    def ask(self) -> None:
        """Ask for the versions that are not published yet; `open` has the answer."""
        params = {"table_key": self._table.key, "limit": OPEN_AT_ONCE, **self._pauses}
        self._asked = self._connection.execute(queries()["mirror_open"], params)

    def open(self) -> list[OpenVersion]:
        """The first versions that are not published yet, in order."""
        found = self._asked.fetchall() if self._asked else []
        return [OpenVersion(r["version"], r["retry_count"], r["due"], r["whole"]) for r in found]

    def head(self) -> int:
        """The last version of the table, now."""
        return int(fetch(self._connection, "mirror_head", {"table_key": self._table.key})[0]["current_version"])

    def commits(self, versions: Sequence[int]) -> dict[int, LoggedCommit]:
        """What versions hold."""
        return read_commits(self._connection, self._table.key, versions)

    def outlast(self, seconds: float) -> None:
        """Keep the lock so many seconds longer while nothing is asked of the database."""
        self._connection.execute(queries()["mirror_outlast"], {"milliseconds": round(seconds * 1000)})

    def succeeded(self, versions: Sequence[int]) -> None:
        """These are published, which is recorded when the session ends."""
        self._published += versions

    def record(self) -> None:
        """Write down what was published."""
        if self._published:
            params = {"table_key": self._table.key, "versions": self._published}
            self._connection.execute(queries()["mirror_succeeded"], params)

    def failed(self, version: int, error: str, *, final: bool) -> bool:
        """An attempt failed; True if it was the one that made the version FAILED."""
        params = {"table_key": self._table.key, "version": version, "error": error, "final": final}
        found = fetch(self._connection, "mirror_failed", params | {"attempts": self._attempts})[0]
        return bool(found["status"] == "FAILED" != found["was"])


@dataclass(frozen=True, slots=True)
class CommittedTable:
    """A table's part of a transaction."""

    table_id: str
    name: str
    location: str
    version: int
    published: bool


@dataclass(frozen=True, slots=True)
class MultiTableCommit:
    """A transaction over several tables."""

    txn_id: str
    committed_at: datetime
    author: str | None
    message: str | None
    tables: Sequence[CommittedTable]


class ManifestSession:
    """The right to publish manifests, as long as its transaction lasts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tables(self) -> list[MirroredTable]:
        """All tables of the lake."""
        return [MirroredTable.of(row) for row in fetch(self._connection, "mirror_tables", {"table_key": None})]

    def last(self) -> tuple[int, dict[str, Any]]:
        """The number of the last manifest, -1 if there is none, and the versions that it told."""
        found = fetch(self._connection, "manifest_last", {})
        return (found[0]["manifest"], action_rows.loads(found[0]["snapshot"])) if found else (-1, {})

    def open(self) -> list[MultiTableCommit]:
        """The next transactions that have none, in the order of their commits."""
        found: dict[str, list[Row]] = {}
        for row in fetch(self._connection, "manifest_open", {"limit": OPEN_AT_ONCE}):
            found.setdefault(str(row["txn_id"]), []).append(row)
        return [
            MultiTableCommit(
                txn_id,
                parts[0]["committed_at"],
                parts[0]["author"],
                parts[0]["message"],
                [
                    CommittedTable(str(r["table_id"]), r["name"], r["location"], r["version"], bool(r["published"]))
                    for r in parts
                ],
            )
            for txn_id, parts in found.items()
        ]

    def written(self, txn_id: str, number: int, snapshot: Mapping[str, Any]) -> bool:
        """A transaction has its manifest. False if there is no such transaction, or it has another one."""
        params = {"txn_id": txn_id, "manifest": number, "snapshot": action_rows.dumps(snapshot)}
        return self._connection.execute(queries()["manifest_written"], params).rowcount == 1


def read_commits(connection: Connection, key: int, versions: Sequence[int]) -> dict[int, LoggedCommit]:
    """Versions with all their actions, in at most eight queries however many they are."""
    heads = fetch(connection, "logged_versions", {"table_key": key, "versions": list(versions)})
    commits = [row["commit_id"] for row in heads]

    def grouped(name: str, read: Callable[[Sequence[Any]], T], wanted: bool) -> dict[int, list[T]]:
        """The actions of one kind, by commit or by version."""
        found: dict[int, list[T]] = {}
        if wanted:
            params = {"table_key": key, "commits": commits, "versions": list(versions)}
            with connection.cursor(row_factory=tuple_row) as cursor:
                for row in cursor.execute(queries()[name], params):
                    found.setdefault(row[0], []).append(read(row))
        return found

    adds = grouped("logged_adds", action_rows.add_of, any(r["num_adds"] for r in heads))
    removes = grouped("logged_removes", action_rows.remove_of, any(r["num_removes"] for r in heads))
    cdc = grouped("logged_cdc", action_rows.cdc_of, True)
    txns = grouped("logged_txns", action_rows.txn_of, any(r["has_txn"] for r in heads))
    domains = grouped("logged_domains", action_rows.domain_of, any(r["has_domain"] for r in heads))
    params = {"table_key": key, "versions": list(versions)}
    metadata, protocols = {}, {}
    if any(r["has_metadata"] for r in heads):
        metadata = {r["version"]: action_rows.metadata_of(r) for r in fetch(connection, "logged_metadata", params)}
    if any(r["has_protocol"] for r in heads):
        protocols = {r["version"]: action_rows.protocol_of(r) for r in fetch(connection, "logged_protocols", params)}
    return {
        row["version"]: LoggedCommit(
            version=row["version"],
            committed_at=row["committed_at"],
            info=with_tables(action_rows.loads(row["commit_info"]), row["tables"] and action_rows.loads(row["tables"])),
            in_commit_timestamp=row["in_commit_timestamp"],
            protocol=protocols.get(row["version"]),
            metadata=metadata.get(row["version"]),
            txns=txns.get(row["version"], ()),
            domains=domains.get(row["version"], ()),
            adds=adds.get(row["commit_id"], ()),
            removes=removes.get(row["commit_id"], ()),
            cdc=cdc.get(row["commit_id"], ()),
        )
        for row in heads
    }


def _status(row: Row, config: Config) -> MirrorStatus:
    mode, unread = _mode(row["properties"], config)
    lag = row["current_version"] - row["published"]
    return MirrorStatus(
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
        error=unread or row["error_message"],
        last_attempt_at=row["last_attempt_at"],
    )


def _mode(properties: Mapping[str, str], config: Config) -> tuple[str, str | None]:
    """When a table is published, and what keeps this release from knowing: another one may have set its properties."""
    try:
        return config.override(properties)["mirror.mode"], None
    except UsageError as error:
        return UNKNOWN_MODE, f"not published from here: {error}"
