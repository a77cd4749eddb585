"""Starts and stops the server of a cluster. The caller holds the lock that keeps other processes from doing so."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from deltasql.embedded import cluster, cluster_record, postmaster, server_socket
from deltasql.embedded.account import Account, account_for, check_executable, with_access
from deltasql.embedded.binaries import Binaries, find_binaries
from deltasql.embedded.files import make_private_directory, open_file, remove_file
from deltasql.embedded.postmaster import PAUSE, Postmaster, wait_until
from deltasql.embedded.server_socket import SOCKET_NAME
from deltasql.errors import DatabaseUnavailable

logger = logging.getLogger(__name__)

# Long enough for the recovery of a full WAL on a slow disk.
START_SECONDS = 180.0
LINGER_SECONDS = 15.0
STOP_SECONDS = 30.0
# sockaddr_un holds 108 bytes on Linux and 104 elsewhere, the last of them a NUL.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


def running_server(root: Path) -> Path:
    """Return the socket directory of the server; start the server if it does not run.

    Raises:
        UsageError: This account neither created nor trusts the cluster.
    """
    cluster_record.check(root)
    data = root / "postgres"
    return _attach(data) or _launch(root, data)


def stop_unreachable(data: Path) -> None:
    """Stop a server without leases that cannot be reached: its directory was moved, or its socket removed."""
    server = postmaster.read(data)
    if server and _is_unreachable(server):
        stop(data)


def stop(data: Path) -> None:
    """Stop the server with a fast shutdown, or with an immediate one if that takes too long."""
    server = postmaster.read(data)
    if server is None or not server.runs():
        return
    if not _stopped_by(server, signal.SIGINT):
        logger.warning("PostgreSQL %s has not stopped in %s s: immediate shutdown", server.pid, STOP_SECONDS)
        _stopped_by(server, signal.SIGQUIT)
    if server.socket_dir:
        with suppress(OSError):
            server.socket_dir.rmdir()


def _stopped_by(server: Postmaster, number: signal.Signals) -> bool:
    """Send a signal to the server; return whether it stops in time."""
    server.send(number)
    return wait_until(lambda: not server.runs(), STOP_SECONDS)


def _attach(data: Path) -> Path | None:
    """Wait for a server that is starting or stopping; return its socket directory, or None once it has ended."""
    begin = time.monotonic()
    while server := postmaster.read(data):
        if socket_dir := _serving(server):
            return socket_dir
        if not server.lingers():
            return None
        _check_patience(server, time.monotonic() - begin)
        time.sleep(PAUSE)
    return None


def _serving(server: Postmaster) -> Path | None:
    """Return the socket directory if the server accepts connections.

    A copied or planted postmaster.pid names another server, so the process that listens is compared. Its pid is
    another one if it runs in another container; then the server names its directory.
    """
    if server.socket_dir is None or not (server.at_home or server.runs()):
        return None
    answer = server_socket.ask(server.socket_dir, server.data.stat().st_uid)
    if answer is None:
        return None
    is_named = server.at_home and answer.data == str(server.data)
    return server.socket_dir if is_named or (answer.pid in {0, server.pid} and server.runs()) else None


def _is_unreachable(server: Postmaster) -> bool:
    """Return whether a running server has lost its socket, which exists before postmaster.pid names its directory."""
    return server.socket_dir is not None and not (server.socket_dir / SOCKET_NAME).exists() and server.runs()


def _check_patience(server: Postmaster, waited: float) -> None:
    """Raise if the server has not started or ended after the time that it normally takes."""
    if waited > LINGER_SECONDS and not server.runs():
        raise DatabaseUnavailable(
            f"the PostgreSQL server {server.pid} of {server.data} was killed, and after {waited:.0f} s some of its "
            "backends still hold its shared memory; a second server would destroy data. Wait until their queries "
            f"end, or end the `postgres` processes that work in {server.data}."
        )
    if waited > (LINGER_SECONDS if _is_unreachable(server) else START_SECONDS):
        raise DatabaseUnavailable(
            f"the PostgreSQL server {server.pid} of {server.data} runs but accepts no connections at "
            f"{server.socket_dir} after {waited:.0f} s; its log is {server.data.parent / 'postgres.log'}. "
            "Close the programs that use it, then retry."
        )


def _launch(root: Path, data: Path) -> Path:
    binaries = find_binaries()
    sockets = _socket_parent(root)
    account = with_access(account_for(root), root, data, binaries.postgres, sockets / "any")
    check_executable(account, binaries.postgres)
    cluster.prepare(data, binaries, account)
    socket_dir = sockets / _socket_dir_name(root, cluster_record.system_identifier(data))
    make_private_directory(socket_dir, account)
    _run(_command(binaries, data, socket_dir), account, root, socket_dir)
    return socket_dir


def _socket_parent(root: Path) -> Path:
    """Return the directory itself, or the temporary directory if a socket or libpq cannot use that path."""
    # S108: the owner of the directory that is created there is checked.
    parents = (root, Path(tempfile.gettempdir()).resolve(), Path("/tmp"))  # noqa: S108
    return next((parent for parent in parents if _fits(parent)), parents[-1])


def _fits(parent: Path) -> bool:
    """Return whether a socket address can hold the path, and libpq can use it as a host: it splits hosts at commas."""
    longest = parent / _socket_dir_name(parent, 0) / SOCKET_NAME
    return len(os.fsencode(longest)) <= SOCKET_PATH_BYTES and "," not in str(parent) and str(parent).isprintable()


def _socket_dir_name(root: Path, identifier: int) -> str:
    """Return a name for this cluster in this directory.

    A server whose cluster was deleted removes its socket by name, up to a minute later, so a new cluster in the same
    directory must use another name.
    """
    return "deltasql-" + hashlib.sha256(os.fsencode(root) + b"%d" % identifier).hexdigest()[:12]


def _command(binaries: Binaries, data: Path, socket_dir: Path) -> list[str]:
    quoted = str(socket_dir).replace('"', '""')
    settings = {
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_directories": f'"{quoted}"',
        "unix_socket_permissions": "0700",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    return [str(binaries.postgres), "-D", str(data), *options]


def _run(command: list[str], account: Account, root: Path, socket_dir: Path) -> None:
    # The lock of the cluster decides which server runs. The lock of the socket may name a recycled pid.
    remove_file(socket_dir, f"{SOCKET_NAME}.lock")
    log = open_file(root / "postgres.log", os.O_WRONLY | os.O_APPEND)
    try:
        begin = os.fstat(log).st_size
        child = account.spawn(
            command, env=_stale_pid(root / "postgres"), stdout=log, stderr=log, start_new_session=True
        )
    finally:
        os.close(log)
    try:
        _wait_for_start(child, socket_dir, root, begin)
    except BaseException:
        _end(child)
        raise
    postmaster.adopt(child)


def _stale_pid(data: Path) -> dict[str, str]:
    """Return the variable by which pg_ctl, too, tells PostgreSQL that the pid in its lock file is not a server.

    PostgreSQL still checks whether the old shared memory is in use before it takes the lock file over; if the file were
    deleted instead, it could not.
    """
    server = postmaster.read(data)
    return {"PG_GRANDPARENT_PID": str(server.pid)} if server and not server.lingers() else {}


def _wait_for_start(child: subprocess.Popen[bytes], socket_dir: Path, root: Path, begin: int) -> None:
    # A server that a killed process started may be first: then the child ends by itself. Without waiting for that, the
    # child could become an unknown server once the first one stops.
    data = root / "postgres"
    settled = wait_until(lambda: child.poll() is not None or _serves(child, data, socket_dir), START_SECONDS)
    if settled and (child.returncode is None or _attach(data)):
        return
    log = root / "postgres.log"
    problem = f"ended with status {child.returncode}" if settled else f"did not start in {START_SECONDS:.0f} s"
    raise DatabaseUnavailable(f"the embedded PostgreSQL {problem}; its log {log} ends:\n{_tail(log, begin)}")


def _serves(child: subprocess.Popen[bytes], data: Path, socket_dir: Path) -> bool:
    """Return whether the child is the server of the cluster and accepts connections."""
    server = postmaster.read(data)
    if server is None or server.pid != child.pid:
        return False
    return server_socket.ask(socket_dir, data.stat().st_uid) is not None


def _tail(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return "\n".join(file.read().decode(errors="replace").splitlines()[-15:])


def _end(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGINT)
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGQUIT)
        child.wait()
