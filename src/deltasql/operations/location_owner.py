"""Which lake owns the location of a table: a file at the location says so, with and without a published log."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

import msgspec

from deltasql.errors import StorageError, TableExists
from deltasql.storage import Directory, is_local, local_path

OWNER = "_deltasql_owner.json"
"""The name of the file. Readers of Delta tables skip names that begin with an underscore."""
_ATTEMPTS = 4
_LONGEST_PAUSE = 0.3
_log = logging.getLogger(__name__)


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """The content of the file.

    Attributes:
        lake_id: The id of the lake.
        database: The database of the lake, for people.
        table: The name of the table when it was created.
        table_id: The id of the table.
    """

    lake_id: str
    database: str
    table: str
    table_id: str


def owner_of(location: str, options: Mapping[str, str]) -> Owner | None:
    """Return the owner of a location, None if nobody claimed it or the file is not one of deltasql."""
    data = Directory(location, options).get(OWNER)
    try:
        return None if data is None else msgspec.json.decode(data, type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def claim(location: str, options: Mapping[str, str], owner: Owner, exists: Callable[[str], bool]) -> None:
    """Claim a location for a table that is about to be created.

    Two lakes that claim one location, or locations inside each other, at the same time: the file is written first and
    the search for others comes after, so at least one of them sees the other and tries again after a random pause.

    Args:
        location: The location.
        options: The options of the object store.
        owner: The lake and the table.
        exists: Returns whether the lake has a table of an id; a claim of a table that was never created does not count.

    Raises:
        TableExists: The location, one around it or one inside of it belongs to another table.
    """
    directory = Directory(location, options)
    for attempt in range(_ATTEMPTS):
        if not directory.put_if_absent(OWNER, msgspec.json.encode(owner)):
            found = owner_of(location, options)
            if found is None or found.lake_id != owner.lake_id or exists(found.table_id):
                raise _taken(location, location, owner, found)
            directory.put(OWNER, msgspec.json.encode(owner))
        others = (
            (place, other)
            for place, other in _around_and_inside(location, options)
            if other.lake_id != owner.lake_id or exists(other.table_id)
        )
        conflict = next(others, None)
        if conflict is None:
            return
        directory.delete([OWNER])
        directory.remove_empty_folders("")
        if attempt == _ATTEMPTS - 1:
            raise _taken(location, conflict[0], owner, conflict[1])
        time.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311 - no secret


def release(location: str, options: Mapping[str, str], table_id: str) -> None:
    """Give up the location of a table that was dropped."""
    try:
        found = owner_of(location, options)
        if found is not None and found.table_id == table_id:
            Directory(location, options).delete([OWNER])
    except StorageError as error:
        _log.warning("%s still says that the dropped table is there: %s", location, error)


def _taken(location: str, place: str, owner: Owner, other: Owner | None) -> TableExists:
    overlap = f"{location} belongs to" if place == location else f"{location} overlaps {place}, which belongs to"
    whose = "another writer" if other is None else f"table {other.table}"
    if other is not None and other.lake_id != owner.lake_id:
        whose += f" of another lake, {other.lake_id} ({other.database})"
    return TableExists(owner.table, f"table {owner.table}: the location {overlap} {whose}: choose another location")


def _around_and_inside(location: str, options: Mapping[str, str]) -> Iterator[tuple[str, Owner]]:
    for parent in _parents(location):
        try:
            owner = owner_of(parent, options)
        except StorageError as error:  # a bucket of which only a part may be read
            _log.debug("%s cannot be searched for an owner: %s", parent, error)
            continue
        if owner is not None:
            yield parent, owner
    for entry in Directory(location, options).list():
        folder, _, name = entry.path.rpartition("/")
        if name == OWNER and folder:
            place = f"{location.rstrip('/')}/{folder}"
            owner = owner_of(place, options)
            if owner is not None:
                yield place, owner


def _parents(location: str) -> list[str]:
    """Return the locations around a location, the nearest first."""
    if is_local(location):
        return [str(path) for path in local_path(location).parents if path.is_dir()]
    scheme, _, rest = location.partition("://")
    return [f"{scheme}://{path}" for path in PurePosixPath(rest).parents if str(path) != "."]
