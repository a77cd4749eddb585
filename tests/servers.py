"""A PostgreSQL server over TCP with a password, like a server of a user."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ports import free_port


def debian_binaries() -> Path | None:
    """Return the directory of the installed PostgreSQL programs, or None."""
    configured = os.environ.get("TEST_POSTGRES_BIN")
    if configured:
        return Path(configured)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


class PostgresServer:
    """A server that starts on entry and stops on exit.

    Args:
        binaries: The directory of PostgreSQL's programs.
        directory: An empty directory.
        tls: Whether the server has a certificate, which the URL tells clients to check.
    """

    def __init__(self, binaries: Path, directory: Path, *, tls: bool = False) -> None:
        self._binaries = binaries
        self._tls = tls
        self._data = directory / "data"
        self._log = directory / "log"
        self._password = secrets.token_hex(8)
        self._running = False
        self.port = free_port()
        checks = f"?sslmode=verify-full&sslrootcert={directory}/server.crt" if tls else ""
        self.url = f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/postgres{checks}"

    def __enter__(self) -> PostgresServer:
        directory = self._data.parent
        password = directory / "password"
        password.write_text(self._password)
        if os.geteuid() == 0:
            for path in (directory, password):
                shutil.chown(path, _account())
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", password)
        if self._tls:
            self._make_certificate()
        self.start()
        return self

    def start(self) -> None:
        """Start the server, also after `crash`."""
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories= -c fsync=off"
        if self._tls:
            options += " -c ssl=on -c ssl_cert_file=../server.crt -c ssl_key_file=../server.key"
        self._run("pg_ctl", "-D", self._data, "-l", self._log, "-o", options, "-w", "start")
        self._running = True

    def _make_certificate(self) -> None:
        key, certificate = (self._data.parent / f"server.{ending}" for ending in ("key", "crt"))
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*command, *names], check=True, capture_output=True, timeout=60)
        key.chmod(0o600)
        if os.geteuid() == 0:
            for path in (key, certificate):
                shutil.chown(path, _account())

    def crash(self) -> None:
        """Stop the server without a clean shutdown."""
        self._running = False
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def become_standby(self) -> None:
        """Restart the server as a standby without a primary."""
        self._run("pg_ctl", "-D", self._data, "-m", "fast", "-w", "stop")
        signal = self._data / "standby.signal"
        signal.touch()
        if os.geteuid() == 0:
            shutil.chown(signal, _account())
        self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            self.crash()

    def _run(self, program: str, *arguments: Any) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        if os.geteuid() == 0:
            # PostgreSQL does not run as root; the capability lets its account read root's directories.
            account = pwd.getpwnam(_account())
            caps = "+dac_read_search"
            command = [
                "setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups",
                f"--inh-caps={caps}", f"--ambient-caps={caps}", "--", *command,
            ]  # fmt: skip
        with Path(os.devnull).open("w") as quiet:
            subprocess.run(command, check=True, stdout=quiet, cwd=self._data.parent, timeout=60)


def _account() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def processes_in(directory: Path) -> list[int]:
    """Return the processes that work in a directory or below it."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if cwd.readlink().is_relative_to(directory):
                found.append(int(cwd.parent.name))
    return found


def wait_until(condition: Any, seconds: float = 60) -> None:
    """Poll until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition is still false"
        time.sleep(0.02)
