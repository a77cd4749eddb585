"""Every error deltasql raises, each answering two questions: did it land, and what now?

::

    DeltaSqlError
      UsageError               nothing was written; fix the call
        TableNotFound
        TableExists
        ValidationError
        ConstraintViolation
        UnsupportedFeature
        TransactionLimitExceeded
      CommitConflict           nothing was written; read again and redo
        VersionConflict
        ConcurrentAppend
        ConcurrentDeleteRead
        ConcurrentDeleteDelete
        MetadataChanged
        ProtocolChanged
        ConcurrentTransaction
      DatabaseError            nothing was written; retry
        DatabaseUnavailable
        CommitTimeout          (also a TimeoutError)
        SchemaOutdated
      StorageError             the object store failed; nothing was committed; retry
      CommitOutcomeUnknown     may have been written; look the commit up by its id
      MirrorFailure            written, not yet published; the reconciler retries
        MirrorConflict         written, cannot be published until an operator decides

The facts are attributes, the help is in the text, and every error pickles: they cross process borders.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_MOST_NAMES_LISTED = 20


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


def unknown_column(name: object, columns: Iterable[str]) -> str:
    """Return the text of an error for a column that does not exist, with a hint."""
    return f'column "{name}" does not exist{did_you_mean(str(name), columns)}'


class DeltaSqlError(Exception):
    """The root of the tree."""

    table: str | None = None
    table_id: str | None = None
    stage: str | None = None
    """Where a commit failed: validate, lock, commit or mirror. Only after the last of these has it landed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[DeltaSqlError], args: tuple[Any, ...], facts: dict[str, Any]) -> DeltaSqlError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(facts)
    return error


def _named(table: str | None, table_id: str | None) -> str:
    """How a message names a table: by name where it is known, else by id."""
    return f"table {table}" if table else f"table {table_id}" if table_id else "the table"


class UsageError(DeltaSqlError):
    """The call cannot work as it was made. Nothing was locked or written."""

    def __init__(
        self, message: str, *, table: str | None = None, table_id: str | None = None, value: Any = None
    ) -> None:
        super().__init__(message)
        self.table = table
        self.table_id = table_id
        self.value = value


class TableNotFound(UsageError):
    """No table of that name or id."""

    def __init__(self, table: str, suggestion: str | None = None, message: str | None = None) -> None:
        hint = f'did you mean "{suggestion}"?' if suggestion else "`deltasql tables` lists the tables"
        super().__init__(message or f"table {table} does not exist ({hint})", table=table, value=table)
        self.suggestion = suggestion


class TableExists(UsageError):
    """The name, or the location, is already a table's."""

    def __init__(self, table: str, message: str | None = None) -> None:
        text = message or f"table {table!r} exists already: open it with lake.table({table!r}), or drop it first."
        super().__init__(text, table=table, value=table)


class ValidationError(UsageError):
    """An action, a schema, a predicate or a version that cannot be accepted."""


class ConstraintViolation(UsageError):
    """A row breaks a constraint of its table, or a write breaks one of the database."""

    def __init__(self, message: str, *, constraint: str, table: str | None = None, table_id: str | None = None) -> None:
        super().__init__(message, table=table, table_id=table_id, value=constraint)
        self.constraint = constraint


class UnsupportedFeature(UsageError):
    """A table feature, protocol version or SQL construct that this release does not know."""

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
    """A transaction over more tables, or more files of one table, than its limits allow."""

    def __init__(self, limit: str, actual: int, maximum: int, table: str | None = None) -> None:
        if limit == "transaction.max_tables":
            text = (
                f"the transaction stages {actual} tables, {limit} allows {maximum}: split it into "
                f"transactions of at most {maximum} tables"
            )
        else:
            text = (
                f"the transaction stages {actual} files for table {table}, {limit} allows {maximum} in a "
                f"multi-table transaction: write fewer, larger files, commit table {table} in a transaction "
                f"of its own, or split the files over several transactions"
            )
        super().__init__(
            f"{text}; or raise {limit} (lake.begin({limit.rpartition('.')[2]}={actual}) for this transaction).",
            table=table,
            value=actual,
        )
        self.limit = limit
        self.actual = actual
        self.maximum = maximum


class CommitConflict(DeltaSqlError):
    """Another commit won. Nothing was written; read the table again and redo the work."""

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
            f"{_named(table, table_id)}: {reason}{won}. Nothing was written: read the table again and redo the change."
        )
        self.reason = reason
        self.table_id = table_id
        self.table = table
        self.winner = winner
        self.operation = operation
        self.committer = committer
        self.txn_id = txn_id
        self.expected = expected
        """The version that it would have become if nobody had been faster."""
        self.actual = actual
        """The version that the table has."""


class VersionConflict(CommitConflict):
    """The expected version is not the one after the head."""

    def __init__(self, table_id: str, expected: int, actual: int, table: str | None = None) -> None:
        super().__init__(
            f"expected to commit version {expected}, but the table is at version {actual}, so the next is {actual + 1}",
            table_id=table_id,
            table=table,
            expected=expected,
            actual=actual,
        )


class ConcurrentAppend(CommitConflict):
    """A winner added files that hold rows this commit should have read."""


class ConcurrentDeleteRead(CommitConflict):
    """A winner removed a file that this commit read."""


class ConcurrentDeleteDelete(CommitConflict):
    """A winner removed a file that this commit removes."""


class MetadataChanged(CommitConflict):
    """A winner changed the table's schema or properties."""


class ProtocolChanged(CommitConflict):
    """A winner changed the table's protocol."""


class ConcurrentTransaction(CommitConflict):
    """A winner wrote the same application id or metadata domain."""


class DatabaseError(DeltaSqlError):
    """PostgreSQL refused or failed. Nothing was written; the same call may be made again."""

    def __init__(self, message: str, *, sqlstate: str | None = None, table: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.table = table


class DatabaseUnavailable(DatabaseError):
    """No connection to PostgreSQL, or it was lost before the commit was sent."""


class CommitTimeout(DatabaseError, TimeoutError):
    """A lock, a statement or the whole transaction took longer than its limit."""


class SchemaOutdated(DatabaseError):
    """The database holds deltasql tables of another release."""

    def __init__(self, message: str, *, found: int, wanted: int) -> None:
        super().__init__(message)
        self.found = found
        self.wanted = wanted


class StorageError(DeltaSqlError):
    """An object store did not do what it was asked."""


class CommitOutcomeUnknown(DeltaSqlError):
    """The connection was lost during COMMIT and the server could not be asked in time."""

    def __init__(self, txn_id: str, cause: str) -> None:
        super().__init__(
            f"the reply to the commit of transaction {txn_id} was lost and PostgreSQL cannot be asked ({cause}). "
            f"The commit may have landed: once PostgreSQL answers, `lake.store.committed({txn_id!r})` tells. "
            f"Do not redo the work and do not delete its files before that."
        )
        self.txn_id = txn_id
        self.cause = cause


class MirrorFailure(DeltaSqlError):
    """The commit stands; publishing it to `_delta_log` failed and is retried by the reconciler."""

    stage = "mirror"

    def __init__(self, table_id: str, version: int, error: str, table: str | None = None) -> None:
        super().__init__(f"{_named(table, table_id)}: {self._told(version, error)}")
        self.table_id = table_id
        self.table = table
        self.version = version
        self.error = error

    def _told(self, version: int, error: str) -> str:
        return (
            f"version {version} is committed but not yet published ({error}). "
            f"The reconciler retries; `deltasql mirror status` shows it."
        )


class MirrorConflict(MirrorFailure):
    """`_delta_log` already holds other bytes for this version, or goes on without the database; nothing was
    overwritten."""

    def _told(self, version: int, error: str) -> str:
        return f"the published log is not the database's from version {version} on: {error}"
