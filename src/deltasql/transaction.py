"""Transactions: actions are staged per table, then all tables commit together or none does."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version as package_version
from typing import Any
from uuid import UUID

import msgspec

from deltasql.config import count, duration
from deltasql.core.actions import Action, CommitInfo, Metadata, Protocol, Txn, from_dict
from deltasql.core.changes import (
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    Changes,
    NewTable,
    Reads,
    TableCommit,
    TableState,
)
from deltasql.errors import TransactionLimitExceeded, UsageError, ValidationError
from deltasql.store import Committed, Store
from deltasql.store import Transaction as Shared
from deltasql.store.rows import file_token

ENGINE = f"deltasql/{package_version('deltasql')}"

_ISOLATION = {"serializable": SERIALIZABLE, "write_serializable": WRITE_SERIALIZABLE}


@dataclass(slots=True)
class _Staged:
    """What a transaction has staged for one table so far."""

    state: TableState
    changes: Changes = field(default_factory=Changes)
    reads: Reads = field(default_factory=Reads)
    expected_version: int | None = None
    isolation: str | None = None
    create: NewTable | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """What a transaction had staged at some moment."""

    staged: Mapping[str, _Staged]


class MultiTableTransaction:
    """Stages actions for any number of tables and commits them at once. Single use.

    Nothing is locked before `commit`; a table's head as first staged is what conflicts are judged against.
    """

    def __init__(
        self,
        store: Store,
        *,
        isolation: str | None = None,
        timeout: float | str | None = None,
        max_tables: int | None = None,
        max_files_per_table: int | None = None,
        author: str | None = None,
        message: str | None = None,
        app: tuple[str, int] | None = None,
        txn_id: str | None = None,
    ) -> None:
        config = store.config
        self._store = store
        self._isolation = _isolation(isolation)
        self._timeout = None if timeout is None else _checked("timeout", positive, timeout)
        limit = config["transaction.max_tables"] if max_tables is None else max_tables
        self._max_tables = _checked("max_tables", count, limit)
        limit = config["transaction.max_files_per_table"] if max_files_per_table is None else max_files_per_table
        self._max_files = _checked("max_files_per_table", count, limit)
        self._author = author
        self._message = message
        self._app = _app(app)
        self._staged: dict[str, _Staged] = {}
        self._over: str | None = None
        self.id = txn_id or str(uuid.uuid4())
        self.token = file_token(self.id)
        """In the name of a file, it tells that this transaction wrote it: adding it needs no look-up."""
        self.results: dict[str, Committed] = {}

    def stage(
        self,
        table_id: str | UUID,
        actions: Iterable[Action],
        expected_version: int | None = None,
        *,
        reads: Reads | None = None,
        isolation: str | None = None,
    ) -> None:
        """Add actions for a table. `expected_version` makes its commit strict: that version or `VersionConflict`."""
        self._check_open()
        self.stage_on(self._state(table_id), actions, expected_version, reads=reads, isolation=isolation)

    def stage_on(
        self,
        state: TableState,
        actions: Iterable[Action],
        expected_version: int | None = None,
        *,
        reads: Reads | None = None,
        isolation: str | None = None,
    ) -> None:
        """`stage` for a head that was read already: conflicts are judged against that one."""
        self._check_open()
        known = self._staged.get(state.table_id) or _Staged(state)
        changes = Changes.of(actions, state.name)
        self._staged[state.table_id] = replace(
            known,
            changes=known.changes.merge(changes),
            reads=known.reads | (reads or Reads()),
            expected_version=_expected(expected_version, known),
            isolation=_isolation(isolation) or known.isolation,
        )

    def create(self, state: TableState, new: NewTable, actions: Iterable[Action]) -> None:
        """Stage a table that does not exist yet; its first version is part of this transaction."""
        self._check_open()
        changes = Changes.of(actions, state.name)
        self._staged[state.table_id] = _Staged(state, changes, create=new, expected_version=0)

    def seen(self, state: TableState) -> TableState:
        """A table as this transaction sees it: the head when it was first staged, with the schema that was staged."""
        staged = self._staged.get(state.table_id)
        if staged is None:
            return state
        metadata, protocols = staged.changes.metadata, staged.changes.protocols
        return replace(
            staged.state,
            metadata=metadata[0] if metadata else staged.state.metadata,
            protocol=protocols[0] if protocols else staged.state.protocol,
        )

    def reshape(self, state: TableState, metadata: Metadata, protocol: Protocol | None) -> None:
        """Give a table a new schema, in place of one that was staged before."""
        self._check_open()
        known = self._staged.get(state.table_id) or _Staged(state)
        protocols = (protocol,) if protocol else known.changes.protocols
        changes = replace(known.changes, metadata=(metadata,), protocols=protocols)
        self._staged[state.table_id] = replace(known, changes=changes)

    def has_files(self, state: TableState) -> bool:
        """Were files staged for a table?"""
        staged = self._staged.get(state.table_id)
        return staged is not None and staged.changes.num_files > 0

    def forget_files(self, state: TableState) -> None:
        """Take back the files that were staged for a table: all of it is about to be overwritten."""
        staged = self._staged.get(state.table_id)
        if staged is not None:
            changes = replace(staged.changes, adds=(), removes=(), cdc=())
            self._staged[state.table_id] = replace(staged, changes=changes)

    def mark(self) -> Mark:
        """What is staged now, to come back to."""
        return Mark(dict(self._staged))

    def back_to(self, mark: Mark) -> None:
        """Forget what was staged since."""
        self._staged = dict(mark.staged)

    def _state(self, table_id: str | UUID) -> TableState:
        staged = self._staged.get(str(table_id))
        return staged.state if staged else self._store.state(table_id)

    def commit(self) -> dict[str, int]:
        """Commit every staged table, or none: the version of each."""
        self._check_open()
        self._check_limits()
        commits = [self._part(staged) for staged in self._staged.values()]
        shared = Shared(self.id, self._author, self._message, self._timeout)
        self._over = "failed"
        self.results = self._store.commit(commits, shared) if commits else {}
        self._over = "committed"
        return {table_id: result.version for table_id, result in self.results.items()}

    def rollback(self) -> None:
        """Forget everything that was staged."""
        self._check_open()
        self._staged.clear()
        self._over = "rolled back"

    @property
    def is_open(self) -> bool:
        """Can it still stage and commit?"""
        return self._over is None

    def _check_open(self) -> None:
        if self._over is not None:
            raise UsageError(
                f"transaction {self.id} is {self._over} already: a transaction is used once, begin another"
            )

    def _check_limits(self) -> None:
        """Limits keep a multi-table transaction short; a commit of one table may hold any number of files."""
        if len(self._staged) > self._max_tables:
            raise TransactionLimitExceeded("transaction.max_tables", len(self._staged), self._max_tables)
        for staged in self._staged.values():
            files = staged.changes.num_files
            if len(self._staged) > 1 and files > self._max_files:
                raise TransactionLimitExceeded(
                    "transaction.max_files_per_table", files, self._max_files, staged.state.name
                )

    def _part(self, staged: _Staged) -> TableCommit:
        changes = staged.changes
        if self._app is not None and self._app.app_id not in {t.app_id for t in changes.txns}:
            changes = changes.merge(Changes(txns=(self._app,)))
        if not changes.infos:
            changes = changes.merge(Changes(infos=(CommitInfo(_operation(staged)),)))
        changes = replace(changes, infos=(self._complete(changes.infos[0]),))
        return TableCommit(
            staged.state,
            changes,
            staged.reads,
            staged.expected_version,
            staged.isolation or self._isolation or _isolation_of(staged.state),
            staged.create,
        )

    def _complete(self, info: CommitInfo) -> CommitInfo:
        return msgspec.structs.replace(
            info,
            engine_info=info.engine_info or ENGINE,
            txn_id=info.txn_id or self.id,
            user_name=self._author or info.user_name or _user(),
            user_metadata=info.user_metadata if self._message is None else self._message,
        )


def _expected(version: Any, known: _Staged) -> int | None:
    if version is None:
        return known.expected_version
    if type(version) is not int or version < 0:
        raise ValidationError(
            f"table {known.state.name}: the expected version must be a whole number from 0 on, got {version!r}",
            table=known.state.name,
            table_id=known.state.table_id,
            value=version,
        )
    if known.expected_version not in (None, version):
        raise UsageError(
            f"table {known.state.name} was staged with expected version {known.expected_version}, now {version}",
            table=known.state.name,
            value=version,
        )
    return version


def _operation(staged: _Staged) -> str:
    if staged.create:
        return "CREATE TABLE"
    changes = staged.changes
    if not changes.num_files and (changes.metadata or changes.protocols):
        return "SET TBLPROPERTIES"
    return "WRITE"


def _isolation(name: str | None) -> str | None:
    if name is None:
        return None
    known = {**_ISOLATION, **{value: value for value in _ISOLATION.values()}}
    if name not in known:
        raise UsageError(f"isolation must be one of {', '.join(_ISOLATION)}, got {name!r}", value=name)
    return known[name]


def _isolation_of(state: TableState) -> str:
    configured = state.metadata.configuration.get("delta.isolationLevel", "") if state.metadata else ""
    return configured if configured in _ISOLATION.values() else WRITE_SERIALIZABLE


def _app(app: Any) -> Txn | None:
    if app is None:
        return None
    match app:
        case (str(app_id), int(version)) if app_id and not isinstance(version, bool):
            return Txn(app_id, version)
    raise UsageError(f"app must be an application id and a version, as in ('stream', 7), got {app!r}", value=app)


def positive(value: Any) -> float:
    """A duration longer than nothing."""
    seconds = duration(value)
    if seconds <= 0:
        raise ValueError("a duration longer than 0")
    return seconds


def _checked(name: str, read: Any, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise UsageError(f"{name} must be {error}, got {value!r}", value=value) from None


@cache
def _user() -> str:
    try:
        return getpass.getuser()
    except OSError:  # an account without a name, as in some containers
        return "unknown"


class SqlTxnLogWriter:
    """The strict writer: commits exactly the version it is told to, or raises `VersionConflict`. Never retries."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def commit(
        self,
        table_id: str | UUID,
        expected_version: int,
        actions: Iterable[Action],
        commit_info: CommitInfo | Mapping[str, Any] | None = None,
    ) -> int:
        """Commit actions as `expected_version`, which must be the one after the head. The version committed."""
        txn = MultiTableTransaction(self._store)
        state = self._store.state(table_id)
        if expected_version is None:
            raise ValidationError(
                f"table {state.name}: the strict writer needs an expected version; the next is "
                f"{state.version + 1}. For a commit that rebases, use lake.begin()",
                table=state.name,
                table_id=state.table_id,
            )
        txn.stage_on(state, [*actions, *_infos(commit_info)], expected_version)
        return txn.commit()[state.table_id]


def _infos(info: CommitInfo | Mapping[str, Any] | None) -> list[CommitInfo]:
    if info is None:
        return []
    if isinstance(info, CommitInfo):
        return [info]
    names = dict(zip(CommitInfo.__struct_fields__, CommitInfo.__struct_encode_fields__, strict=True))
    return [from_dict(CommitInfo, {names.get(key, key): value for key, value in info.items()})]
