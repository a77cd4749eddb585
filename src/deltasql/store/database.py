"""Connections to PostgreSQL: a pool with deltasql's session settings, and functions that run named queries."""

from __future__ import annotations

import os
import re
import select
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from deltasql.config import Config
from deltasql.errors import DatabaseUnavailable, UsageError
from deltasql.store.queries import queries
from deltasql.store.sqlstate import translated

Row = dict[str, Any]

_IDS_PER_DRAW = 64
_LOCK_SHARE = 0.9
_SESSION_DEFAULTS = {
    "application_name": "deltasql",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}

CLOSED = "this lake is closed: open it again with deltasql.connect()"


class Connection(psycopg.Connection[DictRow]):
    """A connection that knows its server process, to find the outcome of a commit whose reply was lost."""

    backend: tuple[int, datetime] = (0, datetime.min)


class Database:
    """The PostgreSQL database with the log."""

    def __init__(
        self,
        dsn: str,
        config: Config,
        *,
        name: str = "deltasql",
        on_demand: bool = False,
        revive: Callable[[], None] | None = None,
    ) -> None:
        self.dsn = dsn
        self.config = config
        self._revive = revive
        """Starts an embedded server that was killed."""
        self._owner = os.getpid()
        self._first: psycopg.Connection[Any] | None = None
        self._ids: Iterator[int] = iter(())
        self._ids_lock = threading.Lock()
        self.conninfo = session_conninfo(dsn, config)
        self._pool: psycopg_pool.ConnectionPool[Connection] = psycopg_pool.ConnectionPool(
            self.conninfo,
            connection_class=Connection,
            kwargs={"autocommit": True, "row_factory": dict_row},
            min_size=0 if on_demand else 1,
            max_size=config["pool.size"],
            timeout=config["pool.timeout"],
            configure=self._configure,
            name=name,
            open=False,
        )
        self._on_demand = on_demand
        self._opening = threading.Lock()
        self.connections = 0
        """The number of connections that the pool has made so far."""

    def _configure(self, connection: Connection) -> None:
        """Record the server process of a new connection, and set its transaction timeout (PostgreSQL 17 and later)."""
        self.connections += 1
        row = fetch(connection, "backend", {})[0]
        connection.backend = (row["pid"], row["backend_start"])
        if connection.info.server_version >= 170000:
            limit = milliseconds(self.config["transaction.timeout"])
            connection.execute(queries()["session_timeout"], {"transaction": limit})

    def open(self) -> None:
        """Connect in the foreground, so that a wrong address or password is reported at once."""
        with translated():
            try:
                self._first = self._connect()
            except UnicodeError as error:  # of Python's look-up of host names
                raise DatabaseUnavailable(f"the name of the host is not valid: {error}") from None
        self._pool.open()

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo, autocommit=True, client_encoding="utf8")

    def take_connection(self) -> psycopg.Connection[Any]:
        """Return a connection outside the pool, which the caller closes: the one that `open` made, or a new one."""
        first, self._first = self._first, None
        return self._connect() if first is None or _is_stale(first) else first

    def identity(self) -> tuple[Any, ...]:
        """Return the system identifier of the server and the database name, which identify the database."""
        with translated(), psycopg.connect(self.conninfo, autocommit=True) as connection:
            return connection.execute(queries()["identity"]).fetchone() or ()

    def close(self) -> None:
        """Close all connections."""
        if os.getpid() == self._owner:
            self._on_demand = False
            if self._first is not None:
                self._first.close()
            self._pool.close()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Yield a connection of the pool, in autocommit mode. Errors of psycopg are not translated."""
        if os.getpid() != self._owner:
            raise UsageError(
                "this lake was opened in another process, and connections cannot be shared across fork(): "
                "call deltasql.connect() in this process"
            )
        if self._on_demand:
            with self._opening:
                self._on_demand = False
                self._pool.open()
        if self._pool.closed:
            raise UsageError(CLOSED)
        connection = self._idle()
        while _is_stale(connection):
            self._pool.putconn(connection)
            if self._revive is not None:
                self._revive()
            connection = self._idle()
        try:
            yield connection
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            self._pool.putconn(connection)

    def _idle(self) -> Connection:
        """Return a connection of the pool; start an embedded server that was killed."""
        try:
            return self._pool.getconn()
        except psycopg_pool.PoolTimeout:
            if self._revive is None:
                raise
            self._revive()
            return self._pool.getconn()

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        """Return all rows of a named query."""
        with translated(), self.connection() as connection:
            return fetch(connection, name, params)

    def row(self, name: str, /, **params: Any) -> Row | None:
        """Return the first row of a named query, None if there is none."""
        rows = self.rows(name, **params)
        return rows[0] if rows else None

    def execute(self, name: str, /, **params: Any) -> int:
        """Run a named statement, and return the number of rows that it affected."""
        with translated(), self.connection() as connection:
            return connection.execute(queries()[name], params).rowcount

    def next_commit_id(self) -> int:
        """Return a new commit id. One round trip reserves 64 of them."""
        with self._ids_lock:
            number = next(self._ids, None)
            if number is None:
                row = self.row("commit_ids")
                assert row is not None  # noqa: S101 - a function always gives a row
                first = int(row["first"])
                self._ids = iter(range(first, first + _IDS_PER_DRAW))
                number = next(self._ids)
            return number


def fetch(connection: Connection, name: str, params: Mapping[str, Any]) -> list[Row]:
    """Return all rows of a named query on a given connection."""
    return connection.execute(queries()[name], params).fetchall()


_UNKNOWN_OPTION = re.compile(r'invalid (connection option|URI query parameter:) "\w*"')


def _without_quotations(text: str) -> str:
    """Return libpq's message without what it quotes: that may be the password, or the whole connection string."""
    if _UNKNOWN_OPTION.fullmatch(text):
        return text
    return re.sub('".*"', '"…"', text.replace('"="', "="), flags=re.DOTALL)


def session_conninfo(dsn: str, config: Config) -> str:
    """Return the connection string with deltasql's session settings. Settings of the user take precedence."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise UsageError(f"invalid PostgreSQL connection string: {_without_quotations(str(error).strip())}") from None
    schema = config["postgres.schema"]
    timeout = milliseconds(config["transaction.timeout"])
    settings = {
        "search_path": schema,
        "lock_timeout": milliseconds(lock_seconds(config, config["transaction.timeout"])),
        "statement_timeout": timeout,
        "idle_in_transaction_session_timeout": timeout,
        "default_transaction_isolation": r"read\ committed",
        "jit": "off",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    merged: dict[str, Any] = {**_SESSION_DEFAULTS, **given}
    if "," in f"{merged.get('host') or ''}{merged.get('hostaddr') or ''}":
        merged.setdefault("target_session_attrs", "read-write")  # of several servers, use the primary
    merged["options"] = f"{options} {given.get('options') or ''}".strip()
    return make_conninfo(**merged)


def lock_seconds(config: Config, timeout: float) -> float:
    """Return how long a commit waits for a lock: less than its timeout, so that the error is about the lock."""
    return min(float(config["transaction.lock_timeout"]), _LOCK_SHARE * timeout)


def milliseconds(seconds: float) -> str:
    """Return a duration in the format of PostgreSQL's settings, which are limited to 24 days."""
    return f"{min(max(1, round(seconds * 1000)), 2**31 - 1)}ms"


def _roll_back(connection: Connection) -> None:
    """Roll back the transaction of a connection, or close the connection if that fails."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg.Error:
        connection.close()


def _is_stale(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the server closed an idle connection. Otherwise an idle socket has nothing to read."""
    if not connection.closed:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        if not poll.poll(0):
            return False
        connection.close()
    return True
