"""The worker's part of a scan: read the files of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from deltasql.engines.arrow.read.scan import scan, single_file
from deltasql.engines.arrow.write.rewrite import numbered
from deltasql.engines.row_change import FILE, ROW
from deltasql.engines.spark.scan.hadoop_paths import hadoop_paths, hadoop_uri
from deltasql.protocol.schema import loose_schema
from deltasql.protocol.table_changes import Snapshot

ReadTask = Callable[[Snapshot, Mapping[str, str]], Iterator[pa.RecordBatch]]


def read_tasks(
    read: ReadTask, tasks: Sequence[Snapshot], options: Mapping[str, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the files of the tasks whose numbers are in the batches."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read(tasks[number], options)


def read_rows(task: Snapshot, options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task's files."""
    schema = loose_schema(task.schema)
    yield from (rows.cast(schema) for rows in scan(task, options).batches())


def read_rows_with_ids(task: Snapshot, options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task's files, each with the URI of its file and its row number."""
    uris = map(hadoop_uri, hadoop_paths(task.location, task.files["path"].to_pylist()))
    for index, uri in enumerate(uris):
        for rows, numbers in numbered(single_file(task, index), options):
            ids = [pa.repeat(uri, rows.num_rows), pa.array(numbers, pa.int64())]
            yield pa.RecordBatch.from_arrays([*rows.columns, *ids], names=[*rows.schema.names, FILE, ROW])
