"""The mirror of a lake: publishes committed versions to `_delta_log`, and reports, repairs and validates the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from deltasql.errors import MirrorFailure, TableNotFound
from deltasql.mirror.alerts import Alerts
from deltasql.mirror.checkpoints import Checkpoints
from deltasql.mirror.commit_hook import CommitHook
from deltasql.mirror.manifests import Manifests
from deltasql.mirror.metrics import Metrics
from deltasql.mirror.publisher import Directories, Publisher
from deltasql.mirror.reconciler import MirrorParts, MirrorReport, Reconciler, unpublished
from deltasql.mirror.recovery import Recovery, SetAside
from deltasql.mirror.repair import LogRepair
from deltasql.mirror.validate import StoredLog, differences
from deltasql.store import Landed, Store
from deltasql.store.mirror_records import MirroredTable, MirrorStatus

_log = logging.getLogger(__name__)

# A commit is normally published within milliseconds. If nothing is published for this long, no publisher is at work.
_PUBLISH_PATIENCE = 2.0
_POLL_INTERVAL = 0.1


class Mirror:
    """Publishes the tables of a lake to `_delta_log`. Commits are published without any call; the methods are for
    operators. `Lake.mirror` is the mirror of a lake.
    """

    def __init__(self, store: Store, options: Mapping[str, str]) -> None:
        self._store = store
        self._outbox = outbox = store.outbox
        self._metrics = Metrics(outbox)
        self._directories = Directories(options)
        self._publisher = Publisher(outbox, self._directories, self._metrics)
        self._checkpoints = Checkpoints(store, self._directories, self._metrics)
        self._parts = MirrorParts(
            store.config,
            outbox,
            self._directories,
            self._publisher,
            self._checkpoints,
            Manifests(outbox, store.config, options),
            Alerts(store.config["mirror.alert_webhook"]),
        )
        self._reconciler = Reconciler(self._parts)
        self._hook = CommitHook(self._parts, self._reconciler)
        self._recovery = Recovery(outbox, self._directories, self._parts.manifests)
        self._repair = LogRepair(outbox, self._directories, self._publisher, self._checkpoints, self._parts.report)

    def committed(self, landed: Sequence[Landed]) -> dict[str, MirrorFailure]:
        """Publish commits that have just landed. The lake calls this after each commit.

        Args:
            landed: The commits, one per table.

        Returns:
            The failures by table id. The commits stand in any case, and publishing is retried.
        """
        return self._hook.committed(landed)

    def settle(self) -> None:
        """Wait until the publishing in the background has finished."""
        self._hook.settle()

    def finish(self) -> None:
        """Wait until the publishing in the background has finished, at most `mirror.exit_timeout`."""
        self._hook.finish()

    def close(self) -> None:
        """Finish the publishing in the background, and stop retrying."""
        self._hook.close()
        self._parts.alerts.close()

    def status(self, *, check_log: bool = True) -> list[MirrorStatus]:
        """Return the publishing status of all tables.

        Args:
            check_log: Whether to look for versions in `_delta_log` that the database does not have. This takes one
                request per table.

        Returns:
            One `MirrorStatus` per table, ordered by name.
        """
        found = self._outbox.status()
        return self._reconciler.with_newer_logs(found) if check_log else found

    def recover(self, *, dry_run: bool = False) -> list[SetAside]:
        """Recover after the database was restored from a backup, cloned or moved.

        Versions in `_delta_log` that the database does not have, with their checkpoints, and manifests of transactions
        that it does not have are moved to the folder `_deltasql_set_aside` of their location; nothing is deleted. Then
        this database counts as the lake, and its versions are published.

        Args:
            dry_run: Only return what would be moved.

        Returns:
            The files, by table.

        Raises:
            StorageError: A file could not be moved. The method can be called again.
            MirrorFailure: A version could not be published.
        """
        plan = self._recovery.plan(self._reconciler.tables().values())
        if dry_run:
            return plan
        self._recovery.run(plan)
        self._outbox.identity.confirm()
        for one in plan:
            if one.table:
                self.repair(one.table)
        self._reconciler.run_once()
        return plan

    def metrics(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        return self._metrics.text()

    def run(self) -> list[MirrorReport]:
        """Run one pass of the reconciler now.

        The pass publishes all unpublished versions without waiting for their backoff, writes the checkpoints that are
        due, and looks for versions in `_delta_log` that the database does not have.

        Returns:
            One report per table that was published or checkpointed, or that has an error.

        Raises:
            DatabaseError: The database does not answer.
        """
        return self._reconciler.run_once()

    def watch(self, stop: threading.Event, each: Callable[[list[MirrorReport]], None] = lambda _: None) -> None:
        """Run passes of the reconciler until `stop` is set.

        A pass runs after each commit, when a retry is due, and every `mirror.reconcile_interval`. While the database
        is unavailable, the method waits.

        Args:
            stop: The event that ends the method.
            each: Called with the reports of each pass.
        """
        self._reconciler.watch(stop, each)

    def repair(self, table: str, version: int | None = None) -> MirrorReport:
        """Publish the commit files that are missing from the log or truncated, and write missing checkpoints.

        A checkpoint that another writer wrote is overwritten. A commit file that another writer wrote is not.

        Args:
            table: The name or id of the table.
            version: The version to publish again. The default is all versions that readers need.

        Returns:
            The versions that were published, and the last checkpoint that was written.

        Raises:
            MirrorConflict: Another writer wrote a commit file, or the log has versions that the database does not
                have. In the second case, nothing was changed.
            MirrorFailure: A version could not be published.
            TableNotFound: The table does not exist.
            ValidationError: The version does not exist, or log retention has deleted it.
        """
        found = self._find(table)
        repaired = self._repair.all_versions(found) if version is None else self._repair.one_version(found, version)
        return MirrorReport(found.name, *repaired)

    @contextmanager
    def finishing(self, table_key: int) -> Iterator[None]:
        """Publish the unpublished versions of a table after the block has dropped it.

        A version that cannot be published is reported, and is not retried.
        """
        tables = self._parts.mirrored(self._outbox.tables(table_key)).values()
        yield
        for table in tables:
            try:
                self._outbox.reset_attempts(table)
                self._parts.report(self._publisher.publish(table, wait=True))
            except Exception:
                _log.exception("table %s: the last versions of the dropped table could not be published", table.name)

    def validate(self, table: str) -> list[str]:
        """Compare the database with the published log of a table, at the version that was published last.

        Args:
            table: The name or id of the table.

        Returns:
            One sentence per difference, and one if versions are not published and no publisher is at work.

        Raises:
            TableNotFound: The table does not exist.
        """
        found = self._find(table)
        not_published = self._not_published(found)
        progress = partial(self._outbox.progress, found)
        published = progress().published
        stored = StoredLog(
            progress,
            partial(self._outbox.first_retained, found),
            partial(self._outbox.commits, found),
        )
        if published < 0:
            return [*not_published, *differences(self._directories.of(found), None, stored)]
        with self._store.contents(found.id, published) as contents:
            return [*not_published, *differences(self._directories.of(found), contents, stored)]

    def _not_published(self, table: MirroredTable) -> list[str]:
        """Return a sentence if the last attempt to publish failed, or if no publisher makes progress for a while. A
        commit that has just landed gets time to be published."""
        deadline = time.monotonic() + _PUBLISH_PATIENCE
        first = status = self._status_of(table)
        while _is_waiting(status) and status.published == first.published and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)
            status = self._status_of(table)
        if _is_waiting(status) and (status.published > first.published or self._outbox.is_publishing(table)):
            return []
        return [unpublished(status)] if status.lag_versions else []

    def _status_of(self, table: MirroredTable) -> MirrorStatus:
        found = self._outbox.status(table.key)
        if not found:
            raise TableNotFound(table.name)
        return found[0]

    def _find(self, table: str) -> MirroredTable:
        return self._outbox.tables(self._store.state(table).table_key)[0]


def _is_waiting(status: MirrorStatus) -> bool:
    """Return whether versions are unpublished and no attempt has failed."""
    return status.lag_versions > 0 and not status.attempts
