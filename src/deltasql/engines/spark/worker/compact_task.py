"""The worker's part of compaction: rewrite a group of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from deltasql.engines.arrow.write.compact import rewrite
from deltasql.engines.arrow.write.file_writer import FilePlan, encode_adds
from deltasql.protocol.table_changes import Snapshot


def compact_groups(
    groups: Sequence[Snapshot], plan: FilePlan, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rewrite the groups of files whose numbers are in the batches, and yield the new files of each."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            texts = encode_adds(rewrite(groups[number], plan.options, plan))
            columns = [pa.array([number] * len(texts), pa.int32()), pa.array(texts, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, names=["part", "add"])
