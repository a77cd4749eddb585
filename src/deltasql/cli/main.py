"""The commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
import pyarrow.compute as pc

from deltasql.cli import demo as demo_job
from deltasql.cli.processes import interruptible, serve_metrics
from deltasql.cli.render import show_fields, show_json, show_paragraphs, show_rows, size
from deltasql.errors import DeltaSqlError, StorageError
from deltasql.lake import Lake, connect, open_store
from deltasql.mirror import MirrorReport

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, all fields.")


class _Group(click.Group):
    """Shows deltasql's errors as a sentence, not as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DeltaSqlError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--url",
    envvar="DELTASQL_URL",
    metavar="URL",
    help="The lake: postgresql://… or deltasql://… [default: embedded, in ./.deltasql; env: DELTASQL_URL]",
)
@click.version_option(package_name="deltasql", prog_name="deltasql")
@click.pass_context
def cli(ctx: click.Context, url: str | None) -> None:
    """Delta Lake tables whose transaction log lives in PostgreSQL."""
    ctx.obj = url


def _lake(ctx: click.Context) -> Lake:
    lake = connect(ctx.obj)
    ctx.call_on_close(lake.close)
    return lake


@cli.command()
@click.option("--roles", is_flag=True, help="Also create the reader, writer and mirror roles.")
@click.pass_context
def init(ctx: click.Context, roles: bool) -> None:
    """Create the deltasql tables in a database."""
    with open_store(ctx.obj) as store:
        applied = store.migrate()
        click.echo(f"Applied {len(applied)} migrations." if applied else "The database is set up already.")
        if roles:
            store.create_roles()
            click.echo("Roles: deltasql_reader, deltasql_writer, deltasql_mirror. Grant them: GRANT … TO account;")


@cli.command()
@click.pass_context
def migrate(ctx: click.Context) -> None:
    """Bring the deltasql tables of a database up to this release."""
    with open_store(ctx.obj) as store:
        for name in store.migrate():
            click.echo(f"Applied {name}.")
        click.echo("The database is up to date.")


@cli.command()
@_json
@click.pass_context
def tables(ctx: click.Context, as_json: bool) -> None:
    """List the tables."""
    found = [asdict(info) for info in _lake(ctx).tables()]
    short = [{k: row[k] for k in ("name", "version", "num_files", "committed_at", "location")} for row in found]
    show_rows(found if as_json else short, as_json=as_json, empty="No tables yet.")


@cli.command()
@click.argument("table")
@_json
@click.pass_context
def show(ctx: click.Context, table: str, as_json: bool) -> None:
    """Show one table: schema, partitioning, properties, protocol."""
    handle = _lake(ctx).table(table)
    state = handle.state()
    files = handle.files()
    protocol = handle.protocol
    fields = {
        "name": handle.name,
        "id": handle.id,
        "location": state.location,
        "version": state.version,
        "files": files.num_rows,
        "bytes": pc.sum(files["size"]).as_py() or 0,
        "columns": {f.name: f"{f.type}{'' if f.nullable else ' not null'}" for f in handle.schema},
        "partition_columns": list(handle.partition_columns),
        "properties": handle.properties,
        "protocol": f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        "features": sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}),
    }
    if as_json:
        show_json(fields)
    else:
        show_fields({**fields, "bytes": size(fields["bytes"]), "columns": _columns(fields["columns"])})


def _columns(columns: dict[str, str]) -> str:
    width = max(map(len, columns), default=0)
    return "\n".join(f"{name.ljust(width)}  {kind}" for name, kind in columns.items())


@cli.command()
@click.argument("table")
@click.option("--limit", type=click.IntRange(min=0), help="Only the newest N commits.")
@_json
@click.pass_context
def history(ctx: click.Context, table: str, limit: int | None, as_json: bool) -> None:
    """Show the commits of a table, newest first."""
    entries = _lake(ctx).table(table).history(limit)
    rows = [asdict(entry) for entry in entries]
    short = [
        {
            "version": row["version"],
            "timestamp": row["timestamp"],
            "operation": row["operation"],
            "committer": row["committer"],
            "added": row["num_added_files"],
            "removed": row["num_removed_files"],
            "message": row["message"],
            "txn_id": row["txn_id"],
        }
        for row in rows
    ]
    show_rows(rows if as_json else short, as_json=as_json, empty="No commits.")


@cli.command()
@click.argument("table")
@click.option("--where", help="Only files that may hold rows matching this SQL predicate.")
@click.option("--version", type=int, help="As of a version.")
@click.option("--timestamp", help="As of a moment, such as 2026-01-31T12:00:00Z.")
@_json
@click.pass_context
def files(
    ctx: click.Context,
    table: str,
    where: str | None,
    version: int | None,
    timestamp: str | None,
    as_json: bool,
) -> None:
    """List the live files of a table."""
    found = _lake(ctx).table(table).files(where, version=version, timestamp=timestamp).to_pylist()
    short = [
        {"path": row["path"], "size": size(row["size"]), "partition_values": row["partition_values"]} for row in found
    ]
    show_rows(found if as_json else short, as_json=as_json, empty="No files.")


@cli.command()
@click.argument("table")
@click.option("--where", help="Only files that may hold rows matching this SQL predicate.")
@click.option("--target-size", metavar="SIZE", help="How large files should become, such as 128MiB.")
@_json
@click.pass_context
def optimize(ctx: click.Context, table: str, where: str | None, target_size: str | None, as_json: bool) -> None:
    """Write small files together, and files with many deleted rows without these."""
    done = _lake(ctx).table(table).optimize(where, target_size=target_size)
    if as_json:
        show_json(asdict(done))
    elif not done.metrics:
        click.echo(f"{table} has no files worth rewriting.")
    else:
        removed, added = (done.metrics[f"num{what}Files"] for what in ("Removed", "Added"))
        sizes = [size(int(done.metrics[f"num{what}Bytes"])) for what in ("Removed", "Added")]
        click.echo(f"{table}: {removed} files ({sizes[0]}) became {added} ({sizes[1]}) in version {done.version}.")


@cli.group(cls=_Group)
def tx() -> None:
    """See what was committed to several tables at once."""


@tx.command("list")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Only the newest N.")
@_json
@click.pass_context
def tx_list(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List the transactions over several tables, newest first."""
    found = [asdict(info) for info in _lake(ctx).transactions(limit)]
    short = [
        {**{k: row[k] for k in ("id", "timestamp", "author", "message")}, "tables": _versions(row["versions"])}
        for row in found
    ]
    show_rows(found if as_json else short, as_json=as_json, empty="No transactions over several tables yet.")


@tx.command("show")
@click.argument("id")
@_json
@click.pass_context
def tx_show(ctx: click.Context, id: str, as_json: bool) -> None:
    """Show one transaction: its tables, the versions they became, and how."""
    found = asdict(_lake(ctx).transaction(id))
    if as_json:
        show_json(found)
        return
    show_fields({k: found[k] for k in ("id", "timestamp", "author", "message")})
    rows = [
        {
            "table": name,
            "version": version,
            "operation": found["operations"][name],
            "location": found["locations"][name],
        }
        for name, version in found["versions"].items()
    ]
    show_rows(rows, as_json=False, empty="")


def _versions(versions: dict[str, int]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


@cli.group(cls=_Group)
def mirror() -> None:
    """Publish the log to _delta_log, and see how that stands."""


@mirror.command("status")
@_json
@click.pass_context
def mirror_status(ctx: click.Context, as_json: bool) -> None:
    """Show how far each table is published, and what went wrong last."""
    found = [asdict(status) for status in _lake(ctx).mirror.status()]
    names = ("table", "mode", "version", "published", "checkpoint", "lag", "status")
    short = [{name: (row | {"lag": _lag(row)})[name] for name in names} for row in found]
    show_rows(found if as_json else short, as_json=as_json, empty="No tables yet.")
    if not as_json:
        show_paragraphs({row["table"]: _problem(row) for row in found if row["error"]})


def _problem(status: Mapping[str, Any]) -> str:
    """The last error of a table, and after how many attempts."""
    count = status["attempts"]
    return f"after {count} attempt{'s' if count != 1 else ''}: {status['error']}" if count else status["error"]


def _lag(status: Mapping[str, Any]) -> str | None:
    """How far behind a table is, in versions and in time."""
    count, seconds = status["lag_versions"], status["lag_seconds"]
    age = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
    return f"{count} version{'s' if count != 1 else ''}, {age} s" if count else None


@mirror.command("run")
@click.option(
    "--watch", is_flag=True, help="Go on until interrupted: at each commit, and every mirror.reconcile_interval."
)
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), help="With --watch: serve metrics on this port of localhost."
)
@_json
@click.pass_context
def mirror_run(ctx: click.Context, watch: bool, metrics_port: int | None, as_json: bool) -> None:
    """Publish what is not published yet, and write the checkpoints that are due; exit code 1 if
    something stays unpublished."""
    lake = _lake(ctx)
    if not watch:
        reports = lake.mirror.run()
        _show_reports(reports, as_json=as_json)
        ctx.exit(1 if any(report.error for report in reports) else 0)
    if metrics_port is not None:
        ctx.call_on_close(serve_metrics(lake.mirror, metrics_port))
        click.echo(f"Metrics: http://127.0.0.1:{metrics_port}/metrics", err=True)
    click.echo("Watching; interrupt to stop.", err=True)
    with interruptible() as stop:
        lake.mirror.watch(stop, lambda reports: _show_reports(reports, as_json=as_json) if reports else None)


@mirror.command("repair")
@click.argument("table")
@click.option("--version", type=int, help="Only this version. [default: whatever is missing]")
@_json
@click.pass_context
def mirror_repair(ctx: click.Context, table: str, version: int | None, as_json: bool) -> None:
    """Publish versions whose files are missing or cut short, and try failed ones again."""
    _show_reports([_lake(ctx).mirror.repair(table, version)], as_json=as_json)


@mirror.command("validate")
@click.argument("table", required=False)
@click.option("--all", "every", is_flag=True, help="Every table.")
@_json
@click.pass_context
def mirror_validate(ctx: click.Context, table: str | None, every: bool, as_json: bool) -> None:
    """Compare the published log with the database; exit code 1 if they differ."""
    if every == (table is not None):
        raise click.UsageError("name a table, or give --all")
    lake = _lake(ctx)
    names = [table] if table is not None else [info.name for info in lake.tables()]
    rows = [{"table": name, "difference": text} for name in names for text in _differences(lake, name)]
    show_rows(rows, as_json=as_json, empty=f"{len(names)} table{'s' if len(names) != 1 else ''}: no difference.")
    ctx.exit(1 if rows else 0)


def _differences(lake: Lake, table: str) -> Sequence[str]:
    """Those of one table; that its log cannot be read is one, and keeps nobody from looking at the others."""
    try:
        return lake.mirror.validate(table)
    except StorageError as error:
        return [str(error)]


def _show_reports(reports: Sequence[MirrorReport], *, as_json: bool) -> None:
    rows = [asdict(report) for report in reports]
    short = [{"table": r.table, "versions": _ranges(r.versions), "checkpoint": r.checkpoint} for r in reports]
    show_rows(rows if as_json else short, as_json=as_json, empty="Everything is published.")
    if not as_json:
        show_paragraphs({report.table: report.error for report in reports if report.error})


def _ranges(versions: Sequence[int]) -> str:
    if not versions:
        return "-"
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


@cli.command()
@click.option("--keep", is_flag=True, help="Leave the demo's tables in the lake.")
@click.pass_context
def demo(ctx: click.Context, keep: bool) -> None:
    """Commit to three tables at once, provoke a conflict, look at the result."""
    demo_job.run(_lake(ctx), keep=keep)
