"""Publishing again what is missing from a log, or cut short, and naming what somebody else put there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from deltasql.delta_log.replay import Log
from deltasql.errors import MirrorFailure, ValidationError
from deltasql.mirror.checkpoints import Checkpoints
from deltasql.mirror.collisions import Kind, ahead, conflict, faults
from deltasql.mirror.publisher import Directories, Published, Publisher
from deltasql.store.outbox import MirroredTable, Outbox

Repaired = tuple[tuple[int, ...], int | None]
"""The versions that were published, and the last checkpoint that was written."""


class Repairs:
    """Mends the logs of tables. `tell` is given what every attempt to publish came to."""

    def __init__(
        self,
        outbox: Outbox,
        directories: Directories,
        publisher: Publisher,
        checkpoints: Checkpoints,
        tell: Callable[[Published], None],
    ) -> None:
        self._outbox = outbox
        self._directories = directories
        self._publisher = publisher
        self._checkpoints = checkpoints
        self._tell = tell

    def whole(self, table: MirroredTable) -> Repaired:
        """Publish everything that a reader can need and does not find as it is in the database."""
        self._refuse_log_ahead(table)
        published = self._outbox.progress(table).published
        wanted, foreign = self._faults(table, published)
        self._outbox.reopen(table, wanted)
        result = self._publish(table)
        if result.failure is not None:
            raise result.failure
        if foreign is not None:
            raise foreign
        return tuple(result.versions), self._checkpoints.repair(table)

    def one(self, table: MirroredTable, version: int) -> Repaired:
        """Publish a version again, and whatever is open."""
        self._refuse_log_ahead(table)
        published = self._outbox.progress(table).published
        self._check_version(table, version)
        reopened = self._outbox.reopen(table, [version])
        result = self._publish(table)
        if result.failure is not None:
            if version in reopened and version not in result.versions:
                # What was asked for is no reason to hold back the versions after it, which went on before.
                self._outbox.close(table, version)
            raise result.failure
        return tuple(result.versions), self._checkpoints.repair(table, published)

    def _refuse_log_ahead(self, table: MirroredTable) -> None:
        """What is put into a log that goes on without the database is seen by nobody: the first version is named that
        is not the database's."""
        directory = self._directories.of(table)
        problem = ahead(directory, table, lambda: self._outbox.progress(table).head)
        if problem is None:
            return
        head = self._outbox.progress(table).head
        ours = {version: size for version, size in Log.of(directory).commits.items() if version <= head}
        for fault in faults(directory, ours, partial(self._outbox.commits, table)):
            if fault.kind is Kind.FOREIGN:
                raise conflict(directory, table, fault.version, fault.described)
        raise problem

    def _publish(self, table: MirroredTable) -> Published:
        self._outbox.retry(table)
        self._publisher.forget(table)
        result = self._publisher.publish(table, wait=True, now=True)
        self._tell(result)
        return result

    def _faults(self, table: MirroredTable, published: int) -> tuple[list[int], MirrorFailure | None]:
        """The published versions to publish again, and what is said of the first one that somebody else has taken."""
        directory = self._directories.of(table)
        log = Log.of(directory)
        kept = self._outbox.kept_from(table)
        if log.is_headless(kept):
            # The log was cleaned up behind a checkpoint that is gone: commits after it are of use only with it.
            self._checkpoints.repair(table, start=kept)
            log = Log.of(directory)
        wanted, foreign = log.missing(kept, published), None
        there = {version: size for version, size in log.commits.items() if version <= published}
        for fault in faults(directory, there, partial(self._outbox.commits, table)):
            if fault.kind is Kind.FOREIGN:
                foreign = foreign or conflict(directory, table, fault.version, fault.described)
            elif fault.kind is Kind.CUT_SHORT or fault.version >= kept:
                wanted.append(fault.version)
        return wanted, foreign

    def _check_version(self, table: MirroredTable, version: int) -> None:
        """Refuse to publish a version that there is not, or that the log does not need."""
        progress = self._outbox.progress(table)
        if not 0 <= version <= progress.head:
            raise ValidationError(
                f"table {table.name} has no version {version}: it has versions 0 to {progress.head}",
                table=table.name,
                value=version,
            )
        start = self._outbox.kept_from(table)
        if version < start:
            raise ValidationError(
                f"table {table.name}: the log begins at version {start}, behind a checkpoint; version {version} was "
                f"cleaned up as delta.logRetentionDuration says, no reader needs it, and it cannot be published again",
                table=table.name,
                value=version,
            )
