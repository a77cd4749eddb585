"""The one commit path, for one table and for many.

A small commit is one call of `dl_commit`, one round trip. A large one, or one that meets winners it must examine,
takes the same steps in a transaction of its own: files are copied in before any lock, heads are locked in key
order, winners are examined under the lock, and the same `dl_commit` writes the versions.
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
)
from deltasql.protocol.table_changes import TableCommit
from deltasql.store import action_rows
from deltasql.store.action_rows import Partitions
from deltasql.store.database import Connection, Database, copy_places, copy_rows, fetch, milliseconds
from deltasql.store.queries import queries
from deltasql.store.sqlstate import is_refusal, translated
from deltasql.store.write import outcome
from deltasql.store.write.commit_errors import (
    AppliedBefore,
    ExamineWinners,
    Misplaced,
    explain,
    overlap,
    partly_applied,
    version_conflict,
)
from deltasql.store.write.commit_parts import (
    Committed,
    Landed,
    Part,
    TransactionHeader,
    described,
    gens_of,
    part_of,
    request_of,
)
from deltasql.store.write.file_generations import place_again, place_files_of_others, place_removes
from deltasql.store.write.winners import examine_winners

_log = logging.getLogger(__name__)
_PLACING_ATTEMPTS = 20
# Any constant will do, as long as every deltasql process takes the same lock before it creates a table.
_LOCATIONS_LOCK = 0x6C6F6361


def commit(
    database: Database,
    commits: Sequence[TableCommit],
    txn: TransactionHeader,
    after: Callable[[Sequence[Landed]], Mapping[str, MirrorFailure]],
) -> dict[str, Committed]:
    """Commit all tables or none. Each was validated before; the result is durable when `after` is called with it."""
    ordered = sorted(commits, key=lambda c: c.state.table_key)
    token = action_rows.file_token(txn.txn_id)
    texts = [described(own, txn) for own in ordered]  # whatever is refused is refused before anything is taken
    numbers = [-1 if own.is_check else database.next_commit_id() for own in ordered]
    parts = [part_of(own, number, token, text) for own, number, text in zip(ordered, numbers, texts, strict=True)]
    applied: dict[str, Committed] = {}
    while any(not part.commit.is_check for part in parts):
        try:
            landed = _commit_parts(database, parts, txn)
            failures = _followed(after, _landed(parts, landed))
            return applied | {key: replace(one, mirror=failures.get(key)) for key, one in landed.items()}
        except AppliedBefore:
            with translated(), database.connection() as connection:
                found = applied_before(connection, parts)
            ids = {part.key: part.commit.state.table_id for part in parts}
            applied |= {ids[key]: Committed(ids[key], version, None, before=True) for key, version in found.items()}
            parts = [part for part in parts if part.key not in found]
            _check_rest(parts, sorted(applied))
    return applied


def applied_before(connection: Connection, parts: Sequence[Part]) -> dict[int, int]:
    """The tables to which an earlier commit applied the same application transactions, with the versions it became."""
    asked = [{"key": part.key, "txns": part.description["txns"]} for part in parts if "txns" in part.description]
    found = {}
    for row in fetch(connection, "applied", {"parts": action_rows.dumps(asked)}) if asked else ():
        if row["applied"] == row["given"]:
            found[row["key"]] = row["version"]
        elif row["applied"]:
            part = next(part for part in parts if part.key == row["key"])
            raise partly_applied(part.commit, row["version"])
    return found


def _check_rest(parts: Sequence[Part], applied: Sequence[str]) -> None:
    """Some tables have this work already. Others may still get rows that are merely added, as when a stream feeds one
    table more; but what was computed from the tables as they are now is not what was committed then."""
    for part in parts:
        if not part.commit.is_check and not part.commit.is_blind_append:
            state = part.commit.state
            raise ConcurrentTransaction(
                f"this application transaction was applied to {len(applied)} other tables before, and to this one it "
                f"was not: what it would change here now is not what it would have changed then. If it is to be done, "
                f"do it in a transaction of its own",
                table_id=state.table_id,
                table=state.name,
            )


def _followed(
    after: Callable[[Sequence[Landed]], Mapping[str, MirrorFailure]], landed: Sequence[Landed]
) -> Mapping[str, MirrorFailure]:
    """What follows a commit. It has landed: whatever goes wrong here must not look as if it had not, or its files would
    be taken for nobody's."""
    try:
        return after(landed)
    except Exception as error:
        _log.exception("what follows a commit failed")
        states = [(part.commit.state, part.version) for part in landed]
        text = f"{type(error).__name__}: {error}"
        return {state.table_id: MirrorFailure(state.table_id, version, text, state.name) for state, version in states}


def _landed(parts: Sequence[Part], results: Mapping[str, Committed]) -> list[Landed]:
    written = [(part, results[part.commit.state.table_id]) for part in parts if not part.commit.is_check]
    tables = {part.commit.state.name: one.version for part, one in written} if len(written) > 1 else None
    found = []
    for part, one in written:
        if one.committed_at is None:
            raise AssertionError("a commit that has just landed has a time")
        found.append(Landed(part.key, part.commit_id, part.commit, one.version, one.committed_at, tables))
    return found


def _commit_parts(database: Database, parts: list[Part], txn: TransactionHeader) -> dict[str, Committed]:
    files = sum(part.commit.changes.num_files for part in parts)
    creates = any(part.commit.create for part in parts)
    small = files < database.config["writer.copy_threshold"] and not txn.timeout and not creates
    run = _in_one_call if small else _in_steps
    for _ in range(_PLACING_ATTEMPTS):
        try:
            return _attempt(_Attempt(database, parts, txn), run)
        except ExamineWinners:
            run = _in_steps
        except Misplaced:
            place_again(database, parts)
    raise DatabaseError("other writers keep adding and removing the files of this commit: run it again")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What the two ways to commit work on."""

    database: Database
    parts: list[Part]
    txn: TransactionHeader
    sent: outcome.Sent = field(default_factory=outcome.Sent)


def _attempt(attempt: _Attempt, run: Callable[[Connection, _Attempt], dict[str, Committed]]) -> dict[str, Committed]:
    try:
        with attempt.database.connection() as connection:
            return run(connection, attempt)
    except psycopg.Error as error:
        if attempt.sent.backend is not None and not is_refusal(error):
            landed = outcome.look_up(attempt.database, attempt.txn.txn_id, attempt.sent.backend, error)
            return {r["table_id"]: Committed(r["table_id"], r["version"], r["committed_at"]) for r in landed}
        raise explain(error, attempt.parts) from error


def _in_one_call(connection: Connection, attempt: _Attempt) -> dict[str, Committed]:
    for part in attempt.parts:
        place_removes(connection, part)
        place_files_of_others(connection, part)
    request = [request_of(part, inline=True) for part in attempt.parts]
    attempt.sent.mark(connection)
    return finish(connection, attempt.parts, attempt.txn, request)


def _in_steps(connection: Connection, attempt: _Attempt) -> dict[str, Committed]:
    parts = attempt.parts
    begin(connection, attempt.database, attempt.txn)
    for part in parts:
        register(connection, part)
    parts.sort(key=lambda part: part.key)
    precheck(connection, parts)
    for part in parts:
        place_removes(connection, part)
        place_files_of_others(connection, part)
        stage(connection, part)
    heads = lock_heads(connection, parts)
    for key, version in applied_before(connection, parts).items():
        raise AppliedBefore(key, version)
    for part in parts:
        examine_winners(connection, part, heads)
    request = [request_of(part, inline=False, head=heads[part.key]) for part in parts]
    result = finish(connection, parts, attempt.txn, request)
    attempt.sent.mark(connection)
    end(connection)
    return result


def precheck(connection: Connection, parts: Sequence[Part]) -> None:
    """Without a lock: a strict commit that is too late already should not copy its files first."""
    if all(part.commit.expected_version is None for part in parts):
        return
    heads = fetch(connection, "heads", {"keys": [part.key for part in parts]})
    _check_strict(parts, {row["table_key"]: row["current_version"] for row in heads})


def _check_strict(parts: Sequence[Part], heads: Mapping[int, int]) -> None:
    for part in parts:
        state, expected = part.commit.state, part.commit.expected_version
        if part.key not in heads:
            raise TableNotFound(state.name)
        if expected is not None and heads[part.key] + 1 != expected and not part.commit.changes.txns:
            raise version_conflict(part.commit, heads[part.key])


def begin(connection: Connection, database: Database, txn: TransactionHeader) -> None:
    """Open the transaction. The session has its limits already, unless this transaction has one of its own."""
    connection.execute("begin isolation level read committed")
    if txn.timeout:
        lock = min(txn.timeout, database.config["transaction.lock_timeout"])
        limits = {"statement": milliseconds(txn.timeout), "lock": milliseconds(lock)}
        connection.execute(queries()["timeouts"], limits)
        if connection.info.server_version >= 170000:
            connection.execute(queries()["transaction_timeout"], {"transaction": limits["statement"]})


def register(connection: Connection, part: Part) -> None:
    """Give a table that this transaction creates its key. Its directory must not mix with that of another table."""
    new = part.commit.create
    if new is not None:
        fetch(connection, "lock_locations", {"lock": _LOCATIONS_LOCK})
        for other in fetch(connection, "overlapping", {"location": new.location}):
            raise overlap(part.commit.state.name, new.location, other)
        values = {"namespace": new.namespace, "name": new.name, "location": new.location}
        part.key = fetch(connection, "insert_table", {"table_id": part.commit.state.table_id, **values})[0]["table_key"]


def stage(connection: Connection, part: Part) -> None:
    """Copy all file rows in, before any lock. They stay invisible until COMMIT."""
    changes = part.commit.changes
    part.partitions = Partitions()
    if changes.adds:
        key = (part.key, part.commit_id)
        adds = action_rows.add_rows(changes, gens_of(part), part.partitions, *key)
        copy_rows(connection, "dl_add_files", (*action_rows.KEY_COLUMNS, *action_rows.ADD_COLUMNS), adds)
    removes = action_rows.remove_rows(changes.removes, part.places, part.superseded)
    _copy(connection, part, "dl_remove_files", action_rows.REMOVE_COLUMNS, removes)
    _copy(connection, part, "dl_cdc_files", action_rows.CDC_COLUMNS, action_rows.cdc_rows(changes.cdc))
    copy_places(connection, part.key, part.commit_id, part.partitions.places())


def _copy(
    connection: Connection, part: Part, table: str, columns: action_rows.Columns, values: Sequence[tuple[Any, ...]]
) -> None:
    if values:
        key = (part.key, part.commit_id)
        copy_rows(connection, table, (*action_rows.KEY_COLUMNS, *columns), (key + row for row in values))


def lock_heads(connection: Connection, parts: Sequence[Part]) -> dict[int, int]:
    """Lock every table of the commit, in key order, and check strict versions."""
    found = fetch(connection, "lock_heads", {"keys": [part.key for part in parts]})
    heads = {row["table_key"]: row["current_version"] for row in found}
    _check_strict(parts, heads)
    return heads


def finish(
    connection: Connection,
    parts: Sequence[Part],
    txn: TransactionHeader,
    request: list[dict[str, Any]],
) -> dict[str, Committed]:
    """Write versions, heads and the outbox."""
    params = {
        "txn_id": txn.txn_id,
        "author": txn.author,
        "message": txn.message,
        "tables": Jsonb(request, dumps=action_rows.encode),
    }
    landed = connection.execute(queries()["commit"], params, prepare=True).fetchall()
    ids = {part.key: part.commit.state.table_id for part in parts}
    return {ids[r["table_key"]]: Committed(ids[r["table_key"]], r["version"], r["committed_at"]) for r in landed}


def end(connection: Connection) -> None:
    """COMMIT: from here on the outcome is the server's to tell."""
    connection.execute("commit")
