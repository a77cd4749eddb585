"""`deltasql mirror`: publish the log to _delta_log, and check what is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.command_group import CommandGroup, json_option
from deltasql.cli.lake_access import open_lake
from deltasql.cli.render import pick, show_paragraphs, show_rows
from deltasql.errors import StorageError

if TYPE_CHECKING:
    from deltasql.lake import Lake
    from deltasql.mirror import MirrorReport


@click.group(cls=CommandGroup)
def mirror() -> None:
    """Publish the log to _delta_log, and show what is published."""


@mirror.command("status")
@json_option
@click.pass_context
def mirror_status(ctx: click.Context, as_json: bool) -> None:
    """Show the latest published version of each table, and the last error."""
    rows = [asdict(status) for status in open_lake(ctx).mirror.status()]
    names = ("table", "mode", "version", "published", "checkpoint", "lag", "status")
    ahead = {"status": "LOG AHEAD"}
    short = pick([row | {"lag": _lag(row)} | (ahead if row["log_ahead"] is not None else {}) for row in rows], names)
    show_rows(rows if as_json else short, as_json=as_json, empty="No tables yet.")
    if not as_json:
        show_paragraphs({row["table"]: _last_error(row) for row in rows if row["error"]})


def _last_error(status: Mapping[str, Any]) -> str:
    """Return the last error of a table, with the number of attempts."""
    count = status["attempts"]
    return f"after {count} attempt{'s' if count != 1 else ''}: {status['error']}" if count else status["error"]


def _lag(status: Mapping[str, Any]) -> str | None:
    """Return how many versions and seconds the published log of a table is behind."""
    count, seconds = status["lag_versions"], status["lag_seconds"]
    age = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
    return f"{count} version{'s' if count != 1 else ''}, {age} s" if count else None


@mirror.command("run")
@click.option(
    "--watch", is_flag=True, help="Publish after each commit and every mirror.reconcile_interval, until interrupted."
)
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), help="With --watch: serve metrics on this port of localhost."
)
@json_option
@click.pass_context
def mirror_run(ctx: click.Context, watch: bool, metrics_port: int | None, as_json: bool) -> None:
    """Publish all open versions, and write the checkpoints that are due; exit code 1 if a version
    could not be published."""
    lake = open_lake(ctx)
    if not watch:
        reports = lake.mirror.run()
        _show_reports(reports, as_json=as_json)
        ctx.exit(1 if any(report.error for report in reports) else 0)
    from deltasql.cli.processes import serve_metrics, stop_on_signal

    if metrics_port is not None:
        ctx.call_on_close(serve_metrics(lake.mirror, metrics_port))
        click.echo(f"Metrics: http://127.0.0.1:{metrics_port}/metrics", err=True)
    click.echo("Watching; interrupt to stop.", err=True)
    with stop_on_signal() as stop:
        lake.mirror.watch(stop, lambda reports: _show_reports(reports, as_json=as_json) if reports else None)


@mirror.command("repair")
@click.argument("table")
@click.option("--version", type=int, help="Only this version. [default: all missing versions]")
@json_option
@click.pass_context
def mirror_repair(ctx: click.Context, table: str, version: int | None, as_json: bool) -> None:
    """Publish versions whose files are missing or truncated, and retry failed ones."""
    _show_reports([open_lake(ctx).mirror.repair(table, version)], as_json=as_json)


@mirror.command("recover")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def mirror_recover(ctx: click.Context, yes: bool, as_json: bool) -> None:
    """After the database was restored, cloned or moved: move log files that it does not have aside, and publish its
    versions. Nothing is deleted."""
    lake = open_lake(ctx)
    plan = lake.mirror.recover(dry_run=True)
    copied = lake.store.identity.current().problem
    if not plan and copied is None:
        click.echo("Nothing to recover: the logs have no version that the database does not have.", err=True)
        return
    rows = [asdict(one) for one in plan]
    named = {one.table or "manifests": one for one in plan}
    short = [
        {"table": name, "from version": one.first_version, "files to move": len(one.files)}
        for name, one in named.items()
    ]
    show_rows(rows if as_json else short, as_json=as_json, empty="No files to move.")
    if not as_json:
        show_paragraphs({name: f"to {one.location}/{one.folder}" for name, one in named.items()})
    if copied is not None:
        click.echo("From now on, this database is the lake. The original must not be used any more.", err=True)
    if not yes:
        click.confirm("Continue?", abort=True, err=True)
    lake.mirror.recover()
    click.echo("Recovered.", err=True)


@mirror.command("validate")
@click.argument("table", required=False)
@click.option("--all", "every", is_flag=True, help="Every table.")
@json_option
@click.pass_context
def mirror_validate(ctx: click.Context, table: str | None, every: bool, as_json: bool) -> None:
    """Compare the published log with the database; exit code 1 if they differ."""
    if every == (table is not None):
        raise click.UsageError("name a table, or give --all")
    lake = open_lake(ctx)
    names = [table] if table is not None else [info.name for info in lake.tables()]
    rows = [{"table": name, "difference": text} for name in names for text in _differences(lake, name)]
    show_rows(rows, as_json=as_json, empty=f"{len(names)} table{'s' if len(names) != 1 else ''}: no difference.")
    ctx.exit(1 if rows else 0)


def _differences(lake: Lake, table: str) -> Sequence[str]:
    """Return the differences of one table; a log that cannot be read counts as one."""
    try:
        return lake.mirror.validate(table)
    except StorageError as error:
        return [str(error)]


def _show_reports(reports: Sequence[MirrorReport], *, as_json: bool) -> None:
    rows = [asdict(report) for report in reports]
    short = [{"table": r.table, "versions": _range(r.versions), "checkpoint": r.checkpoint} for r in reports]
    show_rows(rows if as_json else short, as_json=as_json, empty="Everything is published.")
    if not as_json:
        show_paragraphs({report.table: report.error for report in reports if report.error})


def _range(versions: Sequence[int]) -> str:
    if not versions:
        return "-"
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"
