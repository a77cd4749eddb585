"""The face of the package. Imports on every platform; the parts that need POSIX load when a server starts."""

from __future__ import annotations

import atexit
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deltasql.embedded.advice import OWN_SERVER
from deltasql.errors import UsageError

if TYPE_CHECKING:
    from deltasql.embedded.sharing import Lease


class EmbeddedServer:
    """A lease on the server of one directory. The last lease to be given back stops the server.

    A forked child shares the lease of its parent: it may connect, and only the parent's close counts.
    """

    dsn: str

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.dsn = _conninfo(host=str(lease.socket_dir), port="5432", dbname="postgres", user="postgres")
        atexit.register(self.close)

    @classmethod
    def start(cls, root: Path) -> EmbeddedServer:
        """Attach to the server of `root`, or start it, making its cluster first where there is none."""
        _refuse_windows()
        from deltasql.embedded.sharing import join

        return cls(join(Path(root)))

    def close(self) -> None:
        """Give the lease back. A second call does nothing."""
        self._lease.leave()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse_windows() -> None:
    if sys.platform == "win32":
        raise UsageError(f"the embedded PostgreSQL does not run on Windows: {OWN_SERVER}, or work inside WSL.")


def _conninfo(**settings: str) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in settings.items())


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w./-]+", value, re.ASCII):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
