"""What postmaster.pid says about a server, and how much of that is still true.

A pid alone proves nothing: it may be a zombie's or have passed to an unrelated process. A server is alive
while the process of that pid works in the cluster, and gone once nobody holds its shared memory any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_children: set[int] = set()


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The lines of postmaster.pid that matter; a server that is starting has not written all of them."""

    data: Path
    pid: int
    home: str
    socket_dir: Path | None = None
    segment: tuple[int, int] | None = None

    @property
    def at_home(self) -> bool:
        """False in a cluster that was copied or moved with its postmaster.pid."""
        return self.home == str(self.data)

    def runs(self) -> bool:
        """Whether that process is alive and the postmaster of this cluster."""
        _reap()
        if not PROC.is_dir():
            return str(self.data) in _ps(self.pid)
        try:
            return os.path.samestat((PROC / str(self.pid) / "cwd").stat(), self.data.stat())
        except PermissionError:
            return self._is_named_by_process()
        except OSError:
            return self.pid in _children  # a process gives up its directory a moment before it can be reaped

    def lingers(self) -> bool:
        """Whether any process of the server is left, be it a backend that has lost its postmaster."""
        return self.runs() or (self.at_home and self.segment is not None and _attached(*self.segment) > 0)

    def _is_named_by_process(self) -> bool:
        with suppress(OSError):
            arguments = (PROC / str(self.pid) / "cmdline").read_bytes().split(b"\0")
            return os.fsencode(self.data) in arguments
        return False


def read(data: Path) -> Postmaster | None:
    """What the cluster's postmaster.pid says; None where there is none, or nothing sensible in it."""
    try:
        lines = os.fsdecode((data / "postmaster.pid").read_bytes()).split("\n")
        return Postmaster(data, int(lines[0]), lines[1], _socket_dir(lines), _segment(lines))
    except (FileNotFoundError, IndexError, ValueError):
        return None


def adopt(child: subprocess.Popen[bytes]) -> None:
    """Take over the wait for a server that may outlive this process, which Popen would warn about."""
    if child.returncode is None:
        child.returncode = 0
        _children.add(child.pid)


def _reap() -> None:
    """Clear away the zombies of servers started here, and of nobody else's children."""
    for pid in list(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _children.discard(pid)


def _socket_dir(lines: list[str]) -> Path | None:
    return Path(lines[4]) if len(lines) > 4 and lines[4] else None


def _segment(lines: list[str]) -> tuple[int, int] | None:
    """Key and id of the System V segment that every process of the server is attached to."""
    words = lines[6].split() if len(lines) > 6 else []
    return (int(words[0]), int(words[1])) if len(words) == 2 else None


def _attached(key: int, identifier: int) -> int:
    """How many processes hold the segment; 0 where the system does not say, as PostgreSQL looks again."""
    with suppress(OSError):
        for row in (PROC / "sysvipc" / "shm").read_text().splitlines()[1:]:
            found = [int(column) for column in row.split()[:7]]
            if (found[0] & 0xFFFFFFFF, found[1]) == (key & 0xFFFFFFFF, identifier):
                return found[6]
    return 0


def _ps(pid: int) -> str:
    """The command line of a process, where there is no /proc to read it from."""
    command = [shutil.which("ps") or "/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, check=False).stdout.decode(errors="surrogateescape")
