"""How processes share one server: a shared file lock per handle, and an exclusive one around start and stop.

The kernel drops both with the process, so a killed client leaves nothing to clean up. The last handle to
leave finds no other share and stops the server; nobody joins meanwhile, as joining takes the exclusive lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deltasql.embedded.account import account_for
from deltasql.embedded.advice import OWN_SERVER
from deltasql.embedded.files import make_directory, open_file
from deltasql.embedded.launch import clear_unreachable, running_server, stop
from deltasql.embedded.waiting import wait_until
from deltasql.errors import DatabaseUnavailable, UsageError

LOCK_SECONDS = 240.0
_USERS_TO_MEND = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}


class Lease:
    """One handle's share in the server of a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._file = open_file(_lease_path(root), os.O_RDWR)
        self.socket_dir = self._enter()

    def leave(self) -> None:
        """Give the share back, and stop the server if nobody else has one. Only the first call counts."""
        with self._guard:
            if self._file >= 0:
                self._leave()

    def _enter(self) -> Path:
        try:
            if _try_lock(self._file):
                clear_unreachable(self._root / "postgres")
            fcntl.flock(self._file, fcntl.LOCK_SH)
            return running_server(self._root)
        except BaseException:
            self._stop_if_last()
            self._close()
            raise

    def _leave(self) -> None:
        try:
            # The directory may be gone; then the server goes by itself.
            if self._process == os.getpid():
                with suppress(FileNotFoundError), _exclusive(self._root):
                    self._stop_if_last()
        finally:
            self._close()

    def _stop_if_last(self) -> None:
        """Trade the share for the whole lock, which nobody else's share then prevents. Drops the share."""
        try:
            if _try_lock(self._file) and self._is_current():
                stop(self._root / "postgres")
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1

    def _is_current(self) -> bool:
        """False when the directory was deleted and made anew: that server is not ours to stop."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), _lease_path(self._root).stat())
        return False


def join(path: Path) -> Lease:
    """A share in the server of the directory, which runs when this returns."""
    root = _real(path)
    with _explained(root):
        # A cluster of somebody else's is told as such, before its locks turn out to be closed.
        account_for(root)
        make_directory(root)
        with _exclusive(root):
            return Lease(root)


def _real(path: Path) -> Path:
    if "\n" in str(path):
        raise UsageError(f"PostgreSQL takes no path with a line break: {str(path)!r}", value=path)
    return Path(os.path.realpath(path))


def _lease_path(root: Path) -> Path:
    return root / "postgres.lease"


@contextmanager
def _exclusive(root: Path) -> Iterator[None]:
    path = root / "postgres.lock"
    file = open_file(path, os.O_RDWR)
    try:
        if not wait_until(lambda: _try_lock(file), LOCK_SECONDS):
            raise DatabaseUnavailable(
                f"another process has been starting or stopping the PostgreSQL server of {root} for "
                f"{LOCK_SECONDS:.0f} s: see which one holds {path} (`fuser {path}`), and end it."
            )
        yield
    finally:
        _let_go(file)


def _let_go(file: int) -> None:
    """Unlock by name: closing leaves the lock with a forked child that has the file open too."""
    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Turn what the operating system says about the directory into an error that names it."""
    try:
        yield
    except OSError as error:
        kind = UsageError if error.errno in _USERS_TO_MEND else DatabaseUnavailable
        raise kind(
            f"the directory {root} cannot hold an embedded PostgreSQL: {error.strerror} "
            f"({error.filename or root}). Use a directory that this user can write to, or {OWN_SERVER}."
        ) from error
