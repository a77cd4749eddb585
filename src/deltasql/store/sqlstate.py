"""Translate errors of PostgreSQL into errors of deltasql. The SQLSTATE decides the class; the server's text is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool

from deltasql.errors import (
    AccessDenied,
    CommitTimeout,
    ConstraintViolation,
    DatabaseError,
    DatabaseUnavailable,
    DeltaSqlError,
)

CONSTRAINTS = {
    "dl_tables_name_key": "two tables of a namespace cannot share a name",
    "dl_tables_location_key": "two tables cannot share a location",
    "dl_tables_table_id_key": "two tables cannot share an id",
    "dl_tables_version_check": "a table's version is never below -1",
    "dl_table_versions_pkey": "a version of a table is committed once",
    "dl_table_versions_commit_id_key": "a commit id becomes one version",
    "dl_add_files_path_key": "a path is in a table once",
    "dl_add_files_size_check": "a file's size is never negative",
    "dl_remove_files_add_key": "a file is removed once",
    "dl_transactions_manifest": "a manifest belongs to one transaction",
    "dl_grants_privilege_check": "a privilege is read, write or purge",
    "dl_mirror_status_check": "a mirror status is PENDING, SUCCESS or FAILED",
}
"""The rule behind each constraint that a caller can violate."""

_BY_STATE: dict[str, type[DatabaseError]] = {
    "55P03": CommitTimeout,  # lock_not_available
    "57014": CommitTimeout,  # query_canceled
    "25P03": CommitTimeout,  # idle_in_transaction_session_timeout
    "25P04": CommitTimeout,  # transaction_timeout
    "42501": AccessDenied,  # insufficient_privilege
    "57P01": DatabaseUnavailable,  # admin_shutdown
    "57P02": DatabaseUnavailable,  # crash_shutdown
    "57P03": DatabaseUnavailable,  # cannot_connect_now
    "57P05": DatabaseUnavailable,  # idle_session_timeout
}
_BY_CLASS: dict[str, type[DatabaseError]] = {
    "08": DatabaseUnavailable,  # connection exception
    "28": DatabaseUnavailable,  # invalid authorization
    "3D": DatabaseUnavailable,  # invalid catalog name
    "53": DatabaseUnavailable,  # insufficient resources
    "58": DatabaseUnavailable,  # system error
}
_ADVICE = {
    "40P01": "the transaction was rolled back because of a deadlock: retry it",
    "40001": "the transaction could not be serialised: retry it",
    "42501": "this account lacks a privilege. Reading needs the role deltasql_reader, writing deltasql_writer and "
    "publishing deltasql_mirror (`deltasql init --roles` creates them, and the owner of the lake can GRANT them); the "
    "rest needs the owner",
    "42P01": "the deltasql tables are missing, or this account may not see them: the owner of the database runs "
    "`deltasql init`, or gives the account the role deltasql_reader or deltasql_writer",
    "42883": "the deltasql functions are missing: run `deltasql migrate`",
    "25006": "the server accepts no writes: connect to the primary",
    "55P03": "another transaction holds the table's lock: retry, or raise transaction.lock_timeout",
    "57014": "it took longer than transaction.timeout: retry, split it, or raise the limit",
    "25P04": "it took longer than transaction.timeout: retry, split it, or raise the limit",
}


LOCK_TIMEOUT = "55P03"


def is_connection_loss(error: psycopg.Error) -> bool:
    """Return whether the connection was lost, so that the outcome is unknown."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state[:2] == "08" or state in ("57P01", "57P02", "57P05")


def is_rejection(error: psycopg.Error) -> bool:
    """Return whether the server rejected the statement and continues to run, so that the statement had no effect. If
    the server ended the session or crashed, the outcome is unknown."""
    if error.sqlstate is None:
        # psycopg raises these before it sends anything.
        return isinstance(error, psycopg.DataError | psycopg.ProgrammingError | psycopg.NotSupportedError)
    return error.diag.severity_nonlocalized == "ERROR" and not is_connection_loss(error)


def translate(error: psycopg.Error) -> DeltaSqlError:
    """Return the deltasql error for an error of psycopg."""
    if isinstance(error, psycopg_pool.PoolTimeout):
        return DatabaseUnavailable(
            f"no connection to PostgreSQL was available in time ({error}): the server is unreachable, or all "
            f"connections of the pool are in use. Check the server, or raise pool.size and pool.timeout"
        )
    state = error.sqlstate or ""
    if state[:2] == "23":
        return _constraint(error)
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    if error.sqlstate is None and not isinstance(error, psycopg.OperationalError):
        return DatabaseError(f"PostgreSQL: {text}")
    return translate_state(error.sqlstate, text, error.diag.message_hint if state == "42501" else None)


def translate_state(state: str | None, text: str, hint: str | None = None) -> DatabaseError:
    """Return the error for a SQLSTATE. Without one, the server was not reached."""
    advice = hint or _ADVICE.get(state or "")
    message = f"PostgreSQL: {text}" + (f" ({state})" if state else "") + (f": {advice}" if advice else "")
    if not state:
        return DatabaseUnavailable(message)
    kind = _BY_STATE.get(state) or _BY_CLASS.get(state[:2], DatabaseError)
    error = kind(message, sqlstate=state)
    if state == LOCK_TIMEOUT:
        error.stage = "lock"
    return error


def _constraint(error: psycopg.Error) -> ConstraintViolation:
    name = error.diag.constraint_name or error.diag.column_name or "unnamed"
    meaning = CONSTRAINTS.get(name, "such a row exists only once")
    detail = f" {error.diag.message_detail}" if error.diag.message_detail else ""
    return ConstraintViolation(
        f"PostgreSQL rejected the write: constraint {name} of {error.diag.table_name} says that {meaning}.{detail} "
        f"Nothing was written.",
        constraint=name,
    )


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of psycopg as errors of deltasql."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
