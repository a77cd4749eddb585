"""Tables with deletion vectors and change data that other engines wrote: we read the same rows, and the same changes.

The tables are those of public test suites; DELTASQL_GOLDEN_DIR says where they are. They are no part of this project.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.golden import GOLDEN, Make, adopted, changes_by_spark
from tests.readers import assert_same_rows, read, rows

pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason=f"there are no golden tables in {GOLDEN}")
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
    table, ahead = adopted(golden, make_table, tmp_path)
    theirs = read("duckdb", golden)
    assert rows(table.arrow()) == rows(table.df().toArrow()) == rows(theirs)
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
        ("delta-rs/cdc_ict_table", changes_by_delta_rs),  # Spark refuses it as too old
    ],
)
def test_change_data(
    name: str, read_changes: Any, make_table: Make, tmp_path: Path, spark_session: SparkSession
) -> None:
    golden = GOLDEN / name / "delta"
    table, ahead = adopted(golden, make_table, tmp_path)
    theirs = read_changes(golden, spark_session).to_pylist()
    found = table.changes(0).toArrow().to_pylist()
    told = [{**row, "_commit_version": row["_commit_version"] - ahead, "_commit_timestamp": None} for row in found]
    given = [{name: row[name] for name in told[0]} | {"_commit_timestamp": None} for row in theirs]
    assert sorted(map(repr, told)) == sorted(map(repr, given))
