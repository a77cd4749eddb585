"""Connections: a pool whose sessions carry deltasql's search path and limits, and a few verbs to query with."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from deltasql.config import Config
from deltasql.errors import UsageError
from deltasql.store.queries import queries
from deltasql.store.sqlstate import translated

Row = dict[str, Any]

_IDS_PER_DRAW = 64
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
    """A session that knows which server process serves it, for the day a reply gets lost."""

    backend: tuple[int, datetime] = (0, datetime.min)


class Database:
    """One PostgreSQL database: where the log lives."""

    def __init__(self, dsn: str, config: Config, *, name: str = "deltasql", on_demand: bool = False) -> None:
        self.dsn = dsn
        self.config = config
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

    def _configure(self, connection: Connection) -> None:
        """Note which server process serves a new session, and limit its transactions as a whole (17 and later)."""
        row = fetch(connection, "backend", {})[0]
        connection.backend = (row["pid"], row["backend_start"])
        if connection.info.server_version >= 170000:
            limit = milliseconds(self.config["transaction.timeout"])
            connection.execute(queries()["session_timeout"], {"transaction": limit})

    def open(self) -> None:
        """Connect in the foreground, so that a wrong address or password is reported at once."""
        with translated():
            self._first = self._connect()
        self._pool.open()

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo, autocommit=True, client_encoding="utf8")

    def take_connection(self) -> psycopg.Connection[Any]:
        """Return a connection outside the pool, which the caller closes: the one that `open` made, or a new one."""
        first, self._first = self._first, None
        return self._connect() if first is None or _is_stale(first) else first

    def identity(self) -> tuple[Any, ...]:
        """What tells this database from every other, whichever way it is reached."""
        with translated(), psycopg.connect(self.conninfo, autocommit=True) as connection:
            return connection.execute(queries()["identity"]).fetchone() or ()

    def close(self) -> None:
        """Give all connections back to the server."""
        if os.getpid() == self._owner:
            self._on_demand = False
            if self._first is not None:
                self._first.close()
            self._pool.close()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the pool, in autocommit mode. psycopg's errors pass as they are."""
        if os.getpid() != self._owner:
            raise UsageError(
                "this lake was opened in another process, and a connection cannot be shared across fork(): "
                "call deltasql.connect() in this process"
            )
        if self._on_demand:
            with self._opening:
                self._on_demand = False
                self._pool.open()
        if self._pool.closed:
            raise UsageError(CLOSED)
        connection = self._pool.getconn()
        while _is_stale(connection):
            self._pool.putconn(connection)
            connection = self._pool.getconn()
        try:
            yield connection
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            self._pool.putconn(connection)

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        """All rows of a named query."""
        with translated(), self.connection() as connection:
            return fetch(connection, name, params)

    def row(self, name: str, /, **params: Any) -> Row | None:
        """The first row of a named query, if there is one."""
        rows = self.rows(name, **params)
        return rows[0] if rows else None

    def execute(self, name: str, /, **params: Any) -> int:
        """Run a named statement; the number of rows it touched."""
        with translated(), self.connection() as connection:
            return connection.execute(queries()[name], params).rowcount

    def next_commit_id(self) -> int:
        """A commit id that nobody else has; one round trip gives 64 of them."""
        with self._ids_lock:
            number = next(self._ids, None)
            if number is None:
                row = self.row("commit_ids")
                assert row is not None  # noqa: S101 - nextval always gives a row
                first = int(row["nextval"])
                self._ids = iter(range(first, first + _IDS_PER_DRAW))
                number = next(self._ids)
            return number


def fetch(connection: Connection, name: str, params: Mapping[str, Any]) -> list[Row]:
    """All rows of a named query on a connection at hand."""
    return connection.execute(queries()[name], params).fetchall()


def session_conninfo(dsn: str, config: Config) -> str:
    """The user's connection string with deltasql's session settings; what the user set wins."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        # The string itself stays out: a mistyped keyword may hold the password.
        raise UsageError(f"this is not a PostgreSQL connection string: {str(error).strip()}") from None
    schema = config["postgres.schema"]
    timeout = milliseconds(config["transaction.timeout"])
    settings = {
        "search_path": schema,
        "lock_timeout": milliseconds(config["transaction.lock_timeout"]),
        "statement_timeout": timeout,
        "idle_in_transaction_session_timeout": timeout,
        "default_transaction_isolation": r"read\ committed",
        "jit": "off",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    merged: dict[str, Any] = {**_SESSION_DEFAULTS, **given}
    if "," in f"{merged.get('host') or ''}{merged.get('hostaddr') or ''}":
        merged.setdefault("target_session_attrs", "read-write")  # of several servers, the one that commits
    merged["options"] = f"{options} {given.get('options') or ''}".strip()
    return make_conninfo(**merged)


def milliseconds(seconds: float) -> str:
    """A duration as PostgreSQL's settings want it."""
    return f"{max(1, round(seconds * 1000))}ms"


def _roll_back(connection: Connection) -> None:
    """Leave no transaction behind; a connection that cannot even do that is given up."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg.Error:
        connection.close()


def _is_stale(connection: psycopg.Connection[Any]) -> bool:
    """Has the server hung up while the connection lay in the pool? An idle socket has nothing to read otherwise."""
    if not connection.closed:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        if not poll.poll(0):
            return False
        connection.close()
    return True


def copy_rows(
    connection: Connection, table: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Any]]
) -> None:
    """Binary COPY row by row: encoding overlaps the server's work."""
    names = ", ".join(name for name, _ in columns)
    statement = psycopg.sql.SQL("copy {} ({}) from stdin (format binary)").format(
        psycopg.sql.Identifier(table), psycopg.sql.SQL(names)
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([kind for _, kind in columns])
        write = copy.write_row
        for row in rows:
            write(row)


def copy_partition_files(
    connection: Connection, table_key: int, commit_id: int, files: Sequence[tuple[int, Sequence[int]]]
) -> None:
    """Text COPY of whole numbers: encoding an array element by element would cost as much as the files."""
    if not files:
        return
    lines = [f"{table_key}\t{commit_id}\t{key}\t{{{','.join(map(str, ords))}}}\n" for key, ords in files]
    with connection.cursor() as cursor, cursor.copy(queries()["copy_partition_files"]) as copy:
        copy.write("".join(lines))
