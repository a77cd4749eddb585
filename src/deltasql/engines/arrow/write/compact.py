"""Which files of a table are worth writing anew, and writing them: small ones together, and those with many deleted
rows without these."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec
import pyarrow as pa

from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles
from deltasql.engines.row_change import num_records
from deltasql.protocol.actions import Add
from deltasql.protocol.deletion_vectors import cardinality_of
from deltasql.protocol.schema import loose_schema
from deltasql.store import Snapshot

Partition = tuple[tuple[str, str | None], ...]
_LARGE_ENOUGH = 0.75
"""A file of this share of the wanted size is left alone: little would be gained."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of a partition that are, or become, one."""

    places: tuple[int, ...]
    partition: Partition
    size: float
    """As far as rows are not deleted."""
    is_due: bool = False
    """Is it to be written anew, even alone?"""


def file_groups(files: pa.Table, most_deleted: Fraction) -> list[FileGroup]:
    """Each of a table's files by itself."""
    found = []
    columns = ("partition_values", "size", "stats", "deletion_vector")
    for place, row in enumerate(zip(*(files[name].to_pylist() for name in columns), strict=True)):
        values, size, stats, vector = row
        deleted, count = cardinality_of(vector), num_records(stats)
        share = Fraction(deleted, count) if deleted and count else Fraction(0)
        found.append(FileGroup((place,), partition_of(values), float(size * (1 - share)), share > most_deleted))
    return found


def partition_of(values: Mapping[str, str | None] | None) -> Partition:
    """What files of one partition have in common."""
    return tuple((values or {}).items())


def rewrite_groups(found: Iterable[FileGroup], target: int) -> list[list[FileGroup]]:
    """What is to be written together: of one partition, and about the wanted size. The smallest come first, so once no
    two of a partition fit together there is nothing left to do."""
    packed: list[list[FileGroup]] = []
    for group in _by_partition(found, target).values():
        inside: list[FileGroup] = []
        size = 0.0
        for piece in sorted(group, key=lambda one: (one.size, one.places)):
            if inside and size + piece.size > target:
                packed.append(inside)
                inside, size = [], 0.0
            inside.append(piece)
            size += piece.size
        packed.append(inside)
    return [inside for inside in packed if len(inside) > 1 or inside[0].is_due]


def _by_partition(found: Iterable[FileGroup], target: int) -> dict[Partition, list[FileGroup]]:
    groups: dict[Partition, list[FileGroup]] = {}
    for piece in found:
        if piece.is_due or piece.size < _LARGE_ENOUGH * target:
            groups.setdefault(piece.partition, []).append(piece)
    return groups


def rewrite(snapshot: Snapshot, options: Mapping[str, str], plan: FilePlan) -> list[Add]:
    """Write the rows of a snapshot's files, which are of one partition, to one. They are the same rows."""
    schema = loose_schema(snapshot.schema)
    with TableFiles(replace(plan, target_size=sys.maxsize)) as files:
        for batch in scan(replace(snapshot, predicate=None), options).batches():
            files.write(batch.cast(schema))
    return [msgspec.structs.replace(add, data_change=False) for add in files.adds]
