"""A file with a matching row is never pruned, for all types, statistics and predicates.

Independent implementations give the expected values: statistics as Spark and delta-rs write them, and a row-by-row
evaluator of three-valued logic with Spark's implicit casts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltasql.expressions.predicates import Predicate
from deltasql.protocol.statistics import Bounds, ColumnPath, parse_stats, partition_bounds
from tests.effort import rounds
from tests.predicate_cases import (
    COLUMNS,
    HOUR,
    PARTITIONS,
    Col,
    Exactly,
    Pred,
    Row,
    conditions_of,
    negate,
    predicates,
)

SCHEMA = pa.schema(
    [(col.path[0], col.type) for col in COLUMNS[:-1]]
    + [("s", pa.struct([("Deep", pa.int64())]))]
    + [(col.path[0], col.type) for col in PARTITIONS]
)
PARTITION_NAMES = [col.path[0] for col in PARTITIONS]


# --- Files: rows and statistics in the format of some writer


@dataclass(frozen=True)
class File:
    rows: list[Row]
    stats: str | None
    partition_values: dict[str, str | None]


def dumped(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dumped(inner)}" for key, inner in value.items()) + "}"
    return str(value) if isinstance(value, Exactly) else json.dumps(value)


def put(target: dict[str, Any], path: ColumnPath, value: Any) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
    target[path[-1]] = value


def full_statistics(col: Col, rows: list[Row], style: bool) -> str:
    values = [row[col.path] for row in rows if row[col.path] is not None]
    stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    if values:
        put(stats["minValues"], col.path, col.low(min(values, key=col.order), style))
        put(stats["maxValues"], col.path, col.high(max(values, key=col.order), style))
    put(stats["nullCount"], col.path, len(rows) - len(values))
    return dumped(stats)


def statistics(draw: st.DrawFn, cols: list[Col], rows: list[Row]) -> str | None:
    form = draw(st.sampled_from(["full"] * 8 + ["none", "garbage", "{}"]))
    if form != "full":
        return {"none": None, "garbage": '{"numRecords":', "{}": "{}"}[form]
    kept = st.sampled_from([True] * 7 + [False])
    stats: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    if draw(kept):
        stats["numRecords"] = len(rows)
    loose = draw(st.booleans())
    if loose:
        stats["tightBounds"] = False
    for col in cols:
        values = [row[col.path] for row in rows if row[col.path] is not None]
        style = draw(st.booleans())
        if values and draw(kept):
            put(stats["minValues"], col.path, col.low(min(values, key=col.order), style))
        if values and draw(kept):
            put(stats["maxValues"], col.path, col.high(max(values, key=col.order), style))
        if draw(kept):
            count = len(rows) - len(values)
            put(stats["nullCount"], col.path, max(1, count - 1) if loose and 0 < count < len(rows) else count)
    return dumped(stats)


@st.composite
def files(draw: st.DrawFn, columns: frozenset[Col]) -> File:
    data = sorted((col for col in columns if not col.partition), key=lambda col: col.path)
    rows: list[Row] = [{} for _ in range(draw(st.integers(1, 3)))]
    for col in data:
        empty = draw(st.sampled_from([False] * 7 + [True]))
        for row in rows:
            row[col.path] = draw(st.none() if empty else st.one_of(st.none(), *[st.sampled_from(col.values)] * 4))
    texts: dict[str, str | None] = {}
    for col in sorted(columns - set(data), key=lambda col: col.path):
        value = draw(st.one_of(st.none(), *[st.sampled_from(col.values)] * 4))
        assert col.partition
        texts[col.path[0]] = None if value is None else col.partition(value, draw(st.booleans()))
        for row in rows:
            row[col.path] = value
    return File(rows, statistics(draw, data, rows), texts)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Pred, list[File]]:
    pred = draw(predicates)
    return pred, draw(st.lists(files(pred.columns), min_size=1, max_size=6))


def bounds_of(predicate: Predicate, some: list[File]) -> dict[ColumnPath, Bounds]:
    texts = pa.array([file.stats for file in some], pa.string())
    bounds = parse_stats(texts, SCHEMA, predicate.data_columns)
    for path in predicate.columns - predicate.data_columns:
        values = pa.array([file.partition_values[path[0]] for file in some], pa.string())
        bounds[path] = partition_bounds(values, SCHEMA.field(path[0]).type)
    return bounds


# --- Every value against every literal


def files_of(col: Col) -> list[File]:
    """Make files of each value alone, with a null, and with the next value, for each writer."""
    ordered = sorted(col.values, key=col.order)
    contents = [[None], *([value] for value in ordered), *([value, None] for value in ordered)]
    contents += [[low, high] for low, high in pairwise(ordered)] if not col.partition else []
    found = []
    for values in contents:
        rows: list[Row] = [{col.path: value} for value in values]
        for style in (False, True):
            if not col.partition:
                found.append(File(rows, full_statistics(col, rows, style), {}))
            elif len(values) == 1:
                text = None if values[0] is None else col.partition(values[0], style)
                found.append(File(rows, None, {col.path[0]: text}))
    return found


OFFSETS = tuple(hours * HOUR for hours in (-18, -8, 0, 14, 18))


@pytest.mark.parametrize("col", COLUMNS + PARTITIONS, ids=lambda col: ".".join(col.path))
def test_every_value_against_every_literal(col: Col) -> None:
    some = files_of(col)
    bounds = bounds_of(Predicate.parse(f"{col.sql} IS NULL", SCHEMA, PARTITION_NAMES), some)
    offsets = OFFSETS if pa.types.is_temporal(col.type) else (0,)
    for pred in (each for condition in conditions_of(col) for each in (condition, negate(condition))):
        kept = Predicate.parse(pred.sql, SCHEMA, PARTITION_NAMES).may_match(bounds, len(some))
        for file in (file for file, keep in zip(some, kept, strict=True) if not keep):
            matching = [row for row in file.rows for offset in offsets if pred.holds(row, offset)]
            assert not matching, (pred.sql, file)


# --- Random predicates over random files

quick = settings(
    deadline=None,
    max_examples=rounds(300),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@quick
@given(cases(), st.integers(-72, 72))
def test_a_file_with_a_matching_row_is_kept(case: tuple[Pred, list[File]], quarters: int) -> None:
    pred, some = case
    predicate = Predicate.parse(pred.sql, SCHEMA, PARTITION_NAMES)
    kept = predicate.may_match(bounds_of(predicate, some), len(some))
    for file, keep in zip(some, kept, strict=True):
        matching = [row for row in file.rows if pred.holds(row, quarters * HOUR // 4)]
        assert keep or not matching, (pred.sql, file)


@quick
@given(cases())
def test_fewer_bounds_keep_more_files(case: tuple[Pred, list[File]]) -> None:
    pred, some = case
    predicate = Predicate.parse(pred.sql, SCHEMA, PARTITION_NAMES)
    bounds = bounds_of(predicate, some)
    with_all_bounds = predicate.may_match(bounds, len(some))
    partitions_alone = {path: bounds[path] for path in predicate.columns - predicate.data_columns}
    assert (predicate.may_match(partitions_alone, len(some)) >= with_all_bounds).all()
    part = predicate.partition_part()
    if part is not None:
        assert part.partition_only
        assert (part.may_match(partitions_alone, len(some)) >= with_all_bounds).all()
        again = Predicate.parse(part.text, SCHEMA, PARTITION_NAMES)
        assert (again.may_match(bounds, len(some)) >= part.may_match(bounds, len(some))).all()


# --- All files that can be pruned are pruned

SHARP = {
    "id": [str(n) for n in range(8)],
    "big": [str(2**53 + n) for n in range(8)],
    "d": [f"{n}.5D" for n in range(8)],
    "price": [f"{n}.25" for n in range(8)],
    "name": [f"'n{n}'" for n in range(8)],
    "day": [f"'2026-01-0{n + 1}'" for n in range(8)],
}


def printed(name: str, n: int) -> str:
    """Return the n-th literal as JSON."""
    return SHARP[name][n].removesuffix("D").replace("'", '"')


ranges = st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted)


@quick
@given(st.sampled_from(sorted(SHARP)), st.lists(ranges, min_size=1, max_size=6), st.integers(0, 7), st.integers(0, 7))
def test_full_statistics_prune_all_that_can_be_pruned(name: str, spans: list[list[int]], x: int, y: int) -> None:
    texts = [
        f'{{"numRecords":9,"minValues":{{"{name}":{printed(name, low)}}},'
        f'"maxValues":{{"{name}":{printed(name, high)}}},"nullCount":{{"{name}":0}}}}'
        for low, high in spans
    ]
    bounds = parse_stats(pa.array(texts), SCHEMA, [(name,)])
    a, b = SHARP[name][x], SHARP[name][y]
    expected: dict[str, Callable[[int, int], bool]] = {
        f"{name} = {a}": lambda low, high: low <= x <= high,
        f"{name} < {a}": lambda low, high: low < x,
        f"{name} <= {a}": lambda low, high: low <= x,
        f"{a} < {name}": lambda low, high: x < high,
        f"NOT {name} < {a}": lambda low, high: x <= high,
        f"{name} BETWEEN {a} AND {b}": lambda low, high: low <= y and x <= high,
        f"{name} = {a} OR {name} = {b}": lambda low, high: low <= x <= high or low <= y <= high,
        f"{name} IN ({a}, {b})": lambda low, high: low <= x <= high or low <= y <= high,
        f"{name} IS NULL": lambda low, high: False,
        f"{name} = NULL": lambda low, high: False,
    }
    for sql, keeps in expected.items():
        kept = Predicate.parse(sql, SCHEMA, PARTITION_NAMES).may_match(bounds, len(spans))
        assert kept.tolist() == [keeps(*span) for span in spans], sql
