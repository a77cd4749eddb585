"""The tour: three tables, one transaction, one conflict, and what the log says afterwards."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from deltasql.catalog import Lake, Table
from deltasql.cli.render import show_rows, size
from deltasql.core.actions import Add, CommitInfo
from deltasql.errors import VersionConflict
from deltasql.transaction import SqlTxnLogWriter

_TABLES = {
    "demo.features": "user_id BIGINT NOT NULL, score DOUBLE, day DATE",
    "demo.labels": "user_id BIGINT NOT NULL, label STRING, day DATE",
    "demo.metrics": "name STRING NOT NULL, value DOUBLE, day DATE",
}


def run(lake: Lake, *, keep: bool) -> None:
    """Run the tour on a lake."""
    _step(f"PostgreSQL is running; the log of every table lives in it ({lake!r})")
    tables = _create(lake)
    try:
        _commit_together(lake)
        _conflict(lake, tables["demo.labels"])
        _look(lake, tables["demo.features"])
        _published(lake, tables["demo.features"])
    finally:
        if not keep:
            _drop(lake)


def _step(text: str) -> None:
    click.secho(f"\n• {text}", bold=True)


def _create(lake: Lake) -> dict[str, Table]:
    _drop(lake)
    _step("Three tables, partitioned by day; each begins at version 0")
    tables = {name: lake.create_table(name, ddl, partition_by=["day"]) for name, ddl in _TABLES.items()}
    for table in tables.values():
        click.echo(f"  {table.name}  version {table.version}  {table.location}")
    return tables


def _drop(lake: Lake) -> None:
    for info in lake.tables():
        if info.name in _TABLES:
            lake.drop_table(info.name, purge=True)


def _commit_together(lake: Lake) -> None:
    _step("One transaction over all three: they become visible together, or not at all")
    began = time.perf_counter()
    with lake.begin(author="nightly", message="features, labels and metrics of 2026-01-31") as tx:
        for name in _TABLES:
            tx.stage(name, [_file(day) for day in ("2026-01-30", "2026-01-31")])
    spent = (time.perf_counter() - began) * 1000
    click.echo(f"  transaction {tx.id} took {spent:.1f} ms: {tx.versions}")


def _file(day: str) -> Add:
    stats = {"numRecords": 1000, "minValues": {"user_id": 1}, "maxValues": {"user_id": 1000}}
    return Add(
        path=f"day={day}/part-0.parquet",
        size=48_213,
        modification_time=time.time_ns() // 1_000_000,
        partition_values={"day": day},
        stats=json.dumps(stats),
    )


def _conflict(lake: Lake, table: Table) -> None:
    _step("A strict writer that believes the table is one version behind")
    try:
        SqlTxnLogWriter(lake.store).commit(table.id, 1, [_file("2026-02-01")], CommitInfo("WRITE"))
    except VersionConflict as conflict:
        click.echo(f"  VersionConflict: {conflict}")


def _look(lake: Lake, table: Table) -> None:
    _step(f"The history of {table.name}")
    fields = ("version", "timestamp", "operation", "committer", "message")
    show_rows([{k: v for k, v in asdict(e).items() if k in fields} for e in table.history()], as_json=False, empty="")
    _step("Its files for one day, from the log alone: t.files(where=\"day = '2026-01-31'\")")
    found = table.files(where="day = '2026-01-31'").select(["path", "size", "partition_values"]).to_pylist()
    show_rows(found, as_json=False, empty="")
    _step(f"One consistent point over all tables: {dict(lake.snapshot().versions)}")


def _published(lake: Lake, table: Table) -> None:
    _step("What other engines see: every version is in _delta_log already")
    for entry in sorted((Path(table.location) / "_delta_log").iterdir()):
        click.echo(f"  {entry.name}  {size(entry.stat().st_size)}")
    fields = ("table", "version", "published", "lag_seconds", "status")
    found = [asdict(s) for s in lake.mirror.status() if s.table in _TABLES]
    show_rows([{name: row[name] for name in fields} for row in found], as_json=False, empty="")
    differences = lake.mirror.validate(table.name)
    click.echo(f"  The published log of {table.name} and the database: {len(differences)} differences")
