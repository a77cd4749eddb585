"""Compaction: the same rows in fewer files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from deltasql.config import size
from deltasql.engines.arrow.write.compact import FileGroup, file_groups, partition_of, rewrite, rewrite_groups
from deltasql.engines.arrow.write.constraint_checks import exact_filter
from deltasql.engines.arrow.write.deletion_vector_write import live_row_counts
from deltasql.engines.arrow.write.file_writer import FilePlan, count_rows
from deltasql.engines.arrow.write.replace_where import files_in_partitions
from deltasql.errors import StorageError, UnsupportedFeature, UsageError
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.overwrite import metadata_of, removes_of
from deltasql.operations.write import TableWriter
from deltasql.progress import Report, count_files, show_progress
from deltasql.protocol.actions import Add, CommitInfo, Metadata, Remove
from deltasql.protocol.table_changes import TableState
from deltasql.store import Snapshot
from deltasql.store.read.log_reader import parse_where

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import SparkSession

OPTIMIZE = "OPTIMIZE"
_HERE_BYTES = 512 << 20
"""The most bytes that are rewritten in this process; Spark rewrites more."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """The options of a compaction."""

    where: str | None = None
    """Rewrite only files that may hold such rows, by partition values and statistics."""
    zorder_by: Sequence[str] | None = None
    target_size: int | str | None = None

    def target(self, table: str, usual: int) -> int:
        """Return the target size of files; reject options that are not supported."""
        if self.zorder_by:
            raise UnsupportedFeature(
                f"table {table}: zorder_by is not supported by this release; omit it to compact without reordering",
                table=table,
            )
        try:
            return usual if self.target_size is None else size(self.target_size)
        except ValueError as error:
            text = f"table {table}: target_size must be {error}, got {self.target_size!r}"
            raise UsageError(text, table=table, value=self.target_size) from None


class Compactor:
    """Compacts tables."""

    def __init__(self, writer: TableWriter, options: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self._writer = writer
        self._options = options
        self._spark = spark

    def compact(self, txn: MultiTableTransaction, state: TableState, options: Compaction) -> dict[str, str]:
        """Rewrite files and stage the result. Return the metrics, which are empty if there is nothing to do."""
        began = time.monotonic()
        state = txn.state_of(state)
        metadata = metadata_of(state)
        config = self._writer.config_of(metadata)
        target = options.target(state.name, config["writer.target_file_size"])
        snapshot = self._candidates(txn, state, metadata, options.where)
        files = snapshot.files
        groups = file_groups(files, config["optimize.deleted_share"])
        if not rewrite_groups(groups, target):
            return {}
        plan = self._writer.begin(txn, state, metadata)
        with show_progress(config["progress"], f"optimize {state.name}") as report:
            compacted = self._compacted(snapshot, groups, target, plan, report)
        removed, adds = files.take(pa.array(compacted.indexes, pa.int64())), compacted.adds
        _check_rows(removed, adds, state.name)
        removes = [msgspec.structs.replace(remove, data_change=False) for remove in removes_of(removed)]
        metrics = _metrics(removes, adds, (time.monotonic() - began) * 1000)
        shown = json.dumps([] if options.where is None else [options.where], ensure_ascii=False)
        info = CommitInfo(OPTIMIZE, {"predicate": shown, "zOrderBy": "[]"}, metrics)
        txn.stage_on(state, [*adds, *removes, info])
        return metrics

    def _candidates(
        self, txn: MultiTableTransaction, state: TableState, metadata: Metadata, where: str | None
    ) -> Snapshot:
        """Return the files that may hold rows for which a condition is true; its part on partition columns is exact."""
        predicate = parse_where(where, state)
        files = txn.files(state, predicate)
        snapshot = Snapshot.of(state, files)
        certain = predicate.partition_part() if predicate is not None else None
        if predicate is None or certain is None or not files.num_rows:
            return snapshot
        text = predicate.text if predicate.partition_only else certain.text
        chosen = exact_filter(text, metadata.schema_string, state.name)
        if chosen is not None:
            return replace(snapshot, files=files_in_partitions(snapshot, chosen))
        spark = self._spark()
        from deltasql.engines.spark.partition_filter import files_in_partitions_by_spark

        return replace(snapshot, files=files_in_partitions_by_spark(spark, snapshot, text))

    def _compacted(
        self, snapshot: Snapshot, candidates: Sequence[FileGroup], target: int, plan: FilePlan, report: Report | None
    ) -> _Compacted:
        """Rewrite groups of files until no two new files fit into one.

        Rows may need less space together than apart, so one pass can leave files that a second compaction would merge.
        """
        left, new = list(candidates), dict[tuple[int, ...], list[Add]]()
        while groups := rewrite_groups(left, target):
            indexes = [tuple(index for group in merged for index in group.indexes) for merged in groups]
            parts = [replace(snapshot, files=snapshot.files.take(pa.array(one, pa.int64()))) for one in indexes]
            done = {group.indexes for merged in groups for group in merged}
            left = [group for group in left if group.indexes not in done]
            new = {key: adds for key, adds in new.items() if key not in done}
            for key, added in zip(indexes, self._rewrite(parts, plan, report), strict=True):
                new[key] = added
                left += [FileGroup(key, partition_of(add.partition_values), add.size) for add in added]
        adds = [add for group in new.values() for add in group]
        return _Compacted([index for key in new for index in key], adds)

    def _rewrite(self, parts: Sequence[Snapshot], plan: FilePlan, report: Report | None) -> list[list[Add]]:
        if sum(sum(part.files["size"].to_pylist()) for part in parts) > _HERE_BYTES:
            from deltasql.engines.spark.frame_compact import rewrite_by_spark

            return rewrite_by_spark(self._spark(), parts, plan, report)
        adds: list[list[Add]] = []
        with ThreadPoolExecutor(min(len(parts), pa.cpu_count()), "deltasql-optimize") as pool:
            for done, found in enumerate(pool.map(lambda part: rewrite(part, self._options, plan), parts), 1):
                adds.append(found)
                if report is not None:
                    report(f"{count_files(done)} of {len(parts)}", done, len(parts))
        return adds


@dataclass(frozen=True, slots=True)
class _Compacted:
    """The indexes of the removed files, and the new files."""

    indexes: Sequence[int]
    adds: Sequence[Add]


def _check_rows(removed: pa.Table, adds: Sequence[Add], table: str) -> None:
    """Raise `StorageError` if the new files do not hold as many rows as the removed ones."""
    before = live_row_counts(removed)
    known = [count for count in before if count is not None]
    if len(known) == len(before) and sum(known) != count_rows(adds):
        raise StorageError(
            f"table {table}: files with {sum(known)} rows according to the log hold {count_rows(adds)} rows: "
            f"nothing was changed"
        )


def _metrics(removes: Sequence[Remove], adds: Sequence[Add], milliseconds: float) -> dict[str, str]:
    """Return the metrics under the names that delta-spark uses."""
    sizes = sorted(add.size for add in adds)
    found = {
        "numRemovedFiles": len(removes),
        "numAddedFiles": len(adds),
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "numAddedBytes": sum(sizes),
        "numDeletionVectorsRemoved": sum(remove.deletion_vector is not None for remove in removes),
        "minFileSize": sizes[0] if sizes else 0,
        "p50FileSize": sizes[len(sizes) // 2] if sizes else 0,
        "maxFileSize": sizes[-1] if sizes else 0,
        "executionTimeMs": int(milliseconds),
    }
    return {key: str(value) for key, value in found.items()}
