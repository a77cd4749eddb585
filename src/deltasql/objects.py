"""Object stores, through obstore: the only module that knows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import obstore
from obstore.store import from_url

from deltasql.errors import DeltaSqlError


def exists_below(location: str, options: Mapping[str, str]) -> bool:
    """Is there anything under a location?"""
    if is_local(location) and not local_path(location).exists():
        return False
    return any(batch for batch in obstore.list(_open(location, options)))


def delete_below(location: str, options: Mapping[str, str]) -> int:
    """Delete every object under a location; how many there were."""
    if is_local(location) and not local_path(location).exists():
        return 0
    store = _open(location, options)
    count = 0
    for batch in obstore.list(store):
        paths = [meta["path"] for meta in batch]
        obstore.delete(store, paths)
        count += len(paths)
    return count


def _open(location: str, options: Mapping[str, str]) -> obstore.store.ObjectStore:
    try:
        if is_local(location):
            return from_url(local_path(location).as_uri())
        config: Any = dict(options)
        return from_url(location, config=config)
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise DeltaSqlError(f"cannot open the location {location!r}: {error}") from error


def is_local(location: str) -> bool:
    """Is the location a directory of this machine?"""
    return "://" not in location or location.startswith("file://")


def local_path(location: str) -> Path:
    """The directory of a local location."""
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(location).path)) if location.startswith("file://") else Path(location)
