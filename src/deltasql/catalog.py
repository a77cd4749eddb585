"""The lake and its tables: what a user opens, creates, looks at and drops."""

from __future__ import annotations

import atexit
import json
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from deltasql import objects, requests
from deltasql.changing import RowChanger
from deltasql.config import Config
from deltasql.core.actions import Add, CommitInfo, Metadata, Protocol
from deltasql.core.changes import NewTable, TableState
from deltasql.core.fit import nullable
from deltasql.core.protocol import needed_features, protocol_for, unsupported
from deltasql.core.schema import arrow_schema, schema_string
from deltasql.core.uri import Target, parse_lake_url, parse_table_uri, redact, split_name
from deltasql.data.changes import changes_between
from deltasql.data.engines import register_in_duckdb, to_polars
from deltasql.data.inputs import arrow_rows, is_spark_frame
from deltasql.data.scan import Scan, scan
from deltasql.embedded import EmbeddedServer
from deltasql.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
    UsageError,
    ValidationError,
)
from deltasql.lake_transaction import URI, Transaction
from deltasql.mirror import Mirror
from deltasql.optimizing import Compaction, Compactor
from deltasql.parquet import ParquetFile, adds_from_parquet
from deltasql.requests import Asked, Merge, run_again
from deltasql.spark.session import SparkSource
from deltasql.store import HistoryEntry, Snapshot, SqlTxnLogReader, Store, TableInfo, TransactionInfo
from deltasql.store.reader import Moment, moment
from deltasql.transaction import MultiTableTransaction
from deltasql.writing import TableWriter, WriteOptions, metadata_of, struct_of

if TYPE_CHECKING:
    import duckdb
    import polars

    from deltasql.spark.types import DataFrame, SparkSession
    from deltasql.sql.ddl import Definition
    from deltasql.sql.session import TransactionSession

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


@contextmanager
def open_store(url: str | None, config: Mapping[str, Any] | None = None) -> Iterator[Store]:
    """The store of a lake whatever its schema: for `deltasql init` and `deltasql migrate`."""
    target = parse_lake_url(url)
    server = EmbeddedServer.start(Path(target.path)) if target.path is not None else None
    store = Store(server.dsn if server else target.dsn or "", Config(config))
    try:
        store.open_unchecked()
        yield store
    finally:
        store.close()
        if server is not None:
            server.close()


class Lake:
    """All tables of one database. Close it, or use it in a `with` statement."""

    def __init__(
        self,
        target: Target,
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
        from deltasql.sql.session import TransactionSession

        def create(txn: MultiTableTransaction, asked: Definition, rows: Any) -> TableState:
            return self.stage_table(
                txn,
                asked.name,
                asked.schema,
                as_=rows,
                location=asked.location,
                partition_by=asked.partition_by,
                properties=asked.properties,
                constraints=asked.constraints,
                description=asked.description,
            )

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
        from deltasql.spark.reading import read_snapshot  # brings pyspark, which is there if a session is

        fast = self._config.override(snapshot.properties)["spark.fast_scan"]
        return read_snapshot(spark, snapshot, where, fast=fast, options=self.storage_options)

    @property
    def session(self) -> requests.Session:
        """Where sources of statements become frames."""

        def read(table: str | Table) -> DataFrame:
            return (self.table(table) if isinstance(table, str) else table).df()

        return requests.Session(lambda: self.spark, read)

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
        txn = MultiTableTransaction(self.store)
        state = self.stage_table(
            txn,
            name,
            schema,
            as_=as_,
            location=location,
            partition_by=partition_by,
            properties=properties,
            constraints=constraints,
            description=description,
        )
        txn.commit()
        return Table(self, state.table_id, state.name)

    def stage_table(
        self,
        txn: MultiTableTransaction,
        name: str,
        schema: Any,
        *,
        as_: Any = None,
        location: str | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        constraints: Mapping[str, str] | None = None,
        description: str | None = None,
    ) -> TableState:
        """A table that a transaction creates, with its rows."""
        namespace, table = split_name(self.local_name(name))
        full = f"{namespace}.{table}"
        table_id = str(uuid.uuid4())
        partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        configuration = _configuration(full, properties, constraints)
        as_ = as_ if as_ is None or is_spark_frame(as_) else arrow_rows(as_, full)
        if schema is None and as_ is None:
            raise UsageError(f"table {full}: give a schema, or rows with as_=…", table=full)
        text = schema_string(json.dumps(nullable(struct_of(as_))) if schema is None else schema, table=full)
        protocol = _protocol(full, configuration, text)
        metadata = Metadata(
            id=table_id,
            schema_string=text,
            partition_columns=partition_by,
            configuration={k: v for k, v in configuration.items() if not k.startswith("delta.feature.")},
            description=description,
            created_time=time.time_ns() // 1_000_000,
        )
        place = self._location(namespace, table, table_id, location)
        self._refuse_foreign_log(full, place, configuration)
        state = TableState(0, table_id, full, -1, None, None, place)
        info = CommitInfo("CREATE TABLE", _create_parameters(metadata))
        txn.create(state, NewTable(namespace, table, place), [protocol, metadata, info])
        if as_ is not None:
            self.writer.write(txn, state, as_, WriteOptions())
        return state

    def _location(self, namespace: str, table: str, table_id: str, given: str | None) -> str:
        """Where a new table's files go; by default a directory that holds nothing yet."""
        if given is not None:
            return _absolute(given)
        place = _absolute(f"{self._tables_root()}/{namespace}/{table}")
        taken = self.store.location_used(place) or objects.exists_below(place, self.storage_options)
        return f"{place}-{table_id[:8]}" if taken else place

    def _refuse_foreign_log(self, table: str, place: str, properties: Mapping[str, str]) -> None:
        """A log that is there already could never become this table's: nothing is overwritten."""
        if self._config.override(properties)["mirror.mode"] == "off":
            return
        if objects.exists_below(place, self.storage_options, "_delta_log"):
            raise TableExists(
                table,
                f"table {table}: {place} holds a Delta log already, of a dropped table or of another tool: "
                f"choose another location, or delete the log",
            )

    def _tables_root(self) -> str:
        return f"{self._target.path or '.deltasql'}/tables"

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
        with self.store.outbox.ending(state.table_key):
            self.store.drop_table(state)
            objects.delete_below(state.location, self.storage_options)

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Any:
        """Run a statement as Postgres writes it, on tables of the lake and views of Spark's: a DataFrame of what it
        selects or returns, else where it landed. If others changed the same rows meanwhile, it is run again."""
        return run_again(lambda: self._run(text, params), self.retries)

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

        return run_again(attempt, lambda _: retries)

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


class Table:
    """A table of the lake. Reads see the latest committed version unless told otherwise."""

    def __init__(self, lake: Lake, table_id: str, name: str) -> None:
        self.lake = lake
        self._reader = SqlTxnLogReader(lake.store)
        self.id = table_id
        self.name = name

    def __repr__(self) -> str:
        return f"<deltasql.Table {self.name}>"

    def state(self) -> TableState:
        """The head with its metadata and protocol, read now."""
        return self.lake.store.state(self.id)

    def _metadata(self) -> Metadata:
        metadata = self.state().metadata
        if metadata is None:
            raise ValidationError(f"table {self.name} has no metadata yet", table=self.name, table_id=self.id)
        return metadata

    @property
    def version(self) -> int:
        """The latest committed version."""
        return self.state().version

    @property
    def location(self) -> str:
        """Where the data files are."""
        return self.state().location

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Arrow knows them."""
        return arrow_schema(self._metadata().schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns, in order."""
        return self._metadata().partition_columns

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._metadata().configuration)

    @property
    def protocol(self) -> Protocol:
        """What readers and writers of the table must understand."""
        return self.state().protocol or Protocol()

    def files(
        self,
        where: str | None = None,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
    ) -> pa.Table:
        """The live files; with a predicate only those that may hold matching rows."""
        return self._reader.files(self.id, where, version, timestamp)

    def snapshot(self, version: int | None = None, timestamp: Moment | None = None) -> Snapshot:
        """Schema, properties and files at one version, as a value."""
        return self._reader.snapshot(self.id, version, timestamp)

    def df(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """The rows as a Spark DataFrame, at the latest version unless told otherwise.

        What is committed later does not change it. A predicate in Spark's SQL leaves out files by the log, and rows.
        """
        return self.lake.frame_of(self._reader.snapshot(self.id, version, timestamp, where=where), where)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Commits, newest first."""
        return self._reader.history(self.id, limit)

    def append(self, data: Any, *, merge_schema: bool = False) -> CommitResult:
        """Add rows: a Spark, pandas or Polars DataFrame, a pyarrow.Table or a RecordBatchReader."""
        return self._write(data, WriteOptions(merge_schema=merge_schema))

    def overwrite(
        self,
        data: Any,
        where: str | None = None,
        *,
        dynamic: bool = False,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
    ) -> CommitResult:
        """Replace all rows; with `where` only those for which it is true, which all new rows must be; with `dynamic`
        only the partitions that new rows are in. `overwrite_schema` lets the table have the new rows' schema."""
        return self._write(data, WriteOptions("overwrite", where, dynamic, merge_schema, overwrite_schema))

    def _write(self, data: Any, options: WriteOptions) -> CommitResult:
        return self._committed(lambda txn, state: self.lake.writer.write(txn, state, data, options))

    def _committed(self, work: Callable[[MultiTableTransaction, TableState], Mapping[str, str]]) -> CommitResult:
        """Do something to this table alone, and commit it if there is anything."""
        txn = MultiTableTransaction(self.lake.store)
        try:
            state = self.state()
            metrics = work(txn, state)
            return CommitResult(txn.commit().get(self.id, state.version), txn.id, metrics)
        except CommitOutcomeUnknown:
            raise
        except BaseException:
            self.lake.writer.give_up(txn)
            raise

    def insert(self, data: Any, returning: Any = None) -> CommitResult | DataFrame:
        """Add rows as SQL does: values are cast to the columns' types if those can hold them. `returning` gives the
        rows back as a DataFrame, with defaults and generated columns."""
        if returning is None:
            return self._write(data, WriteOptions(assign=is_spark_frame(data)))
        given = self.lake.session.kept(data)
        return self._change(lambda session: requests.insert(given, returning, session))

    def update(
        self, values: Mapping[str, Any], where: Any = None, source: Any = None, returning: Any = None
    ) -> CommitResult | DataFrame:
        """Give columns of some rows other values: texts in Spark's SQL, or Columns, in which the table is `t` and a
        source `s`. With `returning` (columns or texts, '*' for all) a DataFrame of the new rows comes back."""
        given = self.lake.session.kept(source)
        return self._change(lambda session: requests.update(values, where, given, returning, session))

    def delete(self, where: Any = None, source: Any = None, returning: Any = None) -> CommitResult | DataFrame:
        """Take rows out: those that a condition is true for, or all. `returning` gives them back as a DataFrame."""
        given = self.lake.session.kept(source)
        return self._change(lambda session: requests.delete(where, given, returning, session))

    def merge(self, source: Any, on: Any) -> Merge:
        """Bring rows of a source (`s`) into the table (`t`): name what happens to those that match and to those that do
        not, then `execute`."""
        return Merge(self.lake.session.kept(source), on, self._change)

    def _change(self, asked: Asked) -> CommitResult | DataFrame:
        """Run a statement; if others changed the same rows meanwhile, again on what is there then."""
        return run_again(lambda: self._change_once(asked), self.lake.retries)

    def _change_once(self, asked: Asked) -> CommitResult | DataFrame:
        with self.lake.begin() as tx:
            outcome = tx.change(self, asked)
            version = tx.commit().get(self.name) if outcome.changed else self.version
        if outcome.returned is not None:
            frame: DataFrame = outcome.returned
            return frame
        return CommitResult(version or 0, str(tx.id), outcome.metrics)

    def changes(self, from_version: int, to_version: int | None = None) -> DataFrame:
        """What versions did to rows, from one to another, both included, or to the latest: each row with
        `_change_type` (insert, delete, update_preimage or update_postimage), `_commit_version` and `_commit_timestamp`.
        The table needs the property delta.enableChangeDataFeed."""
        feed = changes_between(self.lake.store, self.state(), from_version, to_version, self.lake.storage_options)
        return reduce(lambda one, other: one.union(other), map(self.lake.frame_of, feed))

    def optimize(
        self, where: str | None = None, zorder_by: Sequence[str] | None = None, *, target_size: int | str | None = None
    ) -> CommitResult:
        """Write small files together, and files with many deleted rows without these: the same rows in fewer files.
        With `where` only files that may hold such rows. Never in the way of those who append."""
        asked = Compaction(where, zorder_by, target_size)
        compact = self.lake.compactor.compact
        return run_again(lambda: self._committed(lambda txn, state: compact(txn, state, asked)), self.lake.retries)

    def arrow(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The rows, read without Spark: of the latest version, of another one or at a moment; those that a predicate
        is true for, some of their columns."""
        return self._scan(version, timestamp, where, columns).table()

    def batches(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as `arrow` gives them, as a stream that holds few of them at a time."""
        return self._scan(version, timestamp, where, columns).batches()

    def polars(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> polars.DataFrame:
        """The rows as `arrow` gives them, as a Polars frame. Needs `deltasql[polars]`."""
        return to_polars(self._scan(version, timestamp, where, columns))

    def duckdb(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str | None = None,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """The rows as `arrow` gives them, as a view on a DuckDB connection, under the table's own name unless another
        is given. Each query streams the columns it needs; all see the same version. Needs `deltasql[duckdb]`."""
        return register_in_duckdb(self._scan(version, timestamp, where, columns), connection, name)

    def _scan(
        self, version: int | None, timestamp: Moment | None, where: str | None, columns: Sequence[str] | None
    ) -> Scan:
        snapshot = self._reader.snapshot(self.id, version, timestamp, where)
        return scan(snapshot, self.lake.storage_options, columns)

    def add_files(
        self,
        paths: Sequence[str],
        *,
        partition_values: Sequence[Mapping[str, str | None]] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CommitResult:
        """Make Parquet files that lie below the location part of the table, by their footers alone.

        Partition values come from Hive-style directories unless given, one mapping per path. `progress` is called
        with the number of footers read so far and the number of files.
        """
        state = self.state()
        metadata = self._metadata()
        if not objects.is_local(state.location):
            raise UnsupportedFeature(f"table {self.name}: files at {state.location} cannot be registered yet")
        columns = metadata.configuration.get("delta.dataSkippingStatsColumns")
        found = adds_from_parquet(
            str(objects.local_path(state.location)),
            paths,
            arrow_schema(metadata.schema_string),
            metadata.partition_columns,
            partition_values=partition_values,
            num_indexed_cols=int(metadata.configuration.get("delta.dataSkippingNumIndexedCols", "32")),
            stats_columns=columns.split(",") if columns else None,
            progress=progress,
        )
        metrics = {"numFiles": str(len(found)), "numOutputBytes": str(sum(f.size for f in found))}
        info = CommitInfo("ADD FILES", {}, metrics)
        txn = MultiTableTransaction(self.lake.store)
        txn.stage_on(state, [*(_add(file) for file in found), info])
        return CommitResult(txn.commit()[self.id], txn.id, metrics)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Where a change of one table landed."""

    version: int
    txn_id: str
    metrics: Mapping[str, str]


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
    return Lake(Target(target.kind, target.dsn, target.path), Config())


_OPEN: weakref.WeakSet[Lake] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for lake in list(_OPEN):
        lake.close()


def _add(file: ParquetFile) -> Add:
    return Add(file.path, file.size, file.modification_time, file.partition_values, stats=file.stats)


def _absolute(location: str) -> str:
    """A location as the log keeps it: local paths absolute, no slash at the end."""
    place = str(objects.local_path(location).resolve()) if objects.is_local(location) else location
    scheme, separator, path = place.rpartition("://")
    return f"{scheme}{separator}{path.rstrip('/')}" or "/"


def _configuration(
    table: str, properties: Mapping[str, str] | None, constraints: Mapping[str, str] | None
) -> dict[str, str]:
    values = dict(properties or {})
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValidationError(
                f"table {table}: properties map strings to strings, got {key!r}: {value!r}",
                table=table,
                value=key,
            )
    Config({}, {}).override(values)
    for name, expression in (constraints or {}).items():
        values[f"delta.constraints.{name.lower()}"] = expression
    return values


def _protocol(table: str, configuration: Mapping[str, str], text: str) -> Protocol:
    needed = set(needed_features(configuration, text))
    needed |= {k.removeprefix("delta.feature.") for k in configuration if k.startswith("delta.feature.")}
    unknown = unsupported(needed)
    if unknown:
        raise UnsupportedFeature(
            f"table {table}: this release of deltasql does not support the table feature {', '.join(unknown)}",
            features=unknown,
            table=table,
        )
    return protocol_for(needed)


def _create_parameters(metadata: Metadata) -> dict[str, Any]:
    """Spark writes the values of operation parameters as JSON texts."""
    return {
        "isManaged": "false",
        "description": metadata.description,
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "properties": json.dumps(dict(metadata.configuration), sort_keys=True),
    }


def _same_database(target: Target, own: Target, store: Store) -> bool:
    if target.path is not None or own.path is not None:
        return (
            target.path is not None and own.path is not None and Path(target.path).resolve() == Path(own.path).resolve()
        )
    return store.is_database(target.dsn or "")
