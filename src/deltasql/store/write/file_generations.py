"""The places that files of a commit take in the log: which rows its removes close, and which generation of a path an
add is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

from deltasql.errors import CommitConflict, DatabaseError, DeltaSqlError, ValidationError
from deltasql.protocol.actions import Add
from deltasql.protocol.conflicts import check
from deltasql.store import action_rows
from deltasql.store.action_rows import Placed
from deltasql.store.database import Connection, Database, Row, fetch
from deltasql.store.sqlstate import translated
from deltasql.store.write.commit_errors import version_conflict
from deltasql.store.write.commit_parts import Part
from deltasql.store.write.winners import fetch_winners

_TOKEN = re.compile(r"-tx([0-9a-f]{32})")


def place_removes(connection: Connection, part: Part) -> None:
    """Find the add row that each remove closes."""
    removes = part.commit.changes.removes
    if not removes or part.places:
        return
    found = _find(connection, part, [r.path for r in removes])
    for remove in removes:
        vector = remove.deletion_vector.unique_id if remove.deletion_vector else None
        live = [row for row in _live(found.get(remove.path, [])) if _vector_of(row) == vector]
        if not live:
            raise _not_live(connection, part, remove.path, found.get(remove.path, []))
        part.places[remove.path] = _place(live[-1])
    for add in part.commit.changes.adds:
        if add.path in part.places:
            part.gens[add.path] = _next_gen(found[add.path])


def _find(connection: Connection, part: Part, paths: list[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in fetch(connection, "find_files", {"table_key": part.key, "paths": paths}):
        found.setdefault(row["path"], []).append(row)
    return found


def _not_live(connection: Connection, part: Part, path: str, found: Sequence[Row]) -> DeltaSqlError:
    """Why a file cannot be removed: a winner was faster, or it is not in the table."""
    state, expected = part.commit.state, part.commit.expected_version
    removers = [f["removed_by"] for f in found if f["removed_by"] is not None]
    won = [w for r in removers for w in fetch(connection, "version_of_commit", {"commit_id": r})]
    if not any(w["version"] > state.version for w in won):
        return ValidationError(
            f"table {state.name}: cannot remove {path!r}: it is not in the table at version {state.version}, or has "
            f"another deletion vector. Paths are compared byte for byte; `deltasql files {state.name}` lists them",
            table=state.name,
            table_id=state.table_id,
            value=path,
        )
    if expected is not None:
        head = fetch(connection, "heads", {"keys": [part.key]})[0]["current_version"]
        return version_conflict(part.commit, head)
    try:
        check(part.commit, fetch_winners(connection, part))
    except CommitConflict as conflict:
        return conflict
    return DatabaseError(f"table {state.name}: {path!r} was removed and no commit tells by whom")


def place_again(database: Database, parts: Sequence[Part]) -> None:
    """Look every path up anew; raises the conflict if a file that we remove is gone."""
    with translated(), database.connection() as connection:
        for part in parts:
            part.places.clear()
            part.superseded.clear()
            place_removes(connection, part)
            place_adds(connection, part, part.foreign)


def place_files_of_others(connection: Connection, part: Part) -> None:
    """Files that another transaction named as its own are not in the index: look them up before they are added."""
    known = [path for path in part.foreign if _TOKEN.search(path)]
    if known:
        place_adds(connection, part, known)
        named = {UUID(token) for path in known for token in _TOKEN.findall(path)}
        here = fetch(connection, "committed_here", {"table_key": part.key, "txn_ids": list(named)})
        part.borrowed = sorted(str(txn) for txn in named - {row["txn_id"] for row in here})


def _next_gen(found: Sequence[Row]) -> int:
    return max((f["path_gen"] for f in found if f["path_gen"] is not None), default=-1) + 1


def place_adds(connection: Connection, part: Part, paths: list[str]) -> None:
    """Give a path that was in the table before its next place; one that is still live is superseded."""
    adds = {a.path: a for a in part.commit.changes.adds}
    for path, found in _find(connection, part, paths).items():
        part.gens[path] = _next_gen(found)
        if path not in part.places:
            for row in _live(found):
                _check_same_file(part, adds[path], row)
                part.superseded[path] = _place(row)


def _live(found: Sequence[Row]) -> list[Row]:
    """The row that holds the path now; a place taken by another path of the same hash has no commit id."""
    return [row for row in found if row["commit_id"] is not None and row["removed_by"] is None]


def _vector_of(row: Row) -> str | None:
    vector = action_rows.vector_of(row["deletion_vector"])
    return vector.unique_id if vector else None


def _check_same_file(part: Part, add: Add, row: Row) -> None:
    """A file is a path with a deletion vector: to Delta's readers the same path with another vector is another file."""
    if _vector_of(row) != (add.deletion_vector.unique_id if add.deletion_vector else None):
        state = part.commit.state
        raise ValidationError(
            f"table {state.name}: {add.path!r} is in the table with another deletion vector: remove it with that "
            f"vector in the same commit",
            table=state.name,
            table_id=state.table_id,
            value=add.path,
        )


def _place(row: Row) -> Placed:
    return Placed(row["commit_id"], row["ord"])
