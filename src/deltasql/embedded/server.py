"""The public class of the package. It imports on every platform; modules that need POSIX load when a server starts."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deltasql.embedded.binaries import USE_OWN_SERVER
from deltasql.errors import UsageError

if TYPE_CHECKING:
    from deltasql.embedded.sharing import Lease


class EmbeddedServer:
    """A lease on the server of one directory. The server stops when the last lease is released.

    A forked child shares the lease of its parent: it may connect, and only the parent's `close` releases the lease.
    """

    dsn: str
    root: Path
    account: str
    """The account that runs the server."""

    def __init__(self, lease: Lease, root: Path) -> None:
        from psycopg.conninfo import make_conninfo

        self._lease = lease
        self.root = root
        self.dsn = make_conninfo(host=str(lease.socket_dir), port="5432", dbname="postgres", user="postgres")
        self.account = lease.account
        atexit.register(self.close)

    @classmethod
    def start(cls, root: Path) -> EmbeddedServer:
        """Join the server of `root`, or start it; create its cluster first if there is none."""
        _reject_windows()
        from deltasql.embedded.sharing import join

        return cls(join(Path(root)), Path(root).resolve())

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
