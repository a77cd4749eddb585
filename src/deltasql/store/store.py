"""The store's verbs in the words of the domain: open, look a table up, commit, read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from deltasql.addresses import split_name
from deltasql.config import Config
from deltasql.errors import DeltaSqlError, MirrorFailure, TableNotFound, ValidationError, closest_name
from deltasql.protocol.table_changes import LoggedCommit, TableCommit, TableContents, TableState
from deltasql.protocol.validation import validate
from deltasql.store import migrations
from deltasql.store.action_rows import metadata_of, protocol_of
from deltasql.store.database import Database, Row
from deltasql.store.outbox import Outbox
from deltasql.store.read.arrow_queries import ArrowSessions
from deltasql.store.read.file_bounds import BoundsWriter
from deltasql.store.read.logged_commits import read_commits
from deltasql.store.read.snapshots import FilesAt, Snapshots
from deltasql.store.read.table_contents import contents
from deltasql.store.records import HistoryEntry, TableInfo, TransactionInfo
from deltasql.store.sqlstate import LOCK_TIMEOUT, translated
from deltasql.store.write.log_writer import commit
from deltasql.store.write.prepared_commit import Committed, Landed, TransactionHeader

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate


class Store:
    """The logs of all tables of one database."""

    def __init__(self, dsn: str, config: Config) -> None:
        self.dsn = dsn
        self.config = config
        self._database = Database(dsn, config)
        self._snapshots = Snapshots(self._database)
        self._bounds = BoundsWriter(self._database)
        self._same: dict[str, bool] = {}
        self._states: dict[str, TableState] = {}
        # Publishing has connections of its own: it must never keep a commit waiting for one.
        self._mirror_database = Database(dsn, config, name="deltasql-mirror", on_demand=True)
        self._sessions = ArrowSessions(self._mirror_database)
        self.outbox = Outbox(self._mirror_database)
        self.publish: Callable[[Sequence[Landed]], Mapping[str, MirrorFailure] | None] | None = None
        """Called with what has just committed: the mirror's place."""

    def open(self, *, initialize: bool = False) -> None:
        """Connect and check the schema; a database without deltasql tables is set up if asked."""
        self._database.open()
        try:
            if initialize and migrations.level(self._database) == 0:
                migrations.migrate(self._database)
            migrations.check(self._database)
        except BaseException:
            self._database.close()
            raise

    def open_unchecked(self) -> None:
        """Connect, whatever the schema: for `init` and `migrate`."""
        self._database.open()

    def migrate(self) -> list[str]:
        """Bring the schema up to date; the migrations that were applied."""
        return [f"{m.number:04d} {m.name}" for m in migrations.migrate(self._database)]

    def create_roles(self) -> None:
        """Create the reader, writer and mirror roles."""
        migrations.create_roles(self._database)

    def close(self) -> None:
        """Finish what follows commits in the background, and give every connection back."""
        self.settle()
        self._snapshots.close()
        self._sessions.close()
        self._mirror_database.close()
        self._database.close()

    def is_database(self, dsn: str) -> bool:
        """Does another connection string lead to this very database?"""
        if dsn not in self._same:
            self._same[dsn] = dsn == self.dsn or self._database.identity() == Database(dsn, self.config).identity()
        return self._same[dsn]

    def state(self, table: str | UUID) -> TableState:
        """A table's head with its metadata and protocol, by id or by name.

        The metadata of a table that was opened before is kept: one look at the head tells whether it still holds.
        """
        known = self._states.get(str(table))
        if known is not None:
            row = self._database.row("head", table_id=known.table_id)
            if row is not None and row["shape_version"] == known.shape_version:
                return replace(known, version=row["current_version"], num_files=row["num_files"])
        state = self.state_at(table)
        self._states[state.table_id] = state
        return state

    def state_at(self, table: str | UUID, version: int | None = None) -> TableState:
        """A table's head, with metadata and protocol as of a version."""
        row = self._database.row("state", version=version, **_key(table))
        if row is None:
            raise TableNotFound(str(table), self._suggest(str(table)))
        return TableState(
            table_key=row["table_key"],
            table_id=str(row["table_id"]),
            name=f"{row['namespace']}.{row['table_name']}",
            version=row["current_version"],
            metadata=metadata_of(row),
            protocol=protocol_of(row),
            location=row["location"],
            num_files=row["num_files"],
            shape_version=-1 if row["shape_version"] is None else row["shape_version"],
        )

    def in_any_case(self, name: str) -> str | None:
        """The name of the one table that is called so if case does not matter."""
        full = name if "." in name else f"public.{name}"
        found = [row["name"] for row in self._database.rows("names_in_any_case", name=full)]
        return found[0] if len(found) == 1 else None

    def _suggest(self, name: str) -> str | None:
        names = [next(iter(row.values())) for row in self._database.rows("table_names")]
        return closest_name(name if "." in name else f"public.{name}", names)

    def point(self) -> dict[str, int]:
        """The version of every table, by its id, all at one moment."""
        return {str(row["table_id"]): row["current_version"] for row in self._database.rows("point")}

    def tables(self) -> list[TableInfo]:
        """All tables, by name, at one moment."""
        return [TableInfo.of(row) for row in self._database.rows("tables")]

    def commit(self, commits: Sequence[TableCommit], txn: TransactionHeader) -> dict[str, Committed]:
        """Validate every table's part, then commit all of them or none."""
        with in_stage("validate"):
            for part in commits:
                if not part.is_check:
                    validate(part.changes, part.state)
                    for metadata in part.changes.metadata:
                        self.config.override(metadata.configuration)  # or nobody could read it afterwards
        with in_stage("commit"):
            return commit(self._database, commits, txn, self._landed)

    def _landed(self, parts: Sequence[Landed]) -> Mapping[str, MirrorFailure]:
        for part in parts:
            self._bounds.store(part.table_key, part.commit_id, part.commit)
        failures = None if self.publish is None else self.publish(parts)
        return failures or {}

    def begin_write(self, txn_id: str, state: TableState) -> None:
        """A transaction is about to write files of a table: until it ends, nobody may take them for orphans."""
        self._database.execute("begin_write", txn_id=txn_id, table_key=state.table_key)

    def end_write(self, txn_id: str) -> None:
        """A transaction gives up the files that it wrote; committing them says so by itself."""
        self._database.execute("end_write", txn_id=txn_id)

    def settle(self) -> None:
        """Wait for what follows a commit in the background."""
        self._bounds.settle()

    def transactions(self, limit: int | None = None) -> list[TransactionInfo]:
        """What was committed to more than one table, newest first."""
        found = self._database.rows("transactions", limit=limit)
        tables = self._tables_of([row["txn_id"] for row in found])
        return [TransactionInfo.of(row, tables.get(str(row["txn_id"]), [])) for row in found]

    def transaction(self, txn_id: UUID) -> TransactionInfo | None:
        """What a transaction committed, to one table or to many; None if it is not known."""
        rows = self._tables_of([txn_id]).get(str(txn_id))
        return None if rows is None else TransactionInfo.of(rows[0] | {"author": None, "message": None}, rows)

    def _tables_of(self, txn_ids: list[UUID]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self._database.rows("transaction_tables", txn_ids=txn_ids):
            found.setdefault(str(row["txn_id"]), []).append(row)
        return found

    def committed(self, txn_id: str) -> dict[str, int]:
        """The versions that a transaction became; empty if it did not land."""
        rows = self._database.rows("committed", txn_id=txn_id)
        return {str(row["table_id"]): row["version"] for row in rows}

    def commits(self, state: TableState, versions: Sequence[int]) -> dict[int, LoggedCommit]:
        """What versions of a table hold."""
        with translated(), self._database.connection() as connection:
            return read_commits(connection, state.table_key, list(versions))

    def history(self, state: TableState, limit: int | None = None) -> list[HistoryEntry]:
        """Commits, newest first."""
        rows = self._database.rows("history", table_key=state.table_key, limit=limit)
        return [HistoryEntry.of(row) for row in rows]

    def txn_version(self, state: TableState, app_id: str) -> int | None:
        """How far an application has come with a table."""
        row = self._database.row("txn_version", table_key=state.table_key, app_id=app_id)
        return None if row is None else row["txn_version"]

    def check_version(self, state: TableState, version: int) -> int:
        """A version that the table has, or a clear error."""
        if type(version) is not int or not 0 <= version <= state.version:
            raise ValidationError(
                f"table {state.name} has no version {version}: it has versions 0 to {state.version}",
                table=state.name,
                table_id=state.table_id,
                value=version,
            )
        return version

    def version_at(self, state: TableState, at: datetime) -> int:
        """The version that was the head at a moment within the table's history."""
        row = self._database.row("version_at", table_key=state.table_key, at=at)
        first, last = (row["first"], row["last"]) if row else (None, None)
        if row is None or row["version"] is None or (last is not None and at > last):
            side = "after the last" if last is not None and at > last else "before the first"
            raise ValidationError(
                f"table {state.name}: {at.isoformat()} is {side} commit: the history goes from "
                f"{_iso(first)} to {_iso(last)}; leave the timestamp out for the latest version",
                table=state.name,
                table_id=state.table_id,
                value=at,
            )
        return int(row["version"])

    def versions_at(self, at: datetime) -> dict[str, int]:
        """The version of every table that existed at a moment."""
        rows = self._database.rows("versions_at", at=at)
        return {f"{r['namespace']}.{r['name']}": r["version"] for r in rows if r["version"] is not None}

    def files(self, state: TableState, predicate: Predicate | None = None) -> FilesAt:
        """The live files at the head, with the version they were read at; `Moved` if `state` is not the head's."""
        return self._snapshots.live(state, predicate)

    def files_at(self, state: TableState, version: int, predicate: Predicate | None = None) -> pa.Table:
        """The files that were live at a version; those that may match, if a predicate is given."""
        return self._snapshots.live_at(state, version, predicate)

    @contextmanager
    def contents(self, table: str | UUID, version: int) -> Iterator[TableContents]:
        """Everything a table holds at a version."""
        state = self.state_at(table, version)
        with self._sessions.session() as session:
            yield contents(session, self._mirror_database, state, version)

    def location_used(self, location: str) -> bool:
        """Did any table, dropped ones included, ever live here?"""
        row = self._database.row("location_used", location=location)
        return bool(row and row["exists"])

    def drop_table(self, state: TableState) -> None:
        """Take a table out of the catalogue; its log stays in the database."""
        if not self._database.execute("drop_table", table_key=state.table_key):
            raise TableNotFound(state.name)


@contextmanager
def in_stage(name: str) -> Iterator[None]:
    """Errors say where a commit failed."""
    try:
        yield
    except DeltaSqlError as error:
        error.stage = error.stage or ("lock" if getattr(error, "sqlstate", None) == LOCK_TIMEOUT else name)
        raise


def _key(table: str | UUID) -> dict[str, Any]:
    """How the `state` query finds a table: an id where the text is one, else a name."""
    try:
        return {"table_id": UUID(str(table)), "namespace": None, "name": None}
    except ValueError:
        namespace, name = split_name(str(table))
        return {"table_id": None, "namespace": namespace, "name": name}


def _iso(moment: datetime | None) -> str:
    return moment.isoformat() if moment else "nowhere"
