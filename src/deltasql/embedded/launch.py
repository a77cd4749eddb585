"""Bringing the server of a cluster up and down. The caller holds the lock that keeps others from doing so."""

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

from deltasql.embedded import cluster, postmaster
from deltasql.embedded.account import Account, able_to_reach, account_for, check_executable
from deltasql.embedded.binaries import Binaries, find_binaries
from deltasql.embedded.files import make_private_directory, open_file
from deltasql.embedded.postmaster import Postmaster
from deltasql.embedded.waiting import PAUSE, wait_until
from deltasql.embedded.wire import SOCKET_NAME, answers
from deltasql.errors import DatabaseUnavailable

logger = logging.getLogger(__name__)

# Long enough for the recovery of a full WAL on a slow disk.
START_SECONDS = 180.0
LINGER_SECONDS = 15.0
STOP_SECONDS = 30.0
# sockaddr_un holds 108 bytes on Linux and 104 elsewhere, the last of them a NUL.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


def running_server(root: Path) -> Path:
    """The socket directory of the server, which is started where it does not run."""
    data = root / "postgres"
    return _attach(data) or _launch(root, data)


def clear_unreachable(data: Path) -> None:
    """Stop a server that nobody uses and nobody can: its directory was moved, or its socket removed."""
    server = postmaster.read(data)
    if server and _is_unreachable(server):
        stop(data)


def stop(data: Path) -> None:
    """Stop the server with a fast shutdown, or where that takes too long with an immediate one."""
    server = postmaster.read(data)
    if server is None or not server.runs():
        return
    if not _signalled(server, signal.SIGINT):
        logger.warning("PostgreSQL %s has not stopped in %s s: immediate shutdown", server.pid, STOP_SECONDS)
        _signalled(server, signal.SIGQUIT)
    if server.socket_dir:
        with suppress(OSError):
            server.socket_dir.rmdir()


def _signalled(server: Postmaster, number: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(server.pid, number)
    return wait_until(lambda: not server.runs(), STOP_SECONDS)


def _attach(data: Path) -> Path | None:
    """The socket directory of a server as soon as it serves; None as soon as nothing is left of it."""
    begin = time.monotonic()
    while server := postmaster.read(data):
        if socket_dir := _serving(server):
            return socket_dir
        if not server.lingers():
            return None
        _lose_patience(server, time.monotonic() - begin)
        time.sleep(PAUSE)
    return None


def _serving(server: Postmaster) -> Path | None:
    """Where the server serves. Not through a copied postmaster.pid: that leads to the original's server."""
    if server.socket_dir and (server.at_home or server.runs()) and answers(server.socket_dir):
        return server.socket_dir
    return None


def _is_unreachable(server: Postmaster) -> bool:
    """The socket exists before postmaster.pid names its directory, and as long as the server runs."""
    return server.socket_dir is not None and not (server.socket_dir / SOCKET_NAME).exists() and server.runs()


def _lose_patience(server: Postmaster, waited: float) -> None:
    if waited > LINGER_SECONDS and not server.runs():
        raise DatabaseUnavailable(
            f"the PostgreSQL server {server.pid} of {server.data} was killed, and after {waited:.0f} s "
            "backends of it still hold its shared memory; a new server beside them would destroy data. They "
            f"go when their query ends; or end the `postgres` processes that work in {server.data}."
        )
    if waited > (LINGER_SECONDS if _is_unreachable(server) else START_SECONDS):
        raise DatabaseUnavailable(
            f"the PostgreSQL server {server.pid} of {server.data} runs but does not serve at "
            f"{server.socket_dir} after {waited:.0f} s; its log is {server.data.parent / 'postgres.log'}. "
            "Close the programs that use it, then try again."
        )


def _launch(root: Path, data: Path) -> Path:
    binaries = find_binaries()
    sockets = _sockets_home(root)
    account = able_to_reach(account_for(root), data, binaries.postgres, sockets / "any")
    check_executable(account, binaries.postgres)
    cluster.prepare(data, binaries, account)
    socket_dir = sockets / _sockets_name(root, cluster.system_identifier(data))
    make_private_directory(socket_dir, account)
    _run(_command(binaries, data, socket_dir), account, root, socket_dir)
    return socket_dir


def _sockets_home(root: Path) -> Path:
    """The directory itself; else, for a path that no socket or no libpq can take, the temporary directory."""
    # S108: the directory made in there is checked to be nobody else's.
    homes = (root, Path(tempfile.gettempdir()).resolve(), Path("/tmp"))  # noqa: S108
    return next((home for home in homes if _fits(home)), homes[-1])


def _fits(home: Path) -> bool:
    """Whether a socket below fits an address, and libpq a host: it splits hosts at commas."""
    longest = home / _sockets_name(home, 0) / SOCKET_NAME
    return len(os.fsencode(longest)) <= SOCKET_PATH_BYTES and "," not in str(home) and str(home).isprintable()


def _sockets_name(root: Path, identifier: int) -> str:
    """A name for this cluster at this place.

    A server whose cluster was deleted removes its socket by name, up to a minute later, so a cluster that is
    made anew at the same place must use another name.
    """
    return "deltasql-" + hashlib.sha256(os.fsencode(root) + b"%d" % identifier).hexdigest()[:12]


def _command(binaries: Binaries, data: Path, socket_dir: Path) -> list[str]:
    listed = str(socket_dir).replace('"', '""')
    settings = {
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_directories": f'"{listed}"',
        "unix_socket_permissions": "0700",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    return [str(binaries.postgres), "-D", str(data), *options]


def _run(command: list[str], account: Account, root: Path, socket_dir: Path) -> None:
    # The lock of the cluster decides who serves. That of the socket only repeats it, and may hold a recycled pid.
    (socket_dir / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)
    log = open_file(root / "postgres.log", os.O_WRONLY | os.O_APPEND)
    try:
        begin = os.fstat(log).st_size
        child = account.spawn(
            command, env=_stale_pid(root / "postgres"), stdout=log, stderr=log, start_new_session=True
        )
    finally:
        os.close(log)
    try:
        _await_service(child, socket_dir, root, begin)
    except BaseException:
        _end(child)
        raise
    postmaster.adopt(child)


def _stale_pid(data: Path) -> dict[str, str]:
    """Tell PostgreSQL which pid in its lock file is not a server's, although a process or zombie has it.

    pg_ctl tells it the same way. PostgreSQL then still looks itself whether the old shared memory is in use
    before it takes the lock file over; with the file deleted, it could not.
    """
    found = postmaster.read(data)
    return {"PG_GRANDPARENT_PID": str(found.pid)} if found and not found.lingers() else {}


def _await_service(child: subprocess.Popen[bytes], socket_dir: Path, root: Path, begin: int) -> None:
    # A server whose starter was killed before it could be seen may have come first: then the child ends by itself. It
    # is waited for, or it could become a server that nobody knows once the first one stops.
    data = root / "postgres"
    settled = wait_until(lambda: child.poll() is not None or (_has(child, data) and answers(socket_dir)), START_SECONDS)
    if settled and (child.returncode is None or _attach(data)):
        return
    log = root / "postgres.log"
    what = f"ended with status {child.returncode}" if settled else f"does not serve in {START_SECONDS:.0f} s"
    raise DatabaseUnavailable(f"the embedded PostgreSQL {what}; its log {log} ends:\n{_tail(log, begin)}")


def _has(child: subprocess.Popen[bytes], data: Path) -> bool:
    """Whether the cluster is the child's."""
    server = postmaster.read(data)
    return server is not None and server.pid == child.pid


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
