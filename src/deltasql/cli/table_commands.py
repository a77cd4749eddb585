"""Commands about one table, and the list of all tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import click

from deltasql.cli.command_group import json_option
from deltasql.cli.connection_options import lake_options
from deltasql.cli.lake_access import open_current_store, open_lake
from deltasql.cli.render import pick, show_fields, show_json, show_rows, size


@click.command()
@json_option
@click.pass_context
def tables(ctx: click.Context, as_json: bool) -> None:
    """List the tables."""
    with open_current_store(lake_options(ctx).url) as store:
        rows = [asdict(info) for info in store.tables()]
    short = pick(rows, ("name", "version", "num_files", "committed_at", "location"))
    show_rows(rows if as_json else short, as_json=as_json, empty="No tables yet.")


@click.command()
@click.argument("table")
@json_option
@click.pass_context
def show(ctx: click.Context, table: str, as_json: bool) -> None:
    """Show one table: schema, partitioning, properties, protocol."""
    handle = open_lake(ctx).table(table)
    state = handle.state()
    sizes = handle.files()["size"].to_pylist()
    protocol = handle.protocol
    fields = {
        "name": handle.name,
        "id": handle.id,
        "location": state.location,
        "version": state.version,
        "files": len(sizes),
        "bytes": sum(sizes),
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


def _columns(columns: Mapping[str, str]) -> tuple[str, ...]:
    width = max(map(len, columns), default=0)
    return tuple(f"{name.ljust(width)}  {type}" for name, type in columns.items())


@click.command()
@click.argument("table")
@click.option("--limit", type=click.IntRange(min=0), help="Only the newest N commits.")
@json_option
@click.pass_context
def history(ctx: click.Context, table: str, limit: int | None, as_json: bool) -> None:
    """Show the commits of a table, newest first. --json adds the transactions and the metrics."""
    rows = [asdict(entry) for entry in open_lake(ctx).table(table).history(limit)]
    short = [
        {
            "version": row["version"],
            "timestamp": row["timestamp"],
            "operation": row["operation"],
            "committer": row["committer"],
            "author": row["author"],
            "files": f"+{row['num_added_files']} -{row['num_removed_files']}",
            "message": row["message"],
        }
        for row in rows
    ]
    show_rows(rows if as_json else short, as_json=as_json, empty="No commits.")


@click.command()
@click.argument("table")
@click.option("--where", help="Only files that may hold rows matching this SQL predicate.")
@click.option("--version", type=int, help="The files of this version.")
@click.option("--timestamp", help="The files at this time, such as 2026-01-31T12:00:00Z.")
@json_option
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
    rows = open_lake(ctx).table(table).files(where, version=version, timestamp=timestamp).to_pylist()
    short = [
        {"path": row["path"], "size": size(row["size"]), "partition_values": row["partition_values"]} for row in rows
    ]
    show_rows(rows if as_json else short, as_json=as_json, empty="No files.")


@click.command()
@click.argument("table")
@click.option("--where", help="Only files that may hold rows matching this SQL predicate.")
@click.option("--target-size", metavar="SIZE", help="The size of the new files, such as 128MiB.")
@json_option
@click.pass_context
def optimize(ctx: click.Context, table: str, where: str | None, target_size: str | None, as_json: bool) -> None:
    """Combine small files, and rewrite files with many deleted rows."""
    result = open_lake(ctx).table(table).optimize(where, target_size=target_size)
    if as_json:
        show_json(asdict(result))
    elif not result.metrics:
        click.echo(f"{table} has no files worth rewriting.")
    else:
        removed, added = (result.metrics[f"num{kind}Files"] for kind in ("Removed", "Added"))
        sizes = [size(int(result.metrics[f"num{kind}Bytes"])) for kind in ("Removed", "Added")]
        click.echo(f"{table}: {removed} files ({sizes[0]}) became {added} ({sizes[1]}) in version {result.version}.")
