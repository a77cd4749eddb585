"""Creates files and directories for another user, without trusting existing files at their paths.

Root may work in a directory of another user, so links are not followed and only files of the server's account are
rewritten.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from deltasql.embedded.account import Account
from deltasql.errors import UsageError

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW
# Opening a planted pipe must not wait for its other end.
_EXISTING = _SAFE | os.O_NONBLOCK


def open_file(path: Path, flags: int) -> int:
    """Return a descriptor of the file; create it if it does not exist. Raise if another account has created it."""
    try:
        descriptor = os.open(path, flags | _SAFE | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _open_existing(path, flags, {os.geteuid(), path.parent.stat().st_uid})
    _inherit_owner(path, descriptor)
    return descriptor


def _open_existing(path: Path, flags: int, owners: set[int]) -> int:
    descriptor = os.open(path, flags | _EXISTING)
    status = os.fstat(descriptor)
    if status.st_uid not in owners or not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "not a regular file of this account", str(path))
    return descriptor


def read_start(path: Path, size: int, owners: set[int] | None = None) -> bytes:
    """Return the first bytes of a regular file; of one of the owners, if they are given."""
    descriptor = _open_existing(path, os.O_RDONLY, owners or {path.lstat().st_uid})
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def write_private(directory: Path, name: str, text: str, account: Account) -> None:
    """Create or replace a file that only the account may read."""

    def write(parent: int) -> None:
        unfinished = f"{name}.new"
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=parent)
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=parent)
        try:
            account.take_ownership(file)
            os.write(file, text.encode())
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)

    with_directory(directory, write)


def remove_file(directory: Path, name: str) -> None:
    """Remove a file of a directory, if it exists; raise if the directory is a link."""

    def remove(parent: int) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)

    with_directory(directory, remove)


def make_directory(path: Path) -> None:
    """Create a directory if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir()
        with_directory(path, partial(_inherit_owner, path))


def _inherit_owner(path: Path, descriptor: int) -> None:
    """Give a file that root created to the owner of its directory, who may open it without root later."""
    if os.geteuid() == 0:
        parent = path.parent.stat()
        os.fchown(descriptor, parent.st_uid, parent.st_gid)


def make_private_directory(path: Path, account: Account) -> None:
    """Create a directory that only the account may enter; raise if another user has created it."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        with_directory(path, lambda descriptor: _make_private(descriptor, account))
    except OSError as error:
        raise UsageError(
            f"{path} must be a private directory of {account.name!r}, but another user has created it "
            f"({error.strerror}): remove it, or set TMPDIR to your own directory."
        ) from error


def _make_private(descriptor: int, account: Account) -> None:
    if os.fstat(descriptor).st_uid not in {account.uid, os.geteuid()}:
        raise PermissionError(errno.EPERM, "wrong owner")
    os.fchmod(descriptor, 0o700)
    account.take_ownership(descriptor)


def with_directory(path: Path, act: Callable[[int], None]) -> None:
    """Call a function with a descriptor of the directory; raise if the path is a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    try:
        act(descriptor)
    finally:
        os.close(descriptor)


def rewrite(path: Path, account: Account, change: Callable[[str], str]) -> None:
    """Replace the text of a file that belongs to the account, if the new text differs."""
    with os.fdopen(os.open(path, os.O_RDWR | _SAFE), "r+", encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != account.uid or not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a regular file of the account {account.name!r} that runs PostgreSQL.")
        old = file.read()
        new = change(old)
        if new != old:
            file.seek(0)
            file.truncate()
            file.write(new)
