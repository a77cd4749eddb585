"""Writes the pages of docs/reference that are made from the code, so that they cannot drift from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from deltasql.cli.main import cli
from deltasql.config import ENVIRONMENT_PREFIX, KEYS

PAGES = Path("docs/reference")


def cli_page() -> str:
    """Every command's `--help`."""
    parts = ["# Command line", "", "Generated from the commands' own help: `make docs`.", ""]
    for name, command in _commands("deltasql", cli):
        context = click.Context(command, info_name=name, max_content_width=100)
        parts += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it."""
    yield name, command
    if isinstance(command, click.Group):
        for inner, below in sorted(command.commands.items()):
            yield from _commands(f"{name} {inner}", below)


def configuration_page() -> str:
    """Every configuration key."""
    lines = [
        "# Configuration",
        "",
        "Generated from the keys themselves: `make docs`. Lowest to highest: the default, the environment variable,",
        '`deltasql.connect(config={"key": value})`, the table property `deltasql.<key>`. Durations are numbers of',
        "seconds or texts such as `30s`, `500ms`, `5m`.",
        "",
        "| key | default | environment | meaning |",
        "|---|---|---|---|",
    ]
    for name, key in KEYS.items():
        variable = ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
        lines.append(f"| `{name}` | {_shown(key.default)} | `{variable}` | {key.meaning} |")
    return "\n".join([*lines, ""])


def _shown(default: str | int) -> str:
    return f"`{default}`" if default != "" else "none"


def pages() -> dict[str, str]:
    """File name → text."""
    return {"cli.md": cli_page(), "configuration.md": configuration_page()}


if __name__ == "__main__":
    for file, text in pages().items():
        (PAGES / file).write_text(text, encoding="utf-8")
        click.echo(f"wrote {PAGES / file}")
