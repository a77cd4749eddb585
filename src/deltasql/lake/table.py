"""A table of a lake: what it is, its rows, and what changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql import storage
from deltasql.engines.arrow.read.change_feed_scan import changes_between
from deltasql.engines.arrow.read.polars_duckdb import register_in_duckdb, to_polars
from deltasql.engines.arrow.read.scan import Scan, scan
from deltasql.engines.arrow.write.input_rows import is_spark_frame
from deltasql.engines.arrow.write.parquet_files import ParquetFile, adds_from_parquet
from deltasql.errors import UnsupportedFeature, ValidationError
from deltasql.lake.merge import Merge
from deltasql.operations import change_builders
from deltasql.operations.change_builders import ChangeBuilder
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.optimize import Compaction
from deltasql.operations.retry import retry_on_conflict
from deltasql.operations.write import WriteOptions
from deltasql.protocol.actions import Add, CommitInfo, Metadata, Protocol
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.table_changes import TableState
from deltasql.store import HistoryEntry, Snapshot, SqlTxnLogReader
from deltasql.store.read.log_reader import Moment

if TYPE_CHECKING:
    import duckdb
    import polars

    from deltasql.engines.spark.spark_types import DataFrame
    from deltasql.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Where a change of one table landed."""

    version: int
    txn_id: str
    metrics: Mapping[str, str]


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
        with MultiTableTransaction(self.lake.store) as txn:
            state = self.state()
            metrics = work(txn, state)
            version = txn.commit().get(self.id, state.version)
        return CommitResult(version, txn.id, metrics)

    def insert(self, data: Any, returning: Any = None) -> CommitResult | DataFrame:
        """Add rows as SQL does: values are cast to the columns' types if those can hold them. `returning` gives the
        rows back as a DataFrame, with defaults and generated columns."""
        if returning is None:
            return self._write(data, WriteOptions(assign=is_spark_frame(data)))
        given = self.lake.source_frames.rereadable(data)
        return self._change(change_builders.insert(given, returning))

    def update(
        self, values: Mapping[str, Any], where: Any = None, source: Any = None, returning: Any = None
    ) -> CommitResult | DataFrame:
        """Give columns of some rows other values: texts in Spark's SQL, or Columns, in which the table is `t` and a
        source `s`. With `returning` (columns or texts, '*' for all) a DataFrame of the new rows comes back."""
        given = self.lake.source_frames.rereadable(source)
        return self._change(change_builders.update(values, where, given, returning))

    def delete(self, where: Any = None, source: Any = None, returning: Any = None) -> CommitResult | DataFrame:
        """Take rows out: those that a condition is true for, or all. `returning` gives them back as a DataFrame."""
        given = self.lake.source_frames.rereadable(source)
        return self._change(change_builders.delete(where, given, returning))

    def merge(self, source: Any, on: Any) -> Merge:
        """Bring rows of a source (`s`) into the table (`t`): name what happens to those that match and to those that do
        not, then `execute`."""
        return Merge(self.lake.source_frames.rereadable(source), on, self._change)

    def _change(self, build: ChangeBuilder) -> CommitResult | DataFrame:
        """Change rows and commit; retry on the latest version after a conflict."""
        return retry_on_conflict(lambda: self._change_once(build), self.lake.retries)

    def _change_once(self, build: ChangeBuilder) -> CommitResult | DataFrame:
        with self.lake.begin() as tx:
            outcome = tx.change(self, build)
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
        return retry_on_conflict(
            lambda: self._committed(lambda txn, state: compact(txn, state, asked)), self.lake.retries
        )

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
        return self._committed(lambda txn, state: self._stage_files(txn, state, paths, partition_values, progress))

    def _stage_files(
        self,
        txn: MultiTableTransaction,
        state: TableState,
        paths: Sequence[str],
        partition_values: Sequence[Mapping[str, str | None]] | None,
        progress: Callable[[int, int], None] | None,
    ) -> Mapping[str, str]:
        metadata = self._metadata()
        if not storage.is_local(state.location):
            raise UnsupportedFeature(f"table {self.name}: files at {state.location} cannot be registered yet")
        found = adds_from_parquet(
            str(storage.local_path(state.location)),
            paths,
            arrow_schema(metadata.schema_string),
            metadata.partition_columns,
            partition_values=partition_values,
            num_indexed_cols=metadata.table_properties.num_indexed_columns,
            stats_columns=metadata.table_properties.stats_columns,
            progress=progress,
        )
        metrics = {"numFiles": str(len(found)), "numOutputBytes": str(sum(f.size for f in found))}
        txn.stage_on(state, [*(_add(file) for file in found), CommitInfo("ADD FILES", {}, metrics)])
        return metrics


def _add(file: ParquetFile) -> Add:
    return Add(file.path, file.size, file.modification_time, file.partition_values, stats=file.stats)
