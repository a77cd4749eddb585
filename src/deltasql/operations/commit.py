"""Transactions: actions are staged per table, then all tables commit together or none does."""

from __future__ import annotations

import getpass
import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.addresses import split_name
from deltasql.config import count, duration
from deltasql.errors import (
    CommitOutcomeUnknown,
    DeltaSqlError,
    TableNotFound,
    TransactionLimitExceeded,
    UsageError,
    ValidationError,
)
from deltasql.protocol.actions import Action, CommitInfo, Metadata, Protocol, Txn, from_dict
from deltasql.protocol.deletion_vectors import file_of
from deltasql.protocol.table_changes import (
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    Changes,
    NewTable,
    Reads,
    TableCommit,
    TableState,
)
from deltasql.store import Committed, Snapshot, Store, TransactionHeader
from deltasql.store.action_rows import file_token
from deltasql.store.read.live_files import presented
from deltasql.store.read.log_reader import parse_where
from deltasql.store.read.snapshots import Moved
from deltasql.store.store import in_stage

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

_log = logging.getLogger(__name__)

ENGINE = f"deltasql/{package_version('deltasql')}"

_UNKNOWN = -1
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
        point: Mapping[str, int] | None = None,
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
        self._point = point
        """The version of every table when it began, by id; None if each is taken as it is first seen."""
        self._staged: dict[str, _Staged] = {}
        self._reads: dict[str, Reads] = {}
        self._states: dict[str, TableState] = {}
        self._over: str | None = None
        self.in_doubt = False
        """May it have landed without our knowing?"""
        self._written: list[tuple[TableState, Sequence[str]]] = []
        """The files that were written for it, staged still or not."""
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
        self.check_open()
        self.stage_on(self._state(table_id), actions, expected_version, reads=reads, isolation=isolation)

    def stage_on(
        self,
        state: TableState,
        actions: Iterable[Action],
        expected_version: int | None = None,
        *,
        reads: Reads | None = None,
        isolation: str | None = None,
        written: Sequence[str] = (),
    ) -> None:
        """`stage` for a head that was read already: conflicts are judged against that one. `written` are the paths of
        files that were made for this transaction, and are nobody's if it fails."""
        self.check_open()
        known = self._staged.get(state.table_id) or _Staged(state)
        changes = known.changes.followed_by(Changes.of(actions, state.name))
        if written:
            self._written.append((state, written))
        self._staged[state.table_id] = replace(
            known,
            changes=changes,
            reads=known.reads | (reads or Reads()),
            expected_version=_expected(expected_version, known),
            isolation=_isolation(isolation) or known.isolation,
        )

    def create(self, state: TableState, new: NewTable, actions: Iterable[Action]) -> None:
        """Stage a table that does not exist yet; its first version is part of this transaction."""
        self.check_open()
        changes = Changes.of(actions, state.name)
        self._staged[state.table_id] = _Staged(state, changes, create=new, expected_version=0)

    def find(self, table: str | UUID) -> TableState:
        """A table as this transaction sees it, by its id or its name."""
        for staged in self._staged.values():
            if staged.create is not None and str(table) in (staged.state.table_id, *_names(staged.state)):
                return self.seen(staged.state)
        return self.seen(self._store.state(table))

    def look_up(self, table: str | UUID) -> TableState | None:
        """The same, or None if there is no such table."""
        try:
            return self.find(table)
        except (TableNotFound, ValidationError):
            return None

    def seen(self, state: TableState) -> TableState:
        """A table as this transaction sees it: as it was when that began, with the schema that was staged."""
        staged = self._staged.get(state.table_id)
        if staged is None:
            return self._at_point(state)
        metadata, protocols = staged.changes.metadata, staged.changes.protocols
        return replace(
            staged.state,
            metadata=metadata[0] if metadata else staged.state.metadata,
            protocol=protocols[0] if protocols else staged.state.protocol,
        )

    def _at_point(self, state: TableState) -> TableState:
        """A table as it was when the transaction began; one that was created since, as it was first seen."""
        if self._point is None:
            return state
        version = self._point.get(state.table_id)
        if version is None:
            return self._states.setdefault(state.table_id, state)
        if state.version == version:
            return state
        if state.table_id not in self._states:
            old = self._store.state_at(state.table_id, version)
            self._states[state.table_id] = replace(old, version=version, num_files=_UNKNOWN)
        return self._states[state.table_id]

    def files(self, state: TableState, predicate: Predicate | None = None) -> pa.Table:
        """The files of a table as this transaction sees it; those that may hold matching rows, and all staged ones."""
        staged = self._staged.get(state.table_id)
        base = None if state.version < 0 else self._committed(state, predicate)
        changes = staged.changes if staged else Changes()
        columns = state.metadata.partition_columns if state.metadata else ()
        if base is None:
            return presented(changes.adds, columns)
        if changes.removes:
            gone = pa.array([r.path for r in changes.removes], base.schema.field("path").type)
            base = base.filter(
                pc.invert(pc.is_in(base["path"], gone))
            )  # a vector that is replaced removes its path, too
        return pa.concat_tables([base, presented(changes.adds, columns).cast(base.schema)]) if changes.adds else base

    def _committed(self, state: TableState, predicate: Predicate | None = None) -> pa.Table:
        """The files that a version has, without what is staged."""
        try:
            found = self._store.files(state, predicate)
            if found.version == state.version:
                return found.files
        except Moved:
            _log.debug("table %s has another schema now", state.name)
        return self._store.files_at(state, state.version, predicate)

    def snapshot(self, state: TableState, where: str | None = None) -> Snapshot:
        """A table as this transaction sees it, and reads it from here on."""
        seen = self.seen(state)
        if seen.metadata is None:
            raise ValidationError(f"table {state.name} has no metadata yet", table=state.name)
        if self._point is not None and seen.version >= 0 and seen.table_id not in self._point:
            text = f"table {state.name} was created after transaction {self.id} began: begin another to read it"
            raise TableNotFound(state.name, message=text)
        predicate = parse_where(where, seen)
        files = self.files(seen, predicate)
        self.note_read(seen, Reads(whole_table=True) if where is None else Reads((where,), _paths(files)))
        return Snapshot.of(seen, files, predicate)

    def note_read(self, state: TableState, reads: Reads) -> None:
        """Rows of a table were read; those of one that this transaction creates are its own."""
        self.check_open()
        staged = self._staged.get(state.table_id)
        if state.version >= 0 and reads:
            self._states.setdefault(state.table_id, staged.state if staged else state)
            self._reads[state.table_id] = self._reads.get(state.table_id, Reads()) | reads

    def reshape(self, state: TableState, metadata: Metadata, protocol: Protocol | None) -> None:
        """Give a table a new schema, in place of one that was staged before."""
        self.check_open()
        known = self._staged.get(state.table_id) or _Staged(state)
        protocols = (protocol,) if protocol else known.changes.protocols
        changes = replace(known.changes, metadata=(metadata,), protocols=protocols)
        self._staged[state.table_id] = replace(known, changes=changes)

    def forget_files(self, state: TableState) -> None:
        """Take back the files that were staged for a table: all of it is about to be overwritten."""
        staged = self._staged.get(state.table_id)
        if staged is not None:
            changes = replace(staged.changes, adds=(), removes=(), cdc=())
            self._staged[state.table_id] = replace(staged, changes=changes)

    def staged(self, state: TableState) -> Changes:
        """What is staged for a table."""
        known = self._staged.get(state.table_id)
        return known.changes if known else Changes()

    def mark(self) -> Mark:
        """What is staged now, to come back to."""
        return Mark(dict(self._staged))

    def back_to(self, mark: Mark) -> None:
        """Forget what was staged since."""
        for staged in self._staged.values():
            self.note_read(staged.state, staged.reads)  # what was read was read, and may be why it went back
        self._staged = dict(mark.staged)

    def leftovers(self) -> dict[str, list[str]]:
        """The files that were written for this transaction and that are nobody's now: their paths by location. While it
        is open, or in doubt, there are none."""
        if self.in_doubt or self._over is None or not self._written:
            return {}
        landed = [one for key, one in self._staged.items() if key in self.results and not self.results[key].before]
        kept = {(one.state.table_id, path) for one in landed for path in _files_of(one.changes, one.state)}
        found: dict[str, list[str]] = {}
        for state, written in self._written:
            paths = [path for path in written if (state.table_id, path) not in kept]
            if paths:
                found.setdefault(state.location, []).extend(paths)
        return found

    def _state(self, table_id: str | UUID) -> TableState:
        staged = self._staged.get(str(table_id))
        return staged.state if staged else self._at_point(self._store.state(table_id))

    def commit(self) -> dict[str, int]:
        """Commit every staged table, or none: the version of each."""
        self.check_open()
        self._over = "failed"
        with in_stage("validate"):
            self._check_limits()
        commits = [self._part(staged) for staged in self._staged.values()]
        commits += self._checks() if commits else []
        header = TransactionHeader(self.id, self._author, self._message, self._timeout)
        self.in_doubt = True
        try:
            self.results = self._store.commit(commits, header) if commits else {}
        except CommitOutcomeUnknown:
            raise
        except DeltaSqlError:
            self.in_doubt = False
            raise
        self._over, self.in_doubt = "committed", False
        return {table_id: result.version for table_id, result in self.results.items()}

    def rollback(self) -> None:
        """Forget everything that was staged."""
        self.check_open()
        self.back_to(Mark({}))
        self._over = "rolled back"

    @property
    def is_once(self) -> bool:
        """Is it known by an application's number, under which it is committed once? Then each table that it works on
        has to know the number, whether rows change or not."""
        return self._app is not None

    @property
    def is_open(self) -> bool:
        """Can it still stage and commit?"""
        return self._over is None

    def check_open(self) -> None:
        """A transaction is used once."""
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

    def _checks(self) -> list[TableCommit]:
        """Tables that were only read: at the strictest level nobody may have changed what was read of them."""
        if self._isolation != SERIALIZABLE:
            return []
        read = {key: reads for key, reads in self._reads.items() if key not in self._staged}
        return [TableCommit(self._states[key], Changes(), reads, None, SERIALIZABLE) for key, reads in read.items()]

    def _part(self, staged: _Staged) -> TableCommit:
        changes = staged.changes
        if self._app is not None and self._app.app_id not in {t.app_id for t in changes.txns}:
            changes = changes.merge(Changes(txns=(self._app,)))
        if not changes.infos:
            changes = changes.merge(Changes(infos=(CommitInfo(_operation(staged)),)))
        changes = replace(changes, infos=(self._complete(_together(changes.infos)),))
        state = staged.state
        if changes.metadata and state.num_files == _UNKNOWN:  # files that stay must fit the new schema
            state = replace(state, num_files=self._committed(state).num_rows)
        return TableCommit(
            state,
            changes,
            staged.reads | self._reads.get(staged.state.table_id, Reads()),
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


def _names(state: TableState) -> tuple[str, ...]:
    """What a table may be called: without its namespace, if that is the default."""
    namespace, name = split_name(state.name)
    return (state.name, name) if split_name(name)[0] == namespace else (state.name,)


def _together(infos: Sequence[CommitInfo]) -> CommitInfo:
    """What a commit says about several statements: their counts are summed up, their kinds and parameters listed."""
    if len(infos) == 1:
        return infos[0]
    operations = list(dict.fromkeys(info.operation for info in infos))
    metrics: dict[str, str] = {}
    for info in infos:
        for key, value in (info.operation_metrics or {}).items():
            sums = value.isdigit() and metrics.get(key, "0").isdigit()
            metrics[key] = str(int(metrics.get(key, "0")) + int(value)) if sums else value
    parts = [{"operation": info.operation, **(info.operation_parameters or {})} for info in infos]
    return msgspec.structs.replace(
        infos[0],
        operation=operations[0] if len(operations) == 1 else "TRANSACTION",
        operation_parameters={"statements": json.dumps(parts, ensure_ascii=False)},
        operation_metrics=metrics or None,
    )


def _paths(files: pa.Table) -> frozenset[str]:
    return frozenset(files["path"].to_pylist())


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


def _files_of(changes: Changes, state: TableState) -> Iterator[str]:
    """Every file that changes bring, those of deletion vectors included."""
    for add in changes.adds:
        yield add.path
        with suppress(ValidationError):  # a vector that we did not write, of a file that nobody finds
            if add.deletion_vector is not None and (path := file_of(add.deletion_vector, state.location, state.name)):
                yield path
    yield from (cdc.path for cdc in changes.cdc)


def _isolation_of(state: TableState) -> str:
    configured = state.metadata.table_properties.isolation_level if state.metadata else None
    return configured if configured and configured in _ISOLATION.values() else WRITE_SERIALIZABLE


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
