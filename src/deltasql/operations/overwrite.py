"""Which files an overwrite replaces, and the retained rows of these files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engines.arrow.write.change_feed_write import ChangeFeedWriter
from deltasql.engines.arrow.write.constraint_checks import exact_filter
from deltasql.engines.arrow.write.file_writer import FilePlan
from deltasql.engines.arrow.write.replace_where import ReplaceWhereResult, files_in_partitions, remove_matching_rows
from deltasql.errors import ValidationError
from deltasql.operations.commit import MultiTableTransaction
from deltasql.progress import Report
from deltasql.protocol.actions import DELETED, INSERTED, Add, Cdc, DeletionVector, Metadata, Remove, from_dict
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import arrow_schema, primitive_name
from deltasql.protocol.table_changes import SERIALIZABLE, Reads, TableState
from deltasql.store import Snapshot
from deltasql.store.read.log_reader import parse_where

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import SparkSession

_MAX_PARTITIONS_IN_CONDITION = 200
_SQL_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


@dataclass(frozen=True, slots=True)
class Replacement:
    """The files that an overwrite removes, and the reads by which it found them."""

    removes: list[Remove] = field(default_factory=list)
    retained: list[Add] = field(default_factory=list)
    """New files with the rows of removed files that the overwrite does not replace."""
    reads: Reads = field(default_factory=Reads)
    isolation: str | None = None
    changes: list[Cdc] = field(default_factory=list)
    """Change files, where the added and removed files alone would give a wrong change feed."""


def replace_all(txn: MultiTableTransaction, state: TableState) -> Replacement:
    """Replace every file of a table."""
    txn.unstage_files(state)
    return Replacement(removes_of(txn.files(state)), reads=Reads(whole_table=True), isolation=SERIALIZABLE)


def replace_partitions(txn: MultiTableTransaction, state: TableState, adds: Sequence[Add]) -> Replacement:
    """Replace the files of the partitions that the new files are in."""
    metadata = metadata_of(state)
    columns = metadata.partition_columns
    replaced = {tuple(add.partition_values[c] for c in columns): add.partition_values for add in adds}
    current = removes_of(txn.files(state))
    removes = [r for r in current if tuple((r.partition_values or {}).get(c) for c in columns) in replaced]
    paths = frozenset(r.path for r in removes)
    if len(replaced) > _MAX_PARTITIONS_IN_CONDITION:
        return Replacement(removes, reads=Reads(files=paths, whole_table=True))
    types = {f.name: f.type for f in arrow_schema(metadata.schema_string)}
    where = " OR ".join(f"({_partition_condition(values, types)})" for values in replaced.values())
    return Replacement(removes, reads=Reads((where,) if where else (), paths))


def _partition_condition(values: Mapping[str, str | None], types: Mapping[str, pa.DataType]) -> str:
    parts = []
    for name, value in values.items():
        if value is None:
            parts.append(f"{quoted(name)} IS NULL")
        else:
            literal = value.replace("\\", "\\\\").replace("'", "\\'")
            kind = primitive_name(types[name]) or "string"
            parts.append(f"{quoted(name)} = CAST('{literal}' AS {_SQL_TYPES.get(kind, kind)})")
    return " AND ".join(parts)


@dataclass(frozen=True, slots=True)
class ReplaceWhere:
    """Replaces the rows for which a condition is true."""

    where: str
    state: TableState
    metadata: Metadata
    """The table's metadata after the write."""
    plan: FilePlan
    spark: Callable[[], SparkSession]
    by_spark: bool
    """The new rows come from Spark, so Spark also rewrites the files."""
    fast_scan: bool
    report: Report | None

    def run(self, txn: MultiTableTransaction, adds: Sequence[Add]) -> Replacement:
        """Remove the files that hold such rows; write their other rows to new files."""
        predicate = parse_where(self.where, self.state)
        files = txn.files(self.state, predicate)
        snapshot = Snapshot.of(replace(self.state, metadata=self.metadata), files)
        row_filter = exact_filter(self.where, self.metadata.schema_string, self.state.name)
        if row_filter is not None and predicate is not None and predicate.partition_only:
            result = ReplaceWhereResult(files_in_partitions(snapshot, row_filter), [])
        elif row_filter is None or self.by_spark:
            result = self._rewrite_by_spark(snapshot)
        else:
            matching = replace(snapshot, predicate=predicate)
            result = remove_matching_rows(matching, self.plan.options, row_filter, self.plan)
        changes: list[Cdc] = []
        if result.rewritten and self.metadata.table_properties.change_data_feed:
            touched = replace(snapshot, files=result.removed, predicate=predicate)
            changes = self._changes(touched, adds, by_arrow=row_filter is not None and not self.by_spark)
        reads = Reads((self.where,), frozenset(files["path"].to_pylist()))
        return Replacement(removes_of(result.removed), result.rewritten, reads, changes=changes)

    def _rewrite_by_spark(self, snapshot: Snapshot) -> ReplaceWhereResult:
        spark = self.spark()
        from deltasql.engines.spark.frame_replace_where import remove_matching_rows_by_spark

        return remove_matching_rows_by_spark(
            spark, snapshot, self.where, self.plan, fast=self.fast_scan, report=self.report
        )

    def _changes(self, touched: Snapshot, adds: Sequence[Add], *, by_arrow: bool) -> list[Cdc]:
        feed = ChangeFeedWriter(replace(self.state, metadata=self.metadata), self.plan.options, self.plan)
        deleted = feed.write_rows(touched, DELETED) if by_arrow else self._deleted_by_spark(touched)
        return [*deleted, *feed.write_files(adds, INSERTED)]

    def _deleted_by_spark(self, touched: Snapshot) -> list[Cdc]:
        spark = self.spark()
        from deltasql.engines.spark.frame_replace_where import write_deleted_rows

        whole = replace(touched, predicate=None)
        return write_deleted_rows(spark, whole, self.where, self.plan, fast=self.fast_scan, report=self.report)


def removes_of(files: pa.Table) -> list[Remove]:
    """Return the actions that remove files from a table."""
    now = time.time_ns() // 1_000_000
    columns = ("path", "partition_values", "size", "deletion_vector")
    return [
        Remove(
            path=path,
            deletion_timestamp=now,
            extended_file_metadata=True,
            partition_values=values or {},
            size=size,
            deletion_vector=None if vector is None else from_dict(DeletionVector, json.loads(vector)),
        )
        for path, values, size, vector in zip(*(files[c].to_pylist() for c in columns), strict=True)
    ]


def metadata_of(state: TableState) -> Metadata:
    """Return a table's metadata, or raise `ValidationError` if it has none."""
    if state.metadata is None:
        raise ValidationError(f"table {state.name} has no metadata yet", table=state.name, table_id=state.table_id)
    return state.metadata
