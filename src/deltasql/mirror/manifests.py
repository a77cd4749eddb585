"""Manifests: consistent versions of several tables, for readers of `_delta_log`, which has one log per table.

Each multi-table commit gets a numbered file once all its tables are published. `tables` lists the versions of the
commit. `snapshot` lists the consistent versions of all tables that were ever part of a multi-table commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from deltasql.config import Config
from deltasql.errors import StorageError, UsageError
from deltasql.protocol.table_changes import epoch_millis
from deltasql.storage import Directory
from deltasql.store.mirror_records import MirroredTable, MultiTableCommit
from deltasql.store.outbox import Outbox
from deltasql.store.publish_session import ManifestSession
from deltasql.store.read.log_reader import Moment, moment

FOLDER = "_deltasql/transactions"
_CLEAN_EVERY = 100
_encoder = msgspec.json.Encoder(order="sorted")


def _path(number: int) -> str:
    return f"{FOLDER}/{number:020d}.json"


class Manifests:
    """Publishes the manifests of a lake."""

    def __init__(self, outbox: Outbox, config: Config, options: Mapping[str, str]) -> None:
        self._outbox = outbox
        self.location: str = config["lake.location"]
        self._retention: float = config["lake.manifest_retention"]
        self._options = options
        self.is_clean = True
        """False after every 100th manifest: `clean` should be called when no writer waits."""
        self._directory: Directory | None = None

    def publish(self, mirrored: Callable[[Sequence[MirroredTable]], Collection[str]], *, wait: bool = False) -> bool:
        """Write the manifests that are due, and return whether some are left.

        Args:
            mirrored: Returns the ids of the tables that are published at all. Manifests list only these.
            wait: Whether to wait for another publisher.
        """
        if not self.location or self._outbox.identity.current().problem is not None or self._outbox.is_confined():
            return False  # a manifest lists all tables, so an account that does not see them all leaves it to others
        with self._outbox.manifests(wait=wait) as session:
            if session is None:
                return True
            while waiting := session.open_commits():
                known = frozenset(mirrored(session.tables()))
                for commit in waiting:
                    if any(table.table_id in known and not table.published for table in commit.tables):
                        return True
                    number, snapshot = session.last()
                    if not self._write(session, commit, known, number + 1, snapshot):
                        break  # another transaction has this number: read the open commits again
                    self.is_clean = self.is_clean and (number + 2) % _CLEAN_EVERY != 0
        return False

    def clean(self) -> list[str]:
        """Delete the manifests that are older than `lake.manifest_retention`, and return their paths. The newest of
        them is kept, because it applies until the next manifest."""
        if not self.location or self._outbox.identity.current().problem is not None:
            return []
        before = datetime.now(UTC) - timedelta(seconds=self._retention)
        directory = self.opened()
        manifests = (entry for entry in directory.list(FOLDER) if entry.path.endswith(".json"))
        old = sorted(entry.path for entry in manifests if entry.modified < before)[:-1]
        directory.delete(old)
        self.is_clean = True
        return old

    def opened(self) -> Directory:
        """Return the location of the lake."""
        if self._directory is None:
            self._directory = Directory(self.location, self._options)
        return self._directory

    def _write(
        self,
        session: ManifestSession,
        commit: MultiTableCommit,
        known: Collection[str],
        number: int,
        before: Mapping[str, Any],
    ) -> bool:
        """Write the next manifest. Return False if the number is taken by the manifest of another transaction, which a
        publisher wrote and died before it recorded that."""
        timestamp = epoch_millis(commit.committed_at)
        tables = {
            table.name: {
                "id": table.table_id,
                "location": table.location,
                "version": table.version,
                "timestamp": timestamp,
            }
            for table in commit.tables
            if table.table_id in known
        }
        snapshot = {name: entry for name, entry in {**before, **tables}.items() if entry["id"] in known}
        content: dict[str, Any] = {
            "txnId": commit.txn_id,
            "timestamp": timestamp,
            "author": commit.author,
            "message": commit.message,
            "tables": tables,
            "snapshot": snapshot,
        }
        data = _encoder.encode(content) + b"\n"
        if not self.opened().put_if_absent(_path(number), data):
            content = self._existing(number, data, commit)
        if not session.record(content["txnId"], number, content["snapshot"]):
            raise StorageError(
                f"{self.location}/{_path(number)} is the manifest of transaction {content['txnId']}, which this "
                f"database does not have, or has with another number: another lake writes to this location, or the "
                f"database was restored from a backup. Set lake.location to a location that no other lake uses, or "
                f"move the old manifests away"
            )
        return bool(content["txnId"] == commit.txn_id)

    def _existing(self, number: int, data: bytes, commit: MultiTableCommit) -> dict[str, Any]:
        """Return the manifest that exists under a number, after completing it if it is a truncated one of ours."""
        directory = self.opened()
        existing = directory.get(_path(number))
        if existing is not None and data.startswith(existing) and existing != data:
            directory.put(_path(number), data)
            existing = data
        try:
            content: dict[str, Any] = msgspec.json.decode(existing or b"")
            if content["txnId"] and content["snapshot"] is not None:
                return content
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as error:
            problem = f"{self.location}/{_path(number)} is not a manifest of deltasql: move it away"
            raise StorageError(problem) from error
        raise StorageError(f"{self.location}/{_path(number)} cannot be the manifest of transaction {commit.txn_id}")


@dataclass(frozen=True, slots=True)
class LakeVersions:
    """Consistent versions of several tables.

    Attributes:
        versions: The version of each table, by table name.
        locations: The location of each table, by table name.
        txn_id: The last transaction that the versions include.
        timestamp: The time of that transaction.
    """

    versions: Mapping[str, int]
    locations: Mapping[str, str]
    txn_id: str
    timestamp: datetime


class _TableVersion(msgspec.Struct):
    location: str
    version: int
    timestamp: int


class _Manifest(msgspec.Struct):
    txnId: str
    timestamp: int
    snapshot: dict[str, _TableVersion]


def versions_as_of(
    location: str, timestamp: Moment | None = None, *, storage_options: Mapping[str, str] | None = None
) -> LakeVersions:
    """Return consistent versions of the tables of a lake, for engines that read `_delta_log`.

    The database is not used. A transaction is included once all its tables, and those of all earlier multi-table
    transactions, are published: readers see all of a transaction or nothing of it, but may see it late.

    Args:
        location: The value of `lake.location` in the configuration of the lake.
        timestamp: The time, as a datetime or an ISO text. The default is the latest versions.
        storage_options: The options of the object store.

    Returns:
        The versions and locations of the tables.

    Raises:
        UsageError: The location has no manifest, or none from before the timestamp.
        StorageError: The object store fails.
    """
    directory = Directory(location, storage_options or {})
    paths = sorted((entry.path for entry in directory.list(FOLDER) if entry.path.endswith(".json")), reverse=True)
    latest = None if timestamp is None else epoch_millis(moment(timestamp))
    for path in paths:
        data = directory.get(path)
        if data is None:
            continue  # deleted by the retention in the meantime
        try:
            manifest = msgspec.json.decode(data, type=_Manifest)
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=manifest.timestamp)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise StorageError(f"{location}/{path} is not a manifest of deltasql: move it away ({error})") from None
        # Manifests are numbered in the order of publishing, which may differ from the order of the commits.
        if latest is None or all(entry.timestamp <= latest for entry in manifest.snapshot.values()):
            return LakeVersions(
                {name: entry.version for name, entry in manifest.snapshot.items()},
                {name: entry.location for name, entry in manifest.snapshot.items()},
                manifest.txnId,
                at,
            )
    raise UsageError(
        f"{location} has no manifest{'' if timestamp is None else f' from before {timestamp}'}: manifests are written "
        f"for multi-table commits if lake.location is set",
        value=location,
    )
