"""Asks the process that listens on a server's socket who it is, and whether it accepts connections.

The question is PostgreSQL's start of a session in the fewest possible bytes. libpq is not used for it, because libpq
reads passwords, services and options from the environment, and the process may not be the server yet.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deltasql.errors import DatabaseUnavailable

SOCKET_NAME = ".s.PGSQL.5432"
_SECONDS = 5.0
_PROTOCOL = 3 << 16
_STARTUP = struct.pack("!I", _PROTOCOL) + b"user\0postgres\0database\0postgres\0application_name\0deltasql\0\0"
_LONGEST = 1 << 16
_STARTING_OR_STOPPING = "57P03"
_REJECTED = "28000"


@dataclass(frozen=True, slots=True)
class Answer:
    """A server that accepts connections.

    Attributes:
        pid: The process that listens, 0 if unknown.
        data: The data directory that the server names, None if it is too busy to say.
    """

    pid: int
    data: str | None


def ask(socket_dir: Path, owner: int) -> Answer | None:
    """Return the answer of the server of a socket directory.

    Returns:
        None if there is no server, while it starts or stops, or if the directory or the listening process belongs
        to another account than the owner of the cluster.

    Raises:
        DatabaseUnavailable: The server rejects this user.
    """
    if not _is_private(socket_dir, owner):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError, ValueError, struct.error):
        connection.settimeout(_SECONDS)
        connection.connect(str(socket_dir / SOCKET_NAME))
        pid, uid = _peer(connection)
        return _answer(connection, pid, socket_dir) if uid == owner else None
    return None


def _is_private(directory: Path, owner: int) -> bool:
    with suppress(OSError):
        status = directory.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == owner and not status.st_mode & 0o077
    return False


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the account that listen."""
    if sys.platform == "linux":
        pid, uid, _ = struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:  # struct xucred: version, user, groups
        pid, (_, uid) = 0, struct.unpack_from("=II", connection.getsockopt(0, socket.LOCAL_PEERCRED, 76))
    return pid, uid


def _answer(connection: socket.socket, pid: int, socket_dir: Path) -> Answer | None:
    connection.sendall(_framed(_STARTUP))
    kind, body = _receive_until(connection, b"ZE", socket_dir)
    if kind == b"E":
        return None if _field(body, b"C") == _STARTING_OR_STOPPING else Answer(pid, None)
    connection.sendall(b"Q" + _framed(b"show data_directory\0"))
    kind, row = _receive_until(connection, b"DE", socket_dir)
    connection.sendall(b"X" + _framed(b""))
    return Answer(pid, os.fsdecode(row[6:]) if kind == b"D" else None)


def _receive_until(connection: socket.socket, kinds: bytes, socket_dir: Path) -> tuple[bytes, bytes]:
    while True:
        kind, body = _message(connection)
        if kind == b"E" and _field(body, b"C") == _REJECTED:
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL at {socket_dir} rejects this user ({_field(body, b'M')}): it accepts root "
                "and the account that runs it, or root alone if root had to start it with a capability. Close the "
                "programs that use it, then retry.",
                sqlstate=_REJECTED,
            )
        if kind == b"R" and body != b"\0\0\0\0":
            raise ValueError("the embedded server asks for no password")
        if kind in kinds:
            return kind, body


def _framed(body: bytes) -> bytes:
    return struct.pack("!I", len(body) + 4) + body


def _message(connection: socket.socket) -> tuple[bytes, bytes]:
    header = _receive(connection, 5)
    return header[:1], _receive(connection, struct.unpack("!I", header[1:])[0] - 4)


def _receive(connection: socket.socket, size: int) -> bytes:
    if not 0 <= size <= _LONGEST:
        raise ValueError("not a message of PostgreSQL")
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("closed")
        received += part
    return received


def _field(error: bytes, code: bytes) -> str:
    """Return a field of an error: its code, M the message."""
    fields = {field[:1]: field[1:] for field in error.split(b"\0") if field}
    return fields.get(code, b"").decode(errors="replace")
