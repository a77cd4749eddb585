"""The server process that a cluster's postmaster.pid names: whether it runs, and signals to it.

A pid alone proves nothing: it may belong to a zombie or to an unrelated process, and the file may be planted. A server
runs while the process of that pid is a postmaster of the cluster's owner that works in the cluster, and has ended
when no process is attached to its shared memory.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deltasql.embedded.files import read_start

PROC = Path("/proc")
PAUSE = 0.01
_LONGEST = 1 << 14
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
        """Return whether the process is alive and is the postmaster of this cluster, run by its owner."""
        _reap()
        try:
            status = self.data.stat()
        except OSError:
            return False
        if not PROC.is_dir():
            return _is_listed(self.pid, status.st_uid, self.data)
        process = PROC / str(self.pid)
        try:
            works_here = os.path.samestat((process / "cwd").stat(), status)
        except PermissionError:
            works_here = os.fsencode(self.data) in _arguments(process)
        except OSError:
            return self.pid in _children  # a process gives up its directory a moment before it can be reaped
        return works_here and _effective_user(process) == status.st_uid and _is_postmaster(process)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server, and to no process that got its pid meanwhile."""
        with suppress(ProcessLookupError), _handle(self.pid) as handle:
            if not self.runs():
                return
            if sys.platform == "linux" and handle is not None:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(self.pid, number)

    def lingers(self) -> bool:
        """Return whether any process of the server is left, including a backend without its postmaster."""
        return self.runs() or (self.at_home and self.segment is not None and _attached(*self.segment) > 0)


def read(data: Path) -> Postmaster | None:
    """Parse the cluster's postmaster.pid; return None if it is missing or malformed."""
    try:
        content = read_start(data / "postmaster.pid", _LONGEST, {data.stat().st_uid})
        lines = os.fsdecode(content).split("\n")
        return Postmaster(data, int(lines[0]), lines[1], _socket_dir(lines), _segment(lines))
    except (FileNotFoundError, IndexError, ValueError):
        return None


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


def _arguments(process: Path) -> list[bytes]:
    with suppress(OSError):
        return (process / "cmdline").read_bytes().split(b"\0")
    return []


def _is_postmaster(process: Path) -> bool:
    """Return whether the process is a postmaster or is ending. The other processes of a server have another title."""
    arguments = _arguments(process)
    return arguments == [b""] or (os.path.basename(arguments[0]) == b"postgres" and b"-D" in arguments)


def _effective_user(process: Path) -> int | None:
    with suppress(OSError, StopIteration):
        lines = (process / "status").read_text(errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("Uid:")).split()[2])
    return None


def _is_listed(pid: int, owner: int, data: Path) -> bool:
    """Return whether the process is the postmaster of a cluster, on systems without /proc."""
    command = [shutil.which("ps") or "/bin/ps", "-ww", "-o", "uid=", "-o", "command=", "-p", str(pid)]
    output = subprocess.run(command, capture_output=True, check=False).stdout.decode(errors="surrogateescape")
    user, _, line = output.strip().partition(" ")
    return user == str(owner) and f"postgres -D {data} " in line


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """Yield a handle of the process, which no other process inherits; None where the system has none."""
    handle = None
    if sys.platform == "linux":
        with suppress(OSError):
            handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)
