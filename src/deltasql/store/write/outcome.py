"""Find out whether a commit landed when its reply was lost, from the id of its transaction."""

from __future__ import annotations

import time
from datetime import datetime

import psycopg

from deltasql.errors import CommitOutcomeUnknown, DatabaseUnavailable, DeltaSqlError
from deltasql.store.database import Connection, Database, Row, fetch

_PAUSE = 0.1


class SentCommit:
    """The server process that was sent a commit. From then on a lost connection leaves the outcome unknown."""

    def __init__(self) -> None:
        self.backend: tuple[int, datetime] | None = None

    def mark(self, connection: Connection) -> None:
        """Record the server process: the next statement on the connection commits."""
        self.backend = connection.backend


def look_up(database: Database, txn_id: str, backend: tuple[int, datetime], cause: psycopg.Error) -> list[Row]:
    """Return the versions that a transaction committed. Retry until the server answers or `pool.timeout` has passed.

    As long as the server process that ran the transaction exists, it may still commit. That process is terminated
    first; only then is a missing transaction certain. A standby is not used, because it may lag behind.

    Raises:
        DatabaseUnavailable: The transaction did not commit.
        CommitOutcomeUnknown: The server did not answer in time.
    """
    deadline = time.monotonic() + database.config["pool.timeout"]
    last: Exception = cause
    while time.monotonic() < deadline:
        try:
            with database.connection() as connection:
                if fetch(connection, "in_recovery", {})[0]["in_recovery"]:
                    raise psycopg.OperationalError("the server is a standby, which may lag behind")
                _terminate(connection, backend, deadline)
                landed = fetch(connection, "committed", {"txn_id": txn_id})
        except psycopg.Error as error:
            last = error
            time.sleep(_PAUSE)
            continue
        except DeltaSqlError as error:  # for example, the lake was closed in the meantime
            raise CommitOutcomeUnknown(txn_id, str(error)) from cause
        if not landed:
            raise DatabaseUnavailable(
                f"the connection to PostgreSQL was lost before transaction {txn_id} committed: nothing was "
                f"written, retry it"
            ) from cause
        return [{**row, "table_id": str(row["table_id"])} for row in landed]
    raise CommitOutcomeUnknown(txn_id, str(last)) from cause


def _terminate(connection: Connection, backend: tuple[int, datetime], deadline: float) -> None:
    pid, started = backend
    while fetch(connection, "terminate_backend", {"pid": pid, "started": started}):
        if time.monotonic() > deadline:
            raise psycopg.OperationalError(f"server process {pid} does not end")
        time.sleep(_PAUSE)
