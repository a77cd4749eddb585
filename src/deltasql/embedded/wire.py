"""Just enough of PostgreSQL's protocol to ask a server whether it takes connections."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from pathlib import Path

from deltasql.errors import DatabaseUnavailable

SOCKET_NAME = ".s.PGSQL.5432"
_PARAMETERS = b"user\0postgres\0database\0postgres\0\0"
_STARTUP = struct.pack("!ii", 8 + len(_PARAMETERS), 3 << 16) + _PARAMETERS
_TERMINATE = struct.pack("!ci", b"X", 4)
_REPLY_SECONDS = 5.0


def answers(socket_dir: Path) -> bool:
    """Whether the server of this directory serves; False while it starts, stops or is not there."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_REPLY_SECONDS)
        connection.connect(str(socket_dir / SOCKET_NAME))
        connection.sendall(_STARTUP)
        return _serves(connection, socket_dir)
    return False


def _serves(connection: socket.socket, socket_dir: Path) -> bool:
    while True:
        kind, body = _message(connection)
        if kind == b"Z":
            connection.sendall(_TERMINATE)
            return True
        if kind == b"E":
            return _serves_others(_fields(body), socket_dir)


def _serves_others(error: dict[str, str], socket_dir: Path) -> bool:
    """What an error tells: class 57 is not now, class 28 not you, any other is from a server that is up."""
    if error["C"].startswith("28"):
        raise DatabaseUnavailable(
            f"the embedded PostgreSQL at {socket_dir} refuses this user ({error['M']}): it serves root and "
            "the account that runs it, or root alone where root had to start it with a capability. "
            "Close the programs that use it, then try again.",
            sqlstate=error["C"],
        )
    return not error["C"].startswith("57")


def _message(connection: socket.socket) -> tuple[bytes, bytes]:
    kind, length = struct.unpack("!ci", _exactly(connection, 5))
    return kind, _exactly(connection, length - 4)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data


def _fields(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse: C is the SQLSTATE, M the message."""
    return {field[:1].decode(): field[1:].decode(errors="replace") for field in body.split(b"\0") if field}
