"""Finds the directory in which deltasql keeps the state of this account, outside of every lake.

A file there is evidence only because no other account can write it, so the owner and the mode of the directory are
checked whenever it is used.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deltasql.errors import UsageError

VARIABLE = "DELTASQL_STATE_DIR"
SHARED = Path("/var/tmp")  # noqa: S108 - the owner of the directory that is created there is checked
_WRITABLE_BY_OTHERS = 0o022


def find(name: str) -> bool:
    """Return whether the state of this account has a file of that name."""
    return any(_is_private(place) and _is_own(place / name) for place in _candidates())


def save(name: str, text: str) -> Path:
    """Write a file to the first directory that can hold it; return its path."""
    failures = []
    for place in _candidates():
        try:
            return _save(place, name, text)
        except OSError as error:
            failures.append(f"{place}: {error.strerror}")
    raise UsageError(
        f"deltasql cannot record which PostgreSQL clusters belong to this account ({'; '.join(failures)}): set "
        f"{VARIABLE} to a private directory of this account."
    )


def _candidates() -> Iterator[Path]:
    """Yield the directory that the variable names, or else the one in the home and the one for accounts without one."""
    if configured := os.environ.get(VARIABLE):
        if not Path(configured).is_absolute():
            raise UsageError(f"{VARIABLE} is {configured!r}, but must be an absolute path", value=configured)
        yield Path(configured)
        return
    yield from _in_home()
    yield SHARED / f"deltasql-state-{os.geteuid()}"


def _in_home() -> Iterator[Path]:
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    if configured.is_absolute():
        yield configured / "deltasql"
    elif home := _home():
        yield home / ("Library/Application Support" if sys.platform == "darwin" else ".local/state") / "deltasql"


def _home() -> Path | None:
    """Return the home of this account. After `sudo`, HOME can be the home of another one."""
    given = Path(os.environ.get("HOME", ""))
    with suppress(OSError):
        if given.is_absolute() and given.stat().st_uid == os.geteuid():
            return given
    with suppress(KeyError):
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    return None


def _is_private(place: Path) -> bool:
    """Return whether the directory exists and belongs to this account; raise if other accounts can write to it."""
    try:
        status = place.lstat()
    except OSError:
        return False
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
        return False
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise UsageError(
            f"other accounts can write to {place}, where deltasql records the PostgreSQL clusters of this account: "
            f"remove what you do not know, and run `chmod 700 {place}`."
        )
    return True


def _is_own(file: Path) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _save(place: Path, name: str, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if not _is_private(place):
        raise PermissionError(None, "not a directory of this account")
    path = place / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return path
