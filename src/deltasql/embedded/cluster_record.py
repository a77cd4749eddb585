"""Knows the clusters that deltasql created for this account, or that this account trusts.

Functions and triggers of a database run as the account of the server, some of them at every connection. The cluster of
a directory that comes from elsewhere is therefore not started. The record of a cluster is a file in the state directory
of the account; its name has the system identifier of the cluster and the hash of a random token in the data directory.
Whoever prepares a directory can copy the identifier but does not know the token. Each account has its own token,
because root and the owner of a directory may share a cluster.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shlex
import stat
import struct
from pathlib import Path

from deltasql.embedded import state_directory
from deltasql.embedded.account import Account, account_for
from deltasql.embedded.binaries import USE_OWN_SERVER
from deltasql.embedded.files import read_start, write_private
from deltasql.errors import UsageError

_TOKEN_BYTES = 32
_OPEN_TO_OTHERS = 0o027
# A link could lead to the token of another cluster of this account.
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EPERM}


def is_absent(data: Path) -> bool:
    """Return whether there is no cluster yet: no data directory, or an empty one."""
    return not data.exists() or not any(data.iterdir())


def check(root: Path) -> None:
    """Raise if the directory has a cluster that this account neither created nor trusts. Nothing is changed."""
    data, account = root / "postgres", account_for(root)
    if is_absent(data):
        return
    _check_cluster(data)
    if not _is_recorded(data, account):
        raise UsageError(
            f"the PostgreSQL cluster in {root} was not created by deltasql of this account, so it was not started: the "
            f"database of a prepared directory can run any program as this account. If the directory comes from a "
            f"source that you trust, such as your own backup, run `deltasql trust {shlex.quote(str(root))}`; otherwise "
            f"use another directory, or {USE_OWN_SERVER}.",
            value=root,
        )


def trust(root: Path) -> None:
    """Record the cluster of a directory, whatever its origin, as one that this account starts."""
    data, account = root / "postgres", account_for(root)
    if is_absent(data):
        raise UsageError(f"{root} has no PostgreSQL cluster: name the directory that contains `postgres`.", value=root)
    _check_cluster(data)
    admit(data, account, root)


def admit(data: Path, account: Account, root: Path) -> None:
    """Give the cluster a new token, and record it. An old token may be known to whoever prepared the directory."""
    token = secrets.token_hex(_TOKEN_BYTES)
    write_private(data, _token_name(), token, account)
    state_directory.save(_record_name(system_identifier(data), token), f"{root}\n")


def system_identifier(data: Path) -> int:
    """Return the number that initdb gave this cluster: the first field of the control file in every release."""
    identifier: int = struct.unpack("=Q", read_start(data / "global" / "pg_control", 8))[0]
    return identifier


def _check_cluster(data: Path) -> None:
    """Raise if the files are no cluster, or if other accounts can change or read them."""
    if not (data / "PG_VERSION").exists():
        raise UsageError(f"{data} contains files but no PostgreSQL cluster: move it away, or use another directory.")
    if stat.S_IMODE(data.lstat().st_mode) & _OPEN_TO_OTHERS:
        raise UsageError(
            f"other accounts can enter or change {data}: if nobody has changed it, run `chmod 700 {data}`; otherwise "
            "use another directory."
        )


def _is_recorded(data: Path, account: Account) -> bool:
    try:
        token = read_start(data / _token_name(), 2 * _TOKEN_BYTES, {account.uid, os.geteuid()}).decode("ascii")
        identifier = system_identifier(data)
    except (struct.error, UnicodeDecodeError):
        return False
    except OSError as error:
        if error.errno in _NO_FILE:
            return False
        raise
    return len(token) == 2 * _TOKEN_BYTES and state_directory.find(_record_name(identifier, token))


def _token_name() -> str:
    return f"deltasql.token.{os.geteuid()}"


def _record_name(identifier: int, token: str) -> str:
    return f"clusters/{identifier}-{hashlib.sha256(token.encode()).hexdigest()}"
