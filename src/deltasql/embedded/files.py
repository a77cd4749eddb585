"""Files and directories made by one user for another, without trusting what already lies at their path.

Root may work in a directory of another user here, so links are not followed and only files of the server's
account are rewritten.
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


def open_file(path: Path, flags: int) -> int:
    """A descriptor of the file, which is made where there is none."""
    try:
        descriptor = os.open(path, flags | _SAFE | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags | _SAFE)
    _inherit_owner(path, descriptor)
    return descriptor


def make_directory(path: Path) -> None:
    """An ordinary directory, if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir()
        with_directory(path, partial(_inherit_owner, path))


def _inherit_owner(path: Path, descriptor: int) -> None:
    """What root makes belongs to the owner of the directory around it, who may come without root later."""
    if os.geteuid() == 0:
        around = path.parent.stat()
        os.fchown(descriptor, around.st_uid, around.st_gid)


def make_private_directory(path: Path, account: Account) -> None:
    """A directory that the account alone may enter. One that somebody else has laid there is refused."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        with_directory(path, lambda descriptor: _make_private(descriptor, account))
    except OSError as error:
        raise UsageError(
            f"{path} is to be a directory of {account.name!r} alone, but somebody else has put it there "
            f"({error.strerror}): remove it, or set TMPDIR to a directory of your own."
        ) from error


def _make_private(descriptor: int, account: Account) -> None:
    if os.fstat(descriptor).st_uid not in {account.uid, os.geteuid()}:
        raise PermissionError(errno.EPERM, "wrong owner")
    os.fchmod(descriptor, 0o700)
    account.own(descriptor)


def with_directory(path: Path, act: Callable[[int], None]) -> None:
    """Call with a descriptor of the directory itself, never of one that a link leads to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    try:
        act(descriptor)
    finally:
        os.close(descriptor)


def rewrite(path: Path, account: Account, change: Callable[[str], str]) -> None:
    """Change the text of a file of the account's, touching it only where the text differs."""
    with os.fdopen(os.open(path, os.O_RDWR | _SAFE), "r+", encoding="utf-8") as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != account.uid or not stat.S_ISREG(facts.st_mode):
            raise UsageError(f"{path} is not a file of the account {account.name!r} that runs PostgreSQL.")
        old = file.read()
        new = change(old)
        if new != old:
            file.seek(0)
            file.truncate()
            file.write(new)
