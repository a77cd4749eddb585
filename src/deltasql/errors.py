"""Every error that deltasql raises. Each class says whether the commit landed and what to do next.

::

    DeltaSqlError
      UsageError               nothing was written; fix the call
        TableNotFound
        TableExists
        ValidationError
        ConstraintViolation
        UnsupportedFeature
        TransactionLimitExceeded
      CommitConflict           nothing was written; read the table again and repeat the work
        VersionConflict
        HistoryReplaced
        ConcurrentAppend
        ConcurrentDeleteRead
        ConcurrentDeleteDelete
        MetadataChanged
        ProtocolChanged
        ConcurrentTransaction
      DatabaseError            nothing was written; retry
        DatabaseUnavailable
        CommitTimeout          (also a TimeoutError)
        AccessDenied           do not retry: the account lacks a privilege
        SchemaOutdated
      StorageError             the object store failed; nothing was committed; retry
      CommitOutcomeUnknown     the commit may have landed; look it up by its transaction id
      MirrorFailure            committed, not yet published; the reconciler retries
        MirrorConflict         committed, cannot be published until an operator decides
          CopiedDatabase

Details are attributes, the text says how to fix the problem, and every error can be pickled.
"""

from __future__ import annotations

import pickle
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_MOST_NAMES_LISTED = 20
_LONGEST_VALUE = 300
_LONGEST_TEXT = 8_000
_short = reprlib.Repr()
_short.maxlevel = _short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = _short.maxfrozenset = 6
_short.maxstring = _short.maxlong = _short.maxother = _LONGEST_VALUE


def shown(value: Any) -> str:
    """Return a value as errors show it: its `repr`, shortened if the value is long or deeply nested."""
    try:
        return _short.repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, which Python does not print
        return f"a value of type {type(value).__name__}"


def closest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like the given one, ignoring case, or None if none is close."""
    by_lower_case = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the hint that an error adds to an unknown name: the closest known name, or else all known names."""
    names = list(known)
    close = closest_name(name, names, cutoff=cutoff)
    if close is not None:
        return f' (did you mean "{close}"?)'
    listed = ", ".join(names[:_MOST_NAMES_LISTED]) + (", …" if len(names) > _MOST_NAMES_LISTED else "")
    return f" (known: {listed})" if names else ""


def text_position(text: str, start: int) -> str:
    """Return the position of a character as errors show it: `line 2, column 5`."""
    before = text[:start]
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def unknown_column(name: object, columns: Iterable[str]) -> str:
    """Return the text of an error for a column that does not exist, with a hint."""
    text = name if isinstance(name, str) else shown(name)
    return f'column "{text}" does not exist{did_you_mean(text, columns)}'


class DeltaSqlError(Exception):
    """The base class of all errors of deltasql.

    Attributes:
        table: The name of the table, if the error is about one.
        table_id: The id of the table, if it is known.
        stage: The stage in which a commit failed: `validate`, `lock`, `commit` or `mirror`. A commit that failed in
            the stage `mirror` has landed, and in all other stages it has not.
    """

    table: str | None = None
    table_id: str | None = None
    stage: str | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(_printable(message))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {name: _picklable(value) for name, value in self.__dict__.items()})


def _printable(text: str) -> str:
    """Return the text of an error so that it can be printed and logged: half surrogate pairs are escaped, and the
    middle of a text is left out if a rejected value makes it too long."""
    text = text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]} … {text[-half:]}"


def _picklable(value: Any) -> Any:
    """Return a value, or its text if it cannot be pickled: a rejected value may be any object."""
    if value is None or isinstance(value, str | int):
        return value
    try:
        pickle.dumps(value)
    except Exception:  # pickling runs code of the object
        return shown(value)
    return value


def _rebuild(cls: type[DeltaSqlError], args: tuple[Any, ...], attributes: dict[str, Any]) -> DeltaSqlError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


def _table(table: str | None, table_id: str | None) -> str:
    """Return how a message names a table: by its name if it is known, else by its id."""
    return f"table {table}" if table else f"table {table_id}" if table_id else "the table"


class UsageError(DeltaSqlError):
    """The call is invalid. Nothing was locked or written.

    Attributes:
        value: The value that was rejected.
    """

    def __init__(
        self, message: str, *, table: str | None = None, table_id: str | None = None, value: Any = None
    ) -> None:
        super().__init__(message)
        self.table = table
        self.table_id = table_id
        self.value = value


class TableNotFound(UsageError):
    """The table does not exist.

    Attributes:
        suggestion: The name of an existing table that is close to the given one, or None.
    """

    def __init__(self, table: str, suggestion: str | None = None, message: str | None = None) -> None:
        hint = f'did you mean "{suggestion}"?' if suggestion else "`deltasql tables` lists the tables"
        super().__init__(message or f"table {table} does not exist ({hint})", table=table, value=table)
        self.suggestion = suggestion


class TableExists(UsageError):
    """A table with this name or at this location exists already."""

    def __init__(self, table: str, message: str | None = None) -> None:
        text = message or f"table {table} exists already: open it with lake.table({table!r}), or drop it first"
        super().__init__(text, table=table, value=table)


class ValidationError(UsageError):
    """An action, a schema, a predicate, a property or a version is invalid."""


class ConstraintViolation(UsageError):
    """A row violates a constraint of its table, or a write violates a constraint of the database.

    Attributes:
        constraint: The name of the constraint.
    """

    def __init__(self, message: str, *, constraint: str, table: str | None = None, table_id: str | None = None) -> None:
        super().__init__(message, table=table, table_id=table_id, value=constraint)
        self.constraint = constraint


class UnsupportedFeature(UsageError):
    """This release does not support a table feature, a protocol version or a SQL construct.

    Attributes:
        features: The names of the unsupported features.
    """

    def __init__(
        self,
        message: str,
        *,
        features: tuple[str, ...] = (),
        table: str | None = None,
        table_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, table_id=table_id, value=features)
        self.features = features


class TransactionLimitExceeded(UsageError):
    """A transaction changes more tables, or more files of one table, than its limits allow.

    Attributes:
        limit: The configuration key of the limit.
        actual: The number of tables or files that are staged.
        maximum: The number that the limit allows.
    """

    def __init__(self, limit: str, actual: int, maximum: int, table: str | None = None) -> None:
        if limit == "transaction.max_tables":
            text = (
                f"the transaction stages {actual} tables, the maximum of {limit} is {maximum}: split it into "
                f"transactions of at most {maximum} tables"
            )
        else:
            text = (
                f"the transaction stages {actual} files for table {table}, the maximum of {limit} is {maximum} in a "
                f"multi-table transaction: write fewer, larger files, commit table {table} in a separate "
                f"transaction, or split the files over several transactions"
            )
        super().__init__(
            f"{text}; or raise {limit} (lake.begin({limit.rpartition('.')[2]}={actual}) for this transaction)",
            table=table,
            value=actual,
        )
        self.limit = limit
        self.actual = actual
        self.maximum = maximum


class CommitConflict(DeltaSqlError):
    """A concurrent commit conflicts with this one. Nothing was written: read the table again and repeat the work.

    Attributes:
        reason: The rule that was broken.
        winner: The version of the concurrent commit.
        operation: The operation of the concurrent commit.
        committer: Who made the concurrent commit, if it is known.
        txn_id: The transaction id of the concurrent commit.
        expected: The version that this commit would have created without the concurrent commit.
        actual: The current version of the table.
    """

    def __init__(
        self,
        reason: str,
        *,
        table_id: str,
        table: str | None = None,
        winner: int | None = None,
        operation: str | None = None,
        committer: str | None = None,
        txn_id: str | None = None,
        expected: int | None = None,
        actual: int | None = None,
    ) -> None:
        won = "" if winner is None else f" by version {winner} ({operation or 'unknown operation'}"
        if won:
            won += f" of {committer})" if committer else ")"
        super().__init__(
            f"{_table(table, table_id)}: {reason}{won}. Nothing was written: read the table again and repeat the change"
        )
        self.reason = reason
        self.table_id = table_id
        self.table = table
        self.winner = winner
        self.operation = operation
        self.committer = committer
        self.txn_id = txn_id
        self.expected = expected
        self.actual = actual


class VersionConflict(CommitConflict):
    """The expected version is not the next version of the table."""

    def __init__(self, table_id: str, expected: int, actual: int, table: str | None = None) -> None:
        super().__init__(
            f"cannot commit version {expected}: the table is at version {actual}, so the next version is {actual + 1}",
            table_id=table_id,
            table=table,
            expected=expected,
            actual=actual,
        )


class HistoryReplaced(CommitConflict):
    """The database was restored from a backup that lacks the version which this commit has read."""


class ConcurrentAppend(CommitConflict):
    """A concurrent commit added files with rows that this commit should have read."""


class ConcurrentDeleteRead(CommitConflict):
    """A concurrent commit removed a file that this commit read."""


class ConcurrentDeleteDelete(CommitConflict):
    """A concurrent commit removed a file that this commit removes."""


class MetadataChanged(CommitConflict):
    """A concurrent commit changed the table's schema or properties."""


class ProtocolChanged(CommitConflict):
    """A concurrent commit changed the table's protocol."""


class ConcurrentTransaction(CommitConflict):
    """A concurrent commit wrote the same application id or metadata domain."""


class DatabaseError(DeltaSqlError):
    """PostgreSQL rejected a statement or failed. Nothing was written: retry the call.

    Attributes:
        sqlstate: PostgreSQL's error code, if there is one.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None, table: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.table = table


class DatabaseUnavailable(DatabaseError):
    """PostgreSQL cannot be reached, or the connection was lost before the commit was sent."""


class CommitTimeout(DatabaseError, TimeoutError):
    """A lock, a statement or the whole transaction exceeded its timeout."""


class AccessDenied(DatabaseError):
    """The account lacks a privilege in PostgreSQL. Nothing was written, and a retry cannot help."""


class SchemaOutdated(DatabaseError):
    """The tables of deltasql in the database belong to another release.

    Attributes:
        found: The schema version of the database.
        wanted: The schema version of this release.
    """

    def __init__(self, message: str, *, found: int, wanted: int) -> None:
        super().__init__(message)
        self.found = found
        self.wanted = wanted


class StorageError(DeltaSqlError):
    """An object store or a file system failed. Nothing was committed: retry the call."""


class CommitOutcomeUnknown(DeltaSqlError):
    """The connection was lost during COMMIT, and PostgreSQL did not answer in time whether the commit landed.

    Attributes:
        txn_id: The id of the transaction, for `lake.store.committed(txn_id)`.
        cause: Why the connection was lost.
    """

    def __init__(self, txn_id: str, cause: str) -> None:
        super().__init__(
            f"transaction {txn_id}: the connection was lost during the commit and PostgreSQL cannot be reached "
            f"({cause}). The commit may have landed: when PostgreSQL is available again, check with "
            f"`lake.store.committed({txn_id!r})`. Until then, do not repeat the work and do not delete its files"
        )
        self.txn_id = txn_id
        self.cause = cause


class MirrorFailure(DeltaSqlError):
    """The commit landed. Publishing it to `_delta_log` failed; the reconciler retries.

    Attributes:
        version: The version that is not published.
        error: Why publishing failed.
    """

    stage = "mirror"

    def __init__(self, table_id: str, version: int, error: str, table: str | None = None) -> None:
        super().__init__(f"{_table(table, table_id)}: {self._message(version, error)}")
        self.table_id = table_id
        self.table = table
        self.version = version
        self.error = error

    def _message(self, version: int, error: str) -> str:
        return (
            f"version {version} is committed but not yet published ({error}). "
            f"The reconciler retries; see `deltasql mirror status`"
        )


class MirrorConflict(MirrorFailure):
    """`_delta_log` holds a different commit for this version, or versions that the database does not have.

    Nothing was overwritten. An operator decides which of the two is right: see `deltasql mirror recover`.
    """

    def _message(self, version: int, error: str) -> str:
        return f"the published log differs from the database from version {version} on: {error}"


class CopiedDatabase(MirrorConflict):
    """The database is a copy: it was restored, cloned or moved. See `deltasql mirror recover`."""

    def _message(self, version: int, error: str) -> str:
        return f"version {version} is committed and not published: {error}"
