"""Read, write, list and delete the objects below one location, on a local disk or in an object store."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import LocalStore, MemoryStore

from deltasql.errors import StorageError
from deltasql.storage.links import LinkGuard
from deltasql.storage.object_store import (
    SLOWEST_LINK,
    SMALL_BODY,
    check_options,
    error_code,
    error_text,
    is_local,
    is_unsupported,
    local_path,
    open_store,
    secret_values,
)

_log = logging.getLogger(__name__)

_NO_CONDITIONAL_PUT = "%s: the store does not support conditional put (%s), so files are renamed into place"

_IO_ERRORS = (BaseError, OSError)
_ERRORS = (*_IO_ERRORS, ValueError, NotImplementedError)


class IncompleteObject(StorageError):
    """An object exists, but not with all its bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object, with its path below the location."""

    path: str
    size: int
    modified: datetime


class Directory:
    """The objects below one location."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location = location
        self._local = local_path(location) if is_local(location) else None
        self._options = check_options(options)
        self._secrets = secret_values(self._options)
        self._store = open_store(location, options)
        self._slow_stores: dict[int, obstore.store.ObjectStore] = {}
        self._conditional = True

    @property
    def is_local(self) -> bool:
        """Return whether the location is a directory of this machine."""
        return self._local is not None

    def extra_seconds(self, size: int) -> int:
        """Return the seconds by which a request with a body of some size may exceed the default timeouts."""
        if size <= SMALL_BODY or isinstance(self._store, LocalStore | MemoryStore):
            return 0
        return 1 << (size // SLOWEST_LINK).bit_length()

    def _store_for(self, size: int) -> obstore.store.ObjectStore:
        """Return the store with timeouts for a body of some size."""
        extra = self.extra_seconds(size)
        if extra and extra not in self._slow_stores:
            self._slow_stores[extra] = open_store(self.location, self._options, extra)
        return self._slow_stores[extra] if extra else self._store

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write an object durably unless it exists. Return False if it exists."""
        with self._translated_errors(f"write {path}"):
            if not (self._create(path, data) if self._conditional else self._move_into_place(path, data)):
                return False
        self._check(path, len(data))
        return True

    def _create(self, path: str, data: bytes) -> bool:
        """Write an object with a conditional put; if the store does not support it, rename from now on."""
        try:
            obstore.put(self._store_for(len(data)), path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except (BaseError, NotImplementedError) as error:
            if not is_unsupported(error):
                raise
            moved = self._move_into_place(path, data)
            # The options may turn conditional put off, which needs no warning. A bare 501 may come from a gateway, so
            # conditional put is tried again next time.
            is_configured = not isinstance(error, GenericError)
            self._conditional = not (is_configured or error_code(error) == "NotImplemented")
            level = logging.INFO if is_configured else logging.WARNING
            _log.log(level, _NO_CONDITIONAL_PUT, self.location, error_text(error, self._secrets))
            return moved
        return True

    def _move_into_place(self, path: str, data: bytes) -> bool:
        """Write an object to a temporary name and rename it, for stores without conditional put. If the store cannot
        rename without overwriting, only the publisher's lock prevents that two writers overwrite each other."""
        if self.size(path) is not None:
            return False
        parent, _, name = path.rpartition("/")
        staged = f"{parent}{'/' if parent else ''}.{name}.{uuid4().hex}.tmp"  # the dot hides it from readers
        try:
            obstore.put(self._store_for(len(data)), staged, data, use_multipart=False)
            if self.get(staged, len(data)) != data:
                raise IncompleteObject(f"{self.location}: {staged} does not hold the {len(data)} bytes written")
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
            if not is_unsupported(error):
                raise
            if self.size(path) is not None:
                return False
            obstore.rename(self._store, staged, path)
        return True

    def put(self, path: str, data: bytes) -> None:
        """Write an object, and overwrite an existing one."""
        with self._translated_errors(f"write {path}"):
            obstore.put(self._store_for(len(data)), path, data, use_multipart=False)
        self._check(path, len(data))

    def upload(self, path: str, source: Path) -> None:
        """Write an object from a local file in parts, and overwrite an existing one."""
        size = source.stat().st_size
        with self._translated_errors(f"write {path}"):
            obstore.put(self._store_for(size), path, source)
        self._check(path, size)

    def _check(self, path: str, size: int) -> None:
        """Sync an object and check its size: a truncated object would be an empty or damaged commit."""
        with self._translated_errors(f"sync {path}"):
            self._sync(path)
        actual = self.size(path)
        if actual != size:
            raise IncompleteObject(f"{self.location}: {path} has {actual} bytes after {size} were written")

    def sync(self, paths: Sequence[str]) -> None:
        """Make files durable that another process wrote."""
        with self._translated_errors("sync files"):
            for path in paths:
                self._sync(path)

    def _sync(self, path: str) -> None:
        """Sync a local file and its directory, so that both survive a power failure."""
        if self._local is None:
            return
        for target in (self._local / path, (self._local / path).parent):
            descriptor = os.open(target, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def reading(self, path: str) -> Iterator[pa.NativeFile]:
        """Open an object for random reads; in an object store, each read is a request."""
        with self._translated_errors(f"read {path}", _IO_ERRORS):
            if self._local is not None:
                with pa.OSFile(str(self._local / path)) as file:
                    yield file
            else:
                yield pa.PythonFile(_RangeReader(self._store, path), "r")

    @contextmanager
    def writing(self, path: str) -> Iterator[pa.NativeFile]:
        """Open a new object for writing. It exists, durably, once the context ends without an error."""
        with self._translated_errors(f"write {path}", _IO_ERRORS):
            if self._local is not None:
                (self._local / path).parent.mkdir(parents=True, exist_ok=True)
                with pa.OSFile(str(self._local / path), "wb") as file:
                    yield file
            else:
                # Only `close` creates the object; after an error there is none.
                target = obstore.open_writer(self._store, path)
                yield pa.PythonFile(_Writer(target), "w")
                target.close()
        self._sync(path)

    def get(self, path: str, size: int = 0) -> bytes | None:
        """Return the content of an object, or None if it does not exist; `size` extends the timeouts."""
        with self._translated_errors(f"read {path}"):
            try:
                return bytes(obstore.get(self._store_for(size), path).bytes())
            except FileNotFoundError as error:
                if error_code(error) == "NoSuchBucket":
                    raise
                return None

    def size(self, path: str) -> int | None:
        """Return the size of an object, or None if it does not exist."""
        with self._translated_errors(f"get the size of {path}"):
            try:
                return int(obstore.head(self._store, path)["size"])
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[Entry]:
        """Yield the objects below a directory whose paths sort after a path. Links that lead out are not followed."""
        with self._translated_errors(f"list {prefix or 'everything'}"):
            guard = None if self._local is None else LinkGuard(self._local)
            for batch in obstore.list(self._store, prefix or None, offset=after, chunk_size=1000):
                for meta in batch:
                    if guard is None or not guard.leads_out(meta["path"]):
                        yield Entry(meta["path"], meta["size"], meta["last_modified"])

    def move(self, path: str, target: str) -> None:
        """Move an object to another path below the location. A target that exists is overwritten."""
        with self._translated_errors(f"move {path}"):
            obstore.rename(self._store, path, target)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects. Those that do not exist, and those that a link to elsewhere would reach, are ignored."""
        guard = None if self._local is None else LinkGuard(self._local)
        with self._translated_errors("delete objects"):
            for path in paths:
                if guard is not None and guard.leads_out(path, is_folder=True):
                    _log.warning("%s is not deleted: a symbolic link leads out of %s", path, self.location)
                    continue
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
    def _translated_errors(self, action: str, kinds: tuple[type[Exception], ...] = _ERRORS) -> Iterator[None]:
        try:
            yield
        except kinds as error:
            raise StorageError(f"{self.location}: cannot {action}: {error_text(error, self._secrets)}") from error


class _RangeReader:
    """An object as a readable file. obstore's reader fetches a large range in many small requests, one by one."""

    closed = False

    def __init__(self, store: obstore.store.ObjectStore, path: str) -> None:
        self._store, self._path, self._position = store, path, 0
        self._size = int(obstore.head(store, path)["size"])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> Any:
        end = self._size if size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        data = obstore.get_range(self._store, self._path, start=self._position, end=end)
        self._position = end
        return data

    def close(self) -> None:
        self.closed = True


class _Writer:
    """obstore's writer with the methods that pyarrow needs. `close` is a no-op: pyarrow calls it after errors."""

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
    """Return whether there is an object below a location, or below a directory of it."""
    try:
        if is_local(location) and not (local_path(location) / prefix).exists():
            return False
    except OSError as error:
        raise StorageError(f"{location} cannot be used: {error.strerror}") from error
    return next(Directory(location, options).list(prefix), None) is not None
