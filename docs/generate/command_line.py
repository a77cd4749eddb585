"""The command-line reference, from the help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from deltasql.cli.main import cli


def cli_page() -> str:
    """Return the page with the output of `--help` for every command."""
    parts = ["# Command line", "", "This page is generated from `deltasql --help` by `make docs`.", ""]
    for name, command in _commands("deltasql", cli):
        context = click.Context(command, info_name=name, max_content_width=100)
        parts += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its subcommands with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        for inner, subcommand in sorted(command.commands.items()):
            yield from _commands(f"{name} {inner}", subcommand)
