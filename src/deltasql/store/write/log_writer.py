"""Commit to one or more tables. This is the only commit path.

A small commit is one call of `dl_commit`, which is one round trip. A large commit, or one that must check winners for
conflicts, takes the same steps in an explicit transaction: it stages the file rows before any lock, locks the tables in
key order, checks the winners under the lock, and calls the same `dl_commit` to write the versions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from deltasql.errors import (
    ConcurrentTransaction,
    DatabaseError,
    MirrorFailure,
    TableNotFound,
    ValidationError,
)
from deltasql.protocol.table_changes import TableCommit
from deltasql.store import action_rows
from deltasql.store.database import Connection, Database, fetch, lock_seconds, milliseconds
from deltasql.store.queries import queries
from deltasql.store.sqlstate import is_rejection, translated
from deltasql.store.write import outcome
from deltasql.store.write.commit_errors import (
    AppliedBefore,
    FilesChanged,
    WinnersToCheck,
    explain,
    partly_applied,
    version_conflict,
)
from deltasql.store.write.file_lookup import look_up_again, look_up_borrowed, look_up_removes
from deltasql.store.write.prepared_commit import (
    Committed,
    Landed,
    PreparedCommit,
    TransactionHeader,
    commit_request,
    describe,
    prepare,
)
from deltasql.store.write.stage_files import stage
from deltasql.store.write.winners import check_winners

_log = logging.getLogger(__name__)
_LOOKUP_ATTEMPTS = 20

AfterCommit = Callable[[Sequence[Landed]], Mapping[str, MirrorFailure]]
"""Called with the commits that landed. Returns the tables that could not be published, by id."""


def commit(
    database: Database, commits: Sequence[TableCommit], txn: TransactionHeader, after: AfterCommit
) -> dict[str, Committed]:
    """Commit to all tables or to none, and return the result by table id. The commits must be validated already.
    `after` is called once the commit is durable."""
    prepared = _prepare_all(database, commits, txn)
    applied: dict[str, Committed] = {}
    while any(not one.commit.is_check for one in prepared):
        try:
            committed = _commit_prepared(database, prepared, txn)
            failures = _run_after(after, _landed(prepared, committed))
            return applied | {key: replace(one, mirror=failures.get(key)) for key, one in committed.items()}
        except AppliedBefore:
            with translated(), database.connection() as connection:
                versions = applied_before(connection, prepared)
            ids = {one.key: one.commit.state.table_id for one in prepared}
            applied |= {ids[key]: Committed(ids[key], version, None, before=True) for key, version in versions.items()}
            prepared = [one for one in prepared if one.key not in versions]
            _check_not_applied(prepared, len(applied))
    return applied


def _prepare_all(database: Database, commits: Sequence[TableCommit], txn: TransactionHeader) -> list[PreparedCommit]:
    """Describe all commits first, so that a rejected one takes no commit id."""
    ordered = sorted(commits, key=lambda commit: commit.state.table_key)
    token = action_rows.file_token(txn.txn_id)
    descriptions = [describe(commit, txn) for commit in ordered]
    commit_ids = [-1 if commit.is_check else database.next_commit_id() for commit in ordered]
    return [
        prepare(commit, commit_id, token, description)
        for commit, commit_id, description in zip(ordered, commit_ids, descriptions, strict=True)
    ]


def applied_before(connection: Connection, prepared: Sequence[PreparedCommit]) -> dict[int, int]:
    """Return the tables whose application transactions an earlier commit applied, with the version of that commit."""
    requests = [{"key": one.key, "txns": one.description["txns"]} for one in prepared if "txns" in one.description]
    versions = {}
    for row in fetch(connection, "applied", {"tables": action_rows.dumps(requests)}) if requests else ():
        if row["applied"] == row["given"]:
            versions[row["key"]] = row["version"]
        elif row["applied"]:
            partly = next(one for one in prepared if one.key == row["key"])
            raise partly_applied(partly.commit, row["version"])
    return versions


def _check_not_applied(prepared: Sequence[PreparedCommit], num_applied: int) -> None:
    """Check the tables to which the application transaction is not applied yet, when it is applied to the other tables.

    A blind append may still be committed, as when a stream gets one more target table. Any other change was computed
    from newer data than the changes that were applied.
    """
    for one in prepared:
        if not one.commit.is_check and not one.commit.is_blind_append:
            state = one.commit.state
            raise ConcurrentTransaction(
                f"this application transaction was already applied to {num_applied} other tables, but not to this one. "
                f"The change of this table was computed from newer data, so it is not committed: commit it in a "
                f"separate transaction",
                table_id=state.table_id,
                table=state.name,
            )


def _run_after(after: AfterCommit, landed: Sequence[Landed]) -> Mapping[str, MirrorFailure]:
    """Call `after` and turn any exception into a failure to publish: the commit has landed, and an exception would make
    the caller delete its files."""
    try:
        return after(landed)
    except Exception as error:
        _log.exception("the steps after a commit failed")
        states = [(one.commit.state, one.version) for one in landed]
        text = f"{type(error).__name__}: {error}"
        return {state.table_id: MirrorFailure(state.table_id, version, text, state.name) for state, version in states}


def _landed(prepared: Sequence[PreparedCommit], results: Mapping[str, Committed]) -> list[Landed]:
    written = [(one, results[one.commit.state.table_id]) for one in prepared if not one.commit.is_check]
    tables = {one.commit.state.name: result.version for one, result in written} if len(written) > 1 else None
    landed = []
    for one, result in written:
        if result.committed_at is None:
            raise AssertionError("a commit that has just landed has a time")
        landed.append(Landed(one.key, one.commit_id, one.commit, result.version, result.committed_at, tables))
    return landed


def _commit_prepared(
    database: Database, prepared: list[PreparedCommit], txn: TransactionHeader
) -> dict[str, Committed]:
    num_files = sum(one.commit.changes.num_files for one in prepared)
    creates = any(one.commit.create for one in prepared)
    is_small = num_files < database.config["writer.copy_threshold"] and not txn.timeout and not creates
    run = _in_one_call if is_small else _in_steps
    for _ in range(_LOOKUP_ATTEMPTS):
        try:
            return _attempt(_Attempt(database, prepared, txn), run)
        except WinnersToCheck:
            run = _in_steps
        except FilesChanged:
            look_up_again(database, prepared)
    raise DatabaseError("concurrent commits keep adding and removing the files of this commit: retry it")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The input of both ways to commit."""

    database: Database
    prepared: list[PreparedCommit]
    txn: TransactionHeader
    sent: outcome.SentCommit = field(default_factory=outcome.SentCommit)


def _attempt(attempt: _Attempt, run: Callable[[Connection, _Attempt], dict[str, Committed]]) -> dict[str, Committed]:
    try:
        with attempt.database.connection() as connection:
            return run(connection, attempt)
    except psycopg.Error as error:
        if attempt.sent.backend is not None and not is_rejection(error):
            rows = outcome.look_up(attempt.database, attempt.txn.txn_id, attempt.sent.backend, error)
            return {r["table_id"]: Committed(r["table_id"], r["version"], r["committed_at"]) for r in rows}
        raise explain(error, attempt.prepared) from error
    except UnicodeEncodeError as error:  # half a surrogate pair in a value of a file
        names = ", ".join(one.commit.state.name for one in attempt.prepared)
        raise ValidationError(f"table {names}: a text is not valid Unicode: {error}", table=names) from None


def _in_one_call(connection: Connection, attempt: _Attempt) -> dict[str, Committed]:
    for one in attempt.prepared:
        look_up_removes(connection, one)
        look_up_borrowed(connection, one)
    request = [commit_request(one, inline=True) for one in attempt.prepared]
    attempt.sent.mark(connection)
    return finish(connection, attempt.prepared, attempt.txn, request)


def _in_steps(connection: Connection, attempt: _Attempt) -> dict[str, Committed]:
    prepared = attempt.prepared
    begin(connection, attempt.database, attempt.txn)
    for one in prepared:
        register(connection, one)
    prepared.sort(key=lambda one: one.key)
    precheck(connection, prepared)
    for one in prepared:
        look_up_removes(connection, one)
        look_up_borrowed(connection, one)
        stage(connection, one)
    heads = lock_heads(connection, prepared)
    for key, version in applied_before(connection, prepared).items():
        raise AppliedBefore(key, version)
    for one in prepared:
        check_winners(connection, one, heads)
    request = [commit_request(one, inline=False, head=heads[one.key]) for one in prepared]
    result = finish(connection, prepared, attempt.txn, request)
    attempt.sent.mark(connection)
    end(connection)
    return result


def precheck(connection: Connection, prepared: Sequence[PreparedCommit]) -> None:
    """Check expected versions without a lock, so that a commit that is too late does not stage its files."""
    if all(one.commit.expected_version is None for one in prepared):
        return
    rows = fetch(connection, "heads", {"keys": [one.key for one in prepared]})
    _check_expected(prepared, {row["table_key"]: row["current_version"] for row in rows})


def _check_expected(prepared: Sequence[PreparedCommit], heads: Mapping[int, int]) -> None:
    for one in prepared:
        state, expected = one.commit.state, one.commit.expected_version
        if one.key not in heads:
            raise TableNotFound(state.name)
        if expected is not None and heads[one.key] + 1 != expected and not one.commit.changes.txns:
            raise version_conflict(one.commit, heads[one.key])


def begin(connection: Connection, database: Database, txn: TransactionHeader) -> None:
    """Begin the database transaction. Set its timeouts if the transaction has a timeout; else the session's apply."""
    connection.execute("begin isolation level read committed")
    if txn.timeout:
        lock = lock_seconds(database.config, txn.timeout)
        limits = {"statement": milliseconds(txn.timeout), "lock": milliseconds(lock)}
        connection.execute(queries()["timeouts"], limits)
        if connection.info.server_version >= 170000:
            connection.execute(queries()["transaction_timeout"], {"transaction": limits["statement"]})


def register(connection: Connection, prepared: PreparedCommit) -> None:
    """Insert a table that this transaction creates. Reject a location that overlaps that of another table."""
    new = prepared.commit.create
    if new is not None:
        values = {"namespace": new.namespace, "name": new.name, "location": new.location}
        params = {"table_id": prepared.commit.state.table_id, **values}
        prepared.key = fetch(connection, "create_table", params)[0]["table_key"]


def lock_heads(connection: Connection, prepared: Sequence[PreparedCommit]) -> dict[int, int]:
    """Lock the tables of the commit in key order, check expected versions, and return the current versions."""
    rows = fetch(connection, "lock_heads", {"keys": [one.key for one in prepared]})
    heads = {row["table_key"]: row["current_version"] for row in rows}
    _check_expected(prepared, heads)
    return heads


def finish(
    connection: Connection,
    prepared: Sequence[PreparedCommit],
    txn: TransactionHeader,
    request: list[dict[str, Any]],
) -> dict[str, Committed]:
    """Call `dl_commit`, which writes the versions, the heads and the outbox."""
    params = {
        "txn_id": txn.txn_id,
        "author": txn.author,
        "message": txn.message,
        "tables": Jsonb(request, dumps=action_rows.encode),
    }
    rows = connection.execute(queries()["commit"], params, prepare=True).fetchall()
    ids = {one.key: one.commit.state.table_id for one in prepared}
    return {ids[r["table_key"]]: Committed(ids[r["table_key"]], r["version"], r["committed_at"]) for r in rows}


def end(connection: Connection) -> None:
    """Send COMMIT. From here on only the server knows the outcome."""
    connection.execute("commit")
