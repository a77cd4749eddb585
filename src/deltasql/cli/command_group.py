"""Parts that every group of commands uses: the group class and the --json option."""

from __future__ import annotations

from typing import Any

import click

from deltasql.cli.connection_options import connection_options
from deltasql.cli.render import visible
from deltasql.errors import DeltaSqlError

json_option = click.option("--json", "as_json", is_flag=True, help="Print all fields as JSON.")


class CommandGroup(click.Group):
    """A group of commands that prints deltasql's errors without a traceback. Commands take the connection's options."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, with the options of the connection after it."""
        if not isinstance(cmd, click.Group):
            cmd.params.extend(connection_options())
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn a deltasql error into an error message of click."""
        try:
            return super().invoke(ctx)
        except DeltaSqlError as error:
            raise click.ClickException("\n".join(map(visible, str(error).split("\n")))) from error
