"""Recover the published logs after the database was restored from a backup: set the lost history aside.

Versions, checkpoints and manifests that the database does not have are moved to a folder beside `_delta_log`, which no
reader looks into. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import msgspec

from deltasql.delta_log.last_checkpoint import decode_hint
from deltasql.delta_log.layout import LAST_CHECKPOINT, LOG, any_version
from deltasql.delta_log.log_files import LogFiles
from deltasql.mirror.log_conflicts import FaultKind, faults
from deltasql.mirror.manifests import FOLDER, Manifests
from deltasql.mirror.publisher import Directories
from deltasql.storage import Directory
from deltasql.store.mirror_records import MirroredTable
from deltasql.store.outbox import Outbox

ASIDE = "_deltasql_set_aside"


@dataclass(frozen=True, slots=True)
class SetAside:
    """Files of a lost history at one location.

    Attributes:
        table: The table's full name; empty for the manifests of the lake.
        location: The location of the table, or of the lake.
        folder: The folder below the location to which the files are moved.
        files: The paths of the files below the location.
        first_version: The first version of the table's log that the database does not have.
    """

    table: str
    location: str
    folder: str
    files: tuple[str, ...]
    first_version: int | None = None


class Recovery:
    """Finds the files of a lost history, and moves them."""

    def __init__(self, outbox: Outbox, directories: Directories, manifests: Manifests) -> None:
        self._outbox = outbox
        self._directories = directories
        self._manifests = manifests

    def plan(self, tables: Iterable[MirroredTable]) -> list[SetAside]:
        """Return the files that the database does not have."""
        folder = f"{ASIDE}/{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        found = [self._of_table(table, folder) for table in tables]
        found.append(self._of_manifests(folder))
        return [one for one in found if one is not None]

    def _of_table(self, table: MirroredTable, folder: str) -> SetAside | None:
        directory, head = self._directories.of(table), self._outbox.progress(table).head
        log = LogFiles.of(directory)
        first = min((version for version in (*log.commits, *log.checkpoints) if version > head), default=None)
        sizes = {version: size for version, size in log.commits.items() if version <= head}
        for fault in faults(directory, sizes, partial(self._outbox.commits, table)):
            if fault.kind is FaultKind.FOREIGN:
                first = fault.version if first is None else min(first, fault.version)
        if first is None:
            return None
        versions = {entry.path: any_version(entry.path) for entry in directory.list(LOG)}
        lost = {path: version for path, version in versions.items() if version is not None and version >= first}
        hinted = decode_hint(directory.get(LAST_CHECKPOINT))
        hint = [LAST_CHECKPOINT] if hinted is not None and hinted >= first else []
        # The last version comes first, so that the log is readable at every moment.
        files = (*hint, *sorted(lost, key=lambda path: (-lost[path], path)))
        return SetAside(table.name, table.location, folder, files, first)

    def _of_manifests(self, folder: str) -> SetAside | None:
        if not self._manifests.location:
            return None
        directory = self._manifests.opened()
        paths = sorted(entry.path for entry in directory.list(FOLDER) if entry.path.endswith(".json"))
        ids = {path: _txn_id(directory, path) for path in paths}
        known = self._outbox.known_transactions([txn_id for txn_id in ids.values() if txn_id])
        lost = tuple(path for path in reversed(paths) if ids[path] not in known)
        return SetAside("", self._manifests.location, folder, lost) if lost else None

    def run(self, plan: Iterable[SetAside], moved: Callable[[SetAside], None] = lambda _: None) -> None:
        """Move the files of a plan."""
        for one in plan:
            directory = self._directories.at(one.location)
            for path in one.files:
                directory.move(path, f"{one.folder}/{path}")
            moved(one)


def _txn_id(directory: Directory, path: str) -> str:
    """Return the transaction of a manifest, an empty text if the file is not one."""
    try:
        return str(msgspec.json.decode(directory.get(path) or b"")["txnId"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return ""
