"""Creates the cluster on disk completely or not at all, and checks that the programs can run it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from deltasql.embedded.account import Account
from deltasql.embedded.binaries import VARIABLE, Binaries
from deltasql.embedded.cluster_record import admit, is_absent
from deltasql.embedded.files import make_private_directory, rewrite, with_directory
from deltasql.embedded.postmaster import wait_until
from deltasql.errors import DatabaseUnavailable, UsageError

logger = logging.getLogger(__name__)

_NOTE = "# Written by deltasql at every start.\n"
SETTINGS = f"""{_NOTE}# Sized for one machine and one user.
shared_buffers = 128MB
max_connections = 200
max_wal_size = 2GB
jit = off
"""
HBA = f"{_NOTE}local all all peer map=deltasql\n"
_UNFINISHED = "postgres.new-"
_ORPHAN_SECONDS = 10.0


def prepare(data: Path, binaries: Binaries, account: Account) -> None:
    """Create the cluster if there is none, check its release, and write its settings and access rules.

    Settings that came with the directory are discarded: they can name libraries and commands for the server to run.
    """
    major = binaries.major()
    if is_absent(data):
        _create(data, binaries, account)
    _check_version(data, binaries, major)
    rewrite(data / "postgresql.conf", account, lambda _: SETTINGS)
    with suppress(FileNotFoundError):
        rewrite(data / "postgresql.auto.conf", account, lambda _: _NOTE)
    rewrite(data / "pg_hba.conf", account, lambda _: HBA)
    rewrite(data / "pg_ident.conf", account, lambda _: _ident(account.users, major))


def _create(data: Path, binaries: Binaries, account: Account) -> None:
    _clear_unfinished(data.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=data.parent))
    try:
        make_private_directory(unfinished, account)
        _initdb(unfinished, binaries, account)
        admit(unfinished, account, data.parent)
        unfinished.rename(data)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    with_directory(data.parent, os.fsync)


def _clear_unfinished(root: Path) -> None:
    """Remove the files of a killed start. Its initdb may still run, and create files until it misses removed ones."""
    if not wait_until(lambda: _is_cleared(root), _ORPHAN_SECONDS):
        logger.warning("files of an interrupted start in %s cannot be removed", root)


def _is_cleared(root: Path) -> bool:
    for leftover in _unfinished(root):
        shutil.rmtree(leftover, ignore_errors=True)
    return not _unfinished(root)


def _unfinished(root: Path) -> list[Path]:
    return [path for path in root.glob(f"{_UNFINISHED}*") if not path.is_symlink()]


def _initdb(target: Path, binaries: Binaries, account: Account) -> None:
    options = ["-D", str(target), "-U", "postgres", "-E", "UTF8", "--no-locale"]
    child = account.spawn([binaries.initdb, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = _output(child)
    if child.returncode:
        lines = output.decode(errors="replace").strip().splitlines()[-15:]
        raise DatabaseUnavailable(
            f"{binaries.initdb} could not create a cluster in {target.parent}; its output ends:\n" + "\n".join(lines)
        )


def _output(child: subprocess.Popen[bytes]) -> bytes:
    with child:
        try:
            return child.communicate()[0]
        except BaseException:
            child.terminate()
            raise


def _check_version(data: Path, binaries: Binaries, major: int) -> None:
    version = (data / "PG_VERSION").read_text().strip()
    if version != str(major):
        raise UsageError(
            f"the cluster {data} belongs to PostgreSQL {version}, but the programs in {binaries.directory} are of "
            f"PostgreSQL {major}: set {VARIABLE} to the programs of PostgreSQL {version} (to keep that "
            "release, or to dump the cluster and load the dump into a new directory), or use another directory. "
            "Nothing was changed."
        )


def _ident(users: set[str], major: int) -> str:
    """Return the map from operating system users to database users; `all` needs PostgreSQL 16 or later."""
    role = "all" if major >= 16 else "postgres"
    return _NOTE + "".join(f'deltasql "{user}" {role}\n' for user in sorted(users))
