"""The lake: open it, and create, find, read and drop its tables."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - ends its threads after _finish_all if it is imported before
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from deltasql.addresses import Address, describe, parse_lake_url, parse_table_uri, redact
from deltasql.config import Config
from deltasql.embedded import EmbeddedServer
from deltasql.engines.spark.session import SparkSource
from deltasql.errors import (
    CommitConflict,
    TableNotFound,
    UsageError,
)
from deltasql.lake.lake_snapshot import LakeSnapshot
from deltasql.lake.table import CommitResult, Table
from deltasql.lake.transaction import URI, Transaction
from deltasql.mirror import Mirror
from deltasql.operations.change_builders import SourceFrames
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.create import TableCreator, TableSpec
from deltasql.operations.dml import RowChanger
from deltasql.operations.drop import PurgedFiles, TableDropper
from deltasql.operations.optimize import Compactor
from deltasql.operations.overwrite import metadata_of
from deltasql.operations.retry import retry_on_conflict
from deltasql.operations.write import TableWriter
from deltasql.protocol.table_changes import TableState
from deltasql.store import Snapshot, Store, TableInfo, TransactionInfo
from deltasql.store.read.log_reader import Moment, moment

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession
    from deltasql.sql.statement_session import TransactionSession

T = TypeVar("T")


def connect(
    url: str | None = None,
    *,
    spark: SparkSession | None = None,
    config: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Lake:
    """Open a lake.

    Args:
        url: A PostgreSQL URL or libpq connection string of your own server, or a deltasql:// URL. By default, an
            embedded PostgreSQL under ./.deltasql is started.
        spark: The Spark session to use; by default the active one, else a local one that is created on first use.
        config: Configuration keys and values; see the configuration reference.
        storage_options: Options of the object store, such as credentials and endpoint.

    Returns:
        The open lake. Close it, or use it in a `with` statement.

    Raises:
        UsageError: The URL or a configuration key is not valid.
        DatabaseUnavailable: The server does not accept connections.
        SchemaOutdated: The database schema needs `deltasql migrate`.
    """
    return Lake(parse_lake_url(url), Config(config), storage_options, spark)


class Lake:
    """All tables of one database. Close it, or use it in a `with` statement.

    Attributes:
        dsn: The libpq connection string of the database.
        store: The transaction log in PostgreSQL, for `SqlTxnLogReader`, `SqlTxnLogWriter` and `MultiTableTransaction`.
        mirror: Publishing: `status`, `run`, `repair` and `validate`.
        storage_options: The options of the object store.
    """

    def __init__(
        self,
        target: Address,
        config: Config,
        storage_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        self._target = target
        self._config = config
        self._spark = SparkSource(spark)
        self.storage_options = dict(storage_options or {})
        self._server = EmbeddedServer.start(Path(target.path)) if target.path is not None else None
        self.dsn = self._server.dsn if self._server else target.dsn or ""
        self.store = Store(self._server.private_dsn if self._server else self.dsn, config, self._server)
        self.mirror = Mirror(self.store, self.storage_options)
        self.store.publish = self.mirror.committed
        self.writer = TableWriter(self.store, self.storage_options, lambda: self.spark)
        root = f"{target.path or '.deltasql'}/tables"
        described = str(Path(target.path).resolve()) if target.path is not None else describe(self.dsn)
        self._creator = TableCreator(
            self.store, self.writer, config, self.storage_options, root=root, database=described
        )
        self._dropper = TableDropper(self.store, self.mirror, self.storage_options)
        self.changer = RowChanger(self.writer, self.storage_options, lambda: self.spark)
        self.compactor = Compactor(self.writer, self.storage_options, lambda: self.spark)
        try:
            self.store.open(initialize=True)
        except BaseException:
            self._stop_server()
            raise
        _OPEN.add(self)

    def close(self) -> None:
        """Close the connections; the embedded server and a Spark session of deltasql stop with their last user."""
        _OPEN.discard(self)
        self._spark.close()
        self.mirror.close()
        self.store.close()
        self._stop_server()

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<deltasql.Lake {self._target.path or redact(self.dsn)}>"

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the given one, else the active one, else a local one that is created now."""
        return self._spark.get()

    def statement_session(self, txn: MultiTableTransaction, drop: Callable[[str], object] | None) -> TransactionSession:
        """Return the context in which SQL statements of a transaction find tables."""
        from deltasql.sql.statement_session import TransactionSession

        def create(name: str, spec: TableSpec) -> TableState:
            return self._creator.stage(txn, self.local_name(name), spec)

        def replace(state: TableState, spec: TableSpec) -> None:
            self._creator.replace(txn, state, spec)

        def read(state: TableState, version: int | None, timestamp: str | None) -> DataFrame:
            if version is None and timestamp is None:
                return self.frame_of(txn.snapshot(state))
            return Table(self, state.table_id, state.name).df(version, timestamp)

        spark = self._spark.get
        return TransactionSession(txn, self.store, self.writer, self.changer, spark, read, create, replace, drop)

    def config_values(self) -> dict[str, Any]:
        """Return the configuration, to open the same lake in another process."""
        return self._config.values()

    def frame_of(self, snapshot: Snapshot, where: str | None = None) -> DataFrame:
        """Return the rows of a snapshot as a Spark DataFrame."""
        spark = self.spark
        from deltasql.engines.spark.scan.snapshot_frame import (
            read_snapshot,  # brings pyspark, which is there if a session is
        )

        fast = self._config.override(snapshot.properties)["spark.fast_scan"]
        return read_snapshot(spark, snapshot, where, fast=fast, options=self.storage_options)

    @property
    def source_frames(self) -> SourceFrames:
        """How the sources of changes become Spark frames."""

        def read(table: str | Table) -> DataFrame:
            return (self.table(table) if isinstance(table, str) else table).df()

        return SourceFrames(lambda: self.spark, read)

    def create_table(
        self,
        name: str,
        schema: Any = None,
        *,
        as_: Any = None,
        location: str | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        constraints: Mapping[str, str] | None = None,
        description: str | None = None,
    ) -> Table:
        """Create a table and commit its version 0.

        Args:
            name: `table` or `namespace.table`; the default namespace is `public`.
            schema: DDL text, a pyarrow.Schema or a Spark StructType. It can be omitted with `as_`.
            as_: The first rows, as in `Table.append`; they are part of version 0.
            location: A directory or object store URL; by default a new directory below `./.deltasql/tables`.
            partition_by: Partition columns.
            properties: Table properties: `delta.*`, `deltasql.*` or your own.
            constraints: CHECK constraints by name, as conditions in Spark SQL.
            description: A comment on the table.

        Returns:
            The table.

        Raises:
            TableExists: The name is taken, or the location holds a Delta log.
            ValidationError: The schema, a property or a constraint is not valid, or the rows do not fit.
            ConstraintViolation: A row violates a constraint. Nothing is created.
        """
        spec = TableSpec(schema, as_, location, partition_by, properties, constraints, description)
        with MultiTableTransaction(self.store) as txn:
            state = self._creator.stage(txn, self.local_name(name), spec)
            txn.commit()
        return Table(self, state.table_id, state.name)

    def stage_table(self, txn: MultiTableTransaction, name: str, schema: Any = None, **options: Any) -> TableState:
        """Stage a new table, with its rows, in a transaction. The options are those of `create_table`."""
        return self._creator.stage(txn, self.local_name(name), TableSpec(schema, **options))

    def table(self, name: str) -> Table:
        """Open a table.

        Args:
            name: A name, an id or a deltasql:// URI.

        Returns:
            The table.

        Raises:
            TableNotFound: There is no such table.
        """
        state = self.store.state(self.local_name(name))
        return Table(self, state.table_id, state.name)

    def local_name(self, name: str) -> str:
        """Return a table's name in this lake; reject a URI of another database."""
        if not isinstance(name, str) or not name.startswith(URI):
            return name
        target = parse_table_uri(name)
        if not _same_database(target, self._target, self.store):
            raise UsageError(
                f"{redact(name)} belongs to another database than this lake ({self!r}): open its own lake "
                f"with deltasql.connect(…)",
                value=redact(name),
            )
        return f"{target.namespace}.{target.table}"

    def tables(self) -> list[TableInfo]:
        """Return all tables, sorted by name.

        Returns:
            One `TableInfo` per table.
        """
        return self.store.tables()

    def drop_table(self, name: str, *, purge: bool = False, dry_run: bool = False) -> PurgedFiles | None:
        """Remove a table from the lake.

        Args:
            name: A name, an id or a deltasql:// URI.
            purge: Also delete the table's files: those that its log names, the log, and what its writers left. Other
                files at the location are kept. By default all files stay.
            dry_run: With `purge`: drop and delete nothing, and return what would be deleted and kept.

        Returns:
            With `purge`, the files that were deleted and those that were kept.

        Raises:
            TableNotFound: There is no such table.
            UsageError: The location belongs to another lake, or this database is a copy.
        """
        if dry_run and not purge:
            raise UsageError("dry_run needs purge=True: without purge no files are deleted")
        return self._dropper.drop(self.store.state(self.local_name(name)), purge=purge, dry_run=dry_run)

    def sql(
        self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, dialect: str = "postgres"
    ) -> Any:
        """Run a SQL statement in PostgreSQL syntax on tables of the lake and views of the Spark session.

        A statement that conflicts is retried on the latest version (`dml.retries`).

        Args:
            text: One statement: SELECT, INSERT, UPDATE, DELETE, MERGE, COPY, CREATE, ALTER, DROP, TRUNCATE or EXPLAIN.
            params: Values for `$1`, `$2`, … (a sequence) or `:name` (a mapping).
            dialect: What expressions mean: "postgres", or "spark" for Spark's own functions, operators and types.

        Returns:
            A DataFrame for a query or RETURNING, a CommitResult for a change of one table, else None.

        Raises:
            ValidationError: The statement is not valid; the message names the position.
            UnsupportedFeature: The statement uses syntax that is not supported.
            CommitConflict: The statement still conflicts after all retries.
        """
        return retry_on_conflict(lambda: self._run(text, params, dialect), self.retries)

    def retries(self, conflict: CommitConflict) -> int:
        """Return how often a statement is retried after a conflict on a table."""
        try:
            metadata = metadata_of(self.store.state(str(conflict.table_id)))
            return int(self.writer.config_of(metadata)["dml.retries"])
        except TableNotFound:
            return 0
        except UsageError:  # a property of another release's
            return int(self._config["dml.retries"])

    def _run(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None, dialect: str) -> Any:
        from deltasql.sql.parse import parse  # brings sqlglot, which is slow to import

        with self.begin() as tx:
            result = tx.run(parse(text, params, dialect), drop=self.drop_table)
            versions = tx.commit()
        if result.frame is not None or result.table is None:
            return result.frame
        name = tx.name_of(result.table)
        version = versions.get(name, result.table.version)
        return CommitResult(version, str(tx.id), result.metrics, tx.mirror.get(name))

    def begin(self, **options: Any) -> Transaction:
        """Begin a transaction over any tables of the lake.

        Args:
            options: `isolation`, `timeout`, `max_tables`, `max_files_per_table`, `author`, `message`,
                `app=(application id, version)`; see `MultiTableTransaction`.

        Returns:
            A `Transaction`: in a `with` statement it commits on clean exit and rolls back on an exception.
        """
        return Transaction(self, _lake_of, **options)

    def run(self, work: Callable[[Transaction], T], retries: int = 3, **options: Any) -> T:
        """Run a function in a transaction and commit; after a conflict, run it again on the latest versions.

        Args:
            work: Called with the transaction.
            retries: How often to retry after a conflict.
            options: The options of `begin`.

        Returns:
            The result of `work`.

        Raises:
            CommitConflict: The transaction still conflicts after all retries.
        """

        def attempt() -> T:
            with self.begin(**options) as tx:
                return work(tx)

        return retry_on_conflict(attempt, lambda _: retries)

    def transactions(self, limit: int | None = None) -> list[TransactionInfo]:
        """Return the transactions that committed to several tables, newest first.

        Args:
            limit: Return at most this many.

        Returns:
            One `TransactionInfo` per transaction.
        """
        return self.store.transactions(limit)

    def transaction(self, txn_id: str) -> TransactionInfo:
        """Return what a transaction committed, to one table or to several.

        Args:
            txn_id: The id, as history shows it.

        Returns:
            The tables and versions of the transaction.

        Raises:
            UsageError: No transaction with this id was committed.
        """
        try:
            found = self.store.transaction(uuid.UUID(txn_id))
        except ValueError:
            raise UsageError(
                f"{txn_id!r} is not the id of a transaction; `history` shows the ids", value=txn_id
            ) from None
        if found is None:
            raise UsageError(f"transaction {txn_id} was not committed; `history` shows the ids", value=txn_id)
        return found

    def snapshot(self, timestamp: Moment | None = None) -> LakeSnapshot:
        """Return one consistent point in time over all tables.

        Args:
            timestamp: A datetime, or ISO text (UTC without a zone); now by default.

        Returns:
            A `LakeSnapshot`, whose reads use exactly these versions.

        Raises:
            UsageError: The timestamp is not valid.
        """
        infos = self.tables()
        versions = {info.name: info.version for info in infos}
        if timestamp is not None:
            versions = self.store.versions_at(moment(timestamp))
        return LakeSnapshot(self, versions, {info.name: info.id for info in infos})


def begin(**options: Any) -> Transaction:
    """Begin a transaction whose tables are named by deltasql:// URIs alone.

    Args:
        options: The options of `Lake.begin`.

    Returns:
        A `Transaction`. The first URI opens its lake, which is closed when the transaction ends.
    """
    return Transaction(None, _lake_of, **options)


def _lake_of(uri: str) -> Lake:
    """Open the lake of a table URI."""
    target = parse_table_uri(uri)
    return Lake(Address(target.kind, target.dsn, target.path), Config())


_OPEN: weakref.WeakSet[Lake] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for lake in list(_OPEN):
        lake.close()


def _finish_all() -> None:
    for lake in list(_OPEN):
        lake.mirror.finish()


# When functions of atexit run, Python starts no threads any more, which jobs in the background may need.
getattr(threading, "_register_atexit", atexit.register)(_finish_all)


def _same_database(target: Address, own: Address, store: Store) -> bool:
    if target.path is not None or own.path is not None:
        return (
            target.path is not None and own.path is not None and Path(target.path).resolve() == Path(own.path).resolve()
        )
    return store.is_database(target.dsn or "")
