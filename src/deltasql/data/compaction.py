"""Which files of a table are worth writing anew, and writing them: small ones together, and those with many deleted
rows without these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from deltasql.core.actions import Add
from deltasql.core.deletion_vectors import cardinality_of
from deltasql.core.schema import loose_schema
from deltasql.data.files import FilePlan, TableFiles
from deltasql.data.scan import scan
from deltasql.data.statements import num_records
from deltasql.store import Snapshot

_LARGE_ENOUGH = 0.75
"""A file of this share of the wanted size is left alone: little would be gained."""


@dataclass(frozen=True, slots=True)
class _File:
    place: int
    live: float
    """Its size, as far as its rows are not deleted."""
    is_due: bool
    """Is it to be written anew, even alone?"""


def bins(files: pa.Table, target: int, most_deleted: float) -> list[list[int]]:
    """Files that are to be written together, by their places: of one partition, and about the wanted size."""
    found: list[list[int]] = []
    for group in _by_partition(files, target, most_deleted).values():
        inside: list[_File] = []
        size = 0.0
        for file in sorted(group, key=lambda one: (one.live, one.place)):
            if inside and size + file.live > target:
                found += _worthwhile(inside)
                inside, size = [], 0.0
            inside.append(file)
            size += file.live
        found += _worthwhile(inside)
    return found


def _by_partition(files: pa.Table, target: int, most_deleted: float) -> dict[Any, list[_File]]:
    groups: dict[Any, list[_File]] = {}
    columns = ("partition_values", "size", "stats", "deletion_vector")
    for place, row in enumerate(zip(*(files[name].to_pylist() for name in columns), strict=True)):
        values, size, stats, vector = row
        deleted, count = cardinality_of(vector), num_records(stats)
        share = deleted / count if deleted and count else 0.0
        file = _File(place, size * (1 - share), share > most_deleted)
        if file.is_due or file.live < _LARGE_ENOUGH * target:
            groups.setdefault(tuple((values or {}).items()), []).append(file)
    return groups


def _worthwhile(inside: Sequence[_File]) -> list[list[int]]:
    return [[file.place for file in inside]] if len(inside) > 1 or any(file.is_due for file in inside) else []


def rewrite(snapshot: Snapshot, options: Mapping[str, str], plan: FilePlan) -> list[Add]:
    """Write the rows of a snapshot's files to new ones. They are the same rows."""
    schema = loose_schema(snapshot.schema)
    with TableFiles(plan) as files:
        for batch in scan(replace(snapshot, predicate=None), options).batches():
            files.write(batch.cast(schema))
    return [msgspec.structs.replace(add, data_change=False) for add in files.adds]
