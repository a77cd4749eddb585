"""Pruning by random predicates never changes the rows of random tables."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import deltasql
from tests.effort import rounds
from tests.readers import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("p", pa.string()),
        ("q", pa.date32()),
    ]
)
PARTITIONS = ("p", "q")
INTEGERS = st.integers(-3, 3)
DOUBLES = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0, 1e300, math.inf, -math.inf, math.nan])
STRINGS = st.sampled_from(["", "a", "A", "ab", "b", "ü", "😀", "\uffff", "z" * 40])
NAMES = st.sampled_from(["a", "ab", "b", "ü%20/x", "__HIVE_DEFAULT_PARTITION__"])
DAYS = st.dates(dt.date(2025, 12, 30), dt.date(2026, 1, 3))


@st.composite
def files(draw: st.DrawFn) -> list[tuple[dict[str, Any], pa.Table]]:
    """Make files with a few rows and a partition each."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        values = {"p": draw(st.none() | NAMES), "q": draw(st.none() | DAYS)}
        n = draw(st.integers(1, 4))
        columns = {
            name: draw(st.lists(st.none() | kind, min_size=n, max_size=n))
            for name, kind in {"i": INTEGERS, "d": DOUBLES, "s": STRINGS, "day": DAYS}.items()
        }
        found.append((values, pa.table(columns, schema=pa.schema([SCHEMA.field(name) for name in columns]))))
    return found


def literal(value: Any) -> str:
    match value:
        case float():
            return f"CAST('{value}' AS DOUBLE)" if not math.isfinite(value) else f"{value!r}D".replace("e+", "e")
        case str():
            return f"'{value}'"
        case dt.date():
            return f"DATE '{value}'"
    return str(value)


@st.composite
def predicates(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        left, right = draw(predicates(depth - 1)), draw(predicates(depth - 1))
        return draw(st.sampled_from([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"]))
    kinds = {"i": INTEGERS, "d": DOUBLES, "s": STRINGS, "day": DAYS, "p": NAMES, "q": DAYS}
    name = draw(st.sampled_from(sorted(kinds)))
    one, other = literal(draw(kinds[name])), literal(draw(kinds[name]))
    forms = [f"{name} {op} {one}" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
    forms += [f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} IN ({one}, {other})", f"{name} NOT IN ({one}, NULL)"]
    forms += [f"{name} BETWEEN {one} AND {other}", f"coalesce({name}, {one}) = {other}"]
    if name in ("s", "p"):
        forms += [f"{name} LIKE 'a%'", f"length({name}) > 1"]
    return draw(st.sampled_from(forms))


@settings(max_examples=rounds(3, 50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=files(), where=st.lists(predicates(), min_size=3, max_size=3))
def test_where_matches_spark(
    data: list[tuple[dict[str, Any], pa.Table]], where: list[str], lake: deltasql.Lake, session: SparkSession
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = lake.create_table(f"where_is.t{next(_numbers)}", SCHEMA, partition_by=PARTITIONS, location=folder)
        names = [f"{number}.parquet" for number in range(len(data))]
        for name, (_, part) in zip(names, data, strict=True):
            # Spark prunes by the statistics of a file, in which Arrow ignores NaN, and by its dictionaries, in which
            # Spark does not find 0.0 if they have -0.0.
            exact = ["i", "s", "day"]
            pq.write_table(part, Path(folder) / name, write_statistics=exact, use_dictionary=exact)
        texts = [{c: None if v is None else str(v) for c, v in values.items()} for values, _ in data]
        table.add_files(names, partition_values=texts)
        whole = table.df()
        everything = whole.toArrow()
        assert rows(everything) == rows(_expected(data))
        kept = session.createDataFrame(everything)
        for predicate in where:
            note(predicate)
            expected = rows(kept.where(predicate).toArrow())
            assert rows(table.df(where=predicate).toArrow()) == expected
            assert rows(whole.where(predicate).toArrow()) == expected


def _expected(data: list[tuple[dict[str, Any], pa.Table]]) -> pa.Table:
    whole = []
    for values, part in data:
        columns = [
            part[f.name] if f.name in part.column_names else pa.array([values[f.name]] * part.num_rows, f.type)
            for f in SCHEMA
        ]
        whole.append(pa.table(columns, schema=SCHEMA))
    return pa.concat_tables(whole)
