"""Query results as Arrow tables, through ADBC, without a Python object per row.

The sessions use read-only REPEATABLE READ transactions, so that the head of a table and its files are consistent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import adbc_driver_manager
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from deltasql.errors import DatabaseUnavailable, DeltaSqlError, UsageError
from deltasql.store.database import CLOSED, Database
from deltasql.store.queries import queries
from deltasql.store.sqlstate import translate, translate_state

T = TypeVar("T")

_DRIVER_ERRORS = (adbc_driver_manager.Error, psycopg.Error)

FILE_COLUMNS = (
    "commit_id",
    "ord",
    "path",
    "size",
    "modification_time",
    "partition_key",
    "stats",
    "data_change",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)


class ArrowSession:
    """A connection that returns query results as Arrow tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Any = None
        self._closed = False
        self._lock = threading.RLock()

    def read(self, work: Callable[[ArrowSession], T]) -> T:
        """Run queries in one transaction and return the result.

        The server may have closed an idle connection. In that case the work is retried once on a new connection.
        """
        with self._lock:
            fresh = self._connection is None
            try:
                return self._run(work)
            except DatabaseUnavailable:
                if fresh:
                    raise
                return self._run(work)

    def _run(self, work: Callable[[ArrowSession], T]) -> T:
        try:
            result = work(self)
            self._connection.rollback()
        except _DRIVER_ERRORS as error:
            self.close()
            raise _translate(error) from error
        except BaseException:
            self.close()
            raise
        return result

    def table(self, name: str, /, **values: Any) -> pa.Table:
        """Return the rows of a named query. psycopg quotes the values."""
        with self._cursor() as cursor:
            cursor.execute(self._statement(name, values))
            return cursor.fetch_arrow_table()

    @contextmanager
    def batches(
        self, name: str, /, columns: Sequence[str] = FILE_COLUMNS, **values: Any
    ) -> Iterator[pa.RecordBatchReader]:
        """Yield a reader for the rows of a named query, which arrive batch by batch."""
        with self._cursor() as cursor:
            cursor.execute(self._statement(name, values, columns))
            with cursor.fetch_record_batch() as reader:
                yield reader

    def _statement(self, name: str, values: dict[str, Any], columns: Sequence[str] = FILE_COLUMNS) -> str:
        parts = {key: sql.Literal(value) for key, value in values.items()}
        selected = sql.SQL(", ").join(sql.Identifier("a", column) for column in columns)
        return sql.SQL(queries()[name]).format(columns=selected, **parts).as_string()

    def _cursor(self) -> Any:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.cursor()

    def _connect(self) -> Any:
        if self._closed:
            raise UsageError(CLOSED)
        try:
            return self._open()
        except _DRIVER_ERRORS as error:
            raise _translate(error) from error

    def _open(self) -> Any:
        from adbc_driver_postgresql import dbapi  # loads polars where it is installed

        given: dict[str, Any] = conninfo_to_dict(self._database.conninfo)
        # Parallel workers return rows in any order, and sorting a million rows takes a second.
        settings = (
            r"-c default_transaction_isolation=repeatable\ read -c default_transaction_read_only=on "
            "-c max_parallel_workers_per_gather=0"
        )
        given["options"] = f"{given.get('options', '')} {settings}"
        return dbapi.connect(make_conninfo(**given))

    def end(self) -> None:
        """End the transaction. The next query sees the current state of the database."""
        if self._connection is not None:
            self._connection.rollback()

    def shut(self) -> None:
        """Close the connection, and open no other one."""
        with self._lock:
            self._closed = True
            self.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                with suppress(*_DRIVER_ERRORS):  # the connection is already lost
                    connection.close()


class ArrowSessions:
    """A pool of sessions, because a new session costs more than a small query."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[ArrowSession] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def session(self) -> Iterator[ArrowSession]:
        """Yield a session that no other thread uses."""
        session = self._usable() or ArrowSession(self._database)
        try:
            yield session
            session.end()
        except adbc_driver_manager.Error as error:
            session.close()
            raise _translate(error) from error
        except BaseException:
            session.close()
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(session)
                return
        session.close()

    def _usable(self) -> ArrowSession | None:
        """Return an idle session that the server has not closed, None if there is none."""
        while self._idle:
            with suppress(IndexError):  # another thread took the last one
                session = self._idle.pop()
                try:
                    session.table("arrow_head", table_key=0)  # any query works
                    session.end()
                except adbc_driver_manager.Error:
                    session.close()
                else:
                    return session
        return None

    def close(self) -> None:
        """Close all idle sessions now, and the others when they are returned."""
        with self._lock:
            self._closed = True
        while self._idle:
            self._idle.pop().close()


def _translate(error: adbc_driver_manager.Error | psycopg.Error) -> DeltaSqlError:
    if isinstance(error, psycopg.Error):
        return translate(error)
    return translate_state(error.sqlstate, str(error))
