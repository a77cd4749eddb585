"""Changing rows by Spark, copy-on-write: files that lose rows are written anew without them, new rows go to new files.

A statement is a frame of changes. Each row tells the place of a row of the table that goes (`FILE`, `ROW`), the row
that comes (`NEW`), or both, and what a user wants to see of it (`OUT`). The frame is computed once, whatever is in it,
and kept: files, counts and returned rows all come from what was kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltasql.core.actions import Add, from_dict
from deltasql.core.constraints import Constraint
from deltasql.core.fit import Fit
from deltasql.data.files import FilePlan
from deltasql.data.rewrite import without_rows
from deltasql.data.statements import ACTION, DELETE, INSERT, UPDATE, Changed, num_records
from deltasql.errors import StorageError, UsageError, ValidationError
from deltasql.progress import Report
from deltasql.spark.paths import hadoop_paths, hadoop_uri
from deltasql.spark.places import FILE, ROW, file_id
from deltasql.spark.watching import watched
from deltasql.spark.write import FrameWrite, explained, usual_width
from deltasql.store import Snapshot

NEW, OUT = "__deltasql_new", "__deltasql_out"
PROBLEM = "__deltasql_problem"
"""What is wrong with a new row, if anything can be."""

_PLACE, _TASK = "__deltasql_place", "__deltasql_task"
_MOST_TASKS = 1000
_REWRITE_BYTES = 32 << 20
"""What a task rewrites at least: starting one takes as long as rewriting a few megabytes."""
_PLACES = pa.schema([(FILE, pa.string()), (_PLACE, pa.int32())])
# A task that writes new rows should have this much to write, or there would be a small file from each.
_TASK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class _Loss:
    """A file that loses rows: what stands for it, its place in the snapshot, and how many."""

    file: int
    place: int
    rows: int


@dataclass(frozen=True, slots=True)
class RowChanges:
    """How the changes of one statement are made."""

    spark: SparkSession
    snapshot: Snapshot
    plan: FilePlan
    fit: Fit
    rules: Sequence[Constraint]
    report: Report | None = None

    def make(self, changes: DataFrame, *, once: bool) -> Changed:
        """Write the files. `once` says that no row can be in there twice, which otherwise is refused."""
        with watched(self.spark, self.report), explained():
            held = changes.localCheckpoint()
            losses, counts = self._count(held, once=once)
            kept = self._rewrite(held, losses)
        added = self._add(held, counts) if NEW in held.columns else []
        gone = self.snapshot.files.take(pa.array(sorted(loss.place for loss in losses), pa.int64()))
        returned = held.select(f"{OUT}.*") if OUT in held.columns else None
        return Changed(gone, kept, added, counts, returned=returned)

    def _count(self, held: DataFrame, *, once: bool) -> tuple[list[_Loss], dict[str, int]]:
        """How many rows each file loses, and how many rows there are of each action."""
        actions = [F.count_if(F.col(ACTION) == action).alias(action) for action in (UPDATE, DELETE, INSERT)]
        distinct = [] if once else [F.count_distinct(F.col(ROW)).alias("rows")]
        problem = [F.min(PROBLEM).alias(PROBLEM)] if PROBLEM in held.columns else []
        found = held.groupBy(FILE).agg(*actions, *distinct, *problem)
        rows = found.join(F.broadcast(self._places()), FILE, "left").collect()
        for row in rows if problem else ():
            if row[PROBLEM] is not None:
                raise ValidationError(
                    f"table {self.snapshot.name}: {row[PROBLEM]}, so nothing was changed: give a value that fits",
                    table=self.snapshot.name,
                )
        told = [row for row in rows if row[FILE] is not None]
        if len({row[FILE] for row in told}) < len(told) or any(row[_PLACE] is None for row in told):
            raise StorageError(
                f"table {self.snapshot.name}: rows of files that cannot be told apart: nothing was changed"
            )
        if not once and any(row["rows"] < row[UPDATE] + row[DELETE] for row in told):
            self._refuse_twice(held)
        losses = [_Loss(row[FILE], row[_PLACE], row[UPDATE] + row[DELETE]) for row in told]
        return losses, {action: sum(row[action] for row in rows) for action in (UPDATE, DELETE, INSERT)}

    def _places(self) -> DataFrame:
        """The place in the snapshot of each file."""
        paths = hadoop_paths(self.snapshot.location, self.snapshot.files["path"].to_pylist())
        table = pa.table({FILE: list(map(hadoop_uri, paths)), _PLACE: pa.array(range(len(paths)), pa.int32())})
        return self.spark.createDataFrame(table.cast(_PLACES)).withColumn(FILE, file_id(F.col(FILE)))

    def _refuse_twice(self, held: DataFrame) -> None:
        twice = held.where(F.col(FILE).isNotNull()).groupBy(FILE, ROW).count().where("count > 1").count()
        raise UsageError(
            f"table {self.snapshot.name}: {twice} rows match several rows of the source, and which of them counts "
            f"would be chance, so nothing was changed: make the source unique by what it is joined on (and values "
            f"single ones)",
            table=self.snapshot.name,
        )

    # --- Rows that stay

    def _rewrite(self, held: DataFrame, losses: Sequence[_Loss]) -> list[Add]:
        """A file whose rows all go is not written again. The others are, each by a task of its own."""
        stats = self.snapshot.files["stats"]
        some = [loss for loss in losses if loss.rows != num_records(stats[loss.place].as_py())]
        if not some:
            return []
        files = self.snapshot.files.take(pa.array([loss.place for loss in some], pa.int64()))
        tasks = _spread(files["size"].to_pylist())
        ids = pa.array([loss.file for loss in some], pa.int64())
        numbers = [pa.array(values, pa.int32()) for values in (range(len(some)), tasks)]
        table = pa.table({FILE: ids, _PLACE: numbers[0], _TASK: numbers[1]})
        places = F.broadcast(self.spark.createDataFrame(table))
        rows = held.select(FILE, ROW).join(places, FILE).select(_PLACE, ROW, _TASK)
        spread = rows.repartitionById(max(tasks) + 1, F.col(_TASK)).drop(_TASK)
        work = partial(_rewrite_files, replace(self.snapshot, files=files, predicate=None), self.plan)
        found = spread.mapInArrow(work, "add string").collect()
        return [from_dict(Add, msgspec.json.decode(row["add"])) for row in found]

    # --- Rows that come

    def _add(self, held: DataFrame, counts: Mapping[str, int]) -> list[Add]:
        coming = counts[UPDATE] + counts[INSERT]
        if not coming:
            return []
        rows = held.where(F.col(NEW).isNotNull()).select(f"{NEW}.*")
        tasks = int(coming * usual_width(self.fit) / _TASK_BYTES) + 1
        return FrameWrite(self.snapshot.name, self.plan, self.fit, self.rules, self.report).run(rows.coalesce(tasks))


def _spread(sizes: Sequence[int]) -> list[int]:
    """Which task rewrites each file, so that all have about the same to do."""
    count = max(1, min(len(sizes), _MOST_TASKS, sum(sizes) // _REWRITE_BYTES))
    loads = [(0, task) for task in range(count)]
    tasks = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        load, tasks[place] = heappop(loads)
        heappush(loads, (load + sizes[place], tasks[place]))
    return tasks


def _rewrite_files(snapshot: Snapshot, plan: FilePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker of Spark's: all rows that go from some files, which are written without them."""
    found: dict[int, list[Any]] = {}
    for batch in batches:
        places, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        order = np.argsort(places, kind="stable")
        numbers, starts = np.unique(places[order], return_index=True)
        for place, part in zip(numbers.tolist(), np.split(rows[order], starts[1:]), strict=True):
            found.setdefault(place, []).append(part)
    texts = []
    for place, parts in found.items():
        file = replace(snapshot, files=snapshot.files.slice(place, 1))
        adds = without_rows(file, np.concatenate(parts), plan.options, plan)
        texts += [msgspec.json.encode(add.to_dict()).decode() for add in adds]
    yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["add"])
