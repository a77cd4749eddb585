"""Files that lose rows are written anew without them, by Arrow in Spark's Python workers, each file by one task; or
they stay, and get deletion vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltasql.core.actions import Add
from deltasql.core.deletion_vectors import bitmap_of
from deltasql.core.fit import nullable, parse_struct
from deltasql.core.schema import loose_schema
from deltasql.data.files import FilePlan, as_texts, from_text
from deltasql.data.marking import Remains, is_marked, live_rows, mark, widened
from deltasql.data.rewrite import Rows, picked, without_rows
from deltasql.data.statements import FILE, ROW
from deltasql.spark.target import PLACE, Target
from deltasql.store import Snapshot

_TASK, _ADD = "__deltasql_task", "__deltasql_add"
_MOST_TASKS = 1000
_MOST_ON_DRIVER = 1_000_000
"""Rows whose numbers are brought together in this process."""
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
    """How files of a table lose rows."""

    target: Target
    plan: FilePlan

    def remove(self, places: DataFrame, losses: Sequence[Loss]) -> Remains:
        """What is left of files that lose the rows at some places; of one that loses all of them, nothing."""
        marked, others = self._parted(losses)
        remains = self._mark(places, marked) if marked else Remains()
        return replace(remains, kept=self.drop(places, others) if others else [])

    def take_out(self, places: DataFrame, losses: Sequence[Loss]) -> tuple[DataFrame, Remains]:
        """The same, and the rows that went: held, with their places."""
        marked, _ = self._parted(losses)
        taken, kept = self._take_out(places, losses, frozenset(loss.file for loss in marked))
        remains = self._mark(places, marked) if marked else Remains()
        return taken, replace(remains, kept=kept)

    def _parted(self, losses: Sequence[Loss]) -> tuple[list[Loss], list[Loss]]:
        """Files that stay, and others that lose some of their rows."""
        files, most = self.target.snapshot.files, self.target.most_marked
        counts = live_rows(files)
        some = [loss for loss in losses if loss.rows != counts[loss.place]]
        marked = {loss.place for loss in some if most > 0 and is_marked(files, loss.place, loss.rows, most)}
        return [loss for loss in some if loss.place in marked], [loss for loss in some if loss.place not in marked]

    def _mark(self, places: DataFrame, losses: Sequence[Loss]) -> Remains:
        snapshot = self._snapshot(losses)
        if sum(loss.rows for loss in losses) <= _MOST_ON_DRIVER:
            rows = self._numbered(places, losses, [0] * len(losses)).drop(_TASK).toArrow().to_batches()
            vectors = _vectors(snapshot, self.plan.options, rows)
        else:
            work = partial(_widen, snapshot, self.plan.options)
            schema = f"{PLACE} int, data binary, rows bigint"
            found = self._spread(places, losses).mapInArrow(work, schema).collect()
            vectors = {row[PLACE]: (bytes(row["data"]), row["rows"]) for row in found}
        return mark(snapshot, vectors, self.plan.options)

    def drop(self, places: DataFrame, losses: Sequence[Loss]) -> list[Add]:
        """The new files of those that lose the rows at some places."""
        work = partial(_drop, self._snapshot(losses), self.plan)
        found = self._spread(places, losses).mapInArrow(work, StructType([StructField(_ADD, StringType())])).collect()
        return [from_text(row[_ADD]) for row in found]

    def _take_out(
        self, places: DataFrame, losses: Sequence[Loss], staying: frozenset[int]
    ) -> tuple[DataFrame, list[Add]]:
        """The new files of those that do not stay, and the rows that go of all of them."""
        snapshot = self._snapshot(losses)
        schema = StructType.fromJson(nullable(parse_struct(snapshot.metadata.schema_string)))
        more = [StructField(FILE, LongType()), StructField(ROW, LongType()), StructField(_ADD, StringType())]
        work = partial(_take_out, snapshot, self.plan, [loss.file for loss in losses], staying)
        held = self._spread(places, losses).mapInArrow(work, StructType([*schema, *more])).localCheckpoint()
        adds = held.where(F.col(_ADD).isNotNull()).select(_ADD).collect()
        return held.where(F.col(_ADD).isNull()).drop(_ADD), [from_text(row[_ADD]) for row in adds]

    def _snapshot(self, losses: Sequence[Loss]) -> Snapshot:
        """Of the files that lose rows, in their order, what a task has to know."""
        snapshot = self.target.snapshot
        files = snapshot.files.take(pa.array([loss.place for loss in losses], pa.int64()))
        return replace(snapshot, files=files, predicate=None)

    def _spread(self, places: DataFrame, losses: Sequence[Loss]) -> DataFrame:
        """The numbers of rows that go, each with that of its file, where the task of that file finds them."""
        sizes = self.target.snapshot.files["size"]
        tasks = _balanced([sizes[loss.place].as_py() for loss in losses])
        rows = self._numbered(places, losses, tasks)
        return rows.repartitionById(max(tasks) + 1, F.col(_TASK)).drop(_TASK)

    def _numbered(self, places: DataFrame, losses: Sequence[Loss], tasks: Sequence[int]) -> DataFrame:
        """The rows of some files, each with the place of its file among them and with its task."""
        numbers = [pa.array(values, pa.int32()) for values in (range(len(losses)), tasks)]
        table = pa.table(
            {FILE: pa.array([loss.file for loss in losses], pa.int64()), PLACE: numbers[0], _TASK: numbers[1]}
        )
        files = F.broadcast(self.target.spark.createDataFrame(table))
        return places.select(FILE, ROW).join(files, FILE).select(PLACE, ROW, _TASK)


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
    yield pa.RecordBatch.from_arrays([pa.array(as_texts(adds), pa.string())], names=[_ADD])


def _vectors(
    snapshot: Snapshot, options: Mapping[str, str], batches: Iterable[pa.RecordBatch]
) -> dict[int, tuple[bytes, int]]:
    rows = {place: bitmap_of(numbers) for place, numbers in _by_file(batches)}
    return widened(snapshot, rows, options)


def _widen(
    snapshot: Snapshot, options: Mapping[str, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    found = _vectors(snapshot, options, batches)
    data, counts = [data for data, _ in found.values()], [count for _, count in found.values()]
    arrays = [pa.array(list(found), pa.int32()), pa.array(data, pa.binary()), pa.array(counts, pa.int64())]
    yield pa.RecordBatch.from_arrays(arrays, names=[PLACE, "data", "rows"])


def _take_out(
    snapshot: Snapshot,
    plan: FilePlan,
    files: Sequence[int],
    staying: frozenset[int],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    schema = loose_schema(snapshot.schema)
    names = [*schema.names, FILE, ROW, _ADD]
    adds: list[Add] = []
    for place, rows in _by_file(batches):
        file = _file(snapshot, place)
        if files[place] in staying:
            found = picked(file, rows, plan.options)
        else:
            found = without_rows(file, rows, plan.options, plan, adds)
        for taken, numbers in found:
            where = [pa.repeat(pa.scalar(files[place], pa.int64()), len(numbers)), pa.array(numbers)]
            yield pa.RecordBatch.from_arrays([*taken.columns, *where, pa.nulls(len(numbers), pa.string())], names=names)
    texts = pa.array(as_texts(adds), pa.string())
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
