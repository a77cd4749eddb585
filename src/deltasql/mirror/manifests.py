"""Manifests: for readers of `_delta_log`, who see tables one by one, which versions belong together.

Each commit to several tables gets a numbered file once all of them are published. It says what the commit did, and the
versions to read together from then on: of every table that ever was in such a commit, the last one.
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
from deltasql.store.outbox import ManifestSession, MirroredTable, MultiTableCommit, Outbox
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
        """Off once in a while: `clean` is to be called then, when no writer waits."""
        self._directory: Directory | None = None

    def publish(self, mirrored: Callable[[Sequence[MirroredTable]], Collection[str]], *, wait: bool = False) -> bool:
        """Write the manifests that are due. Is anything left to do, for now or for another publisher who is at it, who
        is waited for if `wait` is on? `mirrored` tells the ids of tables that are published at all: others are none of
        an outside reader's business."""
        if not self.location:
            return False
        with self._outbox.manifests(wait=wait) as session:
            if session is None:
                return True
            while waiting := session.open():
                known = frozenset(mirrored(session.tables()))
                for one in waiting:
                    if any(table.table_id in known and not table.published for table in one.tables):
                        return True
                    number, snapshot = session.last()
                    if not self._write(session, one, known, number + 1, snapshot):
                        break  # look again: another transaction had the number
                    self.is_clean = self.is_clean and (number + 2) % _CLEAN_EVERY != 0
        return False

    def clean(self) -> list[str]:
        """Delete manifests from before `lake.manifest_retention`, but the last of them: it tells of the moments until
        the next one."""
        if not self.location:
            return []
        before = datetime.now(UTC) - timedelta(seconds=self._retention)
        directory = self._opened()
        told = (entry for entry in directory.list(FOLDER) if entry.path.endswith(".json"))
        old = sorted(entry.path for entry in told if entry.modified < before)[:-1]
        directory.delete(old)
        self.is_clean = True
        return old

    def _opened(self) -> Directory:
        if self._directory is None:
            self._directory = Directory(self.location, self._options)
        return self._directory

    def _write(
        self,
        session: ManifestSession,
        one: MultiTableCommit,
        known: Collection[str],
        number: int,
        before: Mapping[str, Any],
    ) -> bool:
        """Write the next manifest; False if it is there already, and of another transaction: a publisher that died
        wrote it, and could not say so."""
        timestamp = epoch_millis(one.committed_at)
        tables = {
            table.name: {
                "id": table.table_id,
                "location": table.location,
                "version": table.version,
                "timestamp": timestamp,
            }
            for table in one.tables
            if table.table_id in known
        }
        snapshot = {name: told for name, told in {**before, **tables}.items() if told["id"] in known}
        content: dict[str, Any] = {
            "txnId": one.txn_id,
            "timestamp": timestamp,
            "author": one.author,
            "message": one.message,
            "tables": tables,
            "snapshot": snapshot,
        }
        data = _encoder.encode(content) + b"\n"
        if not self._opened().put_if_absent(_path(number), data):
            content = self._there(number, data, one)
        if not session.written(content["txnId"], number, content["snapshot"]):
            raise StorageError(
                f"{self.location}/{_path(number)} is the manifest of transaction {content['txnId']}, which this "
                f"database does not know, or knows by another number: another lake writes there, or the database was "
                f"restored from a back-up. Set lake.location to a place of the lake's own, or move old manifests away"
            )
        return bool(content["txnId"] == one.txn_id)

    def _there(self, number: int, data: bytes, one: MultiTableCommit) -> dict[str, Any]:
        """A manifest that is there already."""
        directory = self._opened()
        there = directory.get(_path(number))
        if there is not None and data.startswith(there) and there != data:
            directory.put(_path(number), data)  # our own bytes, cut short
            there = data
        try:
            found: dict[str, Any] = msgspec.json.decode(there or b"")
            if found["txnId"] and found["snapshot"] is not None:
                return found
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            problem = f"{self.location}/{_path(number)} is no manifest of deltasql's: move it away"
            raise StorageError(problem) from error
        raise StorageError(f"{self.location}/{_path(number)} cannot be the manifest of transaction {one.txn_id}")


@dataclass(frozen=True, slots=True)
class LakeVersions:
    """Versions of tables that belong together."""

    versions: Mapping[str, int]
    """By the names of tables."""
    locations: Mapping[str, str]
    txn_id: str
    """The last transaction that they have."""
    timestamp: datetime


def versions_as_of(
    location: str, timestamp: Moment | None = None, *, storage_options: Mapping[str, str] | None = None
) -> LakeVersions:
    """The versions of a lake's tables to read together, for engines that read `_delta_log`: the latest, or those at a
    moment. `location` is the lake's `lake.location`; the database is not asked.

    A transaction is seen once all its tables are published, and so is every later one: readers see no half of it, but
    may see it late."""
    directory = Directory(location, storage_options or {})
    paths = sorted((entry.path for entry in directory.list(FOLDER) if entry.path.endswith(".json")), reverse=True)
    latest = None if timestamp is None else epoch_millis(moment(timestamp))
    for path in paths:
        data = directory.get(path)
        if data is None:
            continue  # cleaned up meanwhile
        found = msgspec.json.decode(data)
        # Numbers are in the order of publishing: an earlier one may be of a later commit.
        if latest is None or all(told["timestamp"] <= latest for told in found["snapshot"].values()):
            return LakeVersions(
                {name: told["version"] for name, told in found["snapshot"].items()},
                {name: told["location"] for name, told in found["snapshot"].items()},
                found["txnId"],
                datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=found["timestamp"]),
            )
    raise UsageError(
        f"{location} has no manifest{'' if timestamp is None else f' from before {timestamp}'}: a lake writes them for "
        f"commits to several tables if its configuration says lake.location",
        value=location,
    )
