"""Translate errors of the database into the errors of a commit. After each of these, nothing was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import psycopg

from deltasql.errors import (
    ConcurrentTransaction,
    HistoryReplaced,
    TableExists,
    TableNotFound,
    ValidationError,
    VersionConflict,
)
from deltasql.protocol.table_changes import TableCommit
from deltasql.store.action_rows import loads
from deltasql.store.sqlstate import translate
from deltasql.store.write.prepared_commit import PreparedCommit

_FILE_CONSTRAINTS = ("dl_add_files_path_key", "dl_remove_files_add_key")
_TABLE_CONSTRAINTS = ("dl_tables_name_key", "dl_tables_location_key")


class AppliedBefore(Exception):
    """An earlier commit already applied an application transaction of this commit."""

    def __init__(self, table_key: int, version: int) -> None:
        super().__init__(table_key, version)
        self.table_key = table_key
        self.version = version


class WinnersToCheck(Exception):
    """`dl_commit` found newer versions, and the caller must check them for conflicts."""


class FilesChanged(Exception):
    """Another commit added or removed a file of this commit after the file was looked up."""


def explain(error: psycopg.Error, prepared: Sequence[PreparedCommit]) -> Exception:
    """Return the deltasql error for an error that the database raised during a commit."""
    state = error.sqlstate or ""
    if state == "23505" and error.diag.constraint_name in _FILE_CONSTRAINTS:
        return FilesChanged()
    if state == "23505" and error.diag.constraint_name in _TABLE_CONSTRAINTS:
        return _table_exists(error.diag.constraint_name, prepared)
    if not state.startswith("DL"):
        return translate(error)
    detail = loads(error.diag.message_detail or "{}")
    commits = {one.key: one.commit for one in prepared}
    known: dict[str, Callable[[], Exception]] = {
        "DL208": lambda: AppliedBefore(detail["key"], detail["version"]),
        "DL207": lambda: partly_applied(commits[detail["key"]], detail["version"]),
        "DL300": WinnersToCheck,
        "DL301": FilesChanged,
        "DL302": lambda: _files_added_by_another(commits[detail["key"]]),
        "DL404": lambda: TableNotFound(commits[detail[0]].state.name),
        "DL411": lambda: _location_overlap(prepared, detail),
        "DL422": lambda: _invalid(error, prepared),
        "DL410": lambda: _history_replaced(commits[detail["key"]]),
        "DL409": lambda: version_conflict(commits[detail["key"]], detail["actual"]),
    }
    return known.get(state, lambda: translate(error))()


def partly_applied(commit: TableCommit, version: int) -> ConcurrentTransaction:
    """Return the error for a commit of which only some application transactions were applied before."""
    return ConcurrentTransaction(
        "only some of the application transactions of this commit were already applied",
        table_id=commit.state.table_id,
        table=commit.state.name,
        winner=version,
    )


def _files_added_by_another(commit: TableCommit) -> ConcurrentTransaction:
    return ConcurrentTransaction(
        "another transaction already added files that this transaction wrote",
        table_id=commit.state.table_id,
        table=commit.state.name,
    )


def _history_replaced(commit: TableCommit) -> HistoryReplaced:
    return HistoryReplaced(
        f"version {commit.state.version}, which this transaction has read, is not in the history any more, because the "
        f"database was restored from a backup",
        table_id=commit.state.table_id,
        table=commit.state.name,
    )


def version_conflict(commit: TableCommit, actual: int) -> VersionConflict:
    """Return the error for a commit that expects another version of its table."""
    return VersionConflict(commit.state.table_id, commit.expected_version or 0, actual, commit.state.name)


def _invalid(error: psycopg.Error, prepared: Sequence[PreparedCommit]) -> ValidationError:
    names = ", ".join(one.commit.state.name for one in prepared)
    return ValidationError(f"table {names}: {error.diag.message_primary}", table=names)


def _location_overlap(prepared: Sequence[PreparedCommit], other: Mapping[str, str]) -> TableExists:
    """Return the error for a new table whose name or location another table has."""
    commit = next(one.commit for one in prepared if one.commit.create and one.key == one.commit.state.table_key)
    name, location = commit.state.name, commit.create.location if commit.create else ""
    if other["name"] == name:
        return TableExists(name)
    return TableExists(
        name,
        f"the location {location} of {name} overlaps the location {other['location']} of table {other['name']}: "
        f"choose another location.",
    )


def _table_exists(constraint: str, prepared: Sequence[PreparedCommit]) -> TableExists:
    created = [one.commit for one in prepared if one.commit.create]
    names = ", ".join(commit.state.name for commit in created)
    if constraint == "dl_tables_name_key":
        return TableExists(names)
    locations = ", ".join(commit.create.location for commit in created if commit.create)
    return TableExists(names, f"another table is already at {locations}: choose another location for {names}.")
