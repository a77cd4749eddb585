"""A process of any account that listens on a socket like PostgreSQL, asks for a password and records what it receives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LISTEN = """
import os, socket, struct, sys
path, record, uid = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
received = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
if int(uid) != os.geteuid():
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
server.bind(path)
os.chmod(path, 0o777)
server.listen()
print("listening", flush=True)
while True:
    connection, _ = server.accept()
    connection.settimeout(5)
    try:
        while data := connection.recv(4096):
            os.write(received, data)
            if data[4:8] == struct.pack("!I", 3 << 16):
                connection.sendall(b"R" + struct.pack("!II", 8, 3))
    except OSError:
        pass
    connection.close()
"""


@contextmanager
def fake_server(directory: Path, record: Path, uid: int | None = None) -> Iterator[int]:
    """Yield the pid of a process of that account, which listens in the directory and asks for a password in clear text."""
    uid = os.geteuid() if uid is None else uid
    command = [sys.executable, "-c", LISTEN, str(directory / ".s.PGSQL.5432"), str(record), str(uid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "listening\n"
            yield process.pid
        finally:
            process.kill()
