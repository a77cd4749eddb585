"""Files that lose rows are written anew without them, by Arrow in Spark's Python workers, each file by one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltasql.core.actions import Add, from_dict
from deltasql.core.fit import nullable, parse_struct
from deltasql.core.schema import loose_schema
from deltasql.data.files import FilePlan
from deltasql.data.rewrite import Rows, without_rows
from deltasql.data.statements import FILE, ROW
from deltasql.spark.target import PLACE, Target
from deltasql.store import Snapshot

_TASK, _ADD = "__deltasql_task", "__deltasql_add"
_MOST_TASKS = 1000
_TASK_BYTES = 32 << 20
"""What a task rewrites at least: starting one takes as long as rewriting a few megabytes."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A file that loses rows: what stands for it, its place in the snapshot, and how many."""

    file: int
    place: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How files of a table are written anew."""

    target: Target
    plan: FilePlan

    def drop(self, places: DataFrame, losses: Sequence[Loss]) -> list[Add]:
        """The new files of those that lose the rows at some places."""
        work = partial(_drop, self._snapshot(losses), self.plan)
        found = self._spread(places, losses).mapInArrow(work, StructType([StructField(_ADD, StringType())])).collect()
        return [_decoded(row[_ADD]) for row in found]

    def take_out(self, places: DataFrame, losses: Sequence[Loss]) -> tuple[DataFrame, list[Add]]:
        """The same, and the rows that went: held, with their places."""
        snapshot = self._snapshot(losses)
        schema = StructType.fromJson(nullable(parse_struct(snapshot.metadata.schema_string)))
        more = [StructField(FILE, LongType()), StructField(ROW, LongType()), StructField(_ADD, StringType())]
        work = partial(_take_out, snapshot, self.plan, [loss.file for loss in losses])
        held = self._spread(places, losses).mapInArrow(work, StructType([*schema, *more])).localCheckpoint()
        adds = held.where(F.col(_ADD).isNotNull()).select(_ADD).collect()
        return held.where(F.col(_ADD).isNull()).drop(_ADD), [_decoded(row[_ADD]) for row in adds]

    def _snapshot(self, losses: Sequence[Loss]) -> Snapshot:
        """Of the files that lose rows, in their order, what a task has to know."""
        snapshot = self.target.snapshot
        files = snapshot.files.take(pa.array([loss.place for loss in losses], pa.int64()))
        return replace(snapshot, files=files, predicate=None)

    def _spread(self, places: DataFrame, losses: Sequence[Loss]) -> DataFrame:
        """The numbers of rows that go, each with that of its file, where the task of that file finds them."""
        sizes = self.target.snapshot.files["size"]
        tasks = _balanced([sizes[loss.place].as_py() for loss in losses])
        numbers = [pa.array(values, pa.int32()) for values in (range(len(losses)), tasks)]
        table = pa.table(
            {FILE: pa.array([loss.file for loss in losses], pa.int64()), PLACE: numbers[0], _TASK: numbers[1]}
        )
        files = F.broadcast(self.target.spark.createDataFrame(table))
        rows = places.select(FILE, ROW).join(files, FILE).select(PLACE, ROW, _TASK)
        return rows.repartitionById(max(tasks) + 1, F.col(_TASK)).drop(_TASK)


def _decoded(text: str) -> Add:
    return from_dict(Add, msgspec.json.decode(text))


def _encoded(adds: Iterable[Add]) -> list[str]:
    return [msgspec.json.encode(add.to_dict()).decode() for add in adds]


def _balanced(sizes: Sequence[int]) -> list[int]:
    """Which task rewrites each file, so that all have about the same to do."""
    count = max(1, min(len(sizes), _MOST_TASKS, sum(sizes) // _TASK_BYTES))
    loads = [(0, task) for task in range(count)]
    tasks = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        load, tasks[place] = heappop(loads)
        heappush(loads, (load + sizes[place], tasks[place]))
    return tasks


# --- What runs in Python workers of Spark's


def _drop(snapshot: Snapshot, plan: FilePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    adds: list[Add] = []
    for place, rows in _by_file(batches):
        for _ in without_rows(_file(snapshot, place), rows, plan.options, plan, adds):
            pass
    yield pa.RecordBatch.from_arrays([pa.array(_encoded(adds), pa.string())], names=[_ADD])


def _take_out(
    snapshot: Snapshot, plan: FilePlan, files: Sequence[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    schema = loose_schema(snapshot.schema)
    names = [*schema.names, FILE, ROW, _ADD]
    adds: list[Add] = []
    for place, rows in _by_file(batches):
        for taken, numbers in without_rows(_file(snapshot, place), rows, plan.options, plan, adds):
            where = [pa.repeat(pa.scalar(files[place], pa.int64()), len(numbers)), pa.array(numbers)]
            yield pa.RecordBatch.from_arrays([*taken.columns, *where, pa.nulls(len(numbers), pa.string())], names=names)
    texts = pa.array(_encoded(adds), pa.string())
    nothing = [pa.nulls(len(texts), kind) for kind in (*schema.types, pa.int64(), pa.int64())]
    yield pa.RecordBatch.from_arrays([*nothing, texts], names=names)


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Rows]]:
    """All rows that go from a file."""
    found: dict[int, list[Any]] = {}
    for batch in batches:
        places, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        order = np.argsort(places, kind="stable")
        numbers, starts = np.unique(places[order], return_index=True)
        for place, part in zip(numbers.tolist(), np.split(rows[order], starts[1:]), strict=True):
            found.setdefault(place, []).append(part)
    return ((place, np.concatenate(parts)) for place, parts in found.items())


def _file(snapshot: Snapshot, place: int) -> Snapshot:
    return replace(snapshot, files=snapshot.files.slice(place, 1))
