"""The store: open a database, look up tables, commit to them, and read their logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pyarrow as pa

from deltasql.addresses import split_name
from deltasql.config import Config
from deltasql.errors import (
    DeltaSqlError,
    MirrorFailure,
    TableNotFound,
    UsageError,
    ValidationError,
    closest_name,
    shown,
)
from deltasql.protocol.deletion_vectors import file_of
from deltasql.protocol.deletion_vectors import parse as parse_vector
from deltasql.protocol.table_changes import Head, LoggedCommit, TableCommit, TableContents, TableState
from deltasql.protocol.validation.commit_rules import validate
from deltasql.store import migrations
from deltasql.store.action_rows import metadata_of, protocol_of
from deltasql.store.database import Database, Row
from deltasql.store.grants import Grants
from deltasql.store.identity import Identities
from deltasql.store.outbox import Outbox
from deltasql.store.read.arrow_queries import ArrowSessions
from deltasql.store.read.file_bounds import BoundsWriter
from deltasql.store.read.file_lists import FileLists, FilesAt
from deltasql.store.read.logged_commits import read_commits
from deltasql.store.read.table_contents import contents
from deltasql.store.records import HistoryEntry, TableInfo, TransactionInfo
from deltasql.store.sqlstate import translated
from deltasql.store.write.log_writer import commit
from deltasql.store.write.prepared_commit import Committed, Landed, TransactionHeader

if TYPE_CHECKING:
    from deltasql.embedded import EmbeddedServer
    from deltasql.expressions.predicates import Predicate


class Store:
    """The transaction logs of all tables of a database. `Lake.store` is the store of a lake.

    Args:
        dsn: The connection string of the database.
        config: The configuration.
        server: The embedded server, if it is one.
    """

    def __init__(self, dsn: str, config: Config, server: EmbeddedServer | None = None) -> None:
        self.dsn = dsn
        self.config = config
        revive = None if server is None else server.revive
        self._database = Database(dsn, config, revive=revive)
        self.grants = Grants(self._database)
        self._file_lists = FileLists(self._database)
        self._bounds = BoundsWriter(self._database)
        self._same_database: dict[str, bool] = {}
        self._states: dict[str, TableState] = {}
        # Publishing has a separate pool, so that a commit never waits for its connections.
        self._mirror_database = Database(dsn, config, name="deltasql-mirror", on_demand=True, revive=revive)
        self._sessions = ArrowSessions(self._mirror_database)
        self.identity = Identities(self._mirror_database, None if server is None else server.root)
        self.outbox = Outbox(self._mirror_database, self.identity)
        self.publish: Callable[[Sequence[Landed]], Mapping[str, MirrorFailure] | None] | None = None
        """The commit hook of the mirror, called with the commits that have just landed."""

    def open(self, *, initialize: bool = False) -> None:
        """Connect, and check the schema of the database.

        Args:
            initialize: Whether to create the deltasql tables if the database has none.

        Raises:
            DatabaseUnavailable: The server cannot be reached.
            SchemaOutdated: The database has the schema of another release, or no deltasql tables.
        """
        self._database.open()
        try:
            if initialize and migrations.level(self._database) == 0:
                migrations.migrate(self._database)
                self.identity.settle()
            migrations.check(self._database)
        except BaseException:
            self._database.close()
            raise

    def open_unchecked(self) -> None:
        """Connect without checking the schema, for `deltasql init` and `deltasql migrate`."""
        self._database.open()

    def migrate(self) -> list[str]:
        """Apply the missing migrations.

        Returns:
            The number and the name of each migration that was applied.

        Raises:
            SchemaOutdated: The database has the schema of a newer release.
        """
        return [f"{m.number:04d} {m.name}" for m in migrations.migrate(self._database)]

    def create_roles(self) -> None:
        """Create the reader, writer and mirror roles."""
        migrations.create_roles(self._database)

    def close(self) -> None:
        """Finish the background work of commits, and close all connections."""
        self.settle()
        self._file_lists.close()
        self._sessions.close()
        self._mirror_database.close()
        self._database.close()

    def is_database(self, dsn: str) -> bool:
        """Return whether another connection string leads to this database."""
        if dsn not in self._same_database:
            self._same_database[dsn] = (
                dsn == self.dsn or self._database.identity() == Database(dsn, self.config).identity()
            )
        return self._same_database[dsn]

    def state(self, table: str | UUID) -> TableState:
        """Return the current version of a table with its metadata and protocol.

        The metadata is cached; one query on the table's row shows whether it is still current.

        Args:
            table: The name or id of the table.

        Raises:
            TableNotFound: The table does not exist.
        """
        if not isinstance(table, str | UUID):
            raise UsageError(f"a table is given by its name or its id, got {shown(table)}", value=table)
        known = self._states.get(str(table))
        if known is not None:
            row = self._database.row("head", table_id=known.table_id)
            if row is not None and row["shape_commit_id"] == known.shape_id:
                version, head_id = row["current_version"], row["head_commit_id"]
                return replace(known, version=version, head_id=head_id, num_files=row["num_files"])
        state = self.state_at(table)
        self._states[state.table_id] = state
        return state

    def state_at(self, table: str | UUID, version: int | None = None) -> TableState:
        """Return a table with its metadata and protocol as of a version, the current one if None.

        Args:
            table: The name or id of the table.
            version: The version of the metadata and the protocol.

        Raises:
            TableNotFound: The table does not exist.
        """
        row = self._database.row("state", version=version, **_key(table))
        if row is None:
            raise TableNotFound(str(table), self.closest_table(str(table)))
        return TableState(
            table_key=row["table_key"],
            table_id=str(row["table_id"]),
            name=f"{row['namespace']}.{row['table_name']}",
            version=row["current_version"],
            metadata=metadata_of(row),
            protocol=protocol_of(row),
            location=row["location"],
            num_files=row["num_files"],
            head_id=row["head_commit_id"],
            shape_id=row["shape_commit_id"],
        )

    def closest_table(self, name: str) -> str | None:
        """Return the name of the table that is closest to a name, if one is close."""
        names = [next(iter(row.values())) for row in self._database.rows("table_names")]
        return closest_name(name if "." in name else f"public.{name}", names)

    def heads(self) -> dict[str, Head]:
        """Return the current versions of all tables by id, from one database snapshot."""
        rows = self._database.rows("current_versions")
        return {str(row["table_id"]): Head(row["current_version"], row["head_commit_id"]) for row in rows}

    def tables(self) -> list[TableInfo]:
        """Return all tables, ordered by name."""
        return [TableInfo.of(row) for row in self._database.rows("tables")]

    def commit(self, commits: Sequence[TableCommit], txn: TransactionHeader) -> dict[str, Committed]:
        """Validate the commits, then commit to all tables or to none.

        Args:
            commits: The changes of each table.
            txn: The values that the tables share.

        Returns:
            The result by table id.

        Raises:
            ValidationError: The changes of a table are invalid.
            CommitConflict: Another transaction committed conflicting changes.
            CommitOutcomeUnknown: The connection was lost, and the server does not tell whether the commit landed.
        """
        with in_stage("validate"):
            for one in commits:
                if not one.is_check:
                    validate(one.changes, one.state)
                    for metadata in one.changes.metadata:
                        self.config.override(metadata.configuration)  # rejects properties that cannot be read
        with in_stage("commit"):
            return commit(self._database, commits, txn, self._landed)

    def _landed(self, landed: Sequence[Landed]) -> Mapping[str, MirrorFailure]:
        for one in landed:
            self._bounds.store(one.table_key, one.commit_id, one.commit)
        failures = None if self.publish is None else self.publish(landed)
        return failures or {}

    def begin_write(self, txn_id: str, state: TableState) -> None:
        """Record that a transaction writes files of a table, so that they are not deleted as orphans."""
        self._database.execute("begin_write", txn_id=txn_id, table_key=state.table_key)

    def end_write(self, txn_id: str) -> None:
        """Record that a transaction has ended without a commit. A commit records this itself."""
        self._database.execute("end_write", txn_id=txn_id)

    def settle(self) -> None:
        """Wait until the background work of commits has finished."""
        self._bounds.settle()

    def transactions(self, limit: int | None = None) -> list[TransactionInfo]:
        """Return the transactions that committed to more than one table, newest first.

        Args:
            limit: The maximum number of transactions. The default is all.
        """
        found = self._database.rows("transactions", limit=limit)
        tables = self._tables_of([row["txn_id"] for row in found])
        return [TransactionInfo.of(row, tables.get(str(row["txn_id"]), [])) for row in found]

    def transaction(self, txn_id: UUID) -> TransactionInfo | None:
        """Return a committed transaction, None if there is none with the id."""
        rows = self._tables_of([txn_id]).get(str(txn_id))
        return None if rows is None else TransactionInfo.of(rows[0] | {"author": None, "message": None}, rows)

    def _tables_of(self, txn_ids: list[UUID]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self._database.rows("transaction_tables", txn_ids=txn_ids):
            found.setdefault(str(row["txn_id"]), []).append(row)
        return found

    def committed(self, txn_id: str) -> dict[str, int]:
        """Return the versions that a transaction committed, by table id; empty if it did not commit."""
        rows = self._database.rows("committed", txn_id=txn_id)
        return {str(row["table_id"]): row["version"] for row in rows}

    def commits(self, state: TableState, versions: Sequence[int]) -> dict[int, LoggedCommit]:
        """Return versions of a table with all their actions."""
        with translated(), self._database.connection() as connection:
            return read_commits(connection, state.table_key, list(versions))

    def history(self, state: TableState, limit: int | None = None) -> list[HistoryEntry]:
        """Return the commits of a table, newest first."""
        rows = self._database.rows("history", table_key=state.table_key, limit=limit)
        return [HistoryEntry.of(row) for row in rows]

    def txn_version(self, state: TableState, app_id: str) -> int | None:
        """Return the last transaction number of an application on a table, None if there is none."""
        row = self._database.row("txn_version", table_key=state.table_key, app_id=app_id)
        return None if row is None else row["txn_version"]

    def check_version(self, state: TableState, version: int) -> int:
        """Return the version, or raise `ValidationError` if the table does not have it."""
        if type(version) is not int or not 0 <= version <= state.version:
            raise ValidationError(
                f"table {state.name} has no version {shown(version)}: it has versions 0 to {state.version}",
                table=state.name,
                table_id=state.table_id,
                value=version,
            )
        return version

    def version_at(self, state: TableState, at: datetime) -> int:
        """Return the version that was current at a time.

        Raises:
            ValidationError: The time is before the first commit or after the last one.
        """
        row = self._database.row("version_at", table_key=state.table_key, at=at)
        first, last = (row["first"], row["last"]) if row else (None, None)
        if row is None or row["version"] is None or (last is not None and at > last):
            side = "after the last" if last is not None and at > last else "before the first"
            raise ValidationError(
                f"table {state.name}: {at.isoformat()} is {side} commit: the history goes from "
                f"{_iso(first)} to {_iso(last)}. For the latest version, give no timestamp",
                table=state.name,
                table_id=state.table_id,
                value=at,
            )
        return int(row["version"])

    def versions_at(self, at: datetime) -> dict[str, int]:
        """Return the versions of all tables at a time, by table name. Tables without a version then are left out."""
        rows = self._database.rows("versions_at", at=at)
        return {f"{r['namespace']}.{r['name']}": r["version"] for r in rows if r["version"] is not None}

    def files(self, state: TableState, predicate: Predicate | None = None) -> FilesAt:
        """Return the live files at the head with their version.

        Raises:
            StaleTableState: `state` does not have the current metadata.
        """
        return self._file_lists.live(state, predicate)

    def files_at(self, state: TableState, version: int, predicate: Predicate | None = None) -> pa.Table:
        """Return the files that were live at a version, with a predicate only those that may hold matching rows."""
        return self._file_lists.live_at(state, version, predicate)

    @contextmanager
    def contents(self, table: str | UUID, version: int) -> Iterator[TableContents]:
        """Yield the full state of a table at a version."""
        state = self.state_at(table, version)
        with self._sessions.session() as session:
            yield contents(session, self._mirror_database, state, version)

    def require(self, privilege: str, namespace: str) -> None:
        """Raise an error if this account lacks a privilege in a namespace."""
        self._database.rows("require_in", privilege=privilege, namespace=namespace)

    def table_exists(self, table_id: str) -> bool:
        """Return whether a table exists, even if this account may not read it."""
        try:
            row = self._database.row("table_exists", table_id=UUID(table_id))
        except ValueError:  # the id comes from a file, which anybody may have written
            return False
        return bool(row and row["exists"])

    def location_used(self, location: str) -> bool:
        """Return whether a table, dropped or not, has this location."""
        row = self._database.row("location_used", location=location)
        return bool(row and row["exists"])

    def all_paths(self, state: TableState) -> list[str]:
        """Return the paths of all files that the log of a table names, removed ones included, as the log has them."""
        found = []
        for row in self._database.rows("all_paths", table_key=state.table_key):
            found.append(row["path"])
            vector = None if row["deletion_vector"] is None else parse_vector(row["deletion_vector"])
            path = None if vector is None else file_of(vector, state.location, state.name)
            found += [] if path is None else [path]
        return found

    def forget_writes(self, state: TableState) -> None:
        """Delete the records of writers whose files were deleted with their table."""
        self._database.execute("forget_writes", table_key=state.table_key)

    def drop_table(self, state: TableState, *, purge: bool = False) -> None:
        """Drop a table. Its log stays in the database. `purge` tells that its files are deleted, which needs a
        privilege of its own."""
        row = self._database.row("drop_table", table_key=state.table_key, purge=purge)
        if row is None or not row["dropped"]:
            raise TableNotFound(state.name)


@contextmanager
def in_stage(name: str) -> Iterator[None]:
    """Set the stage on errors that the block raises."""
    try:
        yield
    except DeltaSqlError as error:
        error.stage = error.stage or ("lock" if _waited_for_lock(error) else name)
        raise


def _waited_for_lock(error: DeltaSqlError) -> bool:
    """Return whether a statement ended while it waited for the lock of a row."""
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and "locking tuple" in (cause.diag.context or "")


def _key(table: str | UUID) -> dict[str, Any]:
    """Return the parameters of the `state` query: the id if the text is a UUID, else the name."""
    try:
        return {"table_id": UUID(str(table)), "namespace": None, "name": None}
    except ValueError:
        namespace, name = split_name(str(table))
        return {"table_id": None, "namespace": namespace, "name": name}


def _iso(time: datetime | None) -> str:
    return time.isoformat() if time else "an unknown time"
