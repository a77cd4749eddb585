"""Typed bounds of large commits: the statistics are parsed once by the writer, so that readers need not parse them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.statistics import Bounds, ColumnPath, decode_bounds, encode_bounds, leaf_columns, parse_stats
from deltasql.protocol.table_changes import TableCommit
from deltasql.store.action_rows import dumps
from deltasql.store.database import Database
from deltasql.store.read.arrow_queries import ArrowSession

_log = logging.getLogger(__name__)

_MIN_FILES = 64
_MAX_WAITING = 8
_MAX_COLUMNS = 32
# Parsing holds the interpreter lock, so the thread that committed gets a head start.
_GRACE = 0.02


class BoundsWriter:
    """Stores the bounds of large commits in a background thread, after they have landed.

    The bounds are optional: a reader that finds none parses the statistics. A commit does not wait for them, does not
    fail if they cannot be stored, and skips them if too many commits are queued.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool: ThreadPoolExecutor | None = None
        self._slots = threading.Semaphore(_MAX_WAITING)
        self._lock = threading.Lock()

    def store(self, key: int, commit_id: int, commit: TableCommit) -> None:
        """Queue the bounds of a commit that has landed."""
        if not _is_large(commit) or not self._slots.acquire(blocking=False):
            return
        try:
            with self._lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(1, "deltasql-bounds")
                self._pool.submit(self._store, key, commit_id, commit)
        except RuntimeError:  # the process is ending
            self._slots.release()

    def _store(self, key: int, commit_id: int, commit: TableCommit) -> None:
        time.sleep(_GRACE)
        try:
            encoded = encode_commit(commit)
            paths, bounds = [path for path, _ in encoded], [data for _, data in encoded]
            self._database.rows("store_bounds", table_key=key, commit_id=commit_id, paths=paths, bounds=bounds)
        except Exception:
            _log.warning("table %s: column bounds could not be stored", commit.state.name, exc_info=True)
        finally:
            self._slots.release()

    def settle(self) -> None:
        """Wait until all queued bounds are stored."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)


def _is_large(commit: TableCommit) -> bool:
    """Return whether storing the bounds of a commit costs less than parsing its statistics."""
    adds = commit.changes.adds
    return len(adds) >= _MIN_FILES and any(a.stats for a in adds)


def encode_commit(commit: TableCommit) -> list[tuple[str, bytes]]:
    """Return the path and the encoded bounds of each column with statistics, for the added files in their order."""
    metadata = commit.changes.metadata[0] if commit.changes.metadata else commit.state.metadata
    if metadata is None:
        return []
    schema = arrow_schema(metadata.schema_string)
    columns = [path for path in leaf_columns(schema) if path[0] not in metadata.partition_columns]
    texts = pa.array([a.stats for a in commit.changes.adds], pa.string())
    parsed = parse_stats(texts, schema, columns[:_MAX_COLUMNS])
    return [
        (path_text(path), encode_bounds(bounds))
        for path, bounds in parsed.items()
        if bounds.min.null_count < len(texts) or bounds.has_nulls.null_count < len(texts)
    ]


def path_text(path: ColumnPath) -> str:
    """Return a column path as it is stored in the database."""
    return dumps(list(path))


class StoredBounds:
    """The stored bounds of some columns, by commit."""

    def __init__(self, rows: pa.Table) -> None:
        self._bounds: dict[int, dict[str, bytes]] = {}
        columns = (rows["commit_id"].to_pylist(), rows["column_path"].to_pylist(), rows["bounds"].to_pylist())
        for commit_id, path, data in zip(*columns, strict=True):
            self._bounds.setdefault(commit_id, {})[path] = data

    @classmethod
    def fetch(cls, session: ArrowSession, key: int, columns: Collection[ColumnPath]) -> StoredBounds:
        """Read the bounds of some columns for all commits."""
        return cls(session.table("arrow_bounds", table_key=key, paths=[path_text(c) for c in columns]))

    def has(self, commit_id: int, columns: Collection[ColumnPath]) -> bool:
        """Return whether a commit has bounds for all of the columns."""
        stored = self._bounds.get(commit_id, {})
        return all(path_text(c) in stored for c in columns)

    def of(self, commit_id: int, columns: Collection[ColumnPath]) -> dict[ColumnPath, Bounds]:
        """Return the bounds of the files of a commit, in their order."""
        stored = self._bounds[commit_id]
        return {c: decode_bounds(stored[path_text(c)]) for c in columns}
