"""Did it land? Answers for a commit whose reply was lost, from the transaction's id alone."""

from __future__ import annotations

import time
from datetime import datetime

import psycopg

from deltasql.errors import CommitOutcomeUnknown, DatabaseUnavailable, DeltaSqlError
from deltasql.store.database import Connection, Database, Row, fetch

_PAUSE = 0.1


class Sent:
    """Notes the moment from which on a lost connection leaves the outcome open."""

    def __init__(self) -> None:
        self.backend: tuple[int, datetime] | None = None

    def mark(self, connection: Connection) -> None:
        """The next statement commits."""
        self.backend = connection.backend


def look_up(database: Database, txn_id: str, backend: tuple[int, datetime], cause: psycopg.Error) -> list[Row]:
    """The versions a transaction became. Asks until the server answers, or `pool.timeout` has passed.

    "Not there" is certain only once the server process that held the transaction is gone: until then it may still
    commit. So that process is ended first. A standby is not asked: it may not have heard of the transaction yet.
    """
    deadline = time.monotonic() + database.config["pool.timeout"]
    last: Exception = cause
    while time.monotonic() < deadline:
        try:
            with database.connection() as connection:
                if fetch(connection, "in_recovery", {})[0]["in_recovery"]:
                    raise psycopg.OperationalError("the server is a standby, which may lag behind")
                _await_end(connection, backend, deadline)
                landed = fetch(connection, "committed", {"txn_id": txn_id})
        except psycopg.Error as error:
            last = error
            time.sleep(_PAUSE)
            continue
        except DeltaSqlError as error:  # the lake was closed meanwhile, say: nobody can be asked
            raise CommitOutcomeUnknown(txn_id, str(error)) from cause
        if not landed:
            raise DatabaseUnavailable(
                f"the connection to PostgreSQL was lost before transaction {txn_id} committed: nothing was "
                f"written, run it again"
            ) from cause
        return [{**row, "table_id": str(row["table_id"])} for row in landed]
    raise CommitOutcomeUnknown(txn_id, str(last)) from cause


def _await_end(connection: Connection, backend: tuple[int, datetime], deadline: float) -> None:
    pid, started = backend
    while fetch(connection, "backend_gone", {"pid": pid, "started": started}):
        if time.monotonic() > deadline:
            raise psycopg.OperationalError(f"server process {pid} does not end")
        time.sleep(_PAUSE)
