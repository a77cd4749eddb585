"""Writing files anew without some of their rows, which are told by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from deltasql.core.actions import Add
from deltasql.core.schema import loose_schema
from deltasql.data.files import FilePlan, TableFiles
from deltasql.data.scan import scan
from deltasql.store import Snapshot

Rows = np.ndarray[Any, np.dtype[np.int64]]


def without_rows(
    file: Snapshot, gone: Rows, options: Mapping[str, str], plan: FilePlan, adds: list[Add]
) -> Iterator[tuple[pa.RecordBatch, Rows]]:
    """Write the other rows of a snapshot of one file to a new one, which `adds` gets; to none if there are no others.
    Those that go pass by, with their numbers."""
    numbers = np.sort(gone)
    schema = loose_schema(file.schema)
    start = 0
    with TableFiles(plan) as files:
        for rows in scan(replace(file, predicate=None), options).batches():
            batch = rows.cast(schema)
            end = start + batch.num_rows
            first, last = np.searchsorted(numbers, [start, end])
            if first < last:
                places = numbers[first:last] - start
                yield batch.take(pa.array(places)), numbers[first:last]
                stays = np.ones(batch.num_rows, bool)
                stays[places] = False
                batch = batch.filter(pa.array(stays))
            files.write(batch)
            start = end
    adds += files.adds
