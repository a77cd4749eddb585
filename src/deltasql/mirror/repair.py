"""Repair a log: publish missing and truncated commit files again, and report files of other writers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from deltasql.delta_log.log_files import LogFiles
from deltasql.errors import MirrorFailure, ValidationError
from deltasql.mirror.checkpoints import Checkpoints
from deltasql.mirror.log_conflicts import FaultKind, conflict, faults, newer_in_log
from deltasql.mirror.publisher import Directories, Published, Publisher
from deltasql.store.mirror_records import MirroredTable
from deltasql.store.outbox import Outbox

Repaired = tuple[tuple[int, ...], int | None]
"""The versions that were published, and the last checkpoint that was written."""


class LogRepair:
    """Repairs the logs of tables. `report` is called with the result of every attempt to publish."""

    def __init__(
        self,
        outbox: Outbox,
        directories: Directories,
        publisher: Publisher,
        checkpoints: Checkpoints,
        report: Callable[[Published], None],
    ) -> None:
        self._outbox = outbox
        self._directories = directories
        self._publisher = publisher
        self._checkpoints = checkpoints
        self._report = report

    def all_versions(self, table: MirroredTable) -> Repaired:
        """Publish every version that readers need and whose commit file is missing or truncated."""
        self._reject_newer_log(table)
        published = self._outbox.progress(table).published
        versions, foreign = self._to_repair(table, published)
        self._outbox.reopen(table, versions)
        result = self._publish(table)
        if result.failure is not None:
            raise result.failure
        if foreign is not None:
            raise foreign
        return tuple(result.versions), self._checkpoints.repair(table)

    def one_version(self, table: MirroredTable, version: int) -> Repaired:
        """Publish a version again, and all unpublished versions."""
        self._reject_newer_log(table)
        published = self._outbox.progress(table).published
        self._check_version(table, version)
        reopened = self._outbox.reopen(table, [version])
        result = self._publish(table)
        if result.failure is not None:
            if version in reopened and version not in result.versions:
                # The versions after it were published, and must not be held back by this one.
                self._outbox.mark_published(table, version)
            raise result.failure
        return tuple(result.versions), self._checkpoints.repair(table, published)

    def _reject_newer_log(self, table: MirroredTable) -> None:
        """Raise the conflict if the log has versions that the database does not have. It names the first version that
        another writer wrote."""
        directory = self._directories.of(table)
        problem = newer_in_log(directory, table, lambda: self._outbox.progress(table).head)
        if problem is None:
            return
        head = self._outbox.progress(table).head
        sizes = {version: size for version, size in LogFiles.of(directory).commits.items() if version <= head}
        for fault in faults(directory, sizes, partial(self._outbox.commits, table)):
            if fault.kind is FaultKind.FOREIGN:
                raise conflict(directory, table, fault.version, fault.writer)
        raise problem

    def _publish(self, table: MirroredTable) -> Published:
        self._outbox.reset_attempts(table)
        self._publisher.forget(table)
        result = self._publisher.publish(table, wait=True, now=True)
        self._report(result)
        return result

    def _to_repair(self, table: MirroredTable, published: int) -> tuple[list[int], MirrorFailure | None]:
        """Return the versions to publish again, and the conflict for the first commit file of another writer."""
        directory = self._directories.of(table)
        log = LogFiles.of(directory)
        first = self._outbox.first_retained(table)
        if log.lacks_first_checkpoint(first):
            # The commits before that checkpoint are deleted, so the commits after it are readable only with it.
            self._checkpoints.repair(table, start=first)
            log = LogFiles.of(directory)
        versions, foreign = log.missing(first, published), None
        sizes = {version: size for version, size in log.commits.items() if version <= published}
        for fault in faults(directory, sizes, partial(self._outbox.commits, table)):
            if fault.kind is FaultKind.FOREIGN:
                foreign = foreign or conflict(directory, table, fault.version, fault.writer)
            elif fault.kind is FaultKind.TRUNCATED or fault.version >= first:
                versions.append(fault.version)
        return versions, foreign

    def _check_version(self, table: MirroredTable, version: int) -> None:
        """Reject a version that does not exist, or that log retention has deleted."""
        progress = self._outbox.progress(table)
        if not 0 <= version <= progress.head:
            raise ValidationError(
                f"table {table.name} has no version {version}: it has versions 0 to {progress.head}",
                table=table.name,
                value=version,
            )
        start = self._outbox.first_retained(table)
        if version < start:
            raise ValidationError(
                f"table {table.name}: version {version} was deleted after delta.logRetentionDuration and cannot be "
                f"published again. The log starts at version {start} with a checkpoint, so readers do not need it",
                table=table.name,
                value=version,
            )
