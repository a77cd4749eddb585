"""List the live files of tables, and prune them by a predicate.

The first read of a table with a predicate is pruned in the database: by partition, or by the typed bounds of the
columns that the predicate names. Later reads use a cache of all live files, which is updated with the commits since the
last read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from deltasql.protocol.table_changes import TableState
from deltasql.store.database import Database, Row
from deltasql.store.read.arrow_queries import ArrowSession
from deltasql.store.read.file_bounds import StoredBounds
from deltasql.store.read.file_cache import CachedFiles
from deltasql.store.read.live_files import FileBounds, indices, public_columns, select
from deltasql.store.read.row_queries import RowSession

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

_CACHE_BYTES = 1 << 30
_MAX_FILES_BY_ROW = 2_000
_MIN_FILES_FOR_BOUNDS = 20_000
_MAX_PARTITION_SHARE = 0.5


class StaleTableState(Exception):
    """The metadata of the table changed after its state was read. The caller must read the state again."""


@dataclass(frozen=True, slots=True)
class FilesAt:
    """Files of a table with their version."""

    version: int
    files: pa.Table


class FileLists:
    """The file lists of all tables of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._row_session = RowSession(database)
        self._arrow_session = ArrowSession(database)
        self._cache: dict[int, CachedFiles] = {}
        self._read_before: set[int] = set()
        self._bounds: dict[int, FileBounds] = {}
        self._lock = threading.RLock()

    def close(self) -> None:
        """Clear the cache and close the connections."""
        with self._lock:
            self._cache.clear()
            self._row_session.shut()
            self._arrow_session.shut()

    def live(self, state: TableState, predicate: Predicate | None) -> FilesAt:
        """Return the live files at the head, with a predicate only those that may hold matching rows.

        Raises:
            StaleTableState: `state` does not have the current metadata.
        """
        with self._lock:
            return self._session(state).read(lambda session: self._read(session, state, predicate))

    def _read(self, session: ArrowSession, state: TableState, predicate: Predicate | None) -> FilesAt:
        head = session.table("arrow_head", table_key=state.table_key).to_pylist()[0]
        if head["shape_commit_id"] != state.shape_id:
            raise StaleTableState
        bounds = self._bounds_of(state)
        files = self._live(session, state, head, predicate, bounds)
        return FilesAt(head["current_version"], public_columns(files, bounds.partitions))

    def _live(
        self,
        session: ArrowSession,
        state: TableState,
        head: Row,
        predicate: Predicate | None,
        bounds: FileBounds,
    ) -> pa.Table:
        known = state.table_key in self._cache or state.table_key in self._read_before
        if predicate is not None and not known:
            self._read_before.add(state.table_key)
            return _prune_in_database(session, predicate, bounds, head["num_files"])
        cached = self._cached(session, state, head["current_version"], bounds)
        return cached.live() if predicate is None else cached.matching(session, predicate, bounds)

    def live_at(self, state: TableState, version: int, predicate: Predicate | None = None) -> pa.Table:
        """Return the files that were live at a version, with a predicate only those that may hold matching rows."""
        files = self._session(state).read(
            lambda session: session.table("arrow_live_at", table_key=state.table_key, version=version)
        )
        bounds = FileBounds(state, lambda: self._partitions(state))
        return public_columns(_filter(files, predicate, bounds), bounds.partitions)

    def _session(self, state: TableState) -> ArrowSession:
        """Return the session that reads a table of this size faster."""
        return self._row_session if state.num_files <= _MAX_FILES_BY_ROW else self._arrow_session

    def _bounds_of(self, state: TableState) -> FileBounds:
        """Return the cached bounds of a table. A change of the metadata replaces them."""
        known = self._bounds.get(state.table_key)
        if known is None or known.metadata != state.metadata:
            known = self._bounds[state.table_key] = FileBounds(state, lambda: self._partitions(state))
        return known

    def _partitions(self, state: TableState) -> list[Row]:
        return self._database.rows("partitions", table_key=state.table_key)

    def _cached(self, session: ArrowSession, state: TableState, head: int, bounds: FileBounds) -> CachedFiles:
        cached = self._cache.pop(state.table_key, None)
        if cached is None or not cached.refresh(session, state, head, bounds):
            cached = CachedFiles.load(session, state, head)
        self._make_room(cached.files.nbytes)
        self._cache[state.table_key] = cached
        return cached

    def _make_room(self, needed: int) -> None:
        """Remove the least recently used tables from the cache."""
        while self._cache and needed + sum(c.files.nbytes for c in self._cache.values()) > _CACHE_BYTES:
            del self._cache[next(iter(self._cache))]


def _prune_in_database(session: ArrowSession, predicate: Predicate, bounds: FileBounds, num_files: int) -> pa.Table:
    """Return the files that may match without loading all files: by partition, or by the typed bounds of a large
    table."""
    keys = _matching_partitions(predicate, bounds)
    if keys is not None:
        return _filter(session.table("arrow_live_in", table_key=bounds.key, keys=keys), predicate, bounds)
    if num_files >= _MIN_FILES_FOR_BOUNDS and bounds.data_columns(predicate):
        return _by_bounds(session, predicate, bounds)
    return _filter(session.table("arrow_live", table_key=bounds.key), predicate, bounds)


def _matching_partitions(predicate: Predicate, bounds: FileBounds) -> list[int] | None:
    """Return the keys of the partitions that may match, None if the predicate excludes too few of them."""
    part = predicate.partition_part()
    if part is None:
        return None
    bounds.partitions.load()
    keys = bounds.partitions.keys
    mask = part.may_match(bounds.of_partitions(), len(keys))
    if mask.sum() > _MAX_PARTITION_SHARE * max(1, len(mask)):
        return None
    return [int(key) for key in keys.take(indices(np.flatnonzero(mask))).to_pylist()]


def _by_bounds(session: ArrowSession, predicate: Predicate, bounds: FileBounds) -> pa.Table:
    """Prune large commits by their typed bounds, then all remaining files by the whole predicate."""
    key, columns = bounds.key, bounds.data_columns(predicate)
    stored = StoredBounds.fetch(session, key, columns)
    commits, ords, without_bounds = [], [], []
    for row in session.table("arrow_commits", table_key=key).to_pylist():
        if not stored.has(row["commit_id"], columns):
            without_bounds.append(row["commit_id"])
            continue
        matching = np.flatnonzero(predicate.may_match(stored.of(row["commit_id"], columns), row["num_adds"]))
        commits.append(np.full(len(matching), row["commit_id"]))
        ords.append(matching)
    files = session.table("arrow_live_of", table_key=key, commits=_list(commits), ords=_list(ords))
    if without_bounds:
        more = session.table("arrow_live_commits", table_key=key, commits=without_bounds)
        files = pa.concat_tables([files, more])
    return _filter(files, predicate, bounds)


def _list(arrays: Sequence[np.ndarray]) -> list[int]:
    numbers: list[int] = np.concatenate([np.empty(0, np.int64), *arrays]).tolist()
    return numbers


def _filter(files: pa.Table, predicate: Predicate | None, bounds: FileBounds) -> pa.Table:
    """Return the files that may match a predicate."""
    if predicate is None:
        return files
    return select(files, predicate.may_match(bounds.of_files(predicate.columns, files), files.num_rows))
