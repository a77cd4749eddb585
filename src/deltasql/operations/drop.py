"""Drop tables, and delete their files: those that the log names and those that writers left, and no others."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deltasql.delta_log.layout import LAST_CHECKPOINT, LOG, any_version
from deltasql.errors import UsageError
from deltasql.mirror import Mirror
from deltasql.operations.location_owner import OWNER, owner_of, release
from deltasql.protocol.table_changes import TableState
from deltasql.storage import Directory, is_local, local_path
from deltasql.store import Store

_log = logging.getLogger(__name__)
_KEPT_SHOWN = 5
_OF_WRITERS = re.compile(r"(?:^|/)[^/]*-tx[0-9a-f]{32}[^/]*(?:/|$)")
"""Files that carry the token of a transaction of deltasql in their name, or in that of their folder."""
_STAGED = re.compile(rf"{LOG}/\.\d{{20}}\..*\.[0-9a-f]{{32}}\.tmp")
"""Commit files that a publisher was about to rename when it died."""


@dataclass(frozen=True, slots=True)
class PurgedFiles:
    """The files of a table that a purge deletes or keeps.

    Attributes:
        deleted: The paths of files that were deleted, or with `dry_run` would be.
        kept: The paths of files at the location that are not the table's.
    """

    deleted: tuple[str, ...]
    kept: tuple[str, ...]


def reject_wide_location(location: str, table: str) -> None:
    """Raise `UsageError` for a location that holds more than a table: a root, a home or a whole bucket."""
    if is_local(location):
        path = local_path(location).resolve()
        wide = path == Path(path.anchor) or path == Path.home().resolve() or path in Path.home().resolve().parents
    else:
        wide = "/" not in location.partition("://")[2].strip("/")
        wide = wide and not location.startswith("memory://")
    if wide:
        raise UsageError(
            f"table {table}: {location} is a root, a home or a whole bucket: choose a folder for the table",
            table=table,
            value=location,
        )


class TableDropper:
    """Drops tables of a lake."""

    def __init__(self, store: Store, mirror: Mirror, options: Mapping[str, str]) -> None:
        self._store = store
        self._mirror = mirror
        self._options = options

    def drop(self, state: TableState, *, purge: bool, dry_run: bool) -> PurgedFiles | None:
        """Drop a table, with `purge` together with its files; `dry_run` only returns what a purge would do."""
        if not purge:
            with self._mirror.finishing(state.table_key):
                self._store.drop_table(state)
            release(state.location, self._options, state.table_id)
            return None
        self._reject_foreign_location(state)
        if dry_run:
            return self._plan(state)
        self._mirror.settle()
        with self._store.outbox.dropping(state.table_key):
            self._store.drop_table(state, purge=True)
            files = self._plan(state)
            self._delete(state, files)
            self._store.forget_writes(state)
        return files

    def _reject_foreign_location(self, state: TableState) -> None:
        """Raise `UsageError` before files are deleted that another lake may own."""
        reject_wide_location(state.location, state.name)
        identity = self._store.identity.current()
        owner = owner_of(state.location, self._options)
        problem = identity.problem
        if owner is not None and owner.lake_id != identity.lake_id:
            whose = f"table {owner.table} of another lake, {owner.lake_id} ({owner.database})"
            problem = f"{state.location} belongs to {whose}"
        if problem is not None:
            raise UsageError(f"table {state.name} was not dropped: {problem}", table=state.name, value=state.location)

    def _plan(self, state: TableState) -> PurgedFiles:
        """Return what a purge deletes and keeps."""
        if is_local(state.location) and not local_path(state.location).exists():
            return PurgedFiles((), ())
        named = {unquote(path) for path in self._store.all_paths(state)}
        paths = sorted(entry.path for entry in Directory(state.location, self._options).list())
        own = [path for path in paths if path in named or _is_own(path, state.version)]
        return PurgedFiles(tuple(own), tuple(sorted({*paths} - {*own})))

    def _delete(self, state: TableState, files: PurgedFiles) -> None:
        if files.deleted:
            directory = Directory(state.location, self._options)
            directory.delete(list(files.deleted))
            directory.remove_empty_folders("")
        if files.kept:
            shown = ", ".join(files.kept[:_KEPT_SHOWN])
            text = "table %s: %d files at %s are not the table's, and were kept: %s"
            _log.warning(text, state.name, len(files.kept), state.location, shown)


def _is_own(path: str, head: int) -> bool:
    """Return whether a file is part of the published log up to a version, or was left by a writer of deltasql."""
    if path in (OWNER, LAST_CHECKPOINT) or _STAGED.fullmatch(path):
        return True
    version = any_version(path)
    return version <= head if version is not None else _OF_WRITERS.search(path) is not None
