"""Remove rows from files: rewrite the files with Arrow in Spark's Python workers, or give them deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltasql.engines.arrow.write.deletion_vector_write import (
    RewriteResult,
    can_use_vector,
    extended_vectors,
    live_row_counts,
    write_vectors,
)
from deltasql.engines.arrow.write.file_writer import FilePlan, decode_add
from deltasql.engines.arrow.write.rewrite import Rows
from deltasql.engines.row_change import FILE, ROW
from deltasql.engines.spark.dml.dml_target import TargetTable
from deltasql.engines.spark.frame_write import collected_files
from deltasql.engines.spark.held_rows import hold
from deltasql.engines.spark.worker.rewrite_task import (
    ADD,
    FILE_INDEX,
    RowExtraction,
    extend_vectors,
    remove_rows,
    rows_by_file,
)
from deltasql.protocol.actions import Add
from deltasql.protocol.deletion_vectors import bitmap_of
from deltasql.protocol.schema_fit import nullable, parse_struct
from deltasql.protocol.table_changes import Snapshot

_TASK = "__deltasql_task"
_MOST_TASKS = 1000
_MOST_IDS_ON_DRIVER = 1_000_000
"""The number of row ids that the driver collects at most."""
_MOST_ROWS_ON_DRIVER, _MOST_BYTES_ON_DRIVER = 10_000, 256 << 20
"""The number of rows that the driver extracts at most, and the size of the files that it reads for this."""
_TASK_BYTES = 32 << 20
"""The minimum that a task rewrites: starting a task takes as long as rewriting a few megabytes."""


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """A file that loses rows: its id, its index in the snapshot, and the number of rows."""

    file_id: int
    file_index: int
    count: int


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Removes rows from the files of a table."""

    target: TargetTable
    plan: FilePlan

    def remove(self, row_ids: DataFrame, removals: Sequence[RemovedRows]) -> RewriteResult:
        """Remove rows by their ids and return the files that replace theirs; a file without rows is not replaced."""
        marked, rewritten = self._split(removals)
        result = self._mark(row_ids, removals, marked) if marked else RewriteResult()
        return replace(result, rewritten=self.drop(row_ids, rewritten) if rewritten else [])

    def extract(self, row_ids: DataFrame, removals: Sequence[RemovedRows]) -> tuple[DataFrame, RewriteResult]:
        """Remove rows by their ids; return the rows with their ids as well."""
        marked, _ = self._split(removals)
        marked_ids = frozenset(lost.file_id for lost in marked)
        if self._is_small(removals):
            rows = _rows_of_files(row_ids)
            taken, kept = self._extract_on_driver(rows, removals, marked_ids)
            result = self._mark_on_driver(rows, marked) if marked else RewriteResult()
        else:
            taken, kept = self._extract(row_ids, removals, marked_ids)
            result = self._mark(row_ids, removals, marked) if marked else RewriteResult()
        return taken, replace(result, rewritten=kept)

    def _is_small(self, removals: Sequence[RemovedRows]) -> bool:
        """Return whether the driver does it faster than tasks would start."""
        sizes = self.target.snapshot.files["size"]
        size = sum(sizes[lost.file_index].as_py() for lost in removals)
        return size <= _MOST_BYTES_ON_DRIVER and sum(lost.count for lost in removals) <= _MOST_ROWS_ON_DRIVER

    def _split(self, removals: Sequence[RemovedRows]) -> tuple[list[RemovedRows], list[RemovedRows]]:
        """Return the files that get deletion vectors, and the files that are rewritten."""
        files, most = self.target.snapshot.files, self.target.most_marked
        counts = live_row_counts(files)
        some = [lost for lost in removals if lost.count != counts[lost.file_index]]
        marked = {
            lost.file_index for lost in some if most > 0 and can_use_vector(files, lost.file_index, lost.count, most)
        }
        return [lost for lost in some if lost.file_index in marked], [
            lost for lost in some if lost.file_index not in marked
        ]

    def _mark(
        self, row_ids: DataFrame, removals: Sequence[RemovedRows], marked: Sequence[RemovedRows]
    ) -> RewriteResult:
        if sum(lost.count for lost in removals) <= _MOST_IDS_ON_DRIVER:
            return self._mark_on_driver(_rows_of_files(row_ids), marked)
        snapshot = self._snapshot(marked)
        work = partial(extend_vectors, snapshot, self.plan.options)
        schema = f"{FILE_INDEX} int, data binary, rows bigint"
        found = self._sent_to_tasks(row_ids, marked).mapInArrow(work, schema).collect()
        vectors = {row[FILE_INDEX]: (bytes(row["data"]), row["rows"]) for row in found}
        return write_vectors(snapshot, vectors, self.plan)

    def _mark_on_driver(self, rows: Mapping[int, Rows], marked: Sequence[RemovedRows]) -> RewriteResult:
        snapshot = self._snapshot(marked)
        removed = {index: bitmap_of(rows[lost.file_id]) for index, lost in enumerate(marked)}
        return write_vectors(snapshot, extended_vectors(snapshot, removed, self.plan.options), self.plan)

    def drop(self, row_ids: DataFrame, removals: Sequence[RemovedRows]) -> list[Add]:
        """Rewrite files without the rows of the given ids."""
        work = partial(remove_rows, self._snapshot(removals), self.plan)
        with collected_files(self.plan) as adds:
            spread = self._sent_to_tasks(row_ids, removals)
            found = spread.mapInArrow(work, StructType([StructField(ADD, StringType())])).collect()
            adds += [decode_add(row[ADD]) for row in found]
        return adds

    def _extract(
        self, row_ids: DataFrame, removals: Sequence[RemovedRows], marked_ids: frozenset[int]
    ) -> tuple[DataFrame, list[Add]]:
        """Extract rows in tasks; return them, and the new files of those that are rewritten."""
        extraction = self._extraction(removals, marked_ids)
        schema = self._extracted_schema().add(ADD, StringType())
        with collected_files(self.plan) as adds:
            held = hold(self._sent_to_tasks(row_ids, removals).mapInArrow(extraction.run_task, schema))
            found = held.where(F.col(ADD).isNotNull()).select(ADD).collect()
            adds += [decode_add(row[ADD]) for row in found]
        return held.where(F.col(ADD).isNull()).drop(ADD), adds

    def _extract_on_driver(
        self, rows: Mapping[int, Rows], removals: Sequence[RemovedRows], marked_ids: frozenset[int]
    ) -> tuple[DataFrame, list[Add]]:
        """Extract rows in threads of the driver."""
        extraction = self._extraction(removals, marked_ids)

        def of_file(index: int) -> tuple[list[pa.RecordBatch], list[Add]]:
            adds: list[Add] = []
            return list(extraction.from_file(index, rows[removals[index].file_id], adds)), adds

        with ThreadPoolExecutor(min(len(removals), pa.cpu_count()), "deltasql-rows") as pool:
            found = list(pool.map(of_file, range(len(removals))))
        table = pa.Table.from_batches([batch for batches, _ in found for batch in batches])
        taken = self.target.spark.createDataFrame(table, self._extracted_schema())
        return taken, [add for _, adds in found for add in adds]

    def _extraction(self, removals: Sequence[RemovedRows], marked_ids: frozenset[int]) -> RowExtraction:
        return RowExtraction(self._snapshot(removals), self.plan, [lost.file_id for lost in removals], marked_ids)

    def _extracted_schema(self) -> StructType:
        schema = StructType.fromJson(nullable(parse_struct(self.target.snapshot.metadata.schema_string)))
        return schema.add(FILE, LongType()).add(ROW, LongType())

    def _snapshot(self, removals: Sequence[RemovedRows]) -> Snapshot:
        """Return the snapshot with only the files that lose rows, in the order of the removals."""
        snapshot = self.target.snapshot
        files = snapshot.files.take(pa.array([lost.file_index for lost in removals], pa.int64()))
        return replace(snapshot, files=files, predicate=None)

    def _sent_to_tasks(self, row_ids: DataFrame, removals: Sequence[RemovedRows]) -> DataFrame:
        """Send the row numbers and file indexes of removed rows to the tasks of their files."""
        sizes = self.target.snapshot.files["size"]
        tasks = _balanced([sizes[lost.file_index].as_py() for lost in removals])
        rows = self._numbered(row_ids, removals, tasks)
        return rows.repartitionById(max(tasks) + 1, F.col(_TASK)).drop(_TASK)

    def _numbered(self, row_ids: DataFrame, removals: Sequence[RemovedRows], tasks: Sequence[int]) -> DataFrame:
        """Return row numbers with the index of the file among the removals and with its task."""
        ids = pa.array([lost.file_id for lost in removals], pa.int64())
        numbers = [pa.array(values, pa.int32()) for values in (range(len(removals)), tasks)]
        table = pa.table({FILE: ids, FILE_INDEX: numbers[0], _TASK: numbers[1]})
        files = F.broadcast(self.target.spark.createDataFrame(table))
        return row_ids.select(FILE, ROW).join(files, FILE).select(FILE_INDEX, ROW, _TASK)


def _rows_of_files(row_ids: DataFrame) -> dict[int, Rows]:
    """Return the numbers of the removed rows of each file."""
    rows = row_ids.where(F.col(FILE).isNotNull()).select(FILE, ROW).toArrow()
    return dict(rows_by_file(rows.to_batches()))


def _balanced(sizes: Sequence[int]) -> list[int]:
    """Return the task of each file, so that all tasks rewrite about the same number of bytes."""
    count = max(1, min(len(sizes), _MOST_TASKS, sum(sizes) // _TASK_BYTES))
    loads = [(0, task) for task in range(count)]
    tasks = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        load, tasks[index] = heappop(loads)
        heappush(loads, (load + sizes[index], tasks[index]))
    return tasks
