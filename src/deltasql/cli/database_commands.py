"""Commands that create and upgrade deltasql's own tables in a database, and that trust embedded clusters."""

from __future__ import annotations

from pathlib import Path

import click

from deltasql.cli.connection_options import lake_options
from deltasql.cli.lake_access import open_store


@click.command()
@click.option("--roles", is_flag=True, help="Also create the reader, writer and mirror roles.")
@click.pass_context
def init(ctx: click.Context, roles: bool) -> None:
    """Create the deltasql tables in a database."""
    with open_store(lake_options(ctx).url) as store:
        applied = store.migrate()
        click.echo(f"Applied {len(applied)} migrations." if applied else "The database is already set up.")
        if roles:
            store.create_roles()
            click.echo("Roles: deltasql_reader, deltasql_writer, deltasql_mirror. Grant them: GRANT … TO account;")


@click.command()
@click.pass_context
def migrate(ctx: click.Context) -> None:
    """Upgrade the deltasql tables of a database to this release."""
    with open_store(lake_options(ctx).url) as store:
        for name in store.migrate():
            click.echo(f"Applied {name}.")
        click.echo("The database is up to date.")


@click.command(short_help="Let this account start an embedded PostgreSQL from elsewhere.")
@click.argument("directory", type=click.Path(path_type=Path))
def trust(directory: Path) -> None:
    """Let this account start the embedded PostgreSQL of a directory that its deltasql did not create, for example after
    a restore from a backup or a copy to another machine. The database can run any program as this account."""
    from deltasql.embedded import EmbeddedServer

    root = EmbeddedServer.trust(directory)
    click.echo(
        f"Trusted {root}: deltasql of this account starts its PostgreSQL, with all code that the database contains."
    )
