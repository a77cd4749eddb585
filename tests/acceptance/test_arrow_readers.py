"""Arrow and Spark read the same rows, from files of every writer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from tests.data_files import write
from tests.readers import assert_same_rows, rows
from tests.sample_columns import NESTED, PRIMITIVES, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., deltasql.Table]

FORMATS: dict[str, dict[str, str]] = {
    "INT96": {"spark.sql.parquet.outputTimestampType": "INT96"},
    "microseconds": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
    "milliseconds": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"},
    "legacy": {"spark.sql.parquet.writeLegacyFormat": "true"},
}


@pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
@pytest.mark.parametrize("name", FORMATS)
def test_files_that_spark_writes(
    name: str, columns: dict[str, Any], make_table: Make, tmp_path: Path, spark_session: SparkSession
) -> None:
    source = tmp_path / "source.parquet"
    expected = table_of(columns)
    table = make_table(schema=expected.schema, location=str(tmp_path / "table"))
    pq.write_table(expected, source)
    frame = spark_session.read.parquet(str(source))
    before = {key: spark_session.conf.get(key) for key in FORMATS[name]}
    try:
        for key, value in FORMATS[name].items():
            spark_session.conf.set(key, value)
        frame.coalesce(1).write.mode("append").parquet(str(tmp_path / "table" / "written"))
    finally:
        for key, value in before.items():
            spark_session.conf.set(key, value)
    [file] = (tmp_path / "table" / "written").glob("*.parquet")
    file.rename(tmp_path / "table" / "file.parquet")
    with table.lake.begin() as tx:
        tx.stage(table, [deltasql.Add("file.parquet", (tmp_path / "table" / "file.parquet").stat().st_size, 1, {})])
    found = table.arrow()
    assert found.schema == table.schema
    found.validate(full=True)
    assert rows(found) == rows(truncated(expected) if name == "milliseconds" else expected)
    assert_same_rows(tmp_path / "table", found, ["spark"], spark=spark_session)


def truncated(table: pa.Table) -> pa.Table:
    """Return a table with timestamps truncated to milliseconds."""

    def truncate(value: Any) -> Any:
        match value:
            case dt.datetime() if value.tzinfo:
                return value.replace(microsecond=value.microsecond // 1000 * 1000)
            case list():
                return [truncate(inner) for inner in value]
            case tuple():
                return tuple(truncate(inner) for inner in value)
        return value

    return pa.table(
        [pa.array([truncate(v) for v in table[f.name].to_pylist()], f.type) for f in table.schema], table.schema
    )


def test_every_reader_returns_the_same_rows(make_table: Make, spark_session: SparkSession) -> None:
    expected = table_of({**PRIMITIVES, **NESTED})
    table = make_table(schema=expected.schema)
    for part in range(3):
        write(table, expected.slice(part, 1))
    assert_same_rows(Path(table.location), table.arrow(), spark=spark_session)
    assert rows(table.arrow()) == rows(expected)


@pytest.mark.parametrize(
    "where",
    ["i64 > 0", "f32 > 1", "f64 < 0", "text = ''", "day < '2000-01-01'", "price >= -1.25 AND NOT flag", "wide IS NULL"],
)
def test_delta_in_spark_filters_the_same_rows(where: str, make_table: Make, spark_session: SparkSession) -> None:
    expected = table_of(PRIMITIVES)
    table = make_table(schema=expected.schema)
    write(table, expected)
    by_delta = spark_session.read.format("delta").load(table.location).where(where).toArrow()
    assert rows(table.arrow(where=where)) == rows(by_delta)
