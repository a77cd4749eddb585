"""Parts that every group of commands uses: the group class, the --json option, the lake of the --url option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.errors import DeltaSqlError

if TYPE_CHECKING:
    from deltasql.lake import Lake

json_option = click.option("--json", "as_json", is_flag=True, help="Print all fields as JSON.")


class CommandGroup(click.Group):
    """A group of commands that prints deltasql's errors without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn a deltasql error into an error message of click."""
        try:
            return super().invoke(ctx)
        except DeltaSqlError as error:
            raise click.ClickException(str(error)) from error


def open_lake(ctx: click.Context) -> Lake:
    """Open the lake of the --url option; it is closed when the command ends."""
    from deltasql.lake import connect

    lake = connect(ctx.obj)
    ctx.call_on_close(lake.close)
    return lake
