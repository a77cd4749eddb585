"""The command `deltasql`: its global options and its groups of commands.

Modules of commands import the lake when a command runs, so `--help` does not wait for it.
"""

from __future__ import annotations

import click

from deltasql.cli.access_commands import grant, grants, revoke, roots
from deltasql.cli.command_group import CommandGroup
from deltasql.cli.connection_options import connection_options
from deltasql.cli.database_commands import init, migrate, trust
from deltasql.cli.lake_access import open_lake
from deltasql.cli.mirror_commands import mirror
from deltasql.cli.table_commands import files, history, optimize, show, tables
from deltasql.cli.transaction_commands import tx


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="deltasql", prog_name="deltasql")
def cli() -> None:
    """Delta Lake tables whose transaction log lives in PostgreSQL."""


cli.params[:0] = connection_options()


@cli.command()
@click.option("--keep", is_flag=True, help="Keep the demo's tables in the lake.")
@click.pass_context
def demo(ctx: click.Context, keep: bool) -> None:
    """Commit to three tables at once, cause a conflict, and read the result."""
    from deltasql.cli.demo import run

    run(open_lake(ctx), keep=keep)


for command in (init, migrate, grant, revoke, grants, roots, tables, show, history, files, optimize, tx, mirror):
    cli.add_command(command)
click.Group.add_command(cli, trust)  # works on a directory, so it has no options of a connection
