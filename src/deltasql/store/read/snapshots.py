"""Which files are live, and which of them may hold rows that a predicate wants.

A process that comes back to a table keeps its live files as Arrow with typed bounds beside them, and brings them up
to date by what was committed since. A process that asks once lets PostgreSQL choose the partitions, or reads only
the typed bounds of the columns that the predicate names.
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
from deltasql.store.read.file_bounds import Blocks
from deltasql.store.read.file_cache import CachedFiles
from deltasql.store.read.live_files import FileBounds, indices, present, select
from deltasql.store.read.row_queries import RowSession

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

_CACHE_BYTES = 1 << 30
_MOST_FILES_BY_ROW = 2_000
_BLOCKS_PAY_FROM = 20_000
_MOST_PARTITIONS_SHARE = 0.5


class Moved(Exception):
    """The table's metadata changed since its state was read: read the state again."""


@dataclass(frozen=True, slots=True)
class FilesAt:
    """Files with the version they are of."""

    version: int
    files: pa.Table


class Snapshots:
    """The file lists of a store's tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._row_session = RowSession(database)
        self._arrow_session = ArrowSession(database)
        self._cache: dict[int, CachedFiles] = {}
        self._asked: set[int] = set()
        self._bounds: dict[int, FileBounds] = {}
        self._lock = threading.RLock()

    def close(self) -> None:
        """Forget everything and give the connection back."""
        with self._lock:
            self._cache.clear()
            self._row_session.shut()
            self._arrow_session.shut()

    def live(self, state: TableState, predicate: Predicate | None) -> FilesAt:
        """The live files at the head: all of them, or those that may hold matching rows."""
        with self._lock:
            return self._session(state).read(lambda session: self._read(session, state, predicate))

    def _read(self, session: ArrowSession, state: TableState, predicate: Predicate | None) -> FilesAt:
        head = session.table("arrow_head", table_key=state.table_key).to_pylist()[0]
        if head["shape_version"] != state.shape_version:
            raise Moved
        bounds = self._bounds_of(state)
        files = self._live(session, state, head, predicate, bounds)
        return FilesAt(head["current_version"], present(files, bounds.partitions))

    def _live(
        self,
        session: ArrowSession,
        state: TableState,
        head: Row,
        predicate: Predicate | None,
        bounds: FileBounds,
    ) -> pa.Table:
        known = state.table_key in self._cache or state.table_key in self._asked
        if predicate is not None and not known:
            self._asked.add(state.table_key)
            return _ask_once(session, predicate, bounds, head["num_files"])
        cached = self._cached(session, state, head["current_version"], bounds)
        return cached.live() if predicate is None else cached.matching(session, predicate, bounds)

    def live_at(self, state: TableState, version: int, predicate: Predicate | None = None) -> pa.Table:
        """The files that were live at a version, all or those that may match."""
        files = self._session(state).read(
            lambda session: session.table("arrow_live_at", table_key=state.table_key, version=version)
        )
        bounds = FileBounds(state, lambda: self._partitions(state))
        return present(_filter(files, predicate, bounds), bounds.partitions)

    def _session(self, state: TableState) -> ArrowSession:
        """Return the session that reads a table of this size faster."""
        return self._row_session if state.num_files <= _MOST_FILES_BY_ROW else self._arrow_session

    def _bounds_of(self, state: TableState) -> FileBounds:
        """What is known of the table's partitions and columns; kept as long as its metadata stays the same."""
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
        """The least recently used tables go first."""
        while self._cache and needed + sum(c.files.nbytes for c in self._cache.values()) > _CACHE_BYTES:
            del self._cache[next(iter(self._cache))]


def _ask_once(session: ArrowSession, predicate: Predicate, bounds: FileBounds, num_files: int) -> pa.Table:
    """Prune without loading the table: by partition keys, or by typed bounds where they are worth it."""
    keys = _matching_partitions(predicate, bounds)
    if keys is not None:
        return _filter(session.table("arrow_live_in", table_key=bounds.key, keys=keys), predicate, bounds)
    if num_files >= _BLOCKS_PAY_FROM and bounds.data_columns(predicate):
        return _by_bounds(session, predicate, bounds)
    return _filter(session.table("arrow_live", table_key=bounds.key), predicate, bounds)


def _matching_partitions(predicate: Predicate, bounds: FileBounds) -> list[int] | None:
    """The keys of the partitions that may match; None if the predicate does not narrow them down."""
    part = predicate.partition_part()
    if part is None:
        return None
    bounds.partitions.load()
    keys = bounds.partitions.keys
    mask = part.may_match(bounds.of_partitions(), len(keys))
    if mask.sum() > _MOST_PARTITIONS_SHARE * max(1, len(mask)):
        return None
    return [int(key) for key in keys.take(indices(np.flatnonzero(mask))).to_pylist()]


def _by_bounds(session: ArrowSession, predicate: Predicate, bounds: FileBounds) -> pa.Table:
    """Large commits by their typed bounds, small ones by their statistics; then the whole predicate on what is left."""
    key, columns = bounds.key, bounds.data_columns(predicate)
    blocks = Blocks.fetch(session, key, columns)
    commits, ords, rest = [], [], []
    for row in session.table("arrow_commits", table_key=key).to_pylist():
        if not blocks.has(row["commit_id"], columns):
            rest.append(row["commit_id"])
            continue
        places = np.flatnonzero(predicate.may_match(blocks.of(row["commit_id"], columns), row["num_adds"]))
        commits.append(np.full(len(places), row["commit_id"]))
        ords.append(places)
    found = session.table("arrow_live_of", table_key=key, commits=_list(commits), ords=_list(ords))
    if rest:
        others = session.table("arrow_live_commits", table_key=key, commits=rest)
        found = pa.concat_tables([found, others])
    return _filter(found, predicate, bounds)


def _list(arrays: Sequence[np.ndarray]) -> list[int]:
    numbers: list[int] = np.concatenate([np.empty(0, np.int64), *arrays]).tolist()
    return numbers


def _filter(files: pa.Table, predicate: Predicate | None, bounds: FileBounds) -> pa.Table:
    """Apply the whole predicate to files at hand."""
    if predicate is None:
        return files
    return select(files, predicate.may_match(bounds.of_files(predicate.columns, files), files.num_rows))
