"""Remove the rows that match a condition without Spark, for `overwrite(where=...)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engines.arrow.read.scan import scan, single_file
from deltasql.engines.arrow.write.constraint_checks import mask_of
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles
from deltasql.protocol.actions import Add
from deltasql.protocol.partition_values import partition_scalar
from deltasql.protocol.schema import loose_schema
from deltasql.protocol.table_changes import Snapshot

if TYPE_CHECKING:
    from deltasql.expressions.row_filter import RowFilter


@dataclass(frozen=True, slots=True)
class ReplaceWhereResult:
    """The files before and after the removal of rows."""

    removed: pa.Table
    """The files that held matching rows, in the columns of a snapshot."""
    rewritten: list[Add]
    """New files with their retained rows."""


def files_in_partitions(snapshot: Snapshot, condition: RowFilter) -> pa.Table:
    """Return the files whose partition values satisfy a condition. No file is read."""
    columns = snapshot.metadata.partition_columns
    fields = [snapshot.schema.field(name) for name in columns]
    values = snapshot.files["partition_values"].to_pylist()
    arrays = [pa.array([_value(v, f) for v in values], f.type) for f in fields]
    # The last column gives the batch its length for conditions without columns, such as TRUE.
    batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(values))], names=[*columns, ""])
    return snapshot.files.filter(pc.fill_null(mask_of(condition, batch), False))


def _value(values: Mapping[str, str | None], field: pa.Field) -> pa.Scalar:
    return partition_scalar(values[field.name], field.type)


def remove_matching_rows(
    snapshot: Snapshot, options: Mapping[str, str], condition: RowFilter, plan: FilePlan
) -> ReplaceWhereResult:
    """Rewrite the files that hold matching rows without these rows. The snapshot's predicate is the same condition."""
    touched = []
    with TableFiles(plan) as files:
        for file in _single_files(snapshot):
            if _count_matches(file, options) == 0:
                continue
            touched.append(file.files)
            for batch in scan(replace(file, predicate=None), options).batches():
                retained = pc.invert(pc.fill_null(mask_of(condition, batch), False))
                files.write(_loose(batch.filter(retained)))
    return ReplaceWhereResult(pa.concat_tables([snapshot.files.slice(0, 0), *touched]), files.adds)


def _single_files(snapshot: Snapshot) -> Iterator[Snapshot]:
    return (single_file(snapshot, index) for index in range(snapshot.files.num_rows))


def _count_matches(snapshot: Snapshot, options: Mapping[str, str]) -> int:
    """Return the number of rows that match the predicate; only its columns are read."""
    return sum(batch.num_rows for batch in scan(snapshot, options, snapshot.schema.names[:1]).batches())


def _loose(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.cast(loose_schema(batch.schema))
