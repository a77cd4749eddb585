"""The outbox of the log: which versions are not published yet, and the result of publishing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg

from deltasql.protocol.table_changes import LoggedCommit
from deltasql.store.database import Database
from deltasql.store.identity import Identities
from deltasql.store.mirror_records import MirroredTable, MirrorStatus, Progress
from deltasql.store.publish_session import ManifestSession, PublishSession
from deltasql.store.queries import queries
from deltasql.store.read.logged_commits import read_commits
from deltasql.store.sqlstate import translated

# The name of an advisory lock is the schema, one of these kinds, and the table key.
_PUBLISHING = ".publishing"
_CHECKPOINTING = ".checkpointing"
_MANIFESTS = ".manifests"
# A FAILED version is still retried at this interval, because the object store may work again.
_LONGEST_PAUSE = 300.0


class Outbox:
    """The queries and locks of the mirror."""

    def __init__(self, database: Database, identity: Identities) -> None:
        self._database = database
        self.identity = identity
        self._config = database.config

    def tables(self, key: int | None = None) -> list[MirroredTable]:
        """Return all tables, or the one with a key."""
        return [MirroredTable.of(row) for row in self._database.rows("mirror_tables", table_key=key)]

    def due(self) -> list[MirroredTable]:
        """Return the tables with an unpublished version whose next attempt is due."""
        rows = self._database.rows("mirror_waiting", **self._backoff())
        return [MirroredTable.of(row) for row in rows if row["seconds"] <= 0]

    def seconds_until_retry(self) -> dict[str, float]:
        """Return the seconds until the next attempt by table id, for the tables with a failed attempt."""
        rows = self._database.rows("mirror_waiting", **self._backoff())
        return {str(row["table_id"]): row["seconds"] for row in rows if row["tried"]}

    def progress(self, table: MirroredTable) -> Progress:
        """Return how far a table is published and checkpointed; -1 for everything if the table is dropped."""
        row = self._database.row("mirror_progress", table_key=table.key)
        if row is None:
            return Progress(-1, -1, -1)
        return Progress(row["current_version"], row["published"], row["checkpoint"])

    def status(self, key: int | None = None) -> list[MirrorStatus]:
        """Return the status of all tables, by name, or of the one with a key."""
        return [MirrorStatus.of(row, self._config) for row in self._database.rows("mirror_status", table_key=key)]

    def record_cleaned(self, table: MirroredTable, version: int) -> None:
        """Record that the commit files before a version are deleted."""
        self._database.execute("mirror_cleaned", table_key=table.key, version=version)

    def first_retained(self, table: MirroredTable) -> int:
        """Return the first version whose commit file log retention has not deleted."""
        return int(self._database.rows("mirror_first_retained", table_key=table.key)[0]["version"])

    def commits(self, table: MirroredTable, versions: Sequence[int]) -> dict[int, LoggedCommit]:
        """Return versions of a table with all their actions."""
        with translated(), self._database.connection() as connection:
            return read_commits(connection, table.key, versions)

    def reopen(self, table: MirroredTable, versions: Sequence[int]) -> list[int]:
        """Mark versions as unpublished, and return those that were published."""
        rows = self._database.rows("mirror_reopen", table_key=table.key, versions=list(versions))
        return [row["version"] for row in rows]

    def mark_published(self, table: MirroredTable, version: int) -> None:
        """Mark a version as published."""
        self._database.execute("mirror_succeeded", table_key=table.key, versions=[version])

    def txn_id(self, table: MirroredTable, version: int) -> str:
        """Return the id of the transaction that committed a version."""
        return str(self._database.rows("mirror_transaction", table_key=table.key, version=version)[0]["txn_id"])

    def known_transactions(self, txn_ids: Sequence[str]) -> set[str]:
        """Return those of some transactions that committed to several tables of this database."""
        return {str(row["txn_id"]) for row in self._database.rows("known_transactions", txn_ids=list(txn_ids))}

    def is_confined(self) -> bool:
        """Return whether this account sees only the namespaces that it was granted."""
        return bool(self._database.rows("is_confined")[0]["is_confined"])

    def reset_attempts(self, table: MirroredTable) -> None:
        """Make all unpublished versions due now, with no failed attempts."""
        self._database.execute("mirror_retry", table_key=table.key)

    def record_checkpoint(self, table: MirroredTable, version: int) -> None:
        """Record that a version has a checkpoint."""
        self._database.execute("mirror_checkpoint", table_key=table.key, version=version, error=None)

    def record_checkpoint_failure(self, table: MirroredTable, version: int, error: str) -> None:
        """Record that the checkpoint of a version could not be written."""
        self._database.execute("mirror_checkpoint", table_key=table.key, version=version, error=error)

    def notify(self, key: int) -> None:
        """Wake the reconcilers that wait."""
        self._database.rows("mirror_notify", table_key=key)

    @contextmanager
    def publishing(self, table: MirroredTable, *, wait: bool) -> Iterator[PublishSession | None]:
        """Take the lock to publish a table. Yield None if another publisher has it and `wait` is false."""
        key = {"kind": _PUBLISHING, "table_key": table.key}
        with translated(), self._database.connection() as connection:
            session = PublishSession(connection, table, self._config, self._backoff())
            # Commits wait for this, so all statements go in one round trip.
            with connection.pipeline():
                connection.execute("begin isolation level read committed")
                lock = connection.execute(queries()["lock_mirror" if wait else "try_lock_mirror"], key)
                session.request_open_versions()
            yield session if wait or (lock.fetchone() or {})["locked"] else None
            with connection.pipeline():
                session.record()
                connection.execute("commit")

    def is_publishing(self, table: MirroredTable) -> bool:
        """Return whether a publisher holds the lock of a table now."""
        with self.publishing(table, wait=False) as session:
            return session is None

    @contextmanager
    def checkpointing(self, table: MirroredTable, *, wait: bool) -> Iterator[bool]:
        """Take the lock to write checkpoints and clean the log of a table. Yield False if another process has it and
        `wait` is false. The connection is not from the pool, because the lock may be held for minutes."""
        key = {"kind": _CHECKPOINTING, "table_key": table.key}
        with translated(), psycopg.connect(self._database.conninfo, autocommit=True) as connection:
            if wait:
                connection.execute(queries()["lock_checkpoint"], key)
            row = connection.execute(queries()["try_lock_checkpoint"], key).fetchone()
            yield bool(row and row[0])

    @contextmanager
    def dropping(self, table_key: int) -> Iterator[None]:
        """Take all locks of a table while it is dropped, and then mark everything as published, so that no process
        publishes or checkpoints it any more."""
        with translated(), psycopg.connect(self._database.conninfo, autocommit=True) as connection:
            for kind in (_CHECKPOINTING, _PUBLISHING):
                connection.execute(queries()["lock_checkpoint"], {"kind": kind, "table_key": table_key})
            yield
            connection.execute(queries()["mirror_give_up"], {"table_key": table_key})

    @contextmanager
    def manifests(self, *, wait: bool) -> Iterator[ManifestSession | None]:
        """Take the lock to publish manifests. Yield None if another publisher has it and `wait` is false."""
        key = {"kind": _MANIFESTS, "table_key": 0}
        with translated(), self._database.connection() as connection:
            connection.execute("begin isolation level read committed")
            lock = connection.execute(queries()["lock_mirror" if wait else "try_lock_mirror"], key).fetchone()
            yield ManifestSession(connection) if wait or (lock or {})["locked"] else None
            connection.execute("commit")

    def _backoff(self) -> dict[str, float]:
        return {"base": self._config["mirror.retry_backoff_base"], "longest": _LONGEST_PAUSE}

    @contextmanager
    def listening(self) -> Iterator[Callable[[float], bool]]:
        """Yield a function that waits up to some seconds for the announcement of a commit, and returns whether one
        came."""
        with translated(), psycopg.connect(self._database.conninfo, autocommit=True) as connection:
            connection.execute(queries()["mirror_listen"])
            yield lambda seconds: bool(list(connection.notifies(timeout=seconds, stop_after=1)))
