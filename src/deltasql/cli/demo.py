"""The demo: commit rows to three tables in one transaction, fail in a second one, cause a conflict, and read the result
with every installed engine."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from deltasql.cli.render import pick, show_rows, size
from deltasql.errors import ConstraintViolation, VersionConflict
from deltasql.lake import Lake, Table
from deltasql.operations.commit import SqlTxnLogWriter
from deltasql.protocol.actions import Add, CommitInfo

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import SparkSession

_USERS = 10_000
_DAY = "date_add(date'2026-01-01', CAST(id % 31 AS INT)) AS day"
_ROWS = {
    "demo.features": ("id AS user_id", "id / 7D AS score", _DAY),
    "demo.labels": ("id AS user_id", "concat('group ', id % 5) AS label", _DAY),
    "demo.metrics": ("'clicks' AS name", "CAST(id AS DOUBLE) AS value", _DAY),
}
_TABLES = {
    "demo.features": "user_id BIGINT NOT NULL, score DOUBLE, day DATE",
    "demo.labels": "user_id BIGINT NOT NULL, label STRING, day DATE",
    "demo.metrics": "name STRING NOT NULL, value DOUBLE, day DATE",
}


def run(lake: Lake, *, keep: bool) -> None:
    """Run the demo on a lake; drop its tables at the end unless `keep` is set."""
    _step(f"PostgreSQL is running and holds the log of every table ({lake!r})")
    tables = _create_tables(lake)
    try:
        _commit_three_tables(lake)
        _fail_transaction(lake, tables)
        _cause_conflict(lake, tables["demo.labels"])
        _read_with_engines(tables)
        _show_log(lake, tables["demo.features"])
        _show_published_log(lake, tables["demo.features"])
    finally:
        if not keep:
            _drop_tables(lake)


def _step(text: str) -> None:
    click.secho(f"\n• {text}", bold=True)


def _create_tables(lake: Lake) -> dict[str, Table]:
    _drop_tables(lake)
    _step("Create three tables, partitioned by day; each starts at version 0")
    tables = {name: lake.create_table(name, ddl, partition_by=["day"]) for name, ddl in _TABLES.items()}
    for table in tables.values():
        click.echo(f"  {table.name}  version {table.version}  {table.location}")
    return tables


def _drop_tables(lake: Lake) -> None:
    for info in lake.tables():
        if info.name in _TABLES:
            lake.drop_table(info.name, purge=True)


def _commit_three_tables(lake: Lake) -> None:
    spark = _spark(lake)
    engine = f"Spark {spark.version}" if spark else "Arrow (pyspark is not installed)"
    _step(f"Write to all three tables in one transaction with {engine}: all rows become visible at once")
    users = spark.range(_USERS) if spark else None
    began = time.perf_counter()
    with lake.begin(author="nightly", message="features, labels and metrics of January") as tx:
        for name, columns in _ROWS.items():
            tx.write(name, users.selectExpr(*columns) if users is not None else _arrow_rows(name))
    spent = time.perf_counter() - began
    click.echo(f"  transaction {tx.id} took {spent:.1f} s: {tx.versions}")


def _fail_transaction(lake: Lake, tables: dict[str, Table]) -> None:
    _step("Fail in a transaction: features are written, then a label violates a constraint")
    features, labels = tables["demo.features"], tables["demo.labels"]
    before = features.version, labels.version
    day = pa.array([date(2026, 2, 1)])
    try:
        with lake.begin(author="nightly") as tx:
            tx.write(features, pa.table({"user_id": [_USERS], "score": [0.5], "day": day}))
            own = tx.arrow(features, where=f"user_id = {_USERS}", columns=["user_id"]).num_rows
            click.echo(f"  rows of the new user inside the transaction: {own}; outside: {_count(features, _USERS)}")
            no_user = pa.array([None], pa.int64())
            tx.write(labels, pa.table({"user_id": no_user, "label": ["group 0"], "day": day}))
    except ConstraintViolation as error:
        click.echo(f"  {type(error).__name__}: {error}")
    same = (features.version, labels.version) == before
    click.echo(f"  both tables are {'unchanged' if same else 'CHANGED'}: versions {before[0]} and {before[1]}")


def _count(table: Table, user: int) -> int:
    return int(table.arrow(where=f"user_id = {user}", columns=["user_id"]).num_rows)


def _spark(lake: Lake) -> SparkSession | None:
    if importlib.util.find_spec("pyspark") is None:
        return None
    click.echo("\nStarting Spark …")
    return lake.spark


def _arrow_rows(name: str) -> pa.Table:
    days = pa.array([date(2026, 1, 1 + n % 31) for n in range(_USERS)])
    users = pa.array(range(_USERS), pa.int64())
    columns = {
        "demo.features": {"user_id": users, "score": pa.array([n / 7 for n in range(_USERS)])},
        "demo.labels": {"user_id": users, "label": pa.array([f"group {n % 5}" for n in range(_USERS)])},
        "demo.metrics": {"name": pa.array(["clicks"] * _USERS), "value": pa.array([float(n) for n in range(_USERS)])},
    }
    return pa.table({**columns[name], "day": days})


def _staged_file() -> Add:
    """Return the add action of a file that another writer could have written."""
    return Add("day=2026-02-01/part-0.parquet", 48_213, time.time_ns() // 1_000_000, {"day": "2026-02-01"})


def _read_with_engines(tables: dict[str, Table]) -> None:
    table = tables["demo.features"]
    _step(f"Read {table.name} with every installed engine; other engines read the published _delta_log")
    for name, count in _counts(table).items():
        click.echo(f"  {name:<32} {count:>8,} rows")
    if importlib.util.find_spec("deltalake") is not None:
        import deltalake

        expected = {name: one.version for name, one in tables.items()}
        read = {name: deltalake.DeltaTable(one.location).version() for name, one in tables.items()}
        click.echo(f"  versions read by delta-rs: {read}{' (the same)' if read == expected else f', not {expected}'}")


def _counts(table: Table) -> dict[str, int]:
    """Return the number of rows that each installed engine reads."""
    counts = {"deltasql, Arrow": table.arrow(columns=["day"]).num_rows}
    if importlib.util.find_spec("pyspark") is not None:
        counts["deltasql, Spark"] = table.df().count()
    if importlib.util.find_spec("deltalake") is not None:
        import deltalake

        counts["delta-rs"] = deltalake.DeltaTable(table.location).to_pyarrow_table(columns=["day"]).num_rows
    if importlib.util.find_spec("duckdb_extension_delta") is not None:
        counts["DuckDB"] = _duckdb_count(table.location)
    return counts


def _duckdb_count(location: str) -> int:
    import duckdb
    import duckdb_extension_delta as extension

    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        files = Path(extension.__file__).parent.rglob("delta.duckdb_extension")
        connection.load_extension(str(next(files)))
        row = connection.execute("SELECT count(*) FROM delta_scan(?)", [location]).fetchone()
        return int(row[0]) if row else 0


def _cause_conflict(lake: Lake, table: Table) -> None:
    _step("Cause a conflict: a writer commits version 1, which exists already")
    try:
        SqlTxnLogWriter(lake.store).commit(table.id, 1, [_staged_file()], CommitInfo("WRITE"))
    except VersionConflict as conflict:
        click.echo(f"  VersionConflict: {conflict}")


def _show_log(lake: Lake, table: Table) -> None:
    _step(f"Show the history of {table.name}")
    fields = ("version", "timestamp", "operation", "author", "message")
    show_rows(pick([asdict(entry) for entry in table.history()], fields), as_json=False, empty="")
    _step("List its files for one day, from the log alone: t.files(where=\"day = '2026-01-31'\")")
    files = table.files(where="day = '2026-01-31'").select(["path", "size", "partition_values"]).to_pylist()
    show_rows(files, as_json=False, empty="")
    _step(f"Take a consistent snapshot of all tables: {dict(lake.snapshot().versions)}")


def _show_published_log(lake: Lake, table: Table) -> None:
    _step("List the published files: every version is in _delta_log")
    for entry in sorted((Path(table.location) / "_delta_log").iterdir()):
        click.echo(f"  {entry.name}  {size(entry.stat().st_size)}")
    fields = ("table", "version", "published", "lag_seconds", "status")
    rows = [asdict(status) for status in lake.mirror.status() if status.table in _TABLES]
    show_rows(pick(rows, fields), as_json=False, empty="")
    differences = lake.mirror.validate(table.name)
    click.echo(f"  differences between the published log of {table.name} and the database: {len(differences)}")
