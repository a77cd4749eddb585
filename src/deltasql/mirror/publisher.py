"""Publish the versions of a table as commit files of `_delta_log`: in order, each once, and without overwriting files.

A lock in the database lets one publisher at a time publish a table. The publisher that has the lock publishes all
unpublished versions, so that those who waited for the lock find their version published.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from deltasql.delta_log.commit_file import commit_bytes
from deltasql.delta_log.layout import checkpoint_path, commit_path
from deltasql.errors import CopiedDatabase, DatabaseError, DeltaSqlError, MirrorConflict, MirrorFailure
from deltasql.mirror.log_conflicts import conflict, is_truncated, newer_in_log, writer_of
from deltasql.mirror.metrics import Metrics
from deltasql.storage import Directory
from deltasql.store.mirror_records import MirroredTable, OpenVersion
from deltasql.store.outbox import Outbox
from deltasql.store.publish_session import PUBLISH_BATCH, PublishSession

# The transaction that holds the lock is idle while files are written, and the server ends one that idles too long.
_BATCH_SECONDS = 10.0
# A large file may be transferred this often: written, read back and compared.
_TRANSFERS = 3


@dataclass(frozen=True, slots=True)
class Published:
    """The result of an attempt to publish a table.

    Attributes:
        table: The table.
        versions: The versions that were published.
        failure: The failure that ended the attempt.
        alert: Whether the failure changed the status of its version to FAILED.
        busy: Whether another publisher is at work, or the next attempt is not due yet.
        checkpoint: The last version with a checkpoint when the attempt began.
    """

    table: MirroredTable
    versions: Sequence[int] = ()
    failure: MirrorFailure | None = None
    alert: bool = False
    busy: bool = False
    checkpoint: int = -1


class Directories:
    """The directories of tables, each opened once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._open: dict[str, Directory] = {}
        self._lock = threading.Lock()

    def of(self, table: MirroredTable) -> Directory:
        """Return the directory of a table."""
        return self.at(table.location)

    def at(self, location: str) -> Directory:
        """Return the directory of a location."""
        with self._lock:
            if location not in self._open:
                self._open[location] = Directory(location, self._options)
            return self._open[location]


class Publisher:
    """Publishes the unpublished versions of tables."""

    def __init__(self, outbox: Outbox, directories: Directories, metrics: Metrics) -> None:
        self._outbox = outbox
        self._directories = directories
        self._metrics = metrics
        self._last_published: dict[int, int] = {}
        """The last version that this process published, by table key."""

    def forget(self, table: MirroredTable) -> None:
        """Check the log again before the next version of a table is published, because its files may have changed."""
        self._last_published.pop(table.key, None)

    def publish(
        self,
        table: MirroredTable,
        *,
        known: Mapping[int, Callable[[], bytes]] | None = None,
        wait: bool = False,
        now: bool = False,
    ) -> Published:
        """Publish all unpublished versions of a table that are due.

        Args:
            table: The table.
            known: Functions that return the bytes of versions, which are then not read from the database.
            wait: Whether to wait for another publisher.
            now: Whether to publish versions that are not due yet, too.
        """
        done: list[int] = []
        checkpoint = -1
        copied = self._outbox.identity.current().problem  # takes a connection, so it comes before the lock
        while True:
            with self._outbox.publishing(table, wait=wait) as session:
                if session is None:
                    return Published(table, done, busy=True, checkpoint=checkpoint)
                batch = session.open_versions()
                if not batch:
                    return Published(table, done, checkpoint=checkpoint)
                checkpoint = batch[0].checkpoint
                if not (now or batch[0].due):
                    return Published(table, done, busy=True, checkpoint=checkpoint)
                failed = self._publish(session, table, batch, known or {}, done=done, copied=copied)
            if failed is not None:
                return replace(failed, checkpoint=checkpoint)
            if done[-1] == batch[-1].version and len(batch) < PUBLISH_BATCH:
                return Published(table, done, checkpoint=checkpoint)

    def _publish(
        self,
        session: PublishSession,
        table: MirroredTable,
        batch: Sequence[OpenVersion],
        known: Mapping[int, Callable[[], bytes]],
        *,
        done: list[int],
        copied: str | None,
    ) -> Published | None:
        """Publish one batch. The versions before a failed one are recorded as published. `copied` is the problem of a
        database that is a copy: the original may publish the same table."""
        unknown = [v.version for v in batch if v.version not in known]
        stored = session.commits(unknown) if unknown else {}
        published: list[int] = []
        problem: tuple[int, Exception] | None = None
        deadline = time.monotonic() + _BATCH_SECONDS
        for index, entry in enumerate(batch):
            if published and time.monotonic() > deadline:
                break
            version = entry.version
            try:
                _check_order(table, entry)
                if index == 0:
                    _check_original(table, version, copied)
                    self._check_not_newer(session, table, version)
                    self._check_predecessor(table, version)
                data = known[version]() if version in known else commit_bytes(stored[version])
                if seconds := self._directories.of(table).extra_seconds(len(data)):
                    session.extend_timeout(_TRANSFERS * seconds)
                with self._metrics.publishing():
                    self._put(table, version, data)
            except Exception as error:
                problem = version, error
                break
            published.append(version)
        if published:
            session.mark_published(published)
            self._last_published[table.key] = published[-1]
            self._metrics.published(len(published))
            done += published
        return self._record(session, table, *problem, done) if problem else None

    def _record(
        self, session: PublishSession, table: MirroredTable, version: int, error: Exception, done: Sequence[int]
    ) -> Published:
        if not isinstance(error, DeltaSqlError) or isinstance(error, DatabaseError):
            raise error
        failure = (
            error if isinstance(error, MirrorFailure) else MirrorFailure(table.id, version, str(error), table.name)
        )
        conflict = isinstance(failure, MirrorConflict)
        alert = session.record_failure(version, failure.error, final=conflict)
        self._metrics.failed(conflict=conflict)
        return Published(table, done, failure, alert)

    def _put(self, table: MirroredTable, version: int, data: bytes) -> None:
        directory = self._directories.of(table)
        path = commit_path(version)
        if directory.put_if_absent(path, data):
            return
        existing = directory.get(path, len(data))
        if existing == data:
            return
        if existing is not None and is_truncated(existing, data):
            directory.put(path, data)
            return
        raise conflict(directory, table, version, writer_of(existing or b""))

    def _check_not_newer(self, session: PublishSession, table: MirroredTable, version: int) -> None:
        """Raise the conflict if the log has versions that the database does not have. The check is made when this
        process publishes the table for the first time, and when the version is lower than the last one, because the
        database was restored. At any other time such a log has a file for the next version, which is found anyway."""
        if version > self._last_published.get(table.key, version):
            return
        problem = newer_in_log(self._directories.of(table), table, session.head, version)
        if problem is not None:
            raise problem

    def _check_predecessor(self, table: MirroredTable, version: int) -> None:
        """Raise a failure if the log has neither the version before nor a checkpoint that replaces it, because a log
        with a gap is unreadable. In an object store, a version that this process published is assumed to exist."""
        directory = self._directories.of(table)
        if version == 0 or (not directory.is_local and self._last_published.get(table.key) == version - 1):
            return
        paths = (commit_path(version - 1), checkpoint_path(version - 1), checkpoint_path(version))
        if all(directory.size(path) is None for path in paths):
            raise MirrorFailure(
                table.id,
                version,
                f"{directory.location}/{commit_path(version - 1)} is missing, and a log with a gap cannot be read: "
                f"`deltasql mirror repair {table.name}` publishes it again",
                table.name,
            )


def _check_original(table: MirroredTable, version: int, copied: str | None) -> None:
    if copied is not None:
        raise CopiedDatabase(table.id, version, copied, table.name)


def _check_order(table: MirroredTable, entry: OpenVersion) -> None:
    if not entry.has_predecessor:
        raise MirrorFailure(
            table.id,
            entry.version,
            f"version {entry.version} or the version before it is missing from the outbox: the log would have a gap. "
            f"`deltasql mirror repair {table.name} --version={entry.version - 1}` restores it if its commit exists",
            table.name,
        )
