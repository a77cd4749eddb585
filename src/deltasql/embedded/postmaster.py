"""The server process that a cluster's postmaster.pid names: whether it runs, and whether it accepts connections.

A pid alone proves nothing: it may belong to a zombie or to an unrelated process. A server runs while the process of
that pid works in the cluster, and has ended when no process is attached to its shared memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo
from psycopg.pq import ConnStatus, PGconn, Ping

from deltasql.errors import DatabaseUnavailable

PROC = Path("/proc")
SOCKET_NAME = ".s.PGSQL.5432"
PAUSE = 0.01
_CONNECT_SECONDS = 5
_children: set[int] = set()


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The relevant lines of postmaster.pid; a server that is starting has not written all of them."""

    data: Path
    pid: int
    home: str
    socket_dir: Path | None = None
    segment: tuple[int, int] | None = None

    @property
    def at_home(self) -> bool:
        """Return False in a cluster that was copied or moved with its postmaster.pid."""
        return self.home == str(self.data)

    def runs(self) -> bool:
        """Return whether the process is alive and is the postmaster of this cluster."""
        _reap()
        if not PROC.is_dir():
            return str(self.data) in _command_line(self.pid)
        try:
            return os.path.samestat((PROC / str(self.pid) / "cwd").stat(), self.data.stat())
        except PermissionError:
            return self._is_named_by_process()
        except OSError:
            return self.pid in _children  # a process gives up its directory a moment before it can be reaped

    def lingers(self) -> bool:
        """Return whether any process of the server is left, including a backend without its postmaster."""
        return self.runs() or (self.at_home and self.segment is not None and _attached(*self.segment) > 0)

    def _is_named_by_process(self) -> bool:
        with suppress(OSError):
            arguments = (PROC / str(self.pid) / "cmdline").read_bytes().split(b"\0")
            return os.fsencode(self.data) in arguments
        return False


def read(data: Path) -> Postmaster | None:
    """Parse the cluster's postmaster.pid; return None if it is missing or malformed."""
    try:
        lines = os.fsdecode((data / "postmaster.pid").read_bytes()).split("\n")
        return Postmaster(data, int(lines[0]), lines[1], _socket_dir(lines), _segment(lines))
    except (FileNotFoundError, IndexError, ValueError):
        return None


def accepts_connections(socket_dir: Path) -> bool:
    """Return whether the server of a socket directory accepts connections; False while it starts or stops."""
    conninfo = make_conninfo(
        host=str(socket_dir), port=5432, dbname="postgres", user="postgres", connect_timeout=_CONNECT_SECONDS
    ).encode()
    connection = PGconn.connect(conninfo)
    try:
        if connection.status == ConnStatus.OK:
            return True
        message = connection.error_message.decode(errors="replace").strip()
    finally:
        connection.finish()
    if "authentication failed" in message:
        raise DatabaseUnavailable(
            f"the embedded PostgreSQL at {socket_dir} rejects this user ({message}): it accepts root and the account "
            "that runs it, or root alone if root had to start it with a capability. Close the programs that use it, "
            "then retry.",
            sqlstate="28000",
        )
    # Any other answer than "starting" or "stopping", such as too many connections, is from a server that is up.
    return PGconn.ping(conninfo) == Ping.OK


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Poll a condition; return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE)
    return True


def adopt(child: subprocess.Popen[bytes]) -> None:
    """Take over reaping a server that may outlive this process; Popen would warn about it."""
    if child.returncode is None:
        child.returncode = 0
        _children.add(child.pid)


def _reap() -> None:
    """Reap the servers that this process started and that have ended."""
    for pid in list(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _children.discard(pid)


def _socket_dir(lines: list[str]) -> Path | None:
    return Path(lines[4]) if len(lines) > 4 and lines[4] else None


def _segment(lines: list[str]) -> tuple[int, int] | None:
    """Return key and id of the System V segment that every process of the server is attached to."""
    words = lines[6].split() if len(lines) > 6 else []
    return (int(words[0]), int(words[1])) if len(words) == 2 else None


def _attached(key: int, identifier: int) -> int:
    """Return how many processes are attached to the segment; 0 if unknown, because PostgreSQL checks, too."""
    with suppress(OSError):
        for row in (PROC / "sysvipc" / "shm").read_text().splitlines()[1:]:
            columns = [int(column) for column in row.split()[:7]]
            if (columns[0] & 0xFFFFFFFF, columns[1]) == (key & 0xFFFFFFFF, identifier):
                return columns[6]
    return 0


def _command_line(pid: int) -> str:
    """Return the command line of a process on systems without /proc."""
    command = [shutil.which("ps") or "/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, check=False).stdout.decode(errors="surrogateescape")
