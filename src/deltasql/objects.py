"""Object stores, through obstore: the only module that knows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import LocalStore, from_url

from deltasql.errors import DeltaSqlError

# Publishing has a back-off of its own: a store that is down should say so before a commit has waited for long.
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
_CLIENT_DEFAULTS: dict[str, Any] = {"connect_timeout": "5s", "timeout": "60s"}
_CLIENT_KEYS = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "timeout", "user_agent",
}  # fmt: skip
_PREFIXES = ("aws_", "azure_", "google_")


class StorageError(DeltaSqlError):
    """An object store did not do what it was asked."""


class Torn(StorageError):
    """An object is there, but not whole."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object, by its path below the location."""

    path: str
    size: int
    modified: datetime


class Directory:
    """The objects below one location."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location = location
        self._local = local_path(location) if is_local(location) else None
        self._store = _open(location, options)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one; False if there is. What was written is there to stay, and whole."""
        with self._saying(f"write {path}"):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            except NotSupportedError:
                if not self._move_into_place(path, data):
                    return False
        self._check(path, len(data))
        return True

    def _move_into_place(self, path: str, data: bytes) -> bool:
        """For a store without conditional put: nobody sees the object before it is whole."""
        if self.size(path) is not None:
            return False
        staged = f"{path}.{uuid4().hex}.tmp"
        obstore.put(self._store, staged, data, use_multipart=False)
        self._check(staged, len(data))
        try:
            obstore.rename(self._store, staged, path, overwrite=False)
        except AlreadyExistsError:
            obstore.delete(self._store, staged)
            return False
        except NotSupportedError:
            obstore.rename(self._store, staged, path)
        return True

    def put(self, path: str, data: bytes) -> None:
        """Write an object, whether there is one or not."""
        with self._saying(f"write {path}"):
            obstore.put(self._store, path, data, use_multipart=False)
        self._check(path, len(data))

    def upload(self, path: str, source: Path) -> None:
        """Write an object from a file, piece by piece, whether there is one or not."""
        with self._saying(f"write {path}"):
            obstore.put(self._store, path, source)
        self._check(path, source.stat().st_size)

    def _check(self, path: str, size: int) -> None:
        """An object that was cut short reads as an empty or a broken commit; so each one is looked at."""
        self._keep(path)
        found = self.size(path)
        if found != size:
            raise Torn(f"{self.location}: {path} has {found} bytes after {size} were written")

    def _keep(self, path: str) -> None:
        """Local files outlive a power cut only once they and their directory are synced."""
        if self._local is None:
            return
        for place in (self._local / path, (self._local / path).parent):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def get(self, path: str) -> bytes | None:
        """The content of an object, if there is one."""
        with self._saying(f"read {path}"):
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except FileNotFoundError:
                return None

    def size(self, path: str) -> int | None:
        """The size of an object, if there is one."""
        with self._saying(f"look at {path}"):
            try:
                return int(obstore.head(self._store, path)["size"])
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[Entry]:
        """The objects whose paths begin with a directory, of those that sort after a path."""
        with self._saying(f"list {prefix or 'everything'}"):
            for batch in obstore.list(self._store, prefix or None, offset=after, chunk_size=1000):
                for meta in batch:
                    yield Entry(meta["path"], meta["size"], meta["last_modified"])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is gone already is no error."""
        with self._saying("delete objects"):
            for path in paths:
                try:
                    obstore.delete(self._store, path)
                except FileNotFoundError:
                    continue

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise StorageError(f"{self.location}: cannot {what}: {_first_line(error)}") from error


def exists_below(location: str, options: Mapping[str, str]) -> bool:
    """Is there anything under a location?"""
    if is_local(location) and not local_path(location).exists():
        return False
    return next(Directory(location, options).list(), None) is not None


def delete_below(location: str, options: Mapping[str, str]) -> int:
    """Delete every object under a location; how many there were."""
    if is_local(location) and not local_path(location).exists():
        return 0
    directory = Directory(location, options)
    paths = [entry.path for entry in directory.list()]
    directory.delete(paths)
    return len(paths)


def _open(location: str, options: Mapping[str, str]) -> obstore.store.ObjectStore:
    try:
        if is_local(location):
            return LocalStore(local_path(location), mkdir=True)
        client = {_client_key(k): v for k, v in options.items() if _client_key(k) in _CLIENT_KEYS}
        config: Any = {k: v for k, v in options.items() if _client_key(k) not in _CLIENT_KEYS}
        settings: Any = _CLIENT_DEFAULTS | client
        return from_url(location, config=config or None, client_options=settings, retry_config=_RETRY)
    except (BaseError, ValueError, OSError) as error:
        raise StorageError(f"cannot open the location {location!r}: {_first_line(error)}") from error


def _client_key(key: str) -> str:
    name = key.lower()
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name)


def _first_line(error: Exception) -> str:
    """The rest of obstore's messages repeats the request, and with it what should stay out of logs."""
    return str(error).strip().partition("\n")[0]


def is_local(location: str) -> bool:
    """Is the location a directory of this machine?"""
    return "://" not in location or location.startswith("file://")


def local_path(location: str) -> Path:
    """The directory of a local location."""
    return Path(unquote(urlsplit(location).path)) if location.startswith("file://") else Path(location)
