"""The mirror of a lake: publishes what is committed, retries what failed, and tells how it stands."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from deltasql.delta_log.commit_file import commit_bytes
from deltasql.errors import (
    CommitTimeout,
    DatabaseError,
    DeltaSqlError,
    MirrorConflict,
    MirrorFailure,
    TableNotFound,
    UsageError,
)
from deltasql.mirror.alerts import Alerts
from deltasql.mirror.checkpoints import Checkpoints
from deltasql.mirror.collisions import ahead
from deltasql.mirror.manifests import Manifests
from deltasql.mirror.metrics import Metrics
from deltasql.mirror.publisher import Directories, Published, Publisher
from deltasql.mirror.repair import Repairs
from deltasql.mirror.validate import Stored, differences
from deltasql.store import Landed, Store
from deltasql.store.outbox import UNKNOWN_MODE, MirroredTable, MirrorStatus

_log = logging.getLogger(__name__)

# One request per table: often enough to find a writer that goes past the database, seldom enough to be no load.
_LOOK_AHEAD_EVERY = 600.0

_LONGEST_PAUSE = 60.0

# A commit is published within milliseconds, behind others perhaps: after so many seconds in which nothing was, it waits
# for somebody who does not come.
_PATIENCE = 2.0
_LOOK_EVERY = 0.1

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What a pass over one table came to."""

    table: str
    versions: tuple[int, ...] = ()
    checkpoint: int | None = None
    error: str | None = None


class Mirror:
    """Publishes the tables of a store. `committed` is called with every commit; the rest is for operators."""

    def __init__(self, store: Store, options: Mapping[str, str]) -> None:
        self._store = store
        self._config = store.config
        self._outbox = store.outbox
        self._directories = Directories(options)
        self._metrics = Metrics(store.outbox)
        self._publisher = Publisher(store.outbox, self._directories, self._metrics)
        self._checkpoints = Checkpoints(store, self._directories, self._metrics)
        self._repairs = Repairs(store.outbox, self._directories, self._publisher, self._checkpoints, self._report)
        self._alerts = Alerts(store.config["mirror.alert_webhook"])
        self._manifests = Manifests(store.outbox, store.config, options)
        self._lock = threading.Lock()
        self._workers: ThreadPoolExecutor | None = None
        self._queued: set[int] = set()
        self._retrier: threading.Thread | None = None
        self._retry_wanted = False
        self._closed = threading.Event()

    # --- After a commit

    def committed(self, landed: Sequence[Landed]) -> dict[str, MirrorFailure]:
        """Publish what has just committed, as each table wants it. The commit stands whatever comes of this: what could
        not be published, by the ids of tables."""
        at_once: list[Callable[[], MirrorFailure | None]] = []
        for part in landed:
            table = _table_of(part)
            mode = self._mode(table)
            if mode == "sync":
                known = {part.version: partial(lambda p: commit_bytes(p.logged()), part)}
                at_once.append(partial(self._publish_safely, table, known))
            elif mode == "async":
                self._in_background(table)
                self._announce(table)
        if len(at_once) == 1:
            failures = [at_once[0]()]
        else:
            failures = list(self._side_by_side(lambda job: job(), at_once, self._config["mirror.parallel_tables"]))
        if len(landed) > 1 and at_once:
            self._publish_manifests()
        return {failure.table_id: failure for failure in failures if failure is not None and failure.table_id}

    def _publish_manifests(self) -> None:
        """Tell outside readers what belongs together; what is not published yet is told later."""
        try:
            if self._manifests.publish(self._mirrored) or not self._manifests.is_clean:
                self._retry_later()
        except Exception as error:
            # The commit has landed, and its tables are published as they are.
            _log.warning("the manifest of a transaction is not written yet: %s", error)
            self._retry_later()

    def _announce(self, table: MirroredTable) -> None:
        """Wake a reconciler, should this process end before it has published the table."""
        try:
            self._outbox.notify(table.key)
        except DeltaSqlError as error:
            _log.warning("table %s: no reconciler was told: %s", table.name, error)

    def _publish_safely(self, table: MirroredTable, known: Mapping[int, Callable[[], bytes]]) -> MirrorFailure | None:
        try:
            result = self._publisher.publish(table, known=known, wait=True)
            self._after(result)
        except DeltaSqlError as error:
            _log.warning("table %s: not published yet: %s", table.name, error)
            self._retry_later()
            return MirrorFailure(table.id, max(known), str(error), table.name)
        except Exception as error:
            # The commit has landed: whatever went wrong here must not look to the caller as if it had not.
            _log.exception("table %s: publishing failed", table.name)
            self._retry_later()
            return MirrorFailure(table.id, max(known), f"{type(error).__name__}: {error}", table.name)
        if result.failure is not None:
            self._announce(table)
            return result.failure
        if max(known) not in result.versions and result.busy:
            why = "an earlier version could not be published yet, or another publisher is at work"
            return MirrorFailure(table.id, max(known), why, table.name)
        return None

    def _after(self, result: Published) -> None:
        """Say what failed; write the checkpoint that has become due, but never while a writer waits."""
        if result.failure is not None:
            self._report(result)
            self._retry_later()
        if result.busy:
            self._retry_later()
        if self._checkpoints.passed(result.table, result.versions):
            self._in_background(result.table)

    def _report(self, result: Published) -> None:
        if result.failure is None:
            return
        if result.alert:
            self._alerts.tell(result.table, result.failure)
        else:
            _log.warning("%s", result.failure)

    def _in_background(self, table: MirroredTable) -> None:
        """Publish and checkpoint a table soon; several requests become one."""
        with self._lock:
            if table.key in self._queued or self._closed.is_set():
                return
            self._queued.add(table.key)
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self._config["mirror.parallel_tables"], "deltasql-mirror")
            self._workers.submit(self._background, table)

    def _background(self, table: MirroredTable) -> None:
        with self._lock:
            self._queued.discard(table.key)
        try:
            self._after(self._publisher.publish(table, wait=True))
            if self._manifests.publish(self._mirrored):
                self._retry_later()
            self._checkpoints.write_due(table, wait=True)
        except DeltaSqlError as error:
            _log.warning("table %s: %s", table.name, error)
            self._retry_later()
        except Exception:
            _log.exception("table %s: publishing failed", table.name)
            self._retry_later()

    def _retry_later(self) -> None:
        """Have open versions, and checkpoints that are due, tried again until all is done, as long as this process
        lives."""
        with self._lock:
            self._retry_wanted = True
            if self._closed.is_set() or self._retrier is not None:
                return
            self._retrier = threading.Thread(target=self._retry, name="deltasql-mirror-retry", daemon=True)
            self._retrier.start()

    def _retry(self) -> None:
        base = pause = self._config["mirror.retry_backoff_base"]
        while not self._closed.wait(pause):
            with self._lock:
                self._retry_wanted = False
            try:
                self._pass(look_ahead=False)
                if self._manifests.publish(self._mirrored, wait=True) or self._behind():
                    pause = base
                    continue
                pause = base
            except DeltaSqlError as error:
                _log.warning("publishing is tried again: %s", error)
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            except Exception:
                _log.exception("publishing is tried again")
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            with self._lock:
                # What failed after the look above has seen this thread alive, and counts on it.
                if not self._retry_wanted:
                    self._retrier = None
                    return

    def _behind(self) -> bool:
        """Is there anything left to publish, or a checkpoint to write?"""
        tables = self._tables()
        return any(
            status.table_id in tables
            and (status.lag_versions > 0 or self._checkpoint_due(tables[status.table_id], status))
            for status in self.status()
        )

    def settle(self) -> None:
        """Wait for what is under way in the background."""
        with self._lock:
            workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown(wait=True)

    def close(self) -> None:
        """Finish what is under way and stop retrying."""
        self.settle()
        self._closed.set()
        self.settle()
        with self._lock:
            retrier = self._retrier
        if retrier is not None:
            retrier.join()
        self._alerts.close()

    # --- For operators

    def status(self) -> list[MirrorStatus]:
        """How publishing stands, per table."""
        return self._outbox.status()

    def metrics(self) -> str:
        """All figures in Prometheus' text form."""
        return self._metrics.text()

    def run(self) -> list[MirrorReport]:
        """One pass of the reconciler, at once: publish what is open, whether or not its next attempt is due, write
        checkpoints that are due, and look for versions in the log that the database does not have. What stays
        unpublished is reported with the reason."""
        before = {status.table_id: status.version for status in self.status()}
        reports = self._pass(look_ahead=True, now=True)
        told = {report.table for report in reports if report.error}
        return [
            *reports,
            *(
                MirrorReport(status.table, error=_unpublished(status))
                for status in self.status()
                if status.published < before.get(status.table_id, -1) and status.table not in told
            ),
        ]

    def _pass(self, *, look_ahead: bool, now: bool = False) -> list[MirrorReport]:
        tables = self._tables()
        statuses = self.status()
        wanted = {table.id for table in self._outbox.due()}
        wanted |= {s.table_id for s in statuses if look_ahead or self._checkpoint_due(tables.get(s.table_id), s)}
        chosen = [table for table_id, table in tables.items() if table_id in wanted]
        work = partial(self._reconcile, look_ahead=look_ahead, now=now)
        reports = self._side_by_side(work, chosen, self._config["mirror.reconcile_concurrency"])
        told = [*reports, self._reconcile_manifests(clean=look_ahead), *(_unread(statuses) if look_ahead else ())]
        return [r for r in told if r.versions or r.error or r.checkpoint is not None]

    def _reconcile_manifests(self, *, clean: bool) -> MirrorReport:
        """Manifests that cannot be written keep no table from being published."""
        try:
            self._manifests.publish(self._mirrored, wait=True)
            if clean or not self._manifests.is_clean:
                self._manifests.clean()
        except DatabaseError:
            raise
        except Exception as problem:
            _log.warning("manifests: %s", problem)
            return MirrorReport(self._manifests.location, error=str(problem))
        return MirrorReport(self._manifests.location)

    def _checkpoint_due(self, table: MirroredTable | None, status: MirrorStatus) -> bool:
        return table is not None and self._checkpoints.due_at(table, status.published, status.checkpoint) is not None

    def watch(self, stop: threading.Event, each: Callable[[list[MirrorReport]], None] = lambda _: None) -> None:
        """Passes until told to stop: one whenever a commit is announced or a next attempt is due, and every
        `mirror.reconcile_interval`."""
        interval = self._config["mirror.reconcile_interval"]
        while not stop.is_set():
            try:
                with self._outbox.listening() as announced:
                    looked = -math.inf
                    while not stop.is_set():
                        look = time.monotonic() - looked > _LOOK_AHEAD_EVERY
                        looked = time.monotonic() if look else looked
                        each(self._watched_pass(look_ahead=look))
                        _wait(announced, min(interval, self._next_attempt()), stop)
            except DatabaseError as error:
                _log.warning("the reconciler goes on when the database is back: %s", error)
                stop.wait(self._config["mirror.retry_backoff_base"])

    def _next_attempt(self) -> float:
        """In how many seconds a version that failed is to be tried again. One that should have been by now is
        somebody else's at the moment."""
        pauses = self._outbox.pauses()
        tables = self._tables() if pauses else {}
        first = min((pauses[table_id] for table_id in tables if table_id in pauses), default=math.inf)
        return first if first > 0 else float(self._config["mirror.retry_backoff_base"])

    def _watched_pass(self, *, look_ahead: bool) -> list[MirrorReport]:
        """A pass whose failure is told, and tried again with the next one."""
        try:
            return self._pass(look_ahead=look_ahead)
        except DatabaseError:
            raise
        except Exception as problem:
            _log.exception("a pass of the reconciler failed")
            return [MirrorReport("", error=f"{type(problem).__name__}: {problem}")]

    def _tables(self) -> dict[str, MirroredTable]:
        """The tables that are to be published, by id."""
        return self._mirrored(self._outbox.tables())

    def _mirrored(self, tables: Iterable[MirroredTable]) -> dict[str, MirroredTable]:
        return {table.id: table for table in tables if self._mode(table) != "off"}

    def _mode(self, table: MirroredTable) -> str:
        """When a table is published. One whose properties make no sense to this release is left to others."""
        try:
            mode: str = self._config.override(table.properties)["mirror.mode"]
        except UsageError as error:
            _log.warning("table %s is not published from here: %s", table.name, error)
            return "off"
        return mode

    def _reconcile(self, table: MirroredTable, *, look_ahead: bool, now: bool = False) -> MirrorReport:
        try:
            result = self._publisher.publish(table, wait=now, now=now)
            self._report(result)
            foreign = self._ahead(table) if look_ahead and not result.failure else None
            if foreign is not None:
                _log.error("%s", foreign)
                return MirrorReport(table.name, tuple(result.versions), error=foreign.error)
            error = result.failure.error if result.failure else None
            checkpoint = self._checkpoints.write_due(table, now=now)
        except DatabaseError as problem:
            if now and isinstance(problem, CommitTimeout):
                return MirrorReport(table.name, error=f"not published in time: {problem}")
            raise
        except DeltaSqlError as problem:
            _log.warning("table %s: %s", table.name, problem)
            return MirrorReport(table.name, error=str(problem))
        except Exception as problem:
            # A full disk, say: the other tables, and the reconciler, go on.
            _log.exception("table %s: publishing failed", table.name)
            return MirrorReport(table.name, error=f"{type(problem).__name__}: {problem}")
        return MirrorReport(table.name, tuple(result.versions), checkpoint, error)

    def _ahead(self, table: MirroredTable) -> MirrorConflict | None:
        return ahead(self._directories.of(table), table, lambda: self._outbox.progress(table).head)

    def repair(self, table: str, version: int | None = None) -> MirrorReport:
        """Publish at once what is missing from the log, or cut short: one version, or all; write anew what is missing
        of its checkpoints, or is not ours. Raises if that fails, or if a commit file is another writer's; if the log
        has versions that the database does not have, nothing is done."""
        found = self._find(table)
        done = self._repairs.whole(found) if version is None else self._repairs.one(found, version)
        return MirrorReport(found.name, *done)

    @contextmanager
    def finishing(self, table_key: int) -> Iterator[None]:
        """Publish what is open of a table once it is dropped and nothing more comes; what cannot be published is told,
        and nobody tries again."""
        tables = self._mirrored(self._outbox.tables(table_key)).values()
        yield
        for table in tables:
            try:
                self._outbox.retry(table)
                self._report(self._publisher.publish(table, wait=True))
            except Exception:  # the table is dropped all the same
                _log.exception("table %s: what was open when it was dropped could not be published", table.name)

    def validate(self, table: str) -> list[str]:
        """Every difference between the database and the published log at the version published last, and which
        versions nobody publishes."""
        found = self._find(table)
        held_back = self._held_back(found)
        progress = partial(self._outbox.progress, found)
        published = progress().published
        stored = Stored(
            progress,
            partial(self._outbox.kept_from, found),
            partial(self._outbox.commits, found),
        )
        if published < 0:
            return [*held_back, *differences(self._directories.of(found), None, stored)]
        with self._store.contents(found.id, published) as contents:
            return [*held_back, *differences(self._directories.of(found), contents, stored)]

    def _held_back(self, table: MirroredTable) -> list[str]:
        """Says that versions are not published if the last attempt failed, or if nobody is at it and nothing happens
        for a while: a commit that has just landed is about to be."""
        deadline = time.monotonic() + _PATIENCE
        first = status = self._status_of(table)
        while _waits(status) and status.published == first.published and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
            status = self._status_of(table)
        if _waits(status) and (status.published > first.published or self._outbox.is_publishing(table)):
            return []
        return [_unpublished(status)] if status.lag_versions else []

    def _status_of(self, table: MirroredTable) -> MirrorStatus:
        found = self._outbox.status(table.key)
        if not found:
            raise TableNotFound(table.name)
        return found[0]

    def _find(self, table: str) -> MirroredTable:
        return self._outbox.tables(self._store.state(table).table_key)[0]

    def _side_by_side(self, work: Callable[[T], R], items: Sequence[T], width: int) -> Iterable[R]:
        if not items:
            return []
        with ThreadPoolExecutor(min(width, len(items)), "deltasql-mirror") as pool:
            return list(pool.map(work, items))


def _waits(status: MirrorStatus) -> bool:
    """Are there versions to publish, of which none has failed?"""
    return status.lag_versions > 0 and not status.attempts


def _unpublished(status: MirrorStatus) -> str:
    """Which versions are not published, and why."""
    first, last = status.published + 1, status.version
    which = f"version {first} is" if first == last else f"versions {first} to {last} are"
    if status.mode == UNKNOWN_MODE or status.attempts:
        why = status.error
    else:
        why = "mirror.mode is off" if status.mode == "off" else "nobody has tried to"
    return f"{which} not published: {why}"


def _unread(statuses: Iterable[MirrorStatus]) -> list[MirrorReport]:
    """Tables whose properties make no sense to this release: they are told, and left to others."""
    return [MirrorReport(s.table, error=s.error) for s in statuses if s.mode == UNKNOWN_MODE]


def _wait(announced: Callable[[float], bool], seconds: float, stop: threading.Event) -> None:
    """Wait for an announcement in short steps, so that a stop is heeded."""
    while seconds > 0 and not stop.is_set() and not announced(min(1.0, seconds)):
        seconds -= 1.0


def _table_of(part: Landed) -> MirroredTable:
    state = part.commit.state
    metadata = part.commit.changes.metadata[0] if part.commit.changes.metadata else state.metadata
    properties = metadata.configuration if metadata else {}
    return MirroredTable(part.table_key, state.table_id, state.name, state.location, properties, part.version)
