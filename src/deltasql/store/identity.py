"""The identity of a lake, and whether its database is the one in which the lake lives or a copy of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from deltasql.store.database import Database


@dataclass(frozen=True, slots=True)
class LakeIdentity:
    """The id of a lake.

    Attributes:
        lake_id: The id, which copies of the database share.
        problem: Why the database counts as a copy, None if it is the original.
    """

    lake_id: str
    problem: str | None


class Identities:
    """Reads the identity of a lake, and reads it again after a new connection: it may lead to another server.

    Args:
        database: The database.
        directory: The directory of an embedded server, which a copy of its files does not share.
    """

    def __init__(self, database: Database, directory: Path | None) -> None:
        self._database = database
        self._directory = None if directory is None else str(directory.resolve())
        self._lock = threading.Lock()
        self._known: tuple[int, LakeIdentity] | None = None

    def current(self) -> LakeIdentity:
        """Return the identity of the lake."""
        with self._lock:
            known = self._known
            if known is None or known[0] != self._database.connections or known[1].problem is not None:
                identity = self._read()
                known = self._known = self._database.connections, identity
            return known[1]

    def _read(self) -> LakeIdentity:
        row = self._database.rows("lake")[0]
        moved = self._directory is not None and row["directory"] not in (None, self._directory)
        if row["place"] == row["here"] and not moved:
            return LakeIdentity(str(row["lake_id"]), None)
        where = f" from {row['directory']}" if moved else ""
        problem = (
            f"this database is a copy of the database of lake {row['lake_id']}: it was restored, cloned or "
            f"moved{where}. If the original is gone, run `deltasql mirror recover`. Until then nothing is published or "
            f"deleted"
        )
        return LakeIdentity(str(row["lake_id"]), problem)

    def confirm(self) -> None:
        """Record that the lake lives in this database from now on."""
        self._database.execute("lake_confirm", directory=self._directory)
        with self._lock:
            self._known = None

    def settle(self) -> None:
        """Record the directory of a new embedded lake."""
        if self._directory is not None:
            self._database.execute("lake_settle", directory=self._directory)
