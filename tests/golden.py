"""Replay tables of public Delta test suites into a lake."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

import deltasql
from deltasql.protocol.actions import from_dict

Make = Callable[..., deltasql.Table]
GOLDEN = Path(os.environ.get("DELTASQL_GOLDEN_DIR", Path(__file__).parents[2] / "shared" / "golden"))
KINDS: dict[str, Any] = {
    kind.kind: kind for kind in (deltasql.Add, deltasql.Remove, deltasql.Cdc, deltasql.Metadata, deltasql.Protocol)
}


def replay(golden: Path, make_table: Make, folder: Path) -> tuple[deltasql.Table, int]:
    """Commit a golden table version by version, and return the new table and the offset of its versions."""
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
            from_dict(KINDS[kind], body)
            for entry in commit
            for kind, body in entry.items()
            if kind in KINDS.keys() - skipped
        ]
        if number == 0 and not ahead:
            continue
        staged = [msgspec.structs.replace(a, id=table.id) if isinstance(a, deltasql.Metadata) else a for a in actions]
        with table.lake.begin() as tx:
            tx.stage(table, staged)
    return table, ahead


def changes_by_spark(path: Path, spark: SparkSession) -> pa.Table:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    return reader.load(str(path)).toArrow()
