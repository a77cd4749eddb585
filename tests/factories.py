"""Factories of actions."""

from __future__ import annotations

import json
import uuid
from typing import Any

from deltasql import Add, Remove


def add(path: str | None = None, *, lo: Any = None, hi: Any = None, column: str = "id", **kw: Any) -> Add:
    """Make an add, with statistics of one column if bounds are given."""
    values = kw.pop("partition_values", {})
    if lo is not None:
        stats = {
            "numRecords": 10, "minValues": {column: lo}, "maxValues": {column: hi}, "nullCount": {column: 0},
        }  # fmt: skip
        kw["stats"] = json.dumps(stats)
    return Add(
        path=f"part-{uuid.uuid4()}.parquet" if path is None else path,
        size=kw.pop("size", 100),
        modification_time=kw.pop("modification_time", 1_700_000_000_000),
        partition_values=values,
        **kw,
    )


def remove(path: str, **kw: Any) -> Remove:
    return Remove(path=path, deletion_timestamp=kw.pop("deletion_timestamp", 1_700_000_000_000), **kw)


def paths(table: Any) -> list[str]:
    """Return the sorted paths of a file listing."""
    return sorted(table["path"].to_pylist())
