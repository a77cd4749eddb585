"""Shares one server between processes: a shared file lock per lease, and an exclusive lock around start and stop.

The kernel releases both locks when a process ends, so a killed client leaves nothing to clean up. The lease that is
released last finds no other shared lock and stops the server; no process can join meanwhile, because joining takes the
exclusive lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deltasql.embedded import cluster_record
from deltasql.embedded.binaries import USE_OWN_SERVER
from deltasql.embedded.files import make_directory, open_file
from deltasql.embedded.launch import running_server, stop, stop_unreachable
from deltasql.embedded.postmaster import wait_until
from deltasql.errors import DatabaseUnavailable, UsageError

LOCK_SECONDS = 240.0
_USER_ERRORS = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}


class Lease:
    """A share in the server of a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._file = open_file(_lease_path(root), os.O_RDWR)
        self.socket_dir = self._acquire()
        self.account = pwd.getpwuid((root / "postgres").stat().st_uid).pw_name
        """The account that runs the server."""

    def release(self) -> None:
        """Release the share, and stop the server if it was the last one. Later calls do nothing."""
        with self._guard:
            if self._file >= 0:
                self._release()

    def revive(self) -> None:
        """Start the server again if it was killed."""
        with _explained(self._root), _exclusive(self._root):
            running_server(self._root)

    def _acquire(self) -> Path:
        try:
            if _try_lock(self._file):
                stop_unreachable(self._root / "postgres")
            fcntl.flock(self._file, fcntl.LOCK_SH)
            return running_server(self._root)
        except BaseException:
            self._stop_if_last()
            self._close()
            raise

    def _release(self) -> None:
        try:
            # If the directory was deleted, the server ends by itself.
            if self._process == os.getpid():
                with suppress(FileNotFoundError), _exclusive(self._root):
                    self._stop_if_last()
        finally:
            self._close()

    def _stop_if_last(self) -> None:
        """Stop the server if no other lease holds the shared lock, and drop this one."""
        try:
            if _try_lock(self._file) and self._is_current():
                stop(self._root / "postgres")
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1

    def _is_current(self) -> bool:
        """Return False if the directory was deleted and created again: its new server is not this lease's server."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), _lease_path(self._root).stat())
        return False


def join(path: Path) -> Lease:
    """Return a lease on the server of the directory, which runs when this function returns."""
    root = _real(path)
    with _explained(root):
        # A cluster of another user or origin is reported as such, before its locks turn out to be closed.
        cluster_record.check(root)
        make_directory(root)
        with _exclusive(root):
            return Lease(root)


def trust(path: Path) -> Path:
    """Record the cluster of the directory as one that this account starts; return the path of the directory."""
    root = _real(path)
    with _explained(root):
        cluster_record.trust(root)
    return root


def _real(path: Path) -> Path:
    if "\n" in str(path):
        raise UsageError(f"PostgreSQL rejects paths with a line break: {str(path)!r}", value=path)
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
                f"{LOCK_SECONDS:.0f} s: find the process that holds {path} (`fuser {path}`), and end it."
            )
        yield
    finally:
        _unlock(file)


def _unlock(file: int) -> None:
    """Unlock explicitly: closing the file leaves the lock with a forked child that has the file open too."""
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
    """Turn an error of the operating system about the directory into an error that names the directory."""
    try:
        yield
    except OSError as error:
        kind = UsageError if error.errno in _USER_ERRORS else DatabaseUnavailable
        raise kind(
            f"the directory {root} cannot hold an embedded PostgreSQL: {error.strerror} "
            f"({error.filename or root}). Use a directory that this user can write to, or {USE_OWN_SERVER}."
        ) from error
