"""Measure the registration of Parquet files by their footers against pyiceberg's add_files."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.conninfo import conninfo_to_dict

import deltasql
from benchmarks.measure import Result, faster, milliseconds

SUITE = "register"
FILES = 10_000
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us")),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("code", pa.int32()),
    ]
)


def run(lake: deltasql.Lake, rounds: int = 2) -> list[Result]:
    """Register the same files with both, alternately, and compare the best rounds."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        names = _write(root)
        ours, theirs = [], []
        for number in range(rounds):
            table = lake.create_table(f"bench.register{number}", SCHEMA, location=str(root))
            ours.append(milliseconds(lambda: table.add_files(names)))
            lake.drop_table(table.name)
            theirs.append(_pyiceberg(lake, root, names, number))
    return [faster(SUITE, f"{FILES:,} Parquet files by their footers vs pyiceberg", min(ours), min(theirs), 3)]


def _write(root: Path) -> list[str]:
    """Write one small file and copy it under other names."""
    rows = pa.table(
        {
            "id": range(100),
            "ts": pa.array(range(100), pa.timestamp("us")),
            "amount": [float(i) for i in range(100)],
            "name": [f"name-{i}" for i in range(100)],
            "code": pa.array(range(100), pa.int32()),
        },
        schema=SCHEMA,
    )
    first = root / "part-00000.parquet"
    pq.write_table(rows, first)
    names = [first.name]
    for number in range(1, FILES):
        names.append(f"part-{number:05d}.parquet")
        shutil.copy(first, root / names[-1])
    return names


def _pyiceberg(lake: deltasql.Lake, root: Path, names: list[str], number: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.catalog.sql import SqlCatalog

        info = conninfo_to_dict(lake.dsn)
        uri = f"postgresql+psycopg2://{info['user']}@/{info['dbname']}?host={info['host']}"
        catalog = SqlCatalog(f"bench{number}", uri=uri, warehouse=f"file://{root}-iceberg")
        catalog.create_namespace_if_not_exists("bench")
        table = catalog.create_table(f"bench.t{number}", schema=SCHEMA)
        spent = milliseconds(lambda: table.add_files([f"{root}/{name}" for name in names], check_duplicate_files=False))
        catalog.drop_table(f"bench.t{number}")
        shutil.rmtree(f"{root}-iceberg")
    return spent
