"""The lake and its tables: what a user opens, creates, looks at and drops."""

from __future__ import annotations

import atexit
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from deltasql import storage
from deltasql.addresses import Address, parse_lake_url, parse_table_uri, redact, split_name
from deltasql.config import Config
from deltasql.embedded import EmbeddedServer
from deltasql.engines.spark.session import SparkSource
from deltasql.errors import (
    CommitConflict,
    TableNotFound,
    UsageError,
    ValidationError,
)
from deltasql.lake.table import CommitResult, Table
from deltasql.lake.transaction import URI, Transaction
from deltasql.mirror import Mirror
from deltasql.operations.change_builders import SourceFrames
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.create import TableCreator, Wanted
from deltasql.operations.dml import RowChanger
from deltasql.operations.optimize import Compactor
from deltasql.operations.overwrite import metadata_of
from deltasql.operations.retry import retry_on_conflict
from deltasql.operations.write import TableWriter
from deltasql.protocol.table_changes import TableState
from deltasql.store import Snapshot, Store, TableInfo, TransactionInfo
from deltasql.store.read.log_reader import Moment, moment

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession
    from deltasql.sql.ddl_statements import Definition
    from deltasql.sql.statement_session import TransactionSession

T = TypeVar("T")


def connect(
    url: str | None = None,
    *,
    spark: SparkSession | None = None,
    config: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Lake:
    """Open a lake: an embedded PostgreSQL under ./.deltasql, or a server of yours by URL.

    Tables become DataFrames of the session `spark`; else of the active one, or of one that is made when it is needed.
    """
    return Lake(parse_lake_url(url), Config(config), storage_options, spark)


class Lake:
    """All tables of one database. Close it, or use it in a `with` statement."""

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
        self.store = Store(self.dsn, config)
        self.mirror = Mirror(self.store, self.storage_options)
        self.store.publish = self.mirror.committed
        self.writer = TableWriter(self.store, self.storage_options, lambda: self.spark)
        root = f"{target.path or '.deltasql'}/tables"
        self._creator = TableCreator(self.store, self.writer, config, self.storage_options, root)
        self.changer = RowChanger(self.writer, self.storage_options, lambda: self.spark)
        self.compactor = Compactor(self.writer, self.storage_options, lambda: self.spark)
        try:
            self.store.open(initialize=True)
        except BaseException:
            self._stop_server()
            raise
        _OPEN.add(self)

    def close(self) -> None:
        """Give connections back; the embedded server, and a Spark session made here, stop with their last user."""
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
        """The Spark session: the one given, or else the active one, or else one that is made now."""
        return self._spark.get()

    def statement_session(self, txn: MultiTableTransaction, drop: Callable[[str], None] | None) -> TransactionSession:
        """Where statements find this lake's tables."""
        from deltasql.sql.statement_session import TransactionSession

        def create(txn: MultiTableTransaction, asked: Definition, rows: Any) -> TableState:
            wanted = Wanted(
                asked.schema,
                rows,
                asked.location,
                asked.partition_by,
                asked.properties,
                asked.constraints,
                asked.description,
            )
            return self._creator.stage(txn, self.local_name(asked.name), wanted)

        def read(state: TableState, version: int | None, timestamp: str | None) -> DataFrame:
            if version is None and timestamp is None:
                return self.frame_of(txn.snapshot(state))
            return Table(self, state.table_id, state.name).df(version, timestamp)

        spark = self._spark.get
        return TransactionSession(txn, self.store, self.writer, self.changer, spark, read, create, drop)

    def config_values(self) -> dict[str, Any]:
        """What the lake was configured with, to open it elsewhere."""
        return self._config.values()

    def frame_of(self, snapshot: Snapshot, where: str | None = None) -> DataFrame:
        """The rows of a snapshot that was read by a predicate, if there is one."""
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
        """Create a table from DDL text, a pyarrow.Schema or a Spark StructType; with `as_` from rows, whose schema it
        has unless one is given. Its version 0 is committed, with the rows."""
        wanted = Wanted(schema, as_, location, partition_by, properties, constraints, description)
        with MultiTableTransaction(self.store) as txn:
            state = self._creator.stage(txn, self.local_name(name), wanted)
            txn.commit()
        return Table(self, state.table_id, state.name)

    def stage_table(self, txn: MultiTableTransaction, name: str, schema: Any = None, **options: Any) -> TableState:
        """A table that a transaction creates, with its rows; the options are those of `create_table`."""
        return self._creator.stage(txn, self.local_name(name), Wanted(schema, **options))

    def table(self, name: str) -> Table:
        """Open a table by name, id or deltasql:// URI."""
        state = self.store.state(self.local_name(name))
        return Table(self, state.table_id, state.name)

    def local_name(self, name: str) -> str:
        """The name that a table has in this lake; a URI of another database is refused."""
        if not name.startswith(URI):
            return name
        target = parse_table_uri(name)
        if not _same_database(target, self._target, self.store):
            raise UsageError(
                f"{redact(name)} is a table of another database than this lake ({self!r}): one transaction, and "
                f"one lake, has one database",
                value=redact(name),
            )
        return f"{target.namespace}.{target.table}"

    def tables(self) -> list[TableInfo]:
        """All tables, by name."""
        return self.store.tables()

    def drop_table(self, name: str, *, purge: bool = False) -> None:
        """Take a table out of the lake. Its files stay, unless `purge` asks to delete everything at its location."""
        state = self.store.state(self.local_name(name))
        if not purge:
            with self.mirror.finishing(state.table_key):
                self.store.drop_table(state)
            return
        self.mirror.settle()
        with self.store.outbox.dropping(state.table_key):
            self.store.drop_table(state)
            storage.delete_below(state.location, self.storage_options)

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Any:
        """Run a statement as Postgres writes it, on tables of the lake and views of Spark's: a DataFrame of what it
        selects or returns, else where it landed. If others changed the same rows meanwhile, it is run again."""
        return retry_on_conflict(lambda: self._run(text, params), self.retries)

    def retries(self, conflict: CommitConflict) -> int:
        """How often a statement is run again that met others on a table."""
        try:
            metadata = metadata_of(self.store.state(str(conflict.table_id)))
            return int(self.writer.config_of(metadata)["dml.retries"])
        except TableNotFound:
            return 0
        except UsageError:  # a property of another release's
            return int(self._config["dml.retries"])

    def _run(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None) -> Any:
        from deltasql.sql.parse import parse  # brings sqlglot, which is slow to import

        with self.begin() as tx:
            result = tx.run(parse(text, params), drop=self.drop_table)
            versions = tx.commit()
        if result.frame is not None or result.table is None:
            return result.frame
        version = versions.get(result.table.name, result.table.version)
        return CommitResult(version, str(tx.id), result.metrics)

    def begin(self, **options: Any) -> Transaction:
        """A transaction over any tables of the lake; the options are those of `Transaction`."""
        return Transaction(self, _lake_of, **options)

    def run(self, work: Callable[[Transaction], T], retries: int = 3, **options: Any) -> T:
        """Run a function as a transaction, which it is given, and commit; if others changed the same meanwhile, again
        on what is there then. What the function returned; the options are those of `begin`."""

        def attempt() -> T:
            with self.begin(**options) as tx:
                return work(tx)

        return retry_on_conflict(attempt, lambda _: retries)

    def transactions(self, limit: int | None = None) -> list[TransactionInfo]:
        """What was committed to more than one table, newest first."""
        return self.store.transactions(limit)

    def transaction(self, txn_id: str) -> TransactionInfo:
        """What a transaction committed, to one table or to many."""
        try:
            found = self.store.transaction(uuid.UUID(txn_id))
        except ValueError:
            raise UsageError(f"{txn_id!r} is not the id of a transaction: history shows them", value=txn_id) from None
        if found is None:
            raise UsageError(f"no transaction {txn_id} was committed: history shows the ids", value=txn_id)
        return found

    def snapshot(self, timestamp: Moment | None = None) -> LakeSnapshot:
        """One consistent point over all tables: now, or at a moment."""
        infos = self.tables()
        versions = {info.name: info.version for info in infos}
        if timestamp is not None:
            versions = self.store.versions_at(moment(timestamp))
        return LakeSnapshot(self, versions, {info.name: info.id for info in infos})


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """The versions of all tables at one moment, and reads at exactly these."""

    lake: Lake
    versions: Mapping[str, int]
    ids: Mapping[str, str]

    def files(self, name: str, where: str | None = None) -> pa.Table:
        """The files of one table in this snapshot."""
        table, version = self._table(name)
        return table.files(where, version=version)

    def arrow(self, name: str, where: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one table in this snapshot, as `Table.arrow` gives them."""
        table, version = self._table(name)
        return table.arrow(version, where=where, columns=columns)

    def batches(
        self, name: str, where: str | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """The rows of one table in this snapshot, as `Table.batches` gives them."""
        table, version = self._table(name)
        return table.batches(version, where=where, columns=columns)

    def df(self, name: str, where: str | None = None) -> DataFrame:
        """The rows of one table in this snapshot, as a Spark DataFrame."""
        table, version = self._table(name)
        return table.df(version, where=where)

    def _table(self, name: str) -> tuple[Table, int]:
        full = ".".join(split_name(name))
        if full not in self.versions or full not in self.ids:
            raise ValidationError(f"table {full} is not part of this snapshot", table=full)
        return Table(self.lake, self.ids[full], full), self.versions[full]


def begin(**options: Any) -> Transaction:
    """A transaction whose tables are named by deltasql:// URIs alone."""
    return Transaction(None, _lake_of, **options)


def _lake_of(uri: str) -> Lake:
    """The lake of a table's URI."""
    target = parse_table_uri(uri)
    return Lake(Address(target.kind, target.dsn, target.path), Config())


_OPEN: weakref.WeakSet[Lake] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for lake in list(_OPEN):
        lake.close()


def _same_database(target: Address, own: Address, store: Store) -> bool:
    if target.path is not None or own.path is not None:
        return (
            target.path is not None and own.path is not None and Path(target.path).resolve() == Path(own.path).resolve()
        )
    return store.is_database(target.dsn or "")
