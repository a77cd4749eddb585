"""Files that lose rows are written anew without them, by Arrow in Spark's Python workers, each file by one task; or
they stay, and get deletion vectors."""

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
_MOST_ON_DRIVER = 1_000_000
"""Rows whose numbers are brought together in this process."""
_MOST_TAKEN_HERE, _MOST_READ_HERE = 10_000, 256 << 20
"""Rows that are taken out of files in this process, and the size of these."""
_TASK_BYTES = 32 << 20
"""What a task rewrites at least: starting one takes as long as rewriting a few megabytes."""


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """A file that loses rows: what stands for it, its place in the snapshot, and how many."""

    file_id: int
    file_index: int
    count: int


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How files of a table lose rows."""

    target: TargetTable
    plan: FilePlan

    def remove(self, places: DataFrame, removals: Sequence[RemovedRows]) -> RewriteResult:
        """What is left of files that lose the rows at some places; of one that loses all of them, nothing."""
        marked, others = self._parted(removals)
        result = self._mark(places, removals, marked) if marked else RewriteResult()
        return replace(result, rewritten=self.drop(places, others) if others else [])

    def take_out(self, places: DataFrame, removals: Sequence[RemovedRows]) -> tuple[DataFrame, RewriteResult]:
        """The same, and the rows that went: held, with their places."""
        marked, _ = self._parted(removals)
        staying = frozenset(lost.file_id for lost in marked)
        if self._is_little(removals):
            rows = _collected(places)
            taken, kept = self._take_out_here(rows, removals, staying)
            result = self._mark_here(rows, marked) if marked else RewriteResult()
        else:
            taken, kept = self._take_out(places, removals, staying)
            result = self._mark(places, removals, marked) if marked else RewriteResult()
        return taken, replace(result, rewritten=kept)

    def _is_little(self, removals: Sequence[RemovedRows]) -> bool:
        """Is it done before tasks would have begun?"""
        sizes = self.target.snapshot.files["size"]
        size = sum(sizes[lost.file_index].as_py() for lost in removals)
        return size <= _MOST_READ_HERE and sum(lost.count for lost in removals) <= _MOST_TAKEN_HERE

    def _parted(self, removals: Sequence[RemovedRows]) -> tuple[list[RemovedRows], list[RemovedRows]]:
        """Files that stay, and others that lose some of their rows."""
        files, most = self.target.snapshot.files, self.target.most_marked
        counts = live_row_counts(files)
        some = [lost for lost in removals if lost.count != counts[lost.file_index]]
        marked = {
            lost.file_index for lost in some if most > 0 and can_use_vector(files, lost.file_index, lost.count, most)
        }
        return [lost for lost in some if lost.file_index in marked], [
            lost for lost in some if lost.file_index not in marked
        ]

    def _mark(self, places: DataFrame, removals: Sequence[RemovedRows], marked: Sequence[RemovedRows]) -> RewriteResult:
        if sum(lost.count for lost in removals) <= _MOST_ON_DRIVER:
            return self._mark_here(_collected(places), marked)
        snapshot = self._snapshot(marked)
        work = partial(extend_vectors, snapshot, self.plan.options)
        schema = f"{FILE_INDEX} int, data binary, rows bigint"
        found = self._spread(places, marked).mapInArrow(work, schema).collect()
        vectors = {row[FILE_INDEX]: (bytes(row["data"]), row["rows"]) for row in found}
        return write_vectors(snapshot, vectors, self.plan)

    def _mark_here(self, rows: Mapping[int, Rows], marked: Sequence[RemovedRows]) -> RewriteResult:
        snapshot = self._snapshot(marked)
        gone = {index: bitmap_of(rows[lost.file_id]) for index, lost in enumerate(marked)}
        return write_vectors(snapshot, extended_vectors(snapshot, gone, self.plan.options), self.plan)

    def drop(self, places: DataFrame, removals: Sequence[RemovedRows]) -> list[Add]:
        """The new files of those that lose the rows at some places."""
        work = partial(remove_rows, self._snapshot(removals), self.plan)
        with collected_files(self.plan) as adds:
            spread = self._spread(places, removals)
            found = spread.mapInArrow(work, StructType([StructField(ADD, StringType())])).collect()
            adds += [decode_add(row[ADD]) for row in found]
        return adds

    def _take_out(
        self, places: DataFrame, removals: Sequence[RemovedRows], staying: frozenset[int]
    ) -> tuple[DataFrame, list[Add]]:
        """The rows that go, and the new files of those that do not stay."""
        taking = self._taking(removals, staying)
        schema = self._taken_schema().add(ADD, StringType())
        with collected_files(self.plan) as adds:
            held = self._spread(places, removals).mapInArrow(taking.run_task, schema).localCheckpoint()
            found = held.where(F.col(ADD).isNotNull()).select(ADD).collect()
            adds += [decode_add(row[ADD]) for row in found]
        return held.where(F.col(ADD).isNull()).drop(ADD), adds

    def _take_out_here(
        self, rows: Mapping[int, Rows], removals: Sequence[RemovedRows], staying: frozenset[int]
    ) -> tuple[DataFrame, list[Add]]:
        """The same by threads of this process."""
        taking = self._taking(removals, staying)

        def of_file(place: int) -> tuple[list[pa.RecordBatch], list[Add]]:
            adds: list[Add] = []
            return list(taking.from_file(place, rows[removals[place].file_id], adds)), adds

        with ThreadPoolExecutor(min(len(removals), pa.cpu_count()), "deltasql-rows") as pool:
            found = list(pool.map(of_file, range(len(removals))))
        table = pa.Table.from_batches([batch for batches, _ in found for batch in batches])
        taken = self.target.spark.createDataFrame(table, self._taken_schema())
        return taken, [add for _, adds in found for add in adds]

    def _taking(self, removals: Sequence[RemovedRows], staying: frozenset[int]) -> RowExtraction:
        return RowExtraction(self._snapshot(removals), self.plan, [lost.file_id for lost in removals], staying)

    def _taken_schema(self) -> StructType:
        schema = StructType.fromJson(nullable(parse_struct(self.target.snapshot.metadata.schema_string)))
        return schema.add(FILE, LongType()).add(ROW, LongType())

    def _snapshot(self, removals: Sequence[RemovedRows]) -> Snapshot:
        """Of the files that lose rows, in their order, what a task has to know."""
        snapshot = self.target.snapshot
        files = snapshot.files.take(pa.array([lost.file_index for lost in removals], pa.int64()))
        return replace(snapshot, files=files, predicate=None)

    def _spread(self, places: DataFrame, removals: Sequence[RemovedRows]) -> DataFrame:
        """The numbers of rows that go, each with that of its file, where the task of that file finds them."""
        sizes = self.target.snapshot.files["size"]
        tasks = _balanced([sizes[lost.file_index].as_py() for lost in removals])
        rows = self._numbered(places, removals, tasks)
        return rows.repartitionById(max(tasks) + 1, F.col(_TASK)).drop(_TASK)

    def _numbered(self, places: DataFrame, removals: Sequence[RemovedRows], tasks: Sequence[int]) -> DataFrame:
        """The rows of some files, each with the place of its file among them and with its task."""
        ids = pa.array([lost.file_id for lost in removals], pa.int64())
        numbers = [pa.array(values, pa.int32()) for values in (range(len(removals)), tasks)]
        table = pa.table({FILE: ids, FILE_INDEX: numbers[0], _TASK: numbers[1]})
        files = F.broadcast(self.target.spark.createDataFrame(table))
        return places.select(FILE, ROW).join(files, FILE).select(FILE_INDEX, ROW, _TASK)


def _collected(places: DataFrame) -> dict[int, Rows]:
    """The numbers of the rows that go from each file."""
    rows = places.where(F.col(FILE).isNotNull()).select(FILE, ROW).toArrow()
    return dict(rows_by_file(rows.to_batches()))


def _balanced(sizes: Sequence[int]) -> list[int]:
    """Which task rewrites each file, so that all have about the same to do."""
    count = max(1, min(len(sizes), _MOST_TASKS, sum(sizes) // _TASK_BYTES))
    loads = [(0, task) for task in range(count)]
    tasks = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        load, tasks[place] = heappop(loads)
        heappush(loads, (load + sizes[place], tasks[place]))
    return tasks
