"""The options that say which lake a command works on: before the command or after it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from deltasql.config import STORAGE_OPTION_PREFIX


@dataclass
class LakeOptions:
    """The lake of a command."""

    url: str | None = None
    storage_options: dict[str, str] = field(default_factory=dict)
    """Options of the object store: of the environment, of a file, and of the command line, which comes last."""

    def all_options(self) -> dict[str, str]:
        """Return the options of the object store; those of the command line hide those of the environment."""
        given = {
            name.removeprefix(STORAGE_OPTION_PREFIX).lower(): os.environ[name]
            for name in os.environ
            if name.startswith(STORAGE_OPTION_PREFIX)
        }
        return {**given, **self.storage_options}


def lake_options(ctx: click.Context) -> LakeOptions:
    """Return the lake that the options of a command name."""
    return ctx.find_root().ensure_object(LakeOptions)


def connection_options() -> list[click.Option]:
    """Return the options, for a group or a command. They change the connection as they are parsed."""
    return [
        click.Option(
            ["--url"],
            metavar="URL",
            expose_value=False,
            callback=_set_url,
            help="The lake: postgresql://… or deltasql://… [default: embedded, in ./.deltasql; env: DELTASQL_URL]",
        ),
        click.Option(
            ["--storage-option"],
            metavar="KEY=VALUE",
            multiple=True,
            expose_value=False,
            callback=_add_options,
            help="An option of the object store; can be repeated. [env: DELTASQL_STORAGE_OPTION_<KEY>]",
        ),
        click.Option(
            ["--storage-options-file"],
            metavar="FILE",
            expose_value=False,
            callback=_add_file,
            help="A JSON object with options of the object store, so that no secret is in a list of processes. "
            "[env: DELTASQL_STORAGE_OPTIONS_FILE]",
        ),
    ]


def _set_url(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    given = lake_options(ctx)
    if value:
        from deltasql.addresses import redact  # brings psycopg

        if redact(value) != value:
            click.echo("Other users of this machine can see the password in --url: use PGPASSFILE.", err=True)
    given.url = value or given.url or os.environ.get("DELTASQL_URL") or None


def _add_options(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> None:
    for text in values:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"expected KEY=VALUE, got {key!r}", ctx, parameter)
        lake_options(ctx).storage_options[key] = value


def _add_file(ctx: click.Context, parameter: click.Parameter, path: str | None) -> None:
    path = path or (os.environ.get("DELTASQL_STORAGE_OPTIONS_FILE") if ctx.parent is None else None)
    if not path:
        return
    try:
        options: Any = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}", ctx, parameter) from None
    if not isinstance(options, Mapping) or not all(isinstance(value, str) for value in options.values()):
        raise click.BadParameter(f"{path} must be a JSON object of texts", ctx, parameter)
    known = lake_options(ctx).storage_options
    lake_options(ctx).storage_options = {**options, **known}
