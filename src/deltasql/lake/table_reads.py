"""The metadata and the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engines.arrow.read.change_feed_scan import changes_between
from deltasql.engines.arrow.read.polars_duckdb import register_in_duckdb, to_polars
from deltasql.engines.arrow.read.scan import Scan, scan
from deltasql.errors import ValidationError
from deltasql.protocol.actions import Metadata, Protocol
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.table_changes import TableState
from deltasql.store import HistoryEntry, Snapshot, SqlTxnLogReader
from deltasql.store.read.log_reader import Moment

if TYPE_CHECKING:
    import duckdb
    import polars

    from deltasql.engines.spark.spark_types import DataFrame
    from deltasql.lake.lake import Lake


class ReadableTable:
    """A table that can be read. `Table` adds the operations that change it."""

    def __init__(self, lake: Lake, table_id: str, name: str) -> None:
        self.lake = lake
        self._reader = SqlTxnLogReader(lake.store)
        self.id = table_id
        self.name = name

    def __repr__(self) -> str:
        return f"<deltasql.Table {self.name}>"

    def state(self) -> TableState:
        """Return the table's head with its metadata and protocol, read now."""
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
        """The directory or object store prefix of the data files."""
        return self.state().location

    @property
    def schema(self) -> pa.Schema:
        """The columns as a pyarrow.Schema."""
        return arrow_schema(self._metadata().schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns, in order."""
        return self._metadata().partition_columns

    @property
    def properties(self) -> dict[str, str]:
        """The table properties."""
        return dict(self._metadata().configuration)

    @property
    def protocol(self) -> Protocol:
        """The reader and writer features that the table needs."""
        return self.state().protocol or Protocol()

    def files(
        self,
        where: str | None = None,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
    ) -> pa.Table:
        """Return the live files.

        Args:
            where: A condition in Spark SQL; files that cannot hold matching rows are pruned by partition values and
                statistics.
            version: List the files of this version instead of the latest one.
            timestamp: List the files of the version that was the head at this moment.

        Returns:
            A pyarrow.Table with one row per file: path, size, modification_time, partition_values, stats and more.

        Raises:
            ValidationError: The version does not exist, the timestamp is outside the history, or the condition is
                not valid.
        """
        return self._reader.files(self.id, where, version, timestamp)

    def snapshot(self, version: int | None = None, timestamp: Moment | None = None) -> Snapshot:
        """Return the schema, properties and files of one version.

        Args:
            version: Read this version instead of the latest one.
            timestamp: Read the version that was the head at this moment: a datetime, or ISO text (UTC without a zone).

        Returns:
            A frozen `Snapshot`.

        Raises:
            ValidationError: The version does not exist or the timestamp is outside the history.
        """
        return self._reader.snapshot(self.id, version, timestamp)

    def df(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """Return the rows as a Spark DataFrame. Later commits do not change it.

        Args:
            version: Read this version instead of the latest one.
            timestamp: Read the version that was the head at this moment: a datetime, or ISO text (UTC without a zone).
            where: A condition in Spark SQL; only rows for which it is true are read.

        Returns:
            A DataFrame of `lake.spark`, which reads exactly the files of the snapshot.

        Raises:
            ValidationError: The version does not exist, the timestamp is outside the history, or the condition is
                not valid.
            UnsupportedFeature: The table needs a reader feature that this release does not support.
        """
        return self.lake.frame_of(self._reader.snapshot(self.id, version, timestamp, where=where), where)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the commits, newest first.

        Args:
            limit: Return at most this many commits.

        Returns:
            One `HistoryEntry` per commit.
        """
        return self._reader.history(self.id, limit)

    def changes(self, from_version: int, to_version: int | None = None) -> DataFrame:
        """Return the row changes of a range of versions from the change data feed.

        The table needs the property `delta.enableChangeDataFeed`.

        Args:
            from_version: The first version.
            to_version: The last version, included; the latest one by default.

        Returns:
            A DataFrame with the table's columns, `_change_type` (insert, delete, update_preimage, update_postimage),
            `_commit_version` and `_commit_timestamp`.

        Raises:
            ValidationError: The feed was off in the range, or a version does not exist.
        """
        feed = changes_between(self.lake.store, self.state(), from_version, to_version, self.lake.storage_options)
        return reduce(lambda one, other: one.union(other), map(self.lake.frame_of, feed))

    def arrow(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the rows as a pyarrow.Table, read without Spark.

        Args:
            version: Read this version instead of the latest one.
            timestamp: Read the version that was the head at this moment: a datetime, or ISO text (UTC without a zone).
            where: A condition in Spark SQL; only rows for which it is true are read.
            columns: Read only these columns.

        Returns:
            All matching rows in memory.

        Raises:
            ValidationError: The version does not exist, the timestamp is outside the history, or the condition is
                not valid.
            UnsupportedFeature: The table needs a reader feature that this release does not support.
        """
        return self._scan(version, timestamp, where, columns).table()

    def batches(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream that holds few of them in memory, read without Spark.

        Args:
            version: Read this version instead of the latest one.
            timestamp: Read the version that was the head at this moment: a datetime, or ISO text (UTC without a zone).
            where: A condition in Spark SQL; only rows for which it is true are read.
            columns: Read only these columns.

        Returns:
            A pyarrow.RecordBatchReader.

        Raises:
            ValidationError: The version does not exist, the timestamp is outside the history, or the condition is
                not valid.
            UnsupportedFeature: The table needs a reader feature that this release does not support.
        """
        return self._scan(version, timestamp, where, columns).batches()

    def polars(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> polars.DataFrame:
        """Return the rows as a Polars DataFrame. Needs `deltasql[polars]`.

        Args:
            version: Read this version instead of the latest one.
            timestamp: Read the version that was the head at this moment: a datetime, or ISO text (UTC without a zone).
            where: A condition in Spark SQL; only rows for which it is true are read.
            columns: Read only these columns.

        Returns:
            A Polars DataFrame.

        Raises:
            ValidationError: The version does not exist, the timestamp is outside the history, or the condition is
                not valid.
            UnsupportedFeature: The table needs a reader feature that this release does not support.
        """
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
        """Register the rows as a view on a DuckDB connection. Needs `deltasql[duckdb]`.

        Each query reads only the columns that it needs; all queries see the same version.

        Args:
            connection: The DuckDB connection.
            name: The name of the view; the table's name by default.
            version: Read this version instead of the latest one.
            timestamp: Read the version that was the head at this moment: a datetime, or ISO text (UTC without a zone).
            where: A condition in Spark SQL; only rows for which it is true are read.
            columns: Offer only these columns.

        Returns:
            The relation.

        Raises:
            ValidationError: The version does not exist, the timestamp is outside the history, or the condition is
                not valid.
            UnsupportedFeature: The table needs a reader feature that this release does not support.
        """
        return register_in_duckdb(self._scan(version, timestamp, where, columns), connection, name)

    def _scan(
        self, version: int | None, timestamp: Moment | None, where: str | None, columns: Sequence[str] | None
    ) -> Scan:
        snapshot = self._reader.snapshot(self.id, version, timestamp, where)
        return scan(snapshot, self.lake.storage_options, columns)
