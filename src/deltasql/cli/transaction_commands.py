"""`deltasql tx`: transactions over several tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import click

from deltasql.cli.command_group import CommandGroup, json_option
from deltasql.cli.lake_access import open_lake
from deltasql.cli.render import pick, show_fields, show_json, show_rows


@click.group(cls=CommandGroup)
def tx() -> None:
    """Show transactions over several tables."""


@tx.command("list")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Only the newest N.")
@json_option
@click.pass_context
def list_transactions(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List the transactions over several tables, newest first."""
    rows = [asdict(info) for info in open_lake(ctx).transactions(limit)]
    short = [
        {**fields, "tables": _versions(row["versions"])}
        for fields, row in zip(pick(rows, ("id", "timestamp", "author", "message")), rows, strict=True)
    ]
    show_rows(rows if as_json else short, as_json=as_json, empty="No transactions over several tables yet.")


@tx.command("show")
@click.argument("id")
@json_option
@click.pass_context
def show_transaction(ctx: click.Context, id: str, as_json: bool) -> None:
    """Show the tables of one transaction, with the versions and operations that it committed."""
    transaction = asdict(open_lake(ctx).transaction(id))
    if as_json:
        show_json(transaction)
        return
    show_fields(pick([transaction], ("id", "timestamp", "author", "message"))[0])
    rows = [
        {
            "table": name,
            "version": version,
            "operation": transaction["operations"][name],
            "location": transaction["locations"][name],
        }
        for name, version in transaction["versions"].items()
    ]
    show_rows(rows, as_json=False, empty="")


def _versions(versions: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
