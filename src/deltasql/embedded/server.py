"""The public class of the package. It imports on every platform; modules that need POSIX load when a server starts."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deltasql.embedded.binaries import USE_OWN_SERVER
from deltasql.errors import UsageError

# libpq reads an option that a connection string leaves out from the environment or from a service file: the password of
# another server, the address of another host, a requirement that the embedded server does not meet.
_NOT_FROM_ENVIRONMENT = {
    "hostaddr": "",
    "requirepeer": "",
    "password": "",
    "passfile": "/dev/null/none",
    "options": "",
    "channel_binding": "disable",
    "gssencmode": "disable",
    "target_session_attrs": "any",
}
_REQUIRE_AUTH = 160000

if TYPE_CHECKING:
    from deltasql.embedded.sharing import Lease


class EmbeddedServer:
    """A lease on the server of one directory. The server stops when the last lease is released.

    A forked child shares the lease of its parent: it may connect, and only the parent's `close` releases the lease.
    """

    dsn: str
    """The connection string for every program."""
    private_dsn: str
    """The connection string for deltasql in this process: a socket of another account is not the embedded server, and
    gets neither a password nor a statement."""
    root: Path
    account: str
    """The account that runs the server."""

    def __init__(self, lease: Lease, root: Path) -> None:
        from psycopg.conninfo import make_conninfo
        from psycopg.pq import version

        self._lease = lease
        self.root = root
        self.account = lease.account
        self.dsn = make_conninfo(
            host=str(lease.socket_dir),
            port="5432",
            dbname="postgres",
            user="postgres",
            **_NOT_FROM_ENVIRONMENT,
        )
        # Programs with an older libpq do not know require_auth. requirepeer would forbid a proxy before the socket.
        self.private_dsn = make_conninfo(
            self.dsn, requirepeer=lease.account, require_auth="none" if version() >= _REQUIRE_AUTH else None
        )
        atexit.register(self.close)

    @classmethod
    def start(cls, root: Path) -> EmbeddedServer:
        """Join the server of `root`, or start it; create its cluster first if there is none."""
        _reject_windows()
        from deltasql.embedded.sharing import join

        return cls(join(Path(root)), Path(root).resolve())

    @staticmethod
    def trust(root: Path) -> Path:
        """Let this account start a cluster that its deltasql did not create; return the path of the directory."""
        _reject_windows()
        from deltasql.embedded.sharing import trust

        return trust(Path(root))

    def revive(self) -> None:
        """Start the server again if it was killed."""
        self._lease.revive()

    def close(self) -> None:
        """Release the lease. A second call does nothing."""
        self._lease.release()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reject_windows() -> None:
    if sys.platform == "win32":
        raise UsageError(f"the embedded PostgreSQL does not run on Windows: {USE_OWN_SERVER}, or work inside WSL.")
