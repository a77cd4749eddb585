"""Object stores, through obstore: the only module that knows it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, NotSupportedError
from obstore.store import LocalStore, MemoryStore, from_url

from deltasql.config import duration
from deltasql.errors import StorageError

_log = logging.getLogger(__name__)

# Publishing has a back-off of its own: a store that is down should say so before a commit has waited for long.
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
# A store that takes a request and never answers is noticed by `read_timeout`, well before PostgreSQL gives up the
# publisher's idle transaction; `timeout` is for whole answers, and a checkpoint may be a large one. Both run while a
# body is sent, so a large one is given longer: as long as a link of so many bytes per second needs.
_SLOWEST = 1 << 16
_SMALL = 1 << 20
_LENGTHENED = ("read_timeout", "timeout")
_CLIENT_DEFAULTS: dict[str, Any] = {"connect_timeout": "5s", "read_timeout": "20s", "timeout": "300s"}
# All that obstore knows: it panics over one of these among the store's own settings.
_CLIENT_KEYS = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_max_frame_size",
    "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url",
    "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
}  # fmt: skip
_PREFIXES = ("aws_", "azure_", "google_")
_SECRET = re.compile(r"secret|token|password|credential|signature|sas|account_key|master_key|access_key(?!_id)")
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_HINTS = {
    "BadScheme": 'the endpoint is http, which the storage option allow_http="true" allows',
    "169.254.169.254": "no credentials are given, and this machine has none of its own",
    "ConnectionRefused": "connection refused",
    "TimedOut": "no answer in time",
}
"""What obstore tells in the details of an error only, or not at all."""

_NO_CONDITION = "%s: the store knows no conditional put (%s): files are moved into place instead"

_IO_ERRORS = (BaseError, OSError)
_ERRORS = (*_IO_ERRORS, ValueError, NotImplementedError)

# What is in memory goes with the process, but not with each Directory.
_memory: dict[str, MemoryStore] = {}


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
        self._options = dict(options)
        self._secrets = _secrets(options)
        self._store = _open(location, options)
        self._patient: dict[int, obstore.store.ObjectStore] = {}
        self._conditional = True

    @property
    def is_local(self) -> bool:
        """Is it a directory of this machine?"""
        return self._local is not None

    def patience(self, size: int) -> int:
        """How many seconds longer than a small body one of some size may take."""
        if size <= _SMALL or isinstance(self._store, LocalStore | MemoryStore):
            return 0
        return 1 << (size // _SLOWEST).bit_length()

    def _store_for(self, size: int) -> obstore.store.ObjectStore:
        """The store, as a body of some size wants it."""
        longer = self.patience(size)
        if longer and longer not in self._patient:
            self._patient[longer] = _open(self.location, self._options, longer)
        return self._patient[longer] if longer else self._store

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one; False if there is. What was written is there to stay, and whole."""
        with self._saying(f"write {path}"):
            if not (self._create(path, data) if self._conditional else self._move_into_place(path, data)):
                return False
        self._check(path, len(data))
        return True

    def _create(self, path: str, data: bytes) -> bool:
        """Ask the store itself not to overwrite. One that does not know how is not asked again."""
        try:
            obstore.put(self._store_for(len(data)), path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except (BaseError, NotImplementedError) as error:
            if not _is_unsupported(error):
                raise
            moved = self._move_into_place(path, data)
            # The options may say so, which is no news. A bare 501 may be a gateway's: the store is asked again.
            is_told = not isinstance(error, GenericError)
            self._conditional = not (is_told or _code(error) == "NotImplemented")
            level = logging.INFO if is_told else logging.WARNING
            _log.log(level, _NO_CONDITION, self.location, _said(error, self._secrets))
            return moved
        return True

    def _move_into_place(self, path: str, data: bytes) -> bool:
        """For a store without conditional put: nobody sees the object before it is whole. That two writers do not
        take each other's place is up to the store where it can rename without overwriting, and else to the publisher's
        lock, which no writer past the database has."""
        if self.size(path) is not None:
            return False
        parent, _, name = path.rpartition("/")
        staged = f"{parent}{'/' if parent else ''}.{name}.{uuid4().hex}.tmp"  # the dot hides it from readers
        try:
            obstore.put(self._store_for(len(data)), staged, data, use_multipart=False)
            if self.get(staged, len(data)) != data:
                raise Torn(f"{self.location}: {staged} does not hold the {len(data)} bytes that were written")
            return self._rename(staged, path)
        finally:
            with suppress(BaseError, OSError):
                obstore.delete(self._store, staged)

    def _rename(self, staged: str, path: str) -> bool:
        try:
            obstore.rename(self._store, staged, path, overwrite=False)
        except AlreadyExistsError:
            return False
        except (BaseError, NotImplementedError) as error:
            if not _is_unsupported(error):
                raise
            if self.size(path) is not None:
                return False
            obstore.rename(self._store, staged, path)
        return True

    def put(self, path: str, data: bytes) -> None:
        """Write an object, whether there is one or not."""
        with self._saying(f"write {path}"):
            obstore.put(self._store_for(len(data)), path, data, use_multipart=False)
        self._check(path, len(data))

    def upload(self, path: str, source: Path) -> None:
        """Write an object from a file, piece by piece, whether there is one or not."""
        size = source.stat().st_size
        with self._saying(f"write {path}"):
            obstore.put(self._store_for(size), path, source)
        self._check(path, size)

    def _check(self, path: str, size: int) -> None:
        """An object that was cut short reads as an empty or a broken commit; so each one is looked at."""
        with self._saying(f"sync {path}"):
            self._keep(path)
        found = self.size(path)
        if found != size:
            raise Torn(f"{self.location}: {path} has {found} bytes after {size} were written")

    def keep(self, paths: Sequence[str]) -> None:
        """Have files that somebody else wrote outlive a power cut."""
        with self._saying("sync files"):
            for path in paths:
                self._keep(path)

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

    @contextmanager
    def reading(self, path: str) -> Iterator[pa.NativeFile]:
        """An object to read from, anywhere in it; from a store, each read is a request."""
        with self._saying(f"read {path}", _IO_ERRORS):
            if self._local is not None:
                with pa.OSFile(str(self._local / path)) as file:
                    yield file
            else:
                yield pa.PythonFile(_Ranges(self._store, path), "r")

    @contextmanager
    def writing(self, path: str) -> Iterator[pa.NativeFile]:
        """A new object to write to, which is there, and there to stay, once this ends without an error."""
        with self._saying(f"write {path}", _IO_ERRORS):
            if self._local is not None:
                (self._local / path).parent.mkdir(parents=True, exist_ok=True)
                with pa.OSFile(str(self._local / path), "wb") as file:
                    yield file
            else:
                # Only `close` puts the object in its place: an error leaves none.
                target = obstore.open_writer(self._store, path)
                yield pa.PythonFile(_FileLike(target), "w")
                target.close()
        self._keep(path)

    def get(self, path: str, size: int = 0) -> bytes | None:
        """The content of an object, if there is one; one of about such a size may take longer."""
        with self._saying(f"read {path}"):
            try:
                return bytes(obstore.get(self._store_for(size), path).bytes())
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
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

    def remove_empty_folders(self, path: str) -> None:
        """Remove a local folder and the folders below it, as far as they are empty. Object stores have no folders."""
        if self._local is None:
            return
        for folder, _, _ in os.walk(self._local / path, topdown=False):
            with suppress(OSError):  # not empty
                os.rmdir(folder)

    @contextmanager
    def _saying(self, what: str, kinds: tuple[type[Exception], ...] = _ERRORS) -> Iterator[None]:
        try:
            yield
        except kinds as error:
            raise StorageError(f"{self.location}: cannot {what}: {_said(error, self._secrets)}") from error


class _Ranges:
    """An object as a file. obstore's own fetches a large range in many small pieces, one after the other."""

    closed = False

    def __init__(self, store: obstore.store.ObjectStore, path: str) -> None:
        self._store, self._path, self._at = store, path, 0
        self._size = int(obstore.head(store, path)["size"])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> Any:
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        data = obstore.get_range(self._store, self._path, start=self._at, end=end)
        self._at = end
        return data

    def close(self) -> None:
        self.closed = True


class _FileLike:
    """A file of obstore's with what pyarrow asks of one. Its owner closes it: pyarrow would do so after errors too."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        return int(self._file.write(bytes(data)))

    def close(self) -> None:
        self.closed = True


def exists_below(location: str, options: Mapping[str, str], prefix: str = "") -> bool:
    """Is there anything under a location, or a directory of it?"""
    if is_local(location) and not (local_path(location) / prefix).exists():
        return False
    return next(Directory(location, options).list(prefix), None) is not None


def delete_below(location: str, options: Mapping[str, str]) -> int:
    """Delete every object under a location; how many there were."""
    if is_local(location) and not local_path(location).exists():
        return 0
    directory = Directory(location, options)
    paths = [entry.path for entry in directory.list()]
    directory.delete(paths)
    return len(paths)


def _open(location: str, options: Mapping[str, str], longer: int = 0) -> obstore.store.ObjectStore:
    """A store, whose requests may take so many seconds longer than is usual."""
    try:
        if is_local(location):
            return LocalStore(local_path(location), mkdir=True)
        if location.startswith("memory://"):
            return _memory.setdefault(location.rstrip("/"), MemoryStore())
        client = {_client_key(k): v for k, v in options.items() if _client_key(k) in _CLIENT_KEYS}
        config: Any = {k: v for k, v in options.items() if _client_key(k) not in _CLIENT_KEYS}
        settings: Any = _lengthened(_CLIENT_DEFAULTS | client, longer)
        return from_url(location, config=config or None, client_options=settings, retry_config=_RETRY)
    except (BaseError, ValueError, TypeError, OSError) as error:
        # Without its cause, which repeats the value of an option that cannot be read.
        said = _said(error, _secrets(options))
        raise StorageError(f"cannot open the location {location!r}: {said}") from None


def _lengthened(settings: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Client settings with longer time-outs; one that is written in a way of obstore's own stays as it is."""
    longer = dict(settings)
    for name in _LENGTHENED if seconds else ():
        with suppress(ValueError):
            longer[name] = f"{round((duration(settings[name]) + seconds) * 1000)}ms"
    return longer


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are about the store and not about the client, by their short names."""
    return {name: str(value) for key, value in options.items() if (name := _client_key(key)) not in _CLIENT_KEYS}


def _client_key(key: str) -> str:
    name = key.lower()
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name)


def _secrets(options: Mapping[str, str]) -> list[str]:
    """The values of options that no message may repeat."""
    return [str(value) for key, value in options.items() if value and _SECRET.search(key.lower())]


def _said(error: Exception, secrets: Sequence[str]) -> str:
    """An error in one line. The rest of obstore's message repeats the request; only the store's own answer, and what
    is known to help, is taken from there."""
    whole = str(error).strip()
    text = whole.partition("\n")[0].partition("<?xml")[0].strip().rstrip(":")
    answer = _ANSWER.search(whole)
    if answer:
        text += f": {': '.join(part for part in answer.groups() if part)}"
    for sign, hint in _HINTS.items():
        if sign in whole:
            text += f" ({hint})"
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _is_unsupported(error: Exception) -> bool:
    """Does the store, or obstore for it, say that it cannot do what was asked? It has done nothing then."""
    if isinstance(error, NotSupportedError | NotImplementedError):
        return True
    return _code(error) == "NotImplemented" or "status code: 501" in str(error).partition("\n")[0]


def _code(error: Exception) -> str | None:
    """The code of an answer of S3's."""
    answer = _ANSWER.search(str(error))
    return answer[1] if answer else None


def is_local(location: str) -> bool:
    """Is the location a directory of this machine?"""
    return "://" not in location or location.startswith("file://")


def local_path(location: str) -> Path:
    """The directory of a local location."""
    return Path(unquote(urlsplit(location).path)) if location.startswith("file://") else Path(location)
