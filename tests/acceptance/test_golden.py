"""Rows and changes of tables that other engines wrote with deletion vectors and a change data feed.

The tables are taken from public test suites and are not part of this project; DELTASQL_GOLDEN_DIR is their directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.golden import GOLDEN, Make, changes_by_spark, replay
from tests.readers import assert_same_rows, read, rows

pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason=f"no golden tables in {GOLDEN}")
WITH_VECTORS = [
    "delta-rs/table_with_deletion_logs",
    "kernel-rs-data/cdf-table-with-cdc-and-dvs",
    "kernel-rs-data/with-short-dv",
    "kernel-rs-golden/dv-partitioned-with-checkpoint",
    "kernel-rs-golden/log-replay-dv-key-cases",
]


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_deletion_vectors(name: str, make_table: Make, tmp_path: Path, spark_session: SparkSession) -> None:
    golden = GOLDEN / name / "delta"
    table, ahead = replay(golden, make_table, tmp_path)
    by_duckdb = read("duckdb", golden)
    assert rows(table.arrow()) == rows(table.df().toArrow()) == rows(by_duckdb)
    expected = [pq.ParquetFile(path).read() for path in (GOLDEN / name / "expected").rglob("*.parquet")]
    if expected:
        assert rows(pa.concat_tables(expected).select(table.arrow().column_names)) == rows(table.arrow())
    for version in range(0, table.version - ahead, 5):
        assert rows(table.arrow(version=version + ahead)) == rows(read("duckdb", golden, version=version)), version
    table.delete(where=f"{table.arrow().column_names[0]} IS NULL")
    table.optimize()
    assert_same_rows(Path(table.location), table.arrow(), spark=spark_session)


def changes_by_delta_rs(path: Path, _: SparkSession) -> pa.Table:
    return pa.table(deltalake.DeltaTable(path).load_cdf(starting_version=0).read_all())


@pytest.mark.parametrize(
    ("name", "read_changes"),
    [
        ("kernel-rs-data/cdf-table-with-cdc-and-dvs", changes_by_spark),
        ("delta-rs/cdc_ict_table", changes_by_delta_rs),  # Spark rejects the table as too old
    ],
)
def test_change_data(
    name: str, read_changes: Any, make_table: Make, tmp_path: Path, spark_session: SparkSession
) -> None:
    golden = GOLDEN / name / "delta"
    table, ahead = replay(golden, make_table, tmp_path)
    changes = read_changes(golden, spark_session).to_pylist()
    found = table.changes(0).toArrow().to_pylist()
    found_changes = [
        {**row, "_commit_version": row["_commit_version"] - ahead, "_commit_timestamp": None} for row in found
    ]
    expected = [{name: row[name] for name in found_changes[0]} | {"_commit_timestamp": None} for row in changes]
    assert sorted(map(repr, found_changes)) == sorted(map(repr, expected))
