"""Publishing: the versions of a table become files of `_delta_log`, in order, each once, none ever overwritten.

The right to publish a table is a lock in the database. Whoever holds it publishes everything that is open, so those
who waited for it find their version published already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deltasql.delta_log.commit_file import commit_bytes
from deltasql.delta_log.layout import checkpoint_path, commit_path
from deltasql.errors import DatabaseError, DeltaSqlError, MirrorConflict, MirrorFailure
from deltasql.mirror.collisions import ahead, conflict, described, is_cut_short
from deltasql.mirror.metrics import Metrics
from deltasql.storage import Directory
from deltasql.store.outbox import OPEN_AT_ONCE, MirroredTable, OpenVersion, Outbox, Publishing

# The lock's transaction does nothing while files are written, and the server ends one that does so for too long.
_BATCH_SECONDS = 10.0
# A large file may be written, read back and compared: that often it goes over the line.
_REQUESTS = 3


@dataclass(frozen=True, slots=True)
class Published:
    """What an attempt to publish a table came to."""

    table: MirroredTable
    versions: Sequence[int] = ()
    failure: MirrorFailure | None = None
    alert: bool = False
    """Was this the failure that made the version FAILED?"""
    busy: bool = False
    """Another publisher is at work, or the next attempt is not due yet."""


class Directories:
    """The directory of each table, opened once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._open: dict[str, Directory] = {}
        self._lock = threading.Lock()

    def of(self, table: MirroredTable) -> Directory:
        """Where a table's files are."""
        with self._lock:
            if table.location not in self._open:
                self._open[table.location] = Directory(table.location, self._options)
            return self._open[table.location]


class Publisher:
    """Publishes the open versions of tables."""

    def __init__(self, outbox: Outbox, directories: Directories, metrics: Metrics) -> None:
        self._outbox = outbox
        self._directories = directories
        self._metrics = metrics
        self._seen: dict[int, int] = {}

    def forget(self, table: MirroredTable) -> None:
        """Look at the log again before the next version is published: files may have gone."""
        self._seen.pop(table.key, None)

    def publish(
        self,
        table: MirroredTable,
        *,
        known: Mapping[int, Callable[[], bytes]] | None = None,
        wait: bool = False,
        now: bool = False,
    ) -> Published:
        """Publish everything that is open and due, with `now` what is not due yet as well. `known` gives the bytes of
        versions that need not be read."""
        done: list[int] = []
        while True:
            with self._outbox.publishing(table, wait=wait) as session:
                if session is None:
                    return Published(table, done, busy=True)
                batch = session.open()
                if not batch:
                    return Published(table, done)
                if not (now or batch[0].due):
                    return Published(table, done, busy=True)
                failed = self._publish(session, table, batch, known or {}, done)
            if failed is not None:
                return failed
            if done[-1] == batch[-1].version and len(batch) < OPEN_AT_ONCE:
                return Published(table, done)

    def _publish(
        self,
        session: Publishing,
        table: MirroredTable,
        batch: Sequence[OpenVersion],
        known: Mapping[int, Callable[[], bytes]],
        done: list[int],
    ) -> Published | None:
        """One batch. What was published is recorded even if a later version fails."""
        unknown = [v.version for v in batch if v.version not in known]
        stored = session.commits(unknown) if unknown else {}
        published: list[int] = []
        problem: tuple[int, Exception] | None = None
        deadline = time.monotonic() + _BATCH_SECONDS
        for place, entry in enumerate(batch):
            if published and time.monotonic() > deadline:
                break
            version = entry.version
            try:
                _check_order(table, entry)
                if place == 0:
                    self._check_ahead(session, table, version)
                    self._check_before(table, version)
                data = known[version]() if version in known else commit_bytes(stored[version])
                if longer := self._directories.of(table).patience(len(data)):
                    session.outlast(_REQUESTS * longer)
                with self._metrics.publishing():
                    self._put(table, version, data)
            except Exception as error:
                problem = version, error
                break
            published.append(version)
        if published:
            session.succeeded(published)
            self._seen[table.key] = published[-1]
            self._metrics.published(len(published))
            done += published
        return self._record(session, table, *problem, done) if problem else None

    def _record(
        self, session: Publishing, table: MirroredTable, version: int, error: Exception, done: Sequence[int]
    ) -> Published:
        if not isinstance(error, DeltaSqlError) or isinstance(error, DatabaseError):
            raise error
        failure = (
            error if isinstance(error, MirrorFailure) else MirrorFailure(table.id, version, str(error), table.name)
        )
        conflict = isinstance(failure, MirrorConflict)
        alert = session.failed(version, failure.error, final=conflict)
        self._metrics.failed(conflict=conflict)
        return Published(table, done, failure, alert)

    def _put(self, table: MirroredTable, version: int, data: bytes) -> None:
        directory = self._directories.of(table)
        path = commit_path(version)
        if directory.put_if_absent(path, data):
            return
        there = directory.get(path, len(data))
        if there == data:
            return
        if there is not None and is_cut_short(there, data):
            directory.put(path, data)
            return
        raise conflict(directory, table, version, described(there or b""))

    def _check_ahead(self, session: Publishing, table: MirroredTable, version: int) -> None:
        """What is put into a log that goes on without the database is seen by nobody. One that did not when this
        process first published the table can do so only where the next version is taken, or when the database was
        restored meanwhile."""
        if version > self._seen.get(table.key, version):
            return
        foreign = ahead(self._directories.of(table), table, session.head, version)
        if foreign is not None:
            raise foreign

    def _check_before(self, table: MirroredTable, version: int) -> None:
        """A log with a gap is unreadable: the version before must be there, or a checkpoint that stands for it. A look
        at a local directory costs nothing; in a store, what this process itself has put there is taken to be there."""
        directory = self._directories.of(table)
        if version == 0 or (not directory.is_local and self._seen.get(table.key) == version - 1):
            return
        before = (commit_path(version - 1), checkpoint_path(version - 1), checkpoint_path(version))
        if all(directory.size(path) is None for path in before):
            raise MirrorFailure(
                table.id,
                version,
                f"{directory.location}/{commit_path(version - 1)} is gone, and a log with a gap cannot be read: "
                f"`deltasql mirror repair {table.name}` publishes it again",
                table.name,
            )


def _check_order(table: MirroredTable, entry: OpenVersion) -> None:
    if not entry.whole:
        raise MirrorFailure(
            table.id,
            entry.version,
            f"version {entry.version}, or the one before it, is missing from the database: the log would have a gap. "
            f"`deltasql mirror repair {table.name} --version={entry.version - 1}` puts it back if its commit is there",
            table.name,
        )
