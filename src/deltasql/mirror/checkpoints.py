"""Write the checkpoints that are due, update `_last_checkpoint`, and delete the log files that are no longer needed.

The order keeps the log readable at every moment: first the checkpoint is written and verified, then `_last_checkpoint`
names it, and only then are old files deleted.
"""

from __future__ import annotations

import logging
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from deltasql.config import Config
from deltasql.delta_log.checkpoint_origin import CheckpointOrigin, CheckpointSize, existing_checkpoint
from deltasql.delta_log.checkpoint_writer import write_checkpoint
from deltasql.delta_log.last_checkpoint import decode_hint, encode_hint
from deltasql.delta_log.layout import LAST_CHECKPOINT, checkpoint_path
from deltasql.delta_log.log_files import LogFiles
from deltasql.errors import CopiedDatabase, MirrorConflict, UsageError
from deltasql.mirror.log_retention import clean_log, retained_from
from deltasql.mirror.metrics import Metrics
from deltasql.mirror.publisher import Directories
from deltasql.protocol.properties import TableProperties
from deltasql.protocol.table_changes import epoch_millis
from deltasql.storage import Directory
from deltasql.store import Store
from deltasql.store.mirror_records import MirroredTable

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 300.0


class Checkpoints:
    """Writes the checkpoints of tables and applies log retention."""

    def __init__(self, store: Store, directories: Directories, metrics: Metrics) -> None:
        self._store = store
        self._outbox = store.outbox
        self._directories = directories
        self._metrics = metrics
        self._failures: dict[int, tuple[int, float]] = {}
        """Per table key: the number of consecutive failures, and the time of the next attempt."""

    def due(self, table: MirroredTable) -> int | None:
        """Return the version of the checkpoint that is due: the last published multiple of the interval without one."""
        progress = self._outbox.progress(table)
        return self.due_at(table, progress.published, progress.checkpoint)

    def due_at(self, table: MirroredTable, published: int, checkpoint: int) -> int | None:
        """Return the version of the checkpoint that is due, after the last published version and checkpoint."""
        every = interval(table, self._store.config)
        version = published // every * every
        return version if version > max(0, checkpoint) else None

    def write_due(self, table: MirroredTable, *, wait: bool = False, now: bool = False) -> int | None:
        """Write the checkpoint that is due, and return its version, None if none was written. `wait` waits for another
        process that writes one; `now` ignores the backoff after a failure."""
        written = None
        if self.due(table) is None or (not now and time.monotonic() < self._failures.get(table.key, (0, 0.0))[1]):
            return None
        with self._outbox.checkpointing(table, wait=wait) as locked:
            while locked and (version := self.due(table)) is not None:
                self._write_and_clean(table, version)
                written = version
        return written

    def _write_and_clean(self, table: MirroredTable, version: int) -> None:
        try:
            with self._metrics.checkpointing():
                self.write(table, version)
        except Exception as error:
            self._metrics.checkpoint_failed()
            times = self._failures.get(table.key, (0, 0.0))[0] + 1
            pause = min(_LONGEST_PAUSE, self._store.config["mirror.retry_backoff_base"] * 2.0 ** min(times - 1, 30))
            self._failures[table.key] = times, time.monotonic() + pause
            self._outbox.record_checkpoint_failure(table, version, f"checkpoint: {error}")
            raise
        self._failures.pop(table.key, None)
        self._clean(table)

    def _clean(self, table: MirroredTable) -> None:
        before = retained_from(TableProperties.of(table.properties))
        if before is not None:
            clean_log(self._directories.of(table), self._outbox, table, before)

    def write(self, table: MirroredTable, version: int) -> None:
        """Write the checkpoint of a published version unless it exists, and let `_last_checkpoint` name it."""
        if (copied := self._outbox.identity.current().problem) is not None:
            raise CopiedDatabase(table.id, version, copied, table.name)
        directory = self._directories.of(table)
        origin = self._origin(table, version)
        hinted, head = trusted_hint(directory), self._outbox.progress(table).head
        if hinted is not None and hinted > head:
            problem = f"{directory.location}/{LAST_CHECKPOINT} names version {hinted}, which the database does not have"
            raise MirrorConflict(table.id, hinted, problem, table.name)
        written = existing_checkpoint(directory, origin) or self._upload(table, origin, directory)
        if hinted is None or hinted <= version:
            size = directory.size(checkpoint_path(version)) or 0
            directory.put(LAST_CHECKPOINT, encode_hint(version, written.num_actions, size, written.num_adds))
        self._outbox.record_checkpoint(table, version)

    def repair(self, table: MirroredTable, after: int = -1, start: int = 0) -> int | None:
        """Overwrite checkpoints of other writers, write missing ones, and return the last version that was written.

        Args:
            table: The table.
            after: Checkpoints up to this version are left alone.
            start: The first version of the log if log retention has deleted earlier ones. It must have a checkpoint.
        """
        with self._outbox.checkpointing(table, wait=True):
            directory, published = self._directories.of(table), self._outbox.progress(table).published
            if published < 0:
                return None
            log = LogFiles.of(directory)
            existing = {version for version in log.checkpoints if version <= published}
            missing = {
                v for v in existing if v > after and existing_checkpoint(directory, self._origin(table, v)) is None
            }
            last = self.due_at(table, published, max(existing, default=0))
            missing |= {last} if last is not None else set()
            missing |= {start} if 0 < start <= published and start not in existing else set()
            if not missing and existing and trusted_hint(directory) is None:
                missing = {max(existing)}
            for version in sorted(missing):
                self._write_and_clean(table, version)
            if not log.checkpoints | missing and directory.size(LAST_CHECKPOINT) is not None:
                directory.delete([LAST_CHECKPOINT])
            return max(missing, default=None)

    def _origin(self, table: MirroredTable, version: int) -> CheckpointOrigin:
        return CheckpointOrigin(table.id, version, self._outbox.txn_id(table, version))

    def _upload(self, table: MirroredTable, origin: CheckpointOrigin, directory: Directory) -> CheckpointSize:
        retention = TableProperties.of(table.properties).deleted_file_retention
        after = epoch_millis(datetime.now(UTC) - retention)
        with tempfile.TemporaryDirectory(prefix="deltasql-") as scratch:
            file = Path(scratch) / "checkpoint.parquet"
            with self._store.contents(table.id, origin.version) as contents:
                written = write_checkpoint(contents, file, origin, removed_after=after)
            directory.upload(checkpoint_path(origin.version), file)
        return written


def interval(table: MirroredTable, config: Config) -> int:
    """Return the number of versions between two checkpoints of a table."""
    given = TableProperties.of(table.properties).checkpoint_interval
    if given is not None:
        return given
    try:
        return int(config.override(table.properties)["mirror.checkpoint_interval"])
    except UsageError:
        # A property of another release must not stop the repair of this table or the work on other tables.
        return int(config["mirror.checkpoint_interval"])


def trusted_hint(directory: Directory) -> int | None:
    """Return the version that `_last_checkpoint` names, None if that checkpoint does not exist."""
    hinted = decode_hint(directory.get(LAST_CHECKPOINT))
    return None if hinted is None or directory.size(checkpoint_path(hinted)) is None else hinted
