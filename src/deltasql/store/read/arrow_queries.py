"""Query results as Arrow, through ADBC: no Python object per row.

One connection per store, in read-only REPEATABLE READ transactions, so that the head and the files that belong to
it are seen at one moment.
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
    """A connection whose answers are Arrow tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Any = None
        self._over = False
        self._lock = threading.RLock()

    def read(self, question: Callable[[ArrowSession], T]) -> T:
        """Ask something; all of it sees the database at one moment.

        A connection that lay idle may have been closed by the server: the question, which only reads, is then asked
        once more on a new one.
        """
        with self._lock:
            fresh = self._connection is None
            try:
                return self._ask(question)
            except DatabaseUnavailable:
                if fresh:
                    raise
                return self._ask(question)

    def _ask(self, question: Callable[[ArrowSession], T]) -> T:
        try:
            answer = question(self)
            self._connection.rollback()
        except _DRIVER_ERRORS as error:
            self.close()
            raise _translate(error) from error
        except BaseException:
            self.close()
            raise
        return answer

    def table(self, name: str, /, **values: Any) -> pa.Table:
        """The rows of a named query; values are quoted by psycopg."""
        with self._cursor() as cursor:
            cursor.execute(self._statement(name, values))
            return cursor.fetch_arrow_table()

    @contextmanager
    def batches(
        self, name: str, /, columns: Sequence[str] = FILE_COLUMNS, **values: Any
    ) -> Iterator[pa.RecordBatchReader]:
        """The rows of a named query as they come in, never all of them at once."""
        with self._cursor() as cursor:
            cursor.execute(self._statement(name, values, columns))
            with cursor.fetch_record_batch() as reader:
                yield reader

    def _statement(self, name: str, values: dict[str, Any], columns: Sequence[str] = FILE_COLUMNS) -> str:
        parts = {key: sql.Literal(value) for key, value in values.items()}
        wanted = sql.SQL(", ").join(sql.Identifier("a", column) for column in columns)
        return sql.SQL(queries()[name]).format(columns=wanted, **parts).as_string()

    def _cursor(self) -> Any:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.cursor()

    def _connect(self) -> Any:
        if self._over:
            raise UsageError(CLOSED)
        try:
            return self._open()
        except _DRIVER_ERRORS as error:
            raise _translate(error) from error

    def _open(self) -> Any:
        from adbc_driver_postgresql import dbapi  # loads polars where it is installed

        given: dict[str, Any] = conninfo_to_dict(self._database.conninfo)
        # Parallel workers would hand rows over in any order, and putting a million of them back costs a second.
        settings = (
            r"-c default_transaction_isolation=repeatable\ read -c default_transaction_read_only=on "
            "-c max_parallel_workers_per_gather=0"
        )
        given["options"] = f"{given.get('options', '')} {settings}"
        return dbapi.connect(make_conninfo(**given))

    def end(self) -> None:
        """What is asked from here on sees the database anew."""
        if self._connection is not None:
            self._connection.rollback()

    def shut(self) -> None:
        """Give the connection back, and make no other."""
        with self._lock:
            self._over = True
            self.close()

    def close(self) -> None:
        """Give the connection back to the server."""
        with self._lock:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                with suppress(*_DRIVER_ERRORS):  # a connection that is lost already
                    connection.close()


class ArrowSessions:
    """Sessions for work of any length, kept when it is done: a new one costs more than a small question."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[ArrowSession] = []
        self._lock = threading.Lock()
        self._over = False

    @contextmanager
    def session(self) -> Iterator[ArrowSession]:
        """A session of one's own."""
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
            if not self._over:
                self._idle.append(session)
                return
        session.close()

    def _usable(self) -> ArrowSession | None:
        """An idle session that the server has not closed meanwhile."""
        while self._idle:
            with suppress(IndexError):  # another thread was faster
                session = self._idle.pop()
                try:
                    session.table("arrow_head", table_key=0)  # any question will do
                    session.end()
                except adbc_driver_manager.Error:
                    session.close()
                else:
                    return session
        return None

    def close(self) -> None:
        """Give all idle ones back, and those that are at work when they are done."""
        with self._lock:
            self._over = True
        while self._idle:
            self._idle.pop().close()


def _translate(error: adbc_driver_manager.Error | psycopg.Error) -> DeltaSqlError:
    if isinstance(error, psycopg.Error):
        return translate(error)
    return translate_state(error.sqlstate, str(error))
