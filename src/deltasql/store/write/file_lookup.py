"""Look up the rows of the log that the files of a commit refer to.

These are the add row of each removed file, and the earlier rows of each added path, which give it its path_gen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

from deltasql.errors import CommitConflict, DatabaseError, DeltaSqlError, ValidationError
from deltasql.protocol.actions import Add
from deltasql.protocol.conflicts import check
from deltasql.store import action_rows
from deltasql.store.action_rows import AddRowKey
from deltasql.store.database import Connection, Database, Row, fetch
from deltasql.store.sqlstate import translated
from deltasql.store.write.commit_errors import version_conflict
from deltasql.store.write.prepared_commit import PreparedCommit
from deltasql.store.write.winners import fetch_winners

_TOKEN = re.compile(r"-tx([0-9a-f]{32})")


def look_up_removes(connection: Connection, prepared: PreparedCommit) -> None:
    """Find the add row of each removed file.

    Raises:
        CommitConflict: A newer version removed one of the files.
        ValidationError: One of the files is not in the table.
    """
    removes = prepared.commit.changes.removes
    if not removes or prepared.removed_adds:
        return
    rows_by_path = _find(connection, prepared, [remove.path for remove in removes])
    for remove in removes:
        rows = rows_by_path.get(remove.path, [])
        vector = remove.deletion_vector.unique_id if remove.deletion_vector else None
        live = [row for row in _live(rows) if _vector_id(row) == vector]
        if not live:
            raise _not_live(connection, prepared, remove.path, rows)
        prepared.removed_adds[remove.path] = _key(live[-1])
    for add in prepared.commit.changes.adds:
        if add.path in prepared.removed_adds:
            prepared.path_gens[add.path] = _next_gen(rows_by_path[add.path])


def _find(connection: Connection, prepared: PreparedCommit, paths: list[str]) -> dict[str, list[Row]]:
    rows_by_path: dict[str, list[Row]] = {}
    for row in fetch(connection, "find_files", {"table_key": prepared.key, "paths": paths}):
        rows_by_path.setdefault(row["path"], []).append(row)
    return rows_by_path


def _not_live(connection: Connection, prepared: PreparedCommit, path: str, rows: Sequence[Row]) -> DeltaSqlError:
    """Return why a file cannot be removed: a winner removed it, or it is not in the table."""
    state, expected = prepared.commit.state, prepared.commit.expected_version
    removed_by = [row["removed_by"] for row in rows if row["removed_by"] is not None]
    versions = [v for commit_id in removed_by for v in fetch(connection, "version_of_commit", {"commit_id": commit_id})]
    if not any(version["version"] > state.version for version in versions):
        return ValidationError(
            f"table {state.name}: cannot remove {path!r}: it is not in the table at version {state.version}, or has "
            f"another deletion vector. Paths are compared byte for byte; `deltasql files {state.name}` lists them",
            table=state.name,
            table_id=state.table_id,
            value=path,
        )
    if expected is not None:
        head = fetch(connection, "heads", {"keys": [prepared.key]})[0]["current_version"]
        return version_conflict(prepared.commit, head)
    try:
        check(prepared.commit, fetch_winners(connection, prepared))
    except CommitConflict as conflict:
        return conflict
    return DatabaseError(f"table {state.name}: {path!r} was removed, but no version of the log removed it")


def look_up_again(database: Database, prepared: Sequence[PreparedCommit]) -> None:
    """Look all files up again. Raise the conflict if a removed file is no longer live."""
    with translated(), database.connection() as connection:
        for one in prepared:
            one.removed_adds.clear()
            one.superseded.clear()
            look_up_removes(connection, one)
            _look_up_adds(connection, one, one.paths_without_token)


def look_up_borrowed(connection: Connection, prepared: PreparedCommit) -> None:
    """Look up the added files that carry the token of another transaction: the unique index does not have them."""
    paths = [path for path in prepared.paths_without_token if _TOKEN.search(path)]
    if paths:
        _look_up_adds(connection, prepared, paths)
        txn_ids = {UUID(token) for path in paths for token in _TOKEN.findall(path)}
        rows = fetch(connection, "committed_here", {"table_key": prepared.key, "txn_ids": list(txn_ids)})
        prepared.borrowed_from = sorted(str(txn_id) for txn_id in txn_ids - {row["txn_id"] for row in rows})


def _next_gen(rows: Sequence[Row]) -> int:
    return max((row["path_gen"] for row in rows if row["path_gen"] is not None), default=-1) + 1


def _look_up_adds(connection: Connection, prepared: PreparedCommit, paths: list[str]) -> None:
    """Give each path that was added before its next path_gen, and supersede the row of a path that is still live."""
    adds = {add.path: add for add in prepared.commit.changes.adds}
    for path, rows in _find(connection, prepared, paths).items():
        prepared.path_gens[path] = _next_gen(rows)
        if path not in prepared.removed_adds:
            for row in _live(rows):
                _check_same_vector(prepared, adds[path], row)
                prepared.superseded[path] = _key(row)


def _live(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of live files. A row without a commit id belongs to another path with the same hash."""
    return [row for row in rows if row["commit_id"] is not None and row["removed_by"] is None]


def _vector_id(row: Row) -> str | None:
    vector = action_rows.vector_of(row["deletion_vector"])
    return vector.unique_id if vector else None


def _check_same_vector(prepared: PreparedCommit, add: Add, row: Row) -> None:
    """Reject a live path with another deletion vector: to Delta's readers it would be a second file."""
    if _vector_id(row) != (add.deletion_vector.unique_id if add.deletion_vector else None):
        state = prepared.commit.state
        raise ValidationError(
            f"table {state.name}: {add.path!r} is in the table with another deletion vector: remove it with that "
            f"vector in the same commit",
            table=state.name,
            table_id=state.table_id,
            value=add.path,
        )


def _key(row: Row) -> AddRowKey:
    return AddRowKey(row["commit_id"], row["ord"])
