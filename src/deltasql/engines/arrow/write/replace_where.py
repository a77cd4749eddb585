"""Taking rows out of files without Spark: a file whose rows all go is dropped, one that loses some is written anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.constraint_checks import mask_of
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles
from deltasql.protocol.actions import Add
from deltasql.protocol.partition_values import partition_scalar
from deltasql.store import Snapshot

if TYPE_CHECKING:
    from deltasql.expressions.row_filter import RowFilter


@dataclass(frozen=True, slots=True)
class ReplaceWhereResult:
    """What is left of files after rows were taken out."""

    removed: pa.Table
    """The files that held such rows, as a snapshot has them."""
    rewritten: list[Add]
    """New files with the other rows of those."""


def files_in_partitions(snapshot: Snapshot, goes: RowFilter) -> pa.Table:
    """By a condition on partition columns: files go as a whole, and none is read."""
    columns = snapshot.metadata.partition_columns
    fields = [snapshot.schema.field(name) for name in columns]
    values = snapshot.files["partition_values"].to_pylist()
    arrays = [pa.array([_value(v, f) for v in values], f.type) for f in fields]
    # The last column is for conditions that use none, such as TRUE: it tells how many files there are.
    batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(values))], names=[*columns, ""])
    return snapshot.files.filter(pc.fill_null(mask_of(goes, batch), False))


def _value(values: Mapping[str, str | None], field: pa.Field) -> pa.Scalar:
    return partition_scalar(values[field.name], field.type)


def remove_matching_rows(
    snapshot: Snapshot, options: Mapping[str, str], goes: RowFilter, plan: FilePlan
) -> ReplaceWhereResult:
    """By any condition that is certain without Spark, which is the snapshot's."""
    touched = []
    with TableFiles(plan) as files:
        for one in _each(snapshot):
            if _count(one, options) == 0:
                continue
            touched.append(one.files)
            for batch in scan(replace(one, predicate=None), options).batches():
                stays = pc.invert(pc.fill_null(mask_of(goes, batch), False))
                files.write(_loose(batch.filter(stays)))
    return ReplaceWhereResult(pa.concat_tables([snapshot.files.slice(0, 0), *touched]), files.adds)


def _each(snapshot: Snapshot) -> Iterator[Snapshot]:
    for place in range(snapshot.files.num_rows):
        yield replace(snapshot, files=snapshot.files.slice(place, 1))


def _count(snapshot: Snapshot, options: Mapping[str, str]) -> int:
    """How many rows a condition is true for; only its columns are read."""
    return sum(batch.num_rows for batch in scan(snapshot, options, snapshot.schema.names[:1]).batches())


def _loose(batch: pa.RecordBatch) -> pa.RecordBatch:
    from deltasql.protocol.schema import loose_schema

    return batch.cast(loose_schema(batch.schema))
