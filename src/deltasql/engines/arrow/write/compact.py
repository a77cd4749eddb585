"""Choose the files that compaction rewrites, and rewrite them: small files are merged, and files with many deleted rows
are written without these rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec
import pyarrow as pa

from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles
from deltasql.protocol.actions import Add
from deltasql.protocol.deletion_vectors import cardinality_of
from deltasql.protocol.schema import loose_schema
from deltasql.protocol.statistics import num_records
from deltasql.protocol.table_changes import Snapshot

Partition = tuple[tuple[str, str | None], ...]
_LARGE_ENOUGH = 0.75
"""A file that has this share of the target size is not rewritten: the gain would be small."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """One file, or several files of one partition that are merged to one."""

    indexes: tuple[int, ...]
    """The indexes of the files in the snapshot."""
    partition: Partition
    size: float
    """The size of the rows that are not deleted."""
    must_rewrite: bool = False
    """Whether it is rewritten even if it is not merged with another file."""


def file_groups(files: pa.Table, most_deleted: Fraction) -> list[FileGroup]:
    """Return a group for each file."""
    groups = []
    columns = ("partition_values", "size", "stats", "deletion_vector")
    for index, row in enumerate(zip(*(files[name].to_pylist() for name in columns), strict=True)):
        values, size, stats, vector = row
        deleted, count = cardinality_of(vector), num_records(stats)
        share = Fraction(deleted, count) if deleted and count else Fraction(0)
        groups.append(FileGroup((index,), partition_of(values), float(size * (1 - share)), share > most_deleted))
    return groups


def partition_of(values: Mapping[str, str | None] | None) -> Partition:
    """Return a hashable key for partition values."""
    return tuple((values or {}).items())


def rewrite_groups(groups: Iterable[FileGroup], target: int) -> list[list[FileGroup]]:
    """Return bins of groups to merge: of one partition, and up to the target size. The smallest groups come first, so
    compaction is complete once no two groups of a partition fit in one bin."""
    bins: list[list[FileGroup]] = []
    for candidates in _candidates(groups, target).values():
        current: list[FileGroup] = []
        size = 0.0
        for group in sorted(candidates, key=lambda group: (group.size, group.indexes)):
            if current and size + group.size > target:
                bins.append(current)
                current, size = [], 0.0
            current.append(group)
            size += group.size
        bins.append(current)
    return [merged for merged in bins if len(merged) > 1 or merged[0].must_rewrite]


def _candidates(groups: Iterable[FileGroup], target: int) -> dict[Partition, list[FileGroup]]:
    """Return the groups worth rewriting, by partition."""
    candidates: dict[Partition, list[FileGroup]] = {}
    for group in groups:
        if group.must_rewrite or group.size < _LARGE_ENOUGH * target:
            candidates.setdefault(group.partition, []).append(group)
    return candidates


def rewrite(snapshot: Snapshot, options: Mapping[str, str], plan: FilePlan) -> list[Add]:
    """Write the rows of a snapshot's files, which are of one partition, to one file, without a data change."""
    schema = loose_schema(snapshot.schema)
    with TableFiles(replace(plan, target_size=sys.maxsize)) as files:
        for batch in scan(replace(snapshot, predicate=None), options).batches():
            files.write(batch.cast(schema))
    return [msgspec.structs.replace(add, data_change=False) for add in files.adds]
