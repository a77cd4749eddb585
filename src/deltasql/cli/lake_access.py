"""Open the lake or the store that the --url option names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deltasql.cli.connection_options import lake_options

if TYPE_CHECKING:
    from deltasql.lake import Lake
    from deltasql.store import Store


def open_lake(ctx: click.Context) -> Lake:
    """Open the lake of the --url option; it is closed when the command ends."""
    from deltasql.lake import connect

    given = lake_options(ctx)
    lake = connect(given.url, storage_options=given.all_options())
    ctx.call_on_close(lake.close)
    return lake


@contextmanager
def open_store(url: str | None) -> Iterator[Store]:
    """Open the store of a lake, whatever the level of its schema."""
    with _store(url) as store:
        store.open_unchecked()
        yield store


@contextmanager
def open_current_store(url: str | None) -> Iterator[Store]:
    """Open the store of a lake as `deltasql.connect` does, without loading the lake."""
    with _store(url) as store:
        store.open(initialize=True)
        yield store


@contextmanager
def _store(url: str | None) -> Iterator[Store]:
    from deltasql.addresses import parse_lake_url
    from deltasql.config import Config
    from deltasql.embedded import EmbeddedServer
    from deltasql.store import Store

    address = parse_lake_url(url)
    server = EmbeddedServer.start(Path(address.path)) if address.path is not None else None
    try:
        store = Store(server.private_dsn if server else address.dsn or "", Config(None), server)
        try:
            yield store
        finally:
            store.close()
    finally:
        if server is not None:
            server.close()
