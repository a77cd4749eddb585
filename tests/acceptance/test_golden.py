"""Tables with deletion vectors and change data that other engines wrote: we read the same rows, and the same changes.

The tables are those of public test suites; DELTASQL_GOLDEN_DIR says where they are. They are no part of this project.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltasql
from deltasql.protocol.actions import from_dict
from tests.readers import assert_same_rows, read, rows

Make = Callable[..., deltasql.Table]
GOLDEN = Path(os.environ.get("DELTASQL_GOLDEN_DIR", Path(__file__).parents[3] / "shared" / "golden"))
pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason=f"there are no golden tables in {GOLDEN}")
KINDS: dict[str, Any] = {
    kind.kind: kind for kind in (deltasql.Add, deltasql.Remove, deltasql.Cdc, deltasql.Metadata, deltasql.Protocol)
}
WITH_VECTORS = [
    "delta-rs/table_with_deletion_logs",
    "kernel-rs-data/cdf-table-with-cdc-and-dvs",
    "kernel-rs-data/with-short-dv",
    "kernel-rs-golden/dv-partitioned-with-checkpoint",
    "kernel-rs-golden/log-replay-dv-key-cases",
]


def adopted(golden: Path, make_table: Make, folder: Path) -> tuple[deltasql.Table, int]:
    """The table with its history, version by version, and how far our versions are ahead of theirs."""
    shutil.copytree(golden, folder / "ours", ignore=shutil.ignore_patterns("_delta_log"))
    commits = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((golden / "_delta_log").glob("*.json"))
        if "compacted" not in path.name
    ]
    first = {kind: entry[kind] for entry in commits[0] for kind in entry}
    metadata = first["metaData"]
    table = make_table(
        schema=deltasql.protocol.schema.arrow_schema(metadata["schemaString"]),
        partition_by=metadata["partitionColumns"],
        properties=metadata["configuration"],
        location=str(folder / "ours"),
    )
    ahead = 1 if {"add", "remove"} & first.keys() else 0
    for number, commit in enumerate(commits):
        skipped = {"metaData", "protocol"} if number == 0 else set()
        actions = [
            from_dict(KINDS[kind], told)
            for entry in commit
            for kind, told in entry.items()
            if kind in KINDS.keys() - skipped
        ]
        if number == 0 and not ahead:
            continue
        given = [msgspec.structs.replace(a, id=table.id) if isinstance(a, deltasql.Metadata) else a for a in actions]
        with table.lake.begin() as tx:
            tx.stage(table, given)
    return table, ahead


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


def changes_by_spark(path: Path, spark: SparkSession) -> pa.Table:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    return reader.load(str(path)).toArrow()


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
