"""When a checkpoint is due, writing it, pointing readers to it, and cleaning up what it makes superfluous.

The order keeps every reader safe at every moment: the checkpoint, a look at it, the hint that names it, and only then
the old files go.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from deltasql.config import Config
from deltasql.delta_log.checkpoint_origin import CheckpointSize, Origin, found
from deltasql.delta_log.checkpoint_writer import write_checkpoint
from deltasql.delta_log.last_checkpoint import decode_hint, encode_hint
from deltasql.delta_log.layout import LAST_CHECKPOINT, checkpoint_path
from deltasql.delta_log.replay import Log
from deltasql.errors import MirrorConflict, UsageError
from deltasql.mirror.log_retention import clean_log, retained_from
from deltasql.mirror.metrics import Metrics
from deltasql.mirror.publisher import Directories
from deltasql.protocol.properties import TableProperties
from deltasql.protocol.table_changes import epoch_millis
from deltasql.storage import Directory
from deltasql.store import Store
from deltasql.store.outbox import MirroredTable

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 300.0


class Checkpoints:
    """Writes the checkpoints of tables."""

    def __init__(self, store: Store, directories: Directories, metrics: Metrics) -> None:
        self._store = store
        self._outbox = store.outbox
        self._directories = directories
        self._metrics = metrics
        self._failures: dict[int, tuple[int, float]] = {}
        """Per table: how often in a row it failed, and when it may be tried again."""

    def due(self, table: MirroredTable) -> int | None:
        """The version that wants a checkpoint: the last multiple of the interval that is published and has none."""
        progress = self._outbox.progress(table)
        return self.due_at(table, progress.published, progress.checkpoint)

    def due_at(self, table: MirroredTable, published: int, checkpoint: int) -> int | None:
        """The same for a table that is published, and has a checkpoint, up to known versions."""
        every = interval(table, self._store.config)
        version = published // every * every
        return version if version > max(0, checkpoint) else None

    def passed(self, table: MirroredTable, versions: Sequence[int]) -> bool:
        """Is one of the versions that were just published to have a checkpoint?"""
        every = interval(table, self._store.config)
        return any(version and version % every == 0 for version in versions)

    def write_due(self, table: MirroredTable, *, wait: bool = False, now: bool = False) -> int | None:
        """Write the checkpoint that is due, if there is one; its version. Only with `wait` when somebody is at it, only
        with `now` soon after it failed."""
        written = None
        if self.due(table) is None or (not now and time.monotonic() < self._failures.get(table.key, (0, 0.0))[1]):
            return None
        with self._outbox.checkpointing(table, wait=wait) as mine:
            while mine and (version := self.due(table)) is not None:
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
            self._outbox.checkpoint_failed(table, version, f"checkpoint: {error}")
            raise
        self._failures.pop(table.key, None)
        self._clean(table)

    def _clean(self, table: MirroredTable) -> None:
        before = retained_from(TableProperties.of(table.properties))
        if before is not None:
            clean_log(self._directories.of(table), self._outbox, table, before)

    def write(self, table: MirroredTable, version: int) -> None:
        """Write the checkpoint of a published version unless it is there, and have readers find it."""
        directory = self._directories.of(table)
        origin = self._origin(table, version)
        hinted, head = trusted_hint(directory), self._outbox.progress(table).head
        if hinted is not None and hinted > head:
            problem = f"{directory.location}/{LAST_CHECKPOINT} names version {hinted}, which the database does not have"
            raise MirrorConflict(table.id, hinted, problem, table.name)
        written = found(directory, origin) or self._upload(table, origin, directory)
        if hinted is None or hinted <= version:
            size = directory.size(checkpoint_path(version)) or 0
            directory.put(LAST_CHECKPOINT, encode_hint(version, written.num_actions, size, written.num_adds))
        self._outbox.checkpointed(table, version)

    def repair(self, table: MirroredTable, after: int = -1, start: int = 0) -> int | None:
        """Write anew what is not ours among the checkpoints after a version, and the last one if it is gone, as well as
        the one that the log starts with; have the hint name one that is there. The last version that was written."""
        with self._outbox.checkpointing(table, wait=True):
            directory, published = self._directories.of(table), self._outbox.progress(table).published
            if published < 0:
                return None
            log = Log.of(directory)
            there = {version for version in log.checkpoints if version <= published}
            wanted = {v for v in there if v > after and found(directory, self._origin(table, v)) is None}
            last = self.due_at(table, published, max(there, default=0))
            wanted |= {last} if last is not None else set()
            wanted |= {start} if 0 < start <= published and start not in there else set()
            if not wanted and there and trusted_hint(directory) is None:
                wanted = {max(there)}
            for version in sorted(wanted):
                self._write_and_clean(table, version)
            if not log.checkpoints | wanted and directory.size(LAST_CHECKPOINT) is not None:
                directory.delete([LAST_CHECKPOINT])
            return max(wanted, default=None)

    def _origin(self, table: MirroredTable, version: int) -> Origin:
        return Origin(table.id, version, self._outbox.transaction(table, version))

    def _upload(self, table: MirroredTable, origin: Origin, directory: Directory) -> CheckpointSize:
        kept = TableProperties.of(table.properties).deleted_file_retention
        after = epoch_millis(datetime.now(UTC) - kept)
        with tempfile.TemporaryDirectory(prefix="deltasql-") as scratch:
            file = Path(scratch) / "checkpoint.parquet"
            with self._store.contents(table.id, origin.version) as contents:
                written = write_checkpoint(contents, file, origin, removed_after=after)
            directory.upload(checkpoint_path(origin.version), file)
        return written


def interval(table: MirroredTable, config: Config) -> int:
    """How many versions lie between checkpoints."""
    given = TableProperties.of(table.properties).checkpoint_interval
    if given is not None:
        return given
    try:
        return int(config.override(table.properties)["mirror.checkpoint_interval"])
    except UsageError:
        # Another release's property: it stops neither a repair of its table nor anything of others.
        return int(config["mirror.checkpoint_interval"])


def trusted_hint(directory: Directory) -> int | None:
    """The version that the hint names, if its checkpoint is there: readers fail on any other."""
    hinted = decode_hint(directory.get(LAST_CHECKPOINT))
    return None if hinted is None or directory.size(checkpoint_path(hinted)) is None else hinted
