"""A table of a lake, and the operations that change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql import storage
from deltasql.engines.arrow.write.input_rows import is_spark_frame
from deltasql.engines.arrow.write.parquet_files import ParquetFile, adds_from_parquet
from deltasql.errors import MirrorFailure, UnsupportedFeature
from deltasql.lake.merge import Merge
from deltasql.lake.table_reads import ReadableTable
from deltasql.operations import change_builders
from deltasql.operations.change_builders import ChangeBuilder
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.optimize import Compaction
from deltasql.operations.retry import retry_on_conflict
from deltasql.operations.write import WriteOptions
from deltasql.protocol.actions import Add, CommitInfo
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.table_changes import TableState

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a change to one table.

    Attributes:
        version: The committed version, or the current one if there was nothing to change.
        txn_id: The id of the transaction, as history shows it.
        metrics: Counts of files, rows and bytes, under the names that delta-spark uses.
        mirror: Why the version is not published yet, None if it is published or will be in the background; the
            reconciler retries it.
    """

    version: int
    txn_id: str
    metrics: Mapping[str, str]
    mirror: MirrorFailure | None = None

    @property
    def published(self) -> bool:
        """Whether publishing did not fail. With `mirror.mode` `async`, the version may still be on its way."""
        return self.mirror is None


class Table(ReadableTable):
    """A table of a lake. Reads use the latest committed version unless a version or timestamp is given.

    Attributes:
        lake: The lake that the table belongs to.
        id: The table's id, a UUID that never changes.
        name: The table's full name, `namespace.table`.
    """

    def append(self, data: Any, *, merge_schema: bool = False) -> CommitResult:
        """Append rows.

        Args:
            data: A Spark, pandas or Polars DataFrame, a pyarrow.Table, a RecordBatchReader, or any object with the
                Arrow PyCapsule interface.
            merge_schema: Add columns that the table does not have.

        Returns:
            The committed version and metrics.

        Raises:
            ValidationError: The rows do not fit the schema.
            ConstraintViolation: A row violates a constraint; nothing is committed.
        """
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
        """Replace rows.

        Args:
            data: The new rows, as in `append`.
            where: Replace only the rows for which this condition is true. All new rows must satisfy it.
            dynamic: Replace only the partitions that the new rows are in.
            merge_schema: Add columns that the table does not have.
            overwrite_schema: Replace the table's schema by the schema of the rows.

        Returns:
            The committed version and metrics.

        Raises:
            UsageError: Options exclude each other.
            ValidationError: The rows do not fit the schema.
            ConstraintViolation: A row violates a constraint or `where`; nothing is committed.
            CommitConflict: Another commit changed the replaced rows; nothing is committed.
        """
        return self._write(data, WriteOptions("overwrite", where, dynamic, merge_schema, overwrite_schema))

    def _write(self, data: Any, options: WriteOptions) -> CommitResult:
        return self._committed(lambda txn, state: self.lake.writer.write(txn, state, data, options))

    def _committed(self, work: Callable[[MultiTableTransaction, TableState], Mapping[str, str]]) -> CommitResult:
        """Run work on this table in one transaction, and commit what it staged."""
        with MultiTableTransaction(self.lake.store) as txn:
            state = self.state()
            metrics = work(txn, state)
            version = txn.commit().get(self.id, state.version)
        result = txn.results.get(self.id)
        return CommitResult(version, txn.id, metrics, result.mirror if result else None)

    def insert(self, data: Any, returning: Any = None) -> CommitResult | DataFrame:
        """Insert rows as SQL does: values are cast to the column types where that loses nothing.

        Args:
            data: The rows, as in `append`.
            returning: Columns or Spark SQL texts to return for each row, `"*"` for all columns.

        Returns:
            A CommitResult; with `returning`, a DataFrame of the inserted rows with defaults and generated columns.

        Raises:
            ValidationError: The rows do not fit the schema.
            ConstraintViolation: A row violates a constraint; nothing is committed.
        """
        if returning is None:
            return self._write(data, WriteOptions(assign=is_spark_frame(data)))
        given = self.lake.source_frames.rereadable(data)
        return self._change(change_builders.insert(given, returning))

    def update(
        self, values: Mapping[str, Any], where: Any = None, source: Any = None, returning: Any = None
    ) -> CommitResult | DataFrame:
        """Update rows. A conflicting update is retried on the latest version (`dml.retries`).

        Args:
            values: New values by column name, as Spark SQL text or Columns. The table is `t`, the source is `s`.
            where: Update only the rows for which this condition is true; with a source, it also joins the rows.
            source: Rows to update from: a DataFrame, Arrow data, a Table or a table name.
            returning: Columns or Spark SQL texts to return for each updated row, `"*"` for all columns.

        Returns:
            A CommitResult; with `returning`, a DataFrame of the new rows.

        Raises:
            ValidationError: A column does not exist, or a value does not fit its column.
            ConstraintViolation: A new row violates a constraint; nothing is committed.
            UsageError: Several source rows match one table row.
            CommitConflict: The update still conflicts after all retries.
        """
        given = self.lake.source_frames.rereadable(source)
        return self._change(change_builders.update(values, where, given, returning))

    def delete(self, where: Any = None, source: Any = None, returning: Any = None) -> CommitResult | DataFrame:
        """Delete rows. A conflicting delete is retried on the latest version (`dml.retries`).

        Args:
            where: Delete only the rows for which this condition is true; without it, all rows.
            source: Rows to join with (`s`): a DataFrame, Arrow data, a Table or a table name.
            returning: Columns or Spark SQL texts to return for each deleted row, `"*"` for all columns.

        Returns:
            A CommitResult; with `returning`, a DataFrame of the deleted rows.

        Raises:
            ValidationError: The condition is not valid.
            CommitConflict: The delete still conflicts after all retries.
        """
        given = self.lake.source_frames.rereadable(source)
        return self._change(change_builders.delete(where, given, returning))

    def merge(self, source: Any, on: Any) -> Merge:
        """Begin a merge of source rows (`s`) into the table (`t`).

        Args:
            source: A DataFrame, Arrow data, a Table or a table name.
            on: The condition that matches source rows with table rows, such as `"t.id = s.id"`.

        Returns:
            A `Merge`: add `when_…` clauses to it, then call `execute`.
        """
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
        return CommitResult(version or 0, str(tx.id), outcome.metrics, tx.mirror.get(self.name))

    def optimize(
        self, where: str | None = None, zorder_by: Sequence[str] | None = None, *, target_size: int | str | None = None
    ) -> CommitResult:
        """Rewrite small files as larger ones, and files with many deleted rows without these rows.

        Appends that run at the same time do not conflict.

        Args:
            where: Rewrite only files that may hold such rows.
            zorder_by: Not supported by this release.
            target_size: The size of new files, as bytes or text such as "128 MB"; `writer.target_file_size` by default.

        Returns:
            The committed version and metrics. If there is nothing to rewrite, nothing is committed.

        Raises:
            UnsupportedFeature: `zorder_by` is given.
            CommitConflict: Another commit keeps changing the same files.
        """
        options = Compaction(where, zorder_by, target_size)
        compact = self.lake.compactor.compact
        return retry_on_conflict(
            lambda: self._committed(lambda txn, state: compact(txn, state, options)), self.lake.retries
        )

    def add_files(
        self,
        paths: Sequence[str],
        *,
        partition_values: Sequence[Mapping[str, str | None]] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CommitResult:
        """Register Parquet files that already lie below the table's location. Only their footers are read.

        Args:
            paths: Paths relative to the location.
            partition_values: Partition values, one mapping per path; read from Hive-style directories by default.
            progress: Called with the number of footers read so far and the number of files.

        Returns:
            The committed version and metrics.

        Raises:
            ValidationError: A file does not exist, does not fit the schema, or is already part of the table.
            UnsupportedFeature: The table is not on a local disk.
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
            raise UnsupportedFeature(f"table {self.name}: add_files supports only local tables, not {state.location}")
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
