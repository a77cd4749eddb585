"""The only way from staged actions to a landed commit.

A transaction stages actions per table. `commit` validates them, commits all tables or none, and publishes what landed.
Whatever ends a transaction without a commit (an error, a rollback, a commit that was applied before) also deletes the
data files that were written for it, whichever engine wrote them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import version as package_version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote
from uuid import UUID

import msgspec

from deltasql.config import count
from deltasql.engines.written_files import WrittenFiles
from deltasql.errors import (
    CommitOutcomeUnknown,
    DatabaseError,
    DeltaSqlError,
    StorageError,
    TransactionLimitExceeded,
    ValidationError,
)
from deltasql.operations.commit_details import (
    StagedTable,
    checked_option,
    combined_info,
    current_user,
    default_operation,
    files_of,
    parse_app,
    parse_isolation,
    positive,
    table_isolation,
    text_or_none,
)
from deltasql.operations.location_owner import OWNER
from deltasql.operations.staging import UNKNOWN_COUNT, Staging, StagingPoint
from deltasql.protocol.actions import Action, CommitInfo, from_dict
from deltasql.protocol.table_changes import SERIALIZABLE, Changes, Head, Reads, TableCommit, TableState
from deltasql.store import Committed, Store, TransactionHeader
from deltasql.store.action_rows import file_token
from deltasql.store.store import in_stage

if TYPE_CHECKING:
    pass

_log = logging.getLogger(__name__)

ENGINE = f"deltasql/{package_version('deltasql')}"


class MultiTableTransaction(Staging):
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
        author: The name that history shows as the author, beside the account that commits.
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
        point: Mapping[str, Head] | None = None,
    ) -> None:
        super().__init__(store, txn_id or str(uuid.uuid4()), point)
        config = store.config
        self._isolation = parse_isolation(isolation)
        self._timeout = None if timeout is None else checked_option("timeout", positive, timeout)
        limit = config["transaction.max_tables"] if max_tables is None else max_tables
        self._max_tables = checked_option("max_tables", count, limit)
        limit = config["transaction.max_files_per_table"] if max_files_per_table is None else max_files_per_table
        self._max_files = checked_option("max_files_per_table", count, limit)
        self._author = checked_option("author", text_or_none, author)
        self._message = checked_option("message", text_or_none, message)
        self._app = parse_app(app)
        self._written: dict[str, WrittenFiles] = {}
        self._in_doubt = False
        """The commit may have landed although no reply came."""
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

    # --- The end

    @property
    def has_app(self) -> bool:
        """Whether it commits once under an application's version; then each table it works on records that version,
        even if no row changes."""
        return self._app is not None

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
            keep |= {OWNER} if landed else set()
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
        if changes.metadata and state.num_files == UNKNOWN_COUNT:  # files that stay must fit the new schema
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
