"""Publish commits as they land: at once or in the background, and retry what failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from deltasql.delta_log.commit_file import commit_bytes
from deltasql.errors import DeltaSqlError, MirrorFailure
from deltasql.mirror.background import BackgroundJobs
from deltasql.mirror.publisher import Published
from deltasql.mirror.reconciler import MirrorParts, Reconciler, in_parallel
from deltasql.store import Landed
from deltasql.store.mirror_records import MirroredTable

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 60.0


class CommitHook:
    """Publishes the commits of this process. Jobs in the background publish `async` tables and write checkpoints, and
    a thread retries until everything is published."""

    def __init__(self, parts: MirrorParts, reconciler: Reconciler) -> None:
        self._parts = parts
        self._config = parts.config
        self._reconciler = reconciler
        self._lock = threading.Lock()
        self._jobs = BackgroundJobs(self._config["mirror.parallel_tables"])
        self._retrier: threading.Thread | None = None
        self._retry_requested = False
        self._closed = threading.Event()

    def committed(self, landed: Sequence[Landed]) -> dict[str, MirrorFailure]:
        """Publish commits that have just landed, and return the failures by table id."""
        at_once: list[Callable[[], MirrorFailure | None]] = []
        for one in landed:
            table = _table_of(one)
            mode = self._parts.mode(table)
            if mode == "sync":
                known = {one.version: partial(lambda landed: commit_bytes(landed.logged()), one)}
                at_once.append(partial(self._publish_safely, table, known))
            elif mode == "async":
                self._in_background(table)
                self._announce(table)
        if len(at_once) == 1:
            failures = [at_once[0]()]
        else:
            failures = in_parallel(lambda job: job(), at_once, self._config["mirror.parallel_tables"])
        if len(landed) > 1 and at_once:
            self._publish_manifests()
        return {failure.table_id: failure for failure in failures if failure is not None and failure.table_id}

    def _publish_manifests(self) -> None:
        try:
            if self._parts.manifests.publish(self._parts.mirrored) or not self._parts.manifests.is_clean:
                self._retry_later()
        except Exception as error:
            # The commit has landed and its tables are published: only the manifest is late.
            _log.warning("the manifest of a transaction is not written yet: %s", error)
            self._retry_later()

    def _announce(self, table: MirroredTable) -> None:
        """Wake a reconciler, in case this process ends before it has published the table."""
        try:
            self._parts.outbox.notify(table.key)
        except DeltaSqlError as error:
            _log.warning("table %s: no reconciler was notified: %s", table.name, error)

    def _publish_safely(self, table: MirroredTable, known: Mapping[int, Callable[[], bytes]]) -> MirrorFailure | None:
        """Publish a table, and return any failure instead of raising it: the commit has landed."""
        try:
            result = self._parts.publisher.publish(table, known=known, wait=True)
            self._after(result)
        except DeltaSqlError as error:
            _log.warning("table %s: not published yet: %s", table.name, error)
            self._retry_later()
            return MirrorFailure(table.id, max(known), str(error), table.name)
        except Exception as error:
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
        """Report a failure, and have a checkpoint that has become due written in the background."""
        if result.failure is not None:
            self._parts.report(result)
            self._retry_later()
        if result.busy:
            self._retry_later()
        if result.versions and self._parts.checkpoints.due_at(result.table, result.versions[-1], result.checkpoint):
            self._in_background(result.table)

    def _in_background(self, table: MirroredTable) -> None:
        """Publish and checkpoint a table in the background."""
        if not self._closed.is_set():
            self._jobs.add(table.key, partial(self._background, table))

    def _background(self, table: MirroredTable) -> None:
        try:
            self._after(self._parts.publisher.publish(table, wait=True))
            if self._parts.manifests.publish(self._parts.mirrored):
                self._retry_later()
            self._parts.checkpoints.write_due(table, wait=True)
        except Exception as error:
            if self._closed.is_set():  # the process did not wait any longer, and has closed its connections
                _log.debug("table %s: %s", table.name, error)
            elif isinstance(error, DeltaSqlError):
                _log.warning("table %s: %s", table.name, error)
            else:
                _log.exception("table %s: publishing failed", table.name)
            self._retry_later()

    def _retry_later(self) -> None:
        """Start the retry thread, or have the running one make another pass."""
        with self._lock:
            self._retry_requested = True
            if self._closed.is_set() or self._retrier is not None:
                return
            self._retrier = threading.Thread(target=self._retry, name="deltasql-mirror-retry", daemon=True)
            self._retrier.start()

    def _retry(self) -> None:
        base = pause = self._config["mirror.retry_backoff_base"]
        while not self._closed.wait(pause):
            with self._lock:
                self._retry_requested = False
            try:
                self._reconciler.run_pass(check_log=False)
                is_behind = (
                    self._parts.manifests.publish(self._parts.mirrored, wait=True) or self._reconciler.is_behind()
                )
                pause = base
                if is_behind:
                    continue
            except DeltaSqlError as error:
                _log.warning("publishing failed and is retried: %s", error)
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            except Exception:
                _log.exception("publishing failed and is retried")
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            with self._lock:
                # A failure after the check above found this thread running and relies on it.
                if not self._retry_requested:
                    self._retrier = None
                    return

    def settle(self) -> None:
        """Wait until the jobs in the background have finished."""
        self._jobs.wait()

    def finish(self) -> None:
        """Wait until the jobs in the background have finished, at most `mirror.exit_timeout`."""
        if self._closed.is_set() or self._jobs.wait(self._config["mirror.exit_timeout"]):
            return
        _log.warning(
            "versions or checkpoints that are due were not published within mirror.exit_timeout: the next process that "
            "commits to these tables publishes them, or run `deltasql mirror run`"
        )
        self._closed.set()

    def close(self) -> None:
        """Wait as `finish` does, and stop the retry thread."""
        self.finish()
        self._closed.set()
        with self._lock:
            retrier = self._retrier
        if retrier is not None:
            retrier.join(self._config["mirror.exit_timeout"])


def _table_of(landed: Landed) -> MirroredTable:
    state = landed.commit.state
    metadata = landed.commit.changes.metadata[0] if landed.commit.changes.metadata else state.metadata
    properties = metadata.configuration if metadata else {}
    return MirroredTable(landed.table_key, state.table_id, state.name, state.location, properties, landed.version)
