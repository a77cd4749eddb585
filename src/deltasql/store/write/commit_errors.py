"""What an error of the database means for a commit, and what refuses one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg

from deltasql.errors import ConcurrentTransaction, TableExists, TableNotFound, VersionConflict
from deltasql.protocol.table_changes import TableCommit
from deltasql.store.action_rows import loads
from deltasql.store.database import Row
from deltasql.store.sqlstate import translate
from deltasql.store.write.commit_parts import Part

_PLACE_CONSTRAINTS = ("dl_add_files_path_key", "dl_remove_files_add_key")
_TABLE_CONSTRAINTS = ("dl_tables_name_key", "dl_tables_location_key")


class AppliedBefore(Exception):
    """An application transaction of this commit was applied by an earlier one; nothing was written."""

    def __init__(self, table_key: int, version: int) -> None:
        super().__init__(table_key, version)
        self.table_key = table_key
        self.version = version


class ExamineWinners(Exception):
    """`dl_commit` met winners that only the caller can judge; nothing was written."""


class Misplaced(Exception):
    """A path was added, or a file removed, since its place was looked up; nothing was written."""


def explain(error: psycopg.Error, parts: Sequence[Part]) -> Exception:
    """What an error of the database means for this commit. None of these landed."""
    state = error.sqlstate or ""
    if state == "23505" and error.diag.constraint_name in _PLACE_CONSTRAINTS:
        return Misplaced()
    if state == "23505" and error.diag.constraint_name in _TABLE_CONSTRAINTS:
        return _table_exists(error.diag.constraint_name, parts)
    if not state.startswith("DL"):
        return translate(error)
    detail = loads(error.diag.message_detail or "{}")
    commits = {part.key: part.commit for part in parts}
    known: dict[str, Callable[[], Exception]] = {
        "DL208": lambda: AppliedBefore(detail["key"], detail["version"]),
        "DL207": lambda: partly_applied(commits[detail["key"]], detail["version"]),
        "DL300": ExamineWinners,
        "DL301": Misplaced,
        "DL302": lambda: _taken_over(commits[detail["key"]]),
        "DL404": lambda: TableNotFound(commits[detail[0]].state.name),
        "DL409": lambda: version_conflict(commits[detail["key"]], detail["actual"]),
    }
    return known.get(state, lambda: translate(error))()


def partly_applied(own: TableCommit, version: int) -> ConcurrentTransaction:
    return ConcurrentTransaction(
        "some of our application transactions were applied already, others not",
        table_id=own.state.table_id,
        table=own.state.name,
        winner=version,
    )


def _taken_over(own: TableCommit) -> ConcurrentTransaction:
    return ConcurrentTransaction(
        "files that this transaction named were added by another one", table_id=own.state.table_id, table=own.state.name
    )


def version_conflict(own: TableCommit, actual: int) -> VersionConflict:
    return VersionConflict(own.state.table_id, own.expected_version or 0, actual, own.state.name)


def overlap(full: str, location: str, other: Row) -> TableExists:
    if other["name"] == full:
        return TableExists(full)
    return TableExists(
        full,
        f"the location {location} of {full} overlaps that of table {other['name']}, {other['location']}: choose "
        f"another one.",
    )


def _table_exists(constraint: str, parts: Sequence[Part]) -> TableExists:
    creates = [part.commit for part in parts if part.commit.create]
    names = ", ".join(own.state.name for own in creates)
    if constraint == "dl_tables_name_key":
        return TableExists(names)
    places = ", ".join(own.create.location for own in creates if own.create)
    return TableExists(names, f"another table lives at {places} already: choose another location for {names}.")
