"""Writing files anew without some of their rows, which are told by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
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


def without_rows(file: Snapshot, gone: Rows, options: Mapping[str, str], plan: FilePlan) -> list[Add]:
    """The other rows of a snapshot of one file, in a new file; in none if there are no others."""
    numbers = np.sort(gone)
    schema = loose_schema(file.schema)
    start = 0
    with TableFiles(plan) as files:
        for batch in scan(replace(file, predicate=None), options).batches():
            end = start + batch.num_rows
            first, last = np.searchsorted(numbers, [start, end])
            if first < last:
                stays = np.ones(batch.num_rows, bool)
                stays[numbers[first:last] - start] = False
                batch = batch.filter(pa.array(stays))  # noqa: PLW2901
            files.write(batch.cast(schema))
            start = end
    return files.adds
