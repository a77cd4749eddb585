"""The only way from staged actions to a landed commit.

A transaction stages actions per table. `commit` validates them, commits all tables or none, and publishes what landed.
Whatever ends a transaction without a commit (an error, a rollback, a commit that was applied before) also deletes the
data files that were written for it, whichever engine wrote them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version as package_version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.config import count
from deltasql.engines.written_files import WrittenFiles
from deltasql.errors import (
    CommitOutcomeUnknown,
    DatabaseError,
    DeltaSqlError,
    StorageError,
    TableNotFound,
    TransactionLimitExceeded,
    UsageError,
    ValidationError,
)
from deltasql.operations.staging import (
    StagedTable,
    checked_option,
    combined_info,
    current_user,
    default_operation,
    expected_version,
    files_of,
    parse_app,
    parse_isolation,
    positive,
    table_isolation,
    table_names,
)
from deltasql.protocol.actions import Action, CommitInfo, Metadata, Protocol, from_dict
from deltasql.protocol.table_changes import SERIALIZABLE, Changes, NewTable, Reads, TableCommit, TableState
from deltasql.store import Committed, Snapshot, Store, TransactionHeader
from deltasql.store.action_rows import file_token
from deltasql.store.read.file_lists import StaleTableState
from deltasql.store.read.live_files import files_of_adds
from deltasql.store.read.log_reader import parse_where
from deltasql.store.store import in_stage

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

_log = logging.getLogger(__name__)

ENGINE = f"deltasql/{package_version('deltasql')}"

_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class StagingPoint:
    """The staged tables at one moment of a transaction."""

    staged: Mapping[str, StagedTable]


class MultiTableTransaction:
    """Stage actions for any number of tables and commit them at once. Single use.

    Nothing is locked before `commit`. Conflicts are checked against each table's head as it was first staged. In a
    `with` statement, an exception rolls back; `commit` is explicit.

    Args:
        store: The store of a lake, `lake.store`.
        isolation: "serializable" or "write_serializable"; the table property `delta.isolationLevel` by default.
        timeout: Seconds, or a text such as "30s", after which a commit that has not landed fails.
        max_tables: The most tables that it may change; `transaction.max_tables` by default.
        max_files_per_table: The most files per table when it changes several tables;
            `transaction.max_files_per_table` by default.
        author: The name that history shows as the committer.
        message: A text that history keeps as user metadata.
        app: An application id and a version. Work that was committed under the same pair is not committed again.

    Raises:
        UsageError: An option has an invalid value.
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
        self._isolation = parse_isolation(isolation)
        self._timeout = None if timeout is None else checked_option("timeout", positive, timeout)
        limit = config["transaction.max_tables"] if max_tables is None else max_tables
        self._max_tables = checked_option("max_tables", count, limit)
        limit = config["transaction.max_files_per_table"] if max_files_per_table is None else max_files_per_table
        self._max_files = checked_option("max_files_per_table", count, limit)
        self._author = author
        self._message = message
        self._app = parse_app(app)
        self._point = point
        """The version of every table when the transaction began, by id; None if each table is taken as first seen."""
        self._staged: dict[str, StagedTable] = {}
        self._reads: dict[str, Reads] = {}
        self._states: dict[str, TableState] = {}
        self._written: dict[str, WrittenFiles] = {}
        self._ended: str | None = None
        self._in_doubt = False
        """The commit may have landed although no reply came."""
        self.id = txn_id or str(uuid.uuid4())
        self.token = file_token(self.id)
        """A part of file names that proves the file is new, so that adding it needs no look-up."""
        self.results: dict[str, Committed] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_open:
            self.rollback()

    # --- Staging

    def stage(
        self,
        table_id: str | UUID,
        actions: Iterable[Action],
        expected_version: int | None = None,
        *,
        reads: Reads | None = None,
        isolation: str | None = None,
    ) -> None:
        """Stage actions for a table.

        Args:
            table_id: The table's id or name.
            actions: Any actions of the Delta protocol.
            expected_version: Commit exactly this version or raise `VersionConflict`; without it, the commit rebases.
            reads: What the transaction read of the table, for the conflict check.
            isolation: The isolation level of this table's part.

        Raises:
            TableNotFound: There is no such table.
            ValidationError: An action is not valid.
        """
        self.check_open()
        self.stage_on(self._first_state(table_id), actions, expected_version, reads=reads, isolation=isolation)

    def stage_on(
        self,
        state: TableState,
        actions: Iterable[Action],
        version: int | None = None,
        *,
        reads: Reads | None = None,
        isolation: str | None = None,
    ) -> None:
        """Stage actions for a head that was read already. Conflicts are checked against that head."""
        self.check_open()
        known = self._staged.get(state.table_id) or StagedTable(state)
        self._staged[state.table_id] = replace(
            known,
            changes=known.changes.followed_by(Changes.of(actions, state.name)),
            reads=known.reads | (reads or Reads()),
            expected_version=expected_version(version, known),
            isolation=parse_isolation(isolation) or known.isolation,
        )

    def create(self, state: TableState, new: NewTable, actions: Iterable[Action]) -> None:
        """Stage a new table, whose version 0 is part of this transaction."""
        self.check_open()
        changes = Changes.of(actions, state.name)
        self._staged[state.table_id] = StagedTable(state, changes, create=new, expected_version=0)

    def stage_metadata(self, state: TableState, metadata: Metadata, protocol: Protocol | None) -> None:
        """Stage metadata in place of metadata that was staged before."""
        self.check_open()
        known = self._staged.get(state.table_id) or StagedTable(state)
        protocols = (protocol,) if protocol else known.changes.protocols
        changes = replace(known.changes, metadata=(metadata,), protocols=protocols)
        self._staged[state.table_id] = replace(known, changes=changes)

    def unstage_files(self, state: TableState) -> None:
        """Drop the files that were staged for a table, because the whole table is about to be overwritten."""
        staged = self._staged.get(state.table_id)
        if staged is not None:
            changes = replace(staged.changes, adds=(), removes=(), cdc=())
            self._staged[state.table_id] = replace(staged, changes=changes)

    def staged(self, state: TableState) -> Changes:
        """Return the changes that are staged for a table."""
        known = self._staged.get(state.table_id)
        return known.changes if known else Changes()

    def staging_point(self) -> StagingPoint:
        """Return the staged tables as they are now, for `return_to`."""
        return StagingPoint(dict(self._staged))

    def return_to(self, point: StagingPoint) -> None:
        """Drop the actions that were staged since a point. Reads stay: they may be the reason for going back."""
        for staged in self._staged.values():
            self.note_read(staged.state, staged.reads)
        self._staged = dict(point.staged)

    def begin_files(self, state: TableState, options: Mapping[str, str]) -> WrittenFiles:
        """Register that files of a table are about to be written, and return the record of these files.

        Until the transaction ends, no clean-up takes the files for orphans.
        """
        if state.version >= 0:
            self._store.begin_write(self.id, state)
        found = self._written.get(state.table_id)
        if found is None:
            found = WrittenFiles(state.location, options, self.token, new_location=state.version < 0)
            self._written[state.table_id] = found
        return found

    # --- Reading

    def find(self, table: str | UUID) -> TableState:
        """Return a table as this transaction sees it, by id or name."""
        for staged in self._staged.values():
            if staged.create is not None and str(table) in (staged.state.table_id, *table_names(staged.state)):
                return self.state_of(staged.state)
        return self.state_of(self._store.state(table))

    def find_or_none(self, table: str | UUID) -> TableState | None:
        """Return a table as this transaction sees it, or None if there is no such table."""
        try:
            return self.find(table)
        except (TableNotFound, ValidationError):
            return None

    def state_of(self, state: TableState) -> TableState:
        """Return a table's state when the transaction began, with the metadata that was staged since."""
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
        """Return a table's state when the transaction began; a table that is newer, as it was first seen."""
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

    def _first_state(self, table_id: str | UUID) -> TableState:
        staged = self._staged.get(str(table_id))
        return staged.state if staged else self._at_point(self._store.state(table_id))

    def files(self, state: TableState, predicate: Predicate | None = None) -> pa.Table:
        """Return the committed files that may hold matching rows, less staged removes, plus all staged adds."""
        changes = self.staged(state)
        base = None if state.version < 0 else self._committed_files(state, predicate)
        columns = state.metadata.partition_columns if state.metadata else ()
        if base is None:
            return files_of_adds(changes.adds, columns)
        if changes.removes:
            removed = pa.array([r.path for r in changes.removes], base.schema.field("path").type)
            # A replaced deletion vector removes its file's path, too: the new add brings it back.
            base = base.filter(pc.invert(pc.is_in(base["path"], removed)))
        return (
            pa.concat_tables([base, files_of_adds(changes.adds, columns).cast(base.schema)]) if changes.adds else base
        )

    def _committed_files(self, state: TableState, predicate: Predicate | None = None) -> pa.Table:
        try:
            found = self._store.files(state, predicate)
            if found.version == state.version:
                return found.files
        except StaleTableState:
            _log.debug("table %s has another schema now", state.name)
        return self._store.files_at(state, state.version, predicate)

    def snapshot(self, state: TableState, where: str | None = None) -> Snapshot:
        """Return a table as this transaction sees it, and record the read for the conflict check."""
        current = self.state_of(state)
        if current.metadata is None:
            raise ValidationError(f"table {state.name} has no metadata yet", table=state.name)
        if self._point is not None and current.version >= 0 and current.table_id not in self._point:
            text = f"table {state.name} was created after transaction {self.id} began: begin another to read it"
            raise TableNotFound(state.name, message=text)
        predicate = parse_where(where, current)
        files = self.files(current, predicate)
        paths = frozenset(files["path"].to_pylist()) if where is not None else frozenset()
        self.note_read(current, Reads(whole_table=True) if where is None else Reads((where,), paths))
        return Snapshot.of(current, files, predicate)

    def note_read(self, state: TableState, reads: Reads) -> None:
        """Record that rows of a committed table were read."""
        self.check_open()
        staged = self._staged.get(state.table_id)
        if state.version >= 0 and reads:
            self._states.setdefault(state.table_id, staged.state if staged else state)
            self._reads[state.table_id] = self._reads.get(state.table_id, Reads()) | reads

    # --- The end

    @property
    def has_app(self) -> bool:
        """Whether it commits once under an application's version; then each table it works on records that version,
        even if no row changes."""
        return self._app is not None

    @property
    def is_open(self) -> bool:
        """Whether it can still stage and commit."""
        return self._ended is None

    def check_open(self) -> None:
        """Raise `UsageError` if the transaction has ended."""
        if self._ended is not None:
            raise UsageError(
                f"transaction {self.id} is {self._ended} already: a transaction is used once, begin another"
            )

    def commit(self) -> dict[str, int]:
        """Commit every staged table, or none.

        Returns:
            The version that each table got, by table id.

        Raises:
            CommitConflict: Another commit got in between; nothing landed.
            ValidationError: The staged actions are not a valid commit; nothing landed.
            CommitOutcomeUnknown: The commit may have landed; its files are kept.
        """
        self.check_open()
        self._ended = "failed"
        try:
            self.results = self._commit()
        except BaseException as error:
            if isinstance(error, DeltaSqlError) and not isinstance(error, CommitOutcomeUnknown):
                self._in_doubt = False
            self._give_up()
            raise
        self._ended, self._in_doubt = "committed", False
        if all(result.before for result in self.results.values()):
            self._give_up()
        else:
            self._delete_unused_files()
        return {table_id: result.version for table_id, result in self.results.items()}

    def _commit(self) -> dict[str, Committed]:
        with in_stage("validate"):
            self._check_limits()
        commits = [self._table_commit(staged) for staged in self._staged.values()]
        commits += self._read_checks() if commits else []
        header = TransactionHeader(self.id, self._author, self._message, self._timeout)
        self._in_doubt = True
        return self._store.commit(commits, header) if commits else {}

    def rollback(self) -> None:
        """Drop everything that was staged, and delete the files that were written."""
        self.check_open()
        self.return_to(StagingPoint({}))
        self._ended = "rolled back"
        self._give_up()

    def _give_up(self) -> None:
        """Delete all files of a transaction that is known not to have landed, once the database knows as well."""
        if self._in_doubt or not self._written:
            return
        try:
            self._store.end_write(self.id)
        except DatabaseError as error:
            _log.warning("the files of transaction %s stay until a vacuum: %s", self.id, error)
            return
        self._delete_unused_files()

    def _delete_unused_files(self) -> None:
        """Delete the files that were written and that no table got. Files that cannot be deleted are orphans."""
        for table_id, written in self._written.items():
            result, staged = self.results.get(table_id), self._staged.get(table_id)
            landed = result is not None and not result.before and staged is not None
            keep = {unquote(path) for path in files_of(staged.changes, staged.state)} if landed and staged else set()
            try:
                written.discard(keep)
            except (StorageError, OSError) as error:
                _log.warning("files of transaction %s stay at %s: %s", self.id, written.location, error)

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

    def _read_checks(self) -> list[TableCommit]:
        """Return the tables that were only read. A serializable commit fails if their read rows have changed."""
        if self._isolation != SERIALIZABLE:
            return []
        read = {key: reads for key, reads in self._reads.items() if key not in self._staged}
        return [TableCommit(self._states[key], Changes(), reads, None, SERIALIZABLE) for key, reads in read.items()]

    def _table_commit(self, staged: StagedTable) -> TableCommit:
        changes = staged.changes
        if self._app is not None and self._app.app_id not in {t.app_id for t in changes.txns}:
            changes = changes.merge(Changes(txns=(self._app,)))
        if not changes.infos:
            changes = changes.merge(Changes(infos=(CommitInfo(default_operation(staged)),)))
        changes = replace(changes, infos=(self._completed(combined_info(changes.infos)),))
        state = staged.state
        if changes.metadata and state.num_files == _UNKNOWN:  # files that stay must fit the new schema
            state = replace(state, num_files=self._committed_files(state).num_rows)
        return TableCommit(
            state,
            changes,
            staged.reads | self._reads.get(staged.state.table_id, Reads()),
            staged.expected_version,
            staged.isolation or self._isolation or table_isolation(staged.state),
            staged.create,
        )

    def _completed(self, info: CommitInfo) -> CommitInfo:
        return msgspec.structs.replace(
            info,
            engine_info=info.engine_info or ENGINE,
            txn_id=info.txn_id or self.id,
            user_name=self._author or info.user_name or current_user(),
            user_metadata=info.user_metadata if self._message is None else self._message,
        )


class SqlTxnLogWriter:
    """Commit exactly the version that the caller expects, or raise `VersionConflict`. Never retries.

    Args:
        store: The store of a lake, `lake.store`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def commit(
        self,
        table_id: str | UUID,
        expected_version: int,
        actions: Iterable[Action],
        commit_info: CommitInfo | Mapping[str, Any] | None = None,
    ) -> int:
        """Commit actions as a given version.

        Args:
            table_id: The table's id or name.
            expected_version: The version to commit, which must be the one after the head.
            actions: Any actions of the Delta protocol.
            commit_info: The commit information, as a value or a mapping.

        Returns:
            The committed version.

        Raises:
            VersionConflict: The head is not the version before `expected_version`.
            ValidationError: The actions are not a valid commit, or there is no expected version.
        """
        state = self._store.state(table_id)
        if expected_version is None:
            raise ValidationError(
                f"table {state.name}: the strict writer needs an expected version; the next is "
                f"{state.version + 1}. For a commit that rebases, use lake.begin()",
                table=state.name,
                table_id=state.table_id,
            )
        txn = MultiTableTransaction(self._store)
        txn.stage_on(state, [*actions, *_infos(commit_info)], expected_version)
        return txn.commit()[state.table_id]


def _infos(info: CommitInfo | Mapping[str, Any] | None) -> list[CommitInfo]:
    if info is None:
        return []
    if isinstance(info, CommitInfo):
        return [info]
    names = dict(zip(CommitInfo.__struct_fields__, CommitInfo.__struct_encode_fields__, strict=True))
    return [from_dict(CommitInfo, {names.get(key, key): value for key, value in info.items()})]
