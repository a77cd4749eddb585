"""Definitions of tables from broken DDL, odd names, properties and constraints are rejected, and no table is created."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.protocol.schema import arrow_schema, schema_string
from tests.effort import rounds
from tests.fuzz.inputs import changed_json, changed_text, json_text, odd_texts, odd_values
from tests.fuzz.limits import only_own_errors

DDL = (
    "id BIGINT NOT NULL, day DATE, amount DECIMAL(10, 2) COMMENT 'it''s money'",
    "`a b` STRING, s STRUCT<x: INT NOT NULL, y: ARRAY<MAP<STRING, DOUBLE>>>",
    "id INT DEFAULT 7, twice INT GENERATED ALWAYS AS (id * 2), name VARCHAR(10), code CHAR(3) NOT NULL",
    "t TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, f FLOAT, ok BOOLEAN, /* comment */ v VOID -- end",
)
WORDS = (
    "BIGINT", "STRUCT<", "ARRAY<", "MAP<", ">", "DECIMAL(", "DECIMAL(39, 40)", "NOT NULL", "DEFAULT", "GENERATED ALWAYS AS (",
    "COMMENT", "VARCHAR(", "PRIMARY KEY", "CHECK (", ",", ", id INT", "`", "ARRAY<" * 3_000, "STRUCT<a: " * 300, "x INT, " * 500,
    "DEFAULT " + "(" * 3_000, "VARIANT", "INTERVAL",
    f"DECIMAL({'9' * 5_000})", f"VARCHAR({'9' * 5_000})",
)  # fmt: skip
_numbers = itertools.count()


@settings(max_examples=rounds(150, 10_000))
@given(changed_text(DDL, WORDS) | odd_texts)
def test_ddl_is_a_schema_or_rejected(text: str) -> None:
    with only_own_errors() as outcome:
        made = schema_string(text)
        arrow_schema(made)
    if outcome.error is None:
        assert schema_string(made) == made


@settings(max_examples=rounds(75, 5_000))
@given(
    changed_json([json.loads(schema_string(ddl.replace("`a b`", "a"))) for ddl in DDL]).map(json_text)
    | changed_text([schema_string(DDL[0])])
)
def test_schema_strings(text: str) -> None:
    with only_own_errors():
        arrow_schema(schema_string(text))


def create(lake: deltasql.Lake, root: Path, name: str, schema: Any, **options: Any) -> None:
    """Create a table: a rejected definition leaves no table and no files, a table can be read and published."""
    tables = {info.name for info in lake.tables()}
    location = root / str(next(_numbers))
    with only_own_errors() as outcome:
        made = lake.create_table(name, schema, **{"location": str(location), **options})
    if outcome.error is not None:
        assert {info.name for info in lake.tables()} == tables
        assert not [path for path in location.rglob("*") if path.is_file()]
        return
    with only_own_errors() as reading:
        assert made.arrow().num_rows == 0
    assert reading.error is None or isinstance(reading.error, deltasql.UnsupportedFeature)
    assert lake.mirror.validate(made.name) == []
    lake.drop_table(made.name)


@settings(max_examples=rounds(20, 400))
@given(changed_text(DDL, WORDS), changed_text(["fuzz_ddl.t"]) | st.just("fuzz_ddl.u") | odd_texts)
def test_created_tables(embedded_lake: deltasql.Lake, workdir: Path, ddl: str, name: str) -> None:
    create(embedded_lake, workdir / "fuzz_ddl", name, ddl)
    create(embedded_lake, workdir / "fuzz_ddl", "fuzz_ddl.v", ddl)
    create(embedded_lake, workdir / "fuzz_ddl", name, "id INT")


PROPERTIES = {
    "delta.appendOnly": "false",
    "delta.enableDeletionVectors": "true",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 1 week",
    "delta.dataSkippingNumIndexedCols": "7",
    "delta.dataSkippingStatsColumns": "id,`day`",
    "delta.checkpointInterval": "20",
    "delta.columnMapping.mode": "none",
    "delta.isolationLevel": "Serializable",
    "delta.feature.domainMetadata": "supported",
    "deltasql.mirror.mode": "sync",
    "deltasql.writer.target_file_size": "1MiB",
    "own": "text",
}
CONSTRAINTS = {"positive": "id >= 0 AND day > '2026-01-01'", "named": "length(name) < 10 OR name IN ('a', 'b')"}


@settings(max_examples=rounds(20, 400))
@given(
    st.just(PROPERTIES) | changed_json([PROPERTIES]),
    st.just(CONSTRAINTS) | changed_json([CONSTRAINTS]),
    st.just(["day"]) | odd_values | st.lists(odd_values | st.sampled_from(["id", "day", "ID"]), max_size=3),
    st.none() | odd_values,
)
def test_odd_options(
    embedded_lake: deltasql.Lake, workdir: Path, properties: Any, constraints: Any, partition_by: Any, description: Any
) -> None:
    options = {
        "properties": properties, "constraints": constraints, "partition_by": partition_by, "description": description,
    }  # fmt: skip
    ddl = "id BIGINT, day DATE, name STRING"
    create(embedded_lake, workdir / "fuzz_ddl", "fuzz_ddl.o", ddl, **options)
    for name, value in options.items():
        create(embedded_lake, workdir / "fuzz_ddl", "fuzz_ddl.p", ddl, **{name: value})


@settings(max_examples=rounds(15, 300))
@given(
    odd_values,
    odd_texts.filter(lambda text: ".." not in text),
    odd_values.filter(lambda value: not isinstance(value, str)),
)
def test_odd_schemas_rows_and_locations(
    embedded_lake: deltasql.Lake, workdir: Path, value: Any, below: str, other: Any
) -> None:
    root = workdir / "fuzz_ddl"
    create(embedded_lake, root, "fuzz_ddl.q", value)
    create(embedded_lake, root, "fuzz_ddl.r", "id INT", as_=value)
    create(embedded_lake, root, "fuzz_ddl.s", "id INT", location=f"{root}/{next(_numbers)}/{below}")
    create(embedded_lake, root, "fuzz_ddl.s", "id INT", location=f"{below}://{root}/{next(_numbers)}")
    if other is not None:
        create(embedded_lake, root, "fuzz_ddl.s", "id INT", location=other)


_types = st.recursive(
    st.sampled_from([
        pa.int8(), pa.uint64(), pa.float16(), pa.string(), pa.large_binary(), pa.null(), pa.time64("ns"), pa.duration("s"),
        pa.decimal256(76, 3), pa.decimal128(38, -2), pa.timestamp("s", "Mars/Phobos"), pa.month_day_nano_interval(),
        pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.date64(), pa.binary(3), pa.bool8(), pa.uuid(),
    ]),
    lambda inner: st.one_of(
        inner.map(pa.list_), inner.map(lambda t: pa.list_(t, 2)), st.builds(pa.map_, st.just(pa.string()), inner),
        st.lists(st.tuples(odd_texts.filter(lambda t: t.isascii()), inner), max_size=3).map(pa.struct),
    ),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=rounds(30, 600))
@given(st.lists(st.tuples(odd_texts.filter(lambda text: text.isascii()), _types), max_size=4))
def test_arrow_schemas(fields: list[tuple[str, pa.DataType]]) -> None:
    with only_own_errors():
        arrow_schema(schema_string(pa.schema(fields)))


def test_deep_arrow_schemas() -> None:
    for depth in (50, 500, 2_000):
        deep = pa.int32()
        for _ in range(depth):
            deep = pa.list_(deep)
        with only_own_errors() as outcome:
            schema_string(pa.schema({"a": deep}))
        assert (outcome.error is None) == (depth == 50)
        text = f"a {'ARRAY<' * depth}INT{'>' * depth}"
        with only_own_errors() as outcome:
            schema_string(text)
        assert (outcome.error is None) == (depth == 50)
        with only_own_errors() as outcome:
            schema_string('{"type":"struct","fields":' + "[" * depth + "]" * depth + "}")
        assert outcome.error is not None
