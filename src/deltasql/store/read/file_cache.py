"""The cache of the live files of a table: Arrow with typed bounds, updated with the commits since the last read."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from deltasql.expressions.arrow_values import numpy_of
from deltasql.protocol.statistics import Bounds, ColumnPath, concat_bounds
from deltasql.protocol.table_changes import TableState
from deltasql.store.read.arrow_queries import ArrowSession
from deltasql.store.read.file_bounds import StoredBounds
from deltasql.store.read.live_files import FileBounds, indices, select

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

_MAX_CHUNKS = 64


class CachedFiles:
    """The cached files of a table, a mask of the live ones, and the bounds of the columns that were used so far."""

    def __init__(self, state: TableState, version: int, identity: str, files: pa.Table) -> None:
        self._key = state.table_key
        self._metadata = state.metadata
        self._version = version
        self._identity = identity
        self._bounds: dict[ColumnPath, Bounds] = {}
        self.files = files
        self._is_live = np.ones(files.num_rows, bool)
        self._runs = _runs(numpy_of(files["commit_id"]), 0)

    @classmethod
    def load(cls, session: ArrowSession, state: TableState, version: int) -> CachedFiles:
        """Read all live files. `version` must be the head."""
        key = state.table_key
        files = in_commit_order(session.table("arrow_live", table_key=key))
        return cls(state, version, _identity(session, key, version), files)

    def live(self) -> pa.Table:
        """Return the live files."""
        return select(self.files, self._is_live)

    def matching(self, session: ArrowSession, predicate: Predicate, bounds: FileBounds) -> pa.Table:
        """Return the live files that may hold matching rows."""
        for path in predicate.columns - self._bounds.keys():
            self._bounds[path] = self._load_bounds(session, path, bounds)
        mask = predicate.may_match(self._bounds, self.files.num_rows)
        return select(self.files, mask & self._is_live)

    def refresh(self, session: ArrowSession, state: TableState, head: int, bounds: FileBounds) -> bool:
        """Apply the commits up to the head. Return False if the cache is useless: the database was restored, or most of
        the files are removed."""
        if head < self._version or _identity(session, self._key, self._version) != self._identity:
            return False
        if state.metadata != self._metadata:
            self._metadata = state.metadata
            self._bounds.clear()
        if head > self._version:
            added = session.table("arrow_added_after", table_key=self._key, version=self._version)
            self._append(in_commit_order(added), bounds)
            self._mark_removed(session.table("arrow_removed_after", table_key=self._key, version=self._version))
            self._version, self._identity = head, _identity(session, self._key, head)
        return bool(2 * self._is_live.sum() >= len(self._is_live))

    def _append(self, added: pa.Table, bounds: FileBounds) -> None:
        if added.num_rows == 0:
            return
        for path, new in bounds.of_files(self._bounds.keys(), added).items():
            self._bounds[path] = concat_bounds([self._bounds[path], new])
        self._runs |= _runs(numpy_of(added["commit_id"]), self.files.num_rows)
        self._is_live = np.concatenate([self._is_live, np.ones(added.num_rows, bool)])
        files = pa.concat_tables([self.files, added])
        self.files = files.combine_chunks() if files["path"].num_chunks > _MAX_CHUNKS else files

    def _mark_removed(self, removed: pa.Table) -> None:
        """Mark removed files. A file that was added and removed since the last read is not in the cache."""
        pairs = zip(removed["commit_id"].to_pylist(), removed["ord"].to_pylist(), strict=True)
        for commit_id, group in groupby(sorted(pairs), key=lambda pair: pair[0]):
            run = self._runs.get(commit_id)
            if run is not None:
                ords = numpy_of(self.files["ord"].slice(run.start, run.stop - run.start))
                removed_ords = np.array([ord_ for _, ord_ in group])
                self._is_live[run.start + np.flatnonzero(np.isin(ords, removed_ords))] = False

    def _load_bounds(self, session: ArrowSession, path: ColumnPath, bounds: FileBounds) -> Bounds:
        """Return the bounds of a column for all files: stored bounds where they exist, else the parsed statistics."""
        if path[0] in bounds.partitions.columns:
            return bounds.of_files([path], self.files)[path]
        stored_bounds = StoredBounds.fetch(session, self._key, [path])
        parts: list[Bounds] = []
        runs = sorted(self._runs.items(), key=lambda item: item[1].start)
        for stored, group in groupby(runs, key=lambda item: stored_bounds.has(item[0], [path])):
            slices = list(group)
            if stored:
                parts += [self._of_stored(stored_bounds, commit_id, run, path) for commit_id, run in slices]
            else:
                start, stop = slices[0][1].start, slices[-1][1].stop
                parts.append(bounds.of_files([path], self.files.slice(start, stop - start))[path])
        return concat_bounds(parts) if parts else bounds.of_files([path], self.files)[path]

    def _of_stored(self, stored: StoredBounds, commit_id: int, run: slice, path: ColumnPath) -> Bounds:
        """Return the stored bounds of those files of a commit that are in the cache."""
        bounds = stored.of(commit_id, [path])[path]
        if len(bounds.min) == run.stop - run.start:
            return bounds
        ords = self.files["ord"].slice(run.start, run.stop - run.start).combine_chunks()
        return Bounds(*(part.take(ords) for part in (bounds.min, bounds.max, bounds.has_nulls, bounds.all_null)))


def in_commit_order(files: pa.Table) -> pa.Table:
    """Return files sorted by commit and ord. The server usually returns them in this order."""
    commits, ords = numpy_of(files["commit_id"]), numpy_of(files["ord"])
    same = commits[1:] == commits[:-1]
    num_runs = len(commits) - same.sum()
    if len(_runs(commits, 0)) == num_runs and np.all(ords[1:] > ords[:-1], where=same):
        return files
    return files.take(indices(np.lexsort((ords, commits))))


def _runs(commits: np.ndarray, offset: int) -> dict[int, slice]:
    """Return the rows of each commit."""
    if len(commits) == 0:
        return {}
    starts = np.concatenate([[0], np.flatnonzero(commits[1:] != commits[:-1]) + 1])
    stops = np.append(starts[1:], len(commits))
    return {
        int(commits[start]): slice(int(start) + offset, int(stop) + offset)
        for start, stop in zip(starts, stops, strict=True)
    }


def _identity(session: ArrowSession, key: int, version: int) -> str:
    """Return the id of the transaction that committed a version. It changes if the database was restored."""
    found = session.table("arrow_identity", table_key=key, version=version).to_pylist()
    return str(found[0]["txn_id"]) if found else ""
