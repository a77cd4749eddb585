"""Prune the row groups of a Parquet file by the statistics in its footer.

Statistics of floats are ignored, because writers exclude NaN from them, and those of INT96, which are ordered as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.engines.arrow.file_footer import FileFooter
from deltasql.expressions.bounds import BOOL, DOUBLE, UNORDERED, Bounds, ColumnPath, bounds_type

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

_UNUSABLE = (ValueError, OverflowError, NotImplementedError, pa.ArrowException)


def matching_groups(footer: FileFooter, schema: pa.Schema, groups: Sequence[int], predicate: Predicate) -> list[int]:
    """Return the row groups that may hold a matching row; `schema` is the file's."""
    metadata = footer.metadata
    leaves = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    bounds = {}
    for path in predicate.data_columns:
        type = _type_at(schema, path)
        name = ".".join(path)
        # In Parquet, a column `a.b` and a field b of a have the same name; pyarrow truncates nanoseconds in statistics.
        if type is not None and leaves.count(name) == 1 and getattr(type, "unit", "us") != "ns":
            bounds[path] = _bounds(footer, groups, leaves.index(name), type)
    may_match = predicate.may_match(bounds, len(groups)).tolist()
    return [group for group, matches in zip(groups, may_match, strict=True) if matches]


def _type_at(schema: pa.Schema, path: ColumnPath) -> pa.DataType | None:
    parent: Any = schema
    for name in path:
        names = [field.name for field in parent]
        if names.count(name) != 1:
            return None
        type = parent.field(names.index(name)).type
        parent = type if pa.types.is_struct(type) else ()
    return type


def _bounds(footer: FileFooter, groups: Sequence[int], leaf: int, type: pa.DataType) -> Bounds:
    chunks = [footer.chunk(group, leaf) for group in groups]
    statistics = [chunk.statistics for chunk in chunks]
    nulls = [stats.null_count if stats is not None and stats.has_null_count else None for stats in statistics]
    all_null = [
        None if count is None else count == chunk.num_values for count, chunk in zip(nulls, chunks, strict=True)
    ]
    low, high = _min_max(statistics, bounds_type(type), footer.metadata.schema.column(leaf).physical_type)
    return Bounds(low, high, pa.array([None if n is None else n > 0 for n in nulls], BOOL), pa.array(all_null, BOOL))


def _min_max(statistics: Sequence[pq.Statistics | None], target: pa.DataType, stored: str) -> tuple[pa.Array, pa.Array]:
    if target not in (DOUBLE, UNORDERED) and stored != "INT96":
        try:
            bounded = [stats if stats is not None and stats.has_min_max else None for stats in statistics]
            low = pa.array([None if stats is None else stats.min for stats in bounded], target)
            return low, pa.array([None if stats is None else stats.max for stats in bounded], target)
        except _UNUSABLE:  # timestamps out of Python's range, strings truncated within a character
            pass
    return pa.nulls(len(statistics), target), pa.nulls(len(statistics), target)
