"""Parts that every group of commands uses: the group class and the --json option."""

from __future__ import annotations

from typing import Any

import click

from deltasql.errors import DeltaSqlError

json_option = click.option("--json", "as_json", is_flag=True, help="Print all fields as JSON.")


class CommandGroup(click.Group):
    """A group of commands that prints deltasql's errors without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn a deltasql error into an error message of click."""
        try:
            return super().invoke(ctx)
        except DeltaSqlError as error:
            raise click.ClickException(str(error)) from error
