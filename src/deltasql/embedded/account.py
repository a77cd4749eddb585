"""Which operating system account runs PostgreSQL, and how a program is started as that account.

PostgreSQL does not run as root, so root picks an existing account that fits the directory; nobody else picks.
Directories of the user's are never opened up: where the account cannot pass through them, it is given the
capability to do so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltasql.embedded.advice import OWN_SERVER
from deltasql.errors import UsageError

DAC_READ_SEARCH = 1 << 2
_WAYS_OUT = f"use a directory elsewhere, or {OWN_SERVER}."


@dataclass(frozen=True, slots=True)
class Account:
    """Whom the server runs as; `reads_all` says that it needs the capability to pass every directory."""

    name: str
    uid: int
    gid: int
    reads_all: bool = False

    @property
    def users(self) -> set[str]:
        """Who may connect. A server that reads every file serves root alone, or it would lend that power."""
        root = pwd.getpwuid(0).pw_name
        return {root} if self.reads_all else {root, self.name}

    def spawn(
        self, command: Iterable[str | Path], *, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program as this account, without the caller's directory and PostgreSQL settings."""
        return subprocess.Popen(
            [*self._prefix(), *command],
            cwd="/",
            env=_environment() | (env or {}),
            stdin=subprocess.DEVNULL,
            **self._switch(),
            **options,
        )

    def own(self, descriptor: int) -> None:
        """Give what this process has just made to the account."""
        if os.geteuid() != self.uid:
            os.fchown(descriptor, self.uid, self.gid)

    def _switch(self) -> dict[str, Any]:
        if os.geteuid() == self.uid or self.reads_all:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def _prefix(self) -> list[str]:
        if not self.reads_all:
            return []
        # PostgreSQL looks for its own files through access(2), which heeds the capabilities of a user other
        # than root only under no_setuid_fixup.
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
    """Who runs the cluster of the directory, present or to be made."""
    data = root / "postgres"
    owner = _owner(data)
    if os.geteuid() != 0:
        return _own_account(data, owner)
    if owner is not None:
        return _owner_account(data, owner)
    return _account_for_new(root)


def able_to_reach(account: Account, *paths: Path) -> Account:
    """The account, with the capability to reach the paths where it needs one and root can give it."""
    if os.geteuid() != 0:
        return account
    closed = next((parent for parent in _parents(paths) if not _permits(parent, account, 0o1)), None)
    if closed is None:
        return account
    if reason := _no_capability():
        raise UsageError(
            f"PostgreSQL does not run as root, and the account {account.name!r} it would run as cannot enter "
            f"{closed} ({reason}): let others pass with `chmod o+x {closed}`, or {_WAYS_OUT}"
        )
    return replace(account, reads_all=True)


def check_executable(account: Account, program: Path) -> None:
    """No capability lets an account execute a file whose mode forbids it."""
    if os.geteuid() == 0 and not _permits(program, account, 0o5):
        raise UsageError(
            f"PostgreSQL does not run as root, and the account {account.name!r} may not execute {program}: "
            f"allow it with `chmod o+rx {program}`, or {OWN_SERVER}."
        )


def _own_account(data: Path, owner: int | None) -> Account:
    if owner is not None and owner != os.geteuid():
        raise UsageError(
            f"the cluster {data} belongs to {_name(owner)}, and this process runs as {_name(os.geteuid())}: "
            f"run as {_name(owner)}, or {_WAYS_OUT}"
        )
    return _account(os.geteuid())


def _owner_account(data: Path, owner: int) -> Account:
    if owner == 0:
        raise UsageError(
            f"the cluster {data} belongs to root, and PostgreSQL does not run as root: give it to another "
            f"account with `chown -R ACCOUNT {data}`, or {_WAYS_OUT}"
        )
    return _account(owner)


def _account_for_new(root: Path) -> Account:
    """Who owns the place, since this user may come without root later; else an account made for daemons."""
    for owner in filter(None, (_owner(root), _owner(_nearest(root.parent)))):
        with suppress(KeyError):
            return _from_entry(pwd.getpwuid(owner))
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return _from_entry(pwd.getpwnam(name))
    raise UsageError(
        "PostgreSQL does not run as root, and neither an account `postgres` nor an account `nobody` exists: "
        f"run as another user, or {_WAYS_OUT}"
    )


def _account(uid: int) -> Account:
    try:
        return _from_entry(pwd.getpwuid(uid))
    except KeyError:
        raise UsageError(
            f"user id {uid} has no name in the user database, and PostgreSQL does not run without one: "
            f"add it to /etc/passwd, or {OWN_SERVER}."
        ) from None


def _from_entry(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None


def _nearest(path: Path) -> Path:
    """The path itself, or the closest directory above that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def _name(uid: int) -> str:
    try:
        return repr(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"user id {uid}"


def _parents(paths: Iterable[Path]) -> Iterator[Path]:
    """Every existing directory above the paths, the outermost first."""
    for path in paths:
        yield from (parent for parent in reversed(path.parents) if parent.exists())


def _permits(path: Path, account: Account, bits: int) -> bool:
    """Whether the mode of a file allows it; access lists only ever make the capability the longer way."""
    facts = path.stat()
    shift = 6 if facts.st_uid == account.uid else 3 if facts.st_gid == account.gid else 0
    return facts.st_mode >> shift & bits == bits


def _no_capability() -> str | None:
    """Why the capability cannot be given, if it cannot."""
    if not shutil.which("setpriv"):
        return "and there is no `setpriv` to give it the capability"
    if not all(_capabilities(kind) & DAC_READ_SEARCH for kind in ("CapPrm", "CapBnd")):
        return "and this root lacks the capability DAC_READ_SEARCH to give"
    return None


def _capabilities(kind: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                return int(line.split()[1], 16)
    return 0


def _environment() -> dict[str, str]:
    """The caller's environment without PostgreSQL's variables, and with a locale that always exists."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}
