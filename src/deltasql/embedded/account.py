"""Chooses the operating system account that runs PostgreSQL, and starts programs as that account.

PostgreSQL does not run as root, so root uses an existing account that fits the directory; every other user runs it
under their own account. The modes of existing directories are never changed: a daemon account that cannot pass through
them gets the capability to do so, but only for a directory that root alone controls.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltasql.embedded.binaries import USE_OWN_SERVER
from deltasql.errors import UsageError

DAC_READ_SEARCH = 1 << 2
DAEMONS = ("postgres", "nobody")
_ADVICE = f"use another directory, or {USE_OWN_SERVER}."


@dataclass(frozen=True, slots=True)
class Account:
    """The account that runs the server; with `reads_all` it has the capability to pass through every directory."""

    name: str
    uid: int
    gid: int
    reads_all: bool = False

    @property
    def users(self) -> set[str]:
        """Return the users that may connect: only root if the server can read every file, as clients could, too."""
        root = pwd.getpwuid(0).pw_name
        return {root} if self.reads_all else {root, self.name}

    def spawn(
        self, command: Iterable[str | Path], *, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program as this account, in / and without the caller's PostgreSQL variables."""
        return subprocess.Popen(
            [*self._prefix(), *command],
            cwd="/",
            env=_environment() | (env or {}),
            stdin=subprocess.DEVNULL,
            **self._switch(),
            **options,
        )

    def take_ownership(self, descriptor: int) -> None:
        """Give a file or directory that this process has created to the account."""
        if os.geteuid() != self.uid:
            os.fchown(descriptor, self.uid, self.gid)

    def _switch(self) -> dict[str, Any]:
        if os.geteuid() == self.uid or self.reads_all:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def _prefix(self) -> list[str]:
        if not self.reads_all:
            return []
        # PostgreSQL checks its files with access(2), which honours the capabilities of a user other than root only
        # with no_setuid_fixup.
        return [
            shutil.which("setpriv") or "setpriv",
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            "--securebits=+no_setuid_fixup",
            "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search",
            "--",
        ]


def account_for(root: Path) -> Account:
    """Return the account that runs the cluster of a directory, which may not exist yet."""
    data = root / "postgres"
    if data.is_symlink():
        raise UsageError(f"{data} is a symbolic link, which can lead to another cluster: {_ADVICE}")
    owner = _owner(data)
    if os.geteuid() != 0:
        return _current_account(root, owner)
    if owner is not None:
        return _owner_account(data, owner)
    return _account_for_new(root)


def with_access(account: Account, root: Path, *paths: Path) -> Account:
    """Return the account with the capability to reach the paths, if it needs one.

    Raises:
        UsageError: Root cannot give the capability, or another account controls the directory.
    """
    if os.geteuid() != 0:
        return account
    closed = next((parent for parent in _parents(paths) if not _permits(parent, account, 0o1)), None)
    if closed is None:
        return account
    if reason := _foreign_control(account, root) or _missing_capability():
        raise UsageError(
            f"PostgreSQL does not run as root, and the account {account.name!r} that would run it cannot enter "
            f"{closed} ({reason}): open the directory with `chmod o+x {closed}`, or {_ADVICE}"
        )
    return replace(account, reads_all=True)


def check_executable(account: Account, program: Path) -> None:
    """Raise if the account may not execute a program; no capability permits that."""
    if os.geteuid() == 0 and not _permits(program, account, 0o5):
        raise UsageError(
            f"PostgreSQL does not run as root, and the account {account.name!r} may not execute {program}: "
            f"allow it with `chmod o+rx {program}`, or {USE_OWN_SERVER}."
        )


def _current_account(root: Path, owner: int | None) -> Account:
    if owner is not None and owner != os.geteuid():
        raise UsageError(
            f"the cluster {root / 'postgres'} belongs to {_name(owner)}, and this process runs as "
            f"{_name(os.geteuid())}: run as {_name(owner)}, or {_ADVICE}"
        )
    holder = _owner(root)
    if holder not in {None, 0, os.geteuid()}:
        raise UsageError(
            f"the directory {root} belongs to {_name(holder or 0)}, who can replace the files in it, and this process "
            f"runs as {_name(os.geteuid())}: {_ADVICE}"
        )
    return _account(os.geteuid())


def _owner_account(data: Path, owner: int) -> Account:
    if owner == 0:
        raise UsageError(
            f"the cluster {data} belongs to root, and PostgreSQL does not run as root: give it to another "
            f"account with `chown -R ACCOUNT {data}`, or {_ADVICE}"
        )
    return _account(owner)


def _account_for_new(root: Path) -> Account:
    """Return the owner of the directory, who may open it without root later, or else an account for daemons."""
    for owner in filter(None, (_owner(root), _owner(_nearest(root.parent)))):
        with suppress(KeyError):
            return _from_entry(pwd.getpwuid(owner))
    for name in DAEMONS:
        with suppress(KeyError):
            return _from_entry(pwd.getpwnam(name))
    raise UsageError(
        "PostgreSQL does not run as root, and neither an account `postgres` nor an account `nobody` exists: "
        f"run as another user, or {_ADVICE}"
    )


def _account(uid: int) -> Account:
    try:
        return _from_entry(pwd.getpwuid(uid))
    except KeyError:
        raise UsageError(
            f"user id {uid} has no name in the user database, and PostgreSQL does not run without one: "
            f"add it to /etc/passwd, or {USE_OWN_SERVER}."
        ) from None


def _from_entry(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None


def _nearest(path: Path) -> Path:
    """Return the path itself, or the closest parent directory that exists."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _name(uid: int) -> str:
    try:
        return repr(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"user id {uid}"


def _parents(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield every existing directory above the paths, the outermost first."""
    for path in paths:
        yield from (parent for parent in reversed(path.parents) if parent.exists())


def _permits(path: Path, account: Account, bits: int) -> bool:
    """Return whether the mode of a file permits an access. If an access list does, the capability is superfluous."""
    status = path.stat()
    shift = 6 if status.st_uid == account.uid else 3 if status.st_gid == account.gid else 0
    return status.st_mode >> shift & bits == bits


def _foreign_control(account: Account, root: Path) -> str | None:
    """Return which other account controls the directory and could use the capability, or None if only root does."""
    if account.name not in DAEMONS:
        return f"the directory {root} belongs to it, so it does not get the capability to do so"
    for place in (place for place in (root, *root.parents) if place.exists()):
        status = place.stat()
        if status.st_uid != 0:
            return f"{place} belongs to {_name(status.st_uid)}, so it does not get the capability to do so"
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            return f"other accounts can write to {place}, so it does not get the capability to do so"
    return None


def _missing_capability() -> str | None:
    """Return why root cannot give the capability, or None if it can."""
    if not shutil.which("setpriv"):
        return "the program `setpriv`, which gives it the capability, is not installed"
    if not all(_capabilities(kind) & DAC_READ_SEARCH for kind in ("CapPrm", "CapBnd")):
        return "this root cannot give it the capability DAC_READ_SEARCH"
    return None


def _capabilities(kind: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                return int(line.split()[1], 16)
    return 0


def _environment() -> dict[str, str]:
    """Return the caller's environment without PostgreSQL's variables, and with a locale that always exists."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return variables | {"LC_ALL": "C"}
