"""The reconciler: passes over all tables that publish what is not published, and write checkpoints that are due."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from deltasql.config import Config
from deltasql.errors import CommitTimeout, DatabaseError, DeltaSqlError, MirrorConflict, UsageError
from deltasql.mirror.alerts import Alerts
from deltasql.mirror.checkpoints import Checkpoints
from deltasql.mirror.log_conflicts import newer_in_log
from deltasql.mirror.manifests import Manifests
from deltasql.mirror.publisher import Directories, Published, Publisher
from deltasql.store.mirror_records import UNKNOWN_MODE, MirroredTable, MirrorStatus
from deltasql.store.outbox import Outbox

_log = logging.getLogger(__name__)

# One request per table: often enough to find a writer that bypasses the database, and rare enough to cost little.
_CHECK_LOG_EVERY = 600.0

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """The result of a pass of the mirror over one table.

    Attributes:
        table: The table's full name.
        versions: The versions that were published.
        checkpoint: The version of the checkpoint that was written, None if none was.
        error: The reason if something could not be published or written.
    """

    table: str
    versions: tuple[int, ...] = ()
    checkpoint: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MirrorParts:
    """The parts of a mirror that its passes and its commit hook share."""

    config: Config
    outbox: Outbox
    directories: Directories
    publisher: Publisher
    checkpoints: Checkpoints
    manifests: Manifests
    alerts: Alerts

    def mode(self, table: MirroredTable) -> str:
        """Return the mode of a table, `off` if this release cannot read its properties."""
        try:
            mode: str = self.config.override(table.properties)["mirror.mode"]
        except UsageError as error:
            _log.warning("table %s is not published by this release: %s", table.name, error)
            return "off"
        return mode

    def mirrored(self, tables: Iterable[MirroredTable]) -> dict[str, MirroredTable]:
        """Return the tables whose mode is not `off`, by id."""
        return {table.id: table for table in tables if self.mode(table) != "off"}

    def report(self, result: Published) -> None:
        """Log a failed attempt, and send an alert if it changed the version's status to FAILED."""
        if result.failure is None:
            return
        if result.alert:
            self.alerts.send(result.table, result.failure)
        else:
            _log.warning("%s", result.failure)


class Reconciler:
    """Runs passes over all tables of a lake."""

    def __init__(self, parts: MirrorParts) -> None:
        self._parts = parts
        self._config = parts.config
        self._outbox = parts.outbox
        self._checkpoints = parts.checkpoints

    def run_once(self) -> list[MirrorReport]:
        """Run a pass that ignores backoff, and report each table that could not be published with the reason."""
        before = {status.table_id: status.version for status in self._outbox.status()}
        reports = self.run_pass(check_log=True, now=True)
        reported = {report.table for report in reports if report.error}
        return [
            *reports,
            *(
                MirrorReport(status.table, error=unpublished(status))
                for status in self._outbox.status()
                if status.published < before.get(status.table_id, -1) and status.table not in reported
            ),
        ]

    def run_pass(self, *, check_log: bool, now: bool = False) -> list[MirrorReport]:
        """Publish all tables that are due. `check_log` also looks for versions that only the log has; `now` ignores
        backoff and waits for other publishers."""
        tables = self.tables()
        statuses = self._outbox.status()
        due = {table.id for table in self._outbox.due()}
        due |= {s.table_id for s in statuses if check_log or self._checkpoint_due(tables.get(s.table_id), s)}
        chosen = [table for table_id, table in tables.items() if table_id in due]
        work = partial(self.reconcile, check_log=check_log, now=now)
        reports = [
            *in_parallel(work, chosen, self._config["mirror.reconcile_concurrency"]),
            self._reconcile_manifests(clean=check_log),
            *(_unknown_modes(statuses) if check_log else ()),
        ]
        return [r for r in reports if r.versions or r.error or r.checkpoint is not None]

    def with_newer_logs(self, statuses: Sequence[MirrorStatus]) -> list[MirrorStatus]:
        """Return statuses with the first version in the log that the database does not have, and the error.

        Tables with unpublished versions are not looked at: publishing them finds such a log, or a store that fails.
        """
        tables = self.tables()

        def checked(status: MirrorStatus) -> MirrorStatus:
            table = None if status.lag_versions else tables.get(status.table_id)
            try:
                conflict = None if table is None else self._newer_in_log(table)
            except DeltaSqlError as error:
                return replace(status, error=status.error or f"the log cannot be listed: {error}")
            if conflict is None:
                return status
            return replace(status, log_ahead=conflict.version, error=status.error or conflict.error)

        return in_parallel(checked, statuses, self._config["mirror.reconcile_concurrency"])

    def tables(self) -> dict[str, MirroredTable]:
        """Return all tables whose mode is not `off`, by id."""
        return self._parts.mirrored(self._outbox.tables())

    def is_behind(self) -> bool:
        """Return whether a version is unpublished or a checkpoint is due."""
        tables = self.tables()
        return any(
            status.table_id in tables
            and (status.lag_versions > 0 or self._checkpoint_due(tables[status.table_id], status))
            for status in self._outbox.status()
        )

    def _checkpoint_due(self, table: MirroredTable | None, status: MirrorStatus) -> bool:
        return table is not None and self._checkpoints.due_at(table, status.published, status.checkpoint) is not None

    def reconcile(self, table: MirroredTable, *, check_log: bool, now: bool = False) -> MirrorReport:
        """Publish one table and write its checkpoint if one is due."""
        try:
            result = self._parts.publisher.publish(table, wait=now, now=now)
            self._parts.report(result)
            conflict = self._newer_in_log(table) if check_log and not result.failure else None
            if conflict is not None:
                _log.error("%s", conflict)
                return MirrorReport(table.name, tuple(result.versions), error=conflict.error)
            error = result.failure.error if result.failure else None
            checkpoint = self._checkpoints.write_due(table, wait=now, now=now)
        except DatabaseError as problem:
            if now and isinstance(problem, CommitTimeout):
                return MirrorReport(table.name, error=f"not published in time: {problem}")
            raise
        except DeltaSqlError as problem:
            _log.warning("table %s: %s", table.name, problem)
            return MirrorReport(table.name, error=str(problem))
        except Exception as problem:
            # For example a full disk: the pass continues with the other tables.
            _log.exception("table %s: publishing failed", table.name)
            return MirrorReport(table.name, error=f"{type(problem).__name__}: {problem}")
        return MirrorReport(table.name, tuple(result.versions), checkpoint, error)

    def _newer_in_log(self, table: MirroredTable) -> MirrorConflict | None:
        return newer_in_log(self._parts.directories.of(table), table, lambda: self._outbox.progress(table).head)

    def _reconcile_manifests(self, *, clean: bool) -> MirrorReport:
        """Publish manifests. A failure is reported, but does not stop the pass."""
        manifests = self._parts.manifests
        try:
            manifests.publish(self._parts.mirrored, wait=True)
            if clean or not manifests.is_clean:
                manifests.clean()
        except DatabaseError:
            raise
        except Exception as problem:
            _log.warning("manifests: %s", problem)
            return MirrorReport(manifests.location, error=str(problem))
        return MirrorReport(manifests.location)

    def watch(self, stop: threading.Event, each: Callable[[list[MirrorReport]], None]) -> None:
        """Run passes until `stop` is set: after each announced commit, when a retry is due, and at intervals."""
        interval = self._config["mirror.reconcile_interval"]
        while not stop.is_set():
            try:
                with self._outbox.listening() as announced:
                    checked_at = -math.inf
                    while not stop.is_set():
                        check_log = time.monotonic() - checked_at > _CHECK_LOG_EVERY
                        checked_at = time.monotonic() if check_log else checked_at
                        each(self._watched_pass(check_log=check_log))
                        _wait(announced, min(interval, self._next_attempt()), stop)
            except DatabaseError as error:
                _log.warning("the reconciler waits until the database is available again: %s", error)
                stop.wait(self._config["mirror.retry_backoff_base"])

    def _next_attempt(self) -> float:
        """Return the seconds until a failed version is retried. If a retry is overdue, another publisher is at it, and
        the base of the backoff is returned."""
        pauses = self._outbox.seconds_until_retry()
        tables = self.tables() if pauses else {}
        first = min((pauses[table_id] for table_id in tables if table_id in pauses), default=math.inf)
        return first if first > 0 else float(self._config["mirror.retry_backoff_base"])

    def _watched_pass(self, *, check_log: bool) -> list[MirrorReport]:
        """Run a pass, and report an unexpected failure instead of raising it."""
        try:
            return self.run_pass(check_log=check_log)
        except DatabaseError:
            raise
        except Exception as problem:
            _log.exception("a pass of the reconciler failed")
            return [MirrorReport("", error=f"{type(problem).__name__}: {problem}")]


def in_parallel(work: Callable[[T], R], items: Sequence[T], width: int) -> list[R]:
    """Return the results of `work` for all items, with `width` threads."""
    if not items:
        return []
    if not threading.main_thread().is_alive():  # the process ends, and Python starts no threads any more
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(width, len(items)), "deltasql-mirror") as pool:
        return list(pool.map(work, items))


def unpublished(status: MirrorStatus) -> str:
    """Return the sentence that names the unpublished versions of a table and the reason."""
    first, last = status.published + 1, status.version
    which = f"version {first} is" if first == last else f"versions {first} to {last} are"
    if status.mode == UNKNOWN_MODE or status.attempts:
        why = status.error
    else:
        why = "mirror.mode is off" if status.mode == "off" else "no publisher has tried yet"
    return f"{which} not published: {why}"


def _unknown_modes(statuses: Iterable[MirrorStatus]) -> list[MirrorReport]:
    """Report the tables whose properties this release cannot read."""
    return [MirrorReport(s.table, error=s.error) for s in statuses if s.mode == UNKNOWN_MODE]


def _wait(announced: Callable[[float], bool], seconds: float, stop: threading.Event) -> None:
    """Wait for an announcement in steps of a second, so that a stop takes effect soon."""
    while seconds > 0 and not stop.is_set() and not announced(min(1.0, seconds)):
        seconds -= 1.0
