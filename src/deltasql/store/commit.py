"""The one commit path, for one table and for many.

A small commit is one call of `dl_commit`, one round trip. A large one, or one that meets winners it must examine,
takes the same steps in a transaction of its own: files are copied in before any lock, heads are locked in key
order, winners are examined under the lock, and the same `dl_commit` writes the versions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import repeat
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from deltasql.core.actions import Add, CommitInfo
from deltasql.core.canonical import LoggedCommit, with_tables
from deltasql.core.changes import TableCommit
from deltasql.core.conflicts import AddedFile, RemovedFile, Winner, check, isolation_of
from deltasql.errors import (
    CommitConflict,
    ConcurrentTransaction,
    DatabaseError,
    DeltaSqlError,
    MirrorFailure,
    TableExists,
    TableNotFound,
    ValidationError,
    VersionConflict,
)
from deltasql.store import outcome, rows
from deltasql.store.database import Connection, Database, Row, copy_places, copy_rows, fetch, milliseconds
from deltasql.store.queries import queries
from deltasql.store.rows import Partitions, Placed, loads
from deltasql.store.sqlstate import is_refusal, translate, translated

_log = logging.getLogger(__name__)
_PLACING_ATTEMPTS = 20
# Any constant will do, as long as every deltasql process takes the same lock before it creates a table.
_LOCATIONS_LOCK = 0x6C6F6361
_TOKEN = re.compile(r"-tx([0-9a-f]{32})")
_PLACE_CONSTRAINTS = ("dl_add_files_path_key", "dl_remove_files_add_key")
_TABLE_CONSTRAINTS = ("dl_tables_name_key", "dl_tables_location_key")


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the tables of a commit share."""

    txn_id: str
    author: str | None = None
    message: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a table's part of a transaction landed; `before` if an earlier one had applied it already."""

    table_id: str
    version: int
    committed_at: datetime | None
    before: bool = False
    mirror: MirrorFailure | None = None
    """Why it is not published yet, if that was tried and failed."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A table's part of a transaction that has just committed."""

    table_key: int
    commit_id: int
    commit: TableCommit
    version: int
    committed_at: datetime
    tables: Mapping[str, int] | None = None
    """The versions of all tables that it committed together with, by name."""

    def logged(self) -> LoggedCommit:
        """What the log holds of it now, without asking."""
        changes = self.commit.changes
        return LoggedCommit(
            version=self.version,
            committed_at=self.committed_at,
            info=with_tables(commit_info(self.commit).to_dict(), self.tables),
            in_commit_timestamp=self.commit.in_commit_timestamp,
            protocol=changes.protocols[0] if changes.protocols else None,
            metadata=changes.metadata[0] if changes.metadata else None,
            txns=changes.txns,
            domains=changes.domains,
            adds=changes.adds,
            removes=changes.removes,
            cdc=changes.cdc,
        )


@dataclass(slots=True)
class Part:
    """A table's part of a transaction, with the places that its files take in the log."""

    commit: TableCommit
    commit_id: int
    key: int
    token: str
    description: dict[str, Any]
    places: dict[str, Placed] = field(default_factory=dict)
    gens: dict[str, int] = field(default_factory=dict)
    superseded: dict[str, Placed] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    """The paths that this transaction adds and did not name."""
    borrowed: list[str] = field(default_factory=list)
    partitions: Partitions = field(default_factory=Partitions)


class AppliedBefore(Exception):
    """An application transaction of this commit was applied by an earlier one; nothing was written."""

    def __init__(self, table_key: int, version: int) -> None:
        super().__init__(table_key, version)
        self.table_key = table_key
        self.version = version


class ExamineWinners(Exception):
    """`dl_commit` met winners that only the caller can judge; nothing was written."""


class Misplaced(Exception):
    """A path was added, or a file removed, since its place was looked up; nothing was written."""


def commit(
    database: Database,
    commits: Sequence[TableCommit],
    txn: Transaction,
    after: Callable[[Sequence[Landed]], Mapping[str, MirrorFailure]],
) -> dict[str, Committed]:
    """Commit all tables or none. Each was validated before; the result is durable when `after` is called with it."""
    ordered = sorted(commits, key=lambda c: c.state.table_key)
    token = rows.file_token(txn.txn_id)
    described = [(own, _described(own, txn)) for own in ordered]
    parts = [_part(own, -1 if own.is_check else database.next_commit_id(), token, text) for own, text in described]
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
    for row in fetch(connection, "applied", {"parts": rows.dumps(asked)}) if asked else ():
        if row["applied"] == row["given"]:
            found[row["key"]] = row["version"]
        elif row["applied"]:
            part = next(part for part in parts if part.key == row["key"])
            raise _partly_applied(part.commit, row["version"])
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


def _part(own: TableCommit, commit_id: int, token: str, description: dict[str, Any]) -> Part:
    foreign = [path for path in own.changes.of_adds("path") if token not in path]
    return Part(own, commit_id, own.state.table_key, token, description, foreign=foreign)


def _commit_parts(database: Database, parts: list[Part], txn: Transaction) -> dict[str, Committed]:
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
    txn: Transaction
    sent: outcome.Sent = field(default_factory=outcome.Sent)


def _attempt(attempt: _Attempt, run: Callable[[Connection, _Attempt], dict[str, Committed]]) -> dict[str, Committed]:
    try:
        with attempt.database.connection() as connection:
            return run(connection, attempt)
    except psycopg.Error as error:
        if attempt.sent.backend is not None and not is_refusal(error):
            landed = outcome.look_up(attempt.database, attempt.txn.txn_id, attempt.sent.backend, error)
            return {r["table_id"]: Committed(r["table_id"], r["version"], r["committed_at"]) for r in landed}
        raise _explain(error, attempt.parts) from error


def _in_one_call(connection: Connection, attempt: _Attempt) -> dict[str, Committed]:
    for part in attempt.parts:
        place_removes(connection, part)
        place_files_of_others(connection, part)
    request = [_request(part, inline=True) for part in attempt.parts]
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
    request = [_request(part, inline=False, head=heads[part.key]) for part in parts]
    result = finish(connection, parts, attempt.txn, request)
    attempt.sent.mark(connection)
    end(connection)
    return result


def _explain(error: psycopg.Error, parts: Sequence[Part]) -> Exception:
    """What an error of the database means for this commit. None of these landed."""
    state = error.sqlstate or ""
    if state == "23505" and error.diag.constraint_name in _PLACE_CONSTRAINTS:
        return Misplaced()
    if state == "23505" and error.diag.constraint_name in _TABLE_CONSTRAINTS:
        return _table_exists(error.diag.constraint_name, parts)
    if not state.startswith("DL"):
        return translate(error)
    detail = loads(error.diag.message_detail or "{}")
    commits = {part.key: part.commit for part in parts}
    known: dict[str, Callable[[], Exception]] = {
        "DL208": lambda: AppliedBefore(detail["key"], detail["version"]),
        "DL207": lambda: _partly_applied(commits[detail["key"]], detail["version"]),
        "DL300": ExamineWinners,
        "DL301": Misplaced,
        "DL302": lambda: _taken_over(commits[detail["key"]]),
        "DL404": lambda: TableNotFound(commits[detail[0]].state.name),
        "DL409": lambda: _version_conflict(commits[detail["key"]], detail["actual"]),
    }
    return known.get(state, lambda: translate(error))()


def _partly_applied(own: TableCommit, version: int) -> ConcurrentTransaction:
    return ConcurrentTransaction(
        "some of our application transactions were applied already, others not",
        table_id=own.state.table_id,
        table=own.state.name,
        winner=version,
    )


def _taken_over(own: TableCommit) -> ConcurrentTransaction:
    return ConcurrentTransaction(
        "files that this transaction named were added by another one", table_id=own.state.table_id, table=own.state.name
    )


def _version_conflict(own: TableCommit, actual: int) -> VersionConflict:
    return VersionConflict(own.state.table_id, own.expected_version or 0, actual, own.state.name)


def _overlap(full: str, location: str, other: Row) -> TableExists:
    if other["name"] == full:
        return TableExists(full)
    return TableExists(
        full,
        f"the location {location} of {full} overlaps that of table {other['name']}, {other['location']}: choose "
        f"another one.",
    )


def _table_exists(constraint: str, parts: Sequence[Part]) -> TableExists:
    creates = [part.commit for part in parts if part.commit.create]
    names = ", ".join(own.state.name for own in creates)
    if constraint == "dl_tables_name_key":
        return TableExists(names)
    places = ", ".join(own.create.location for own in creates if own.create)
    return TableExists(names, f"another table lives at {places} already: choose another location for {names}.")


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
            raise _version_conflict(part.commit, heads[part.key])


def begin(connection: Connection, database: Database, txn: Transaction) -> None:
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
            raise _overlap(part.commit.state.name, new.location, other)
        values = {"namespace": new.namespace, "name": new.name, "location": new.location}
        part.key = fetch(connection, "insert_table", {"table_id": part.commit.state.table_id, **values})[0]["table_key"]


def place_removes(connection: Connection, part: Part) -> None:
    """Find the add row that each remove closes."""
    removes = part.commit.changes.removes
    if not removes or part.places:
        return
    found = _find(connection, part, [r.path for r in removes])
    for remove in removes:
        vector = remove.deletion_vector.unique_id if remove.deletion_vector else None
        live = [row for row in _live(found.get(remove.path, [])) if _vector_of(row) == vector]
        if not live:
            raise _not_live(connection, part, remove.path, found.get(remove.path, []))
        part.places[remove.path] = _place(live[-1])
    for add in part.commit.changes.adds:
        if add.path in part.places:
            part.gens[add.path] = _next_gen(found[add.path])


def _find(connection: Connection, part: Part, paths: list[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in fetch(connection, "find_files", {"table_key": part.key, "paths": paths}):
        found.setdefault(row["path"], []).append(row)
    return found


def _not_live(connection: Connection, part: Part, path: str, found: Sequence[Row]) -> DeltaSqlError:
    """Why a file cannot be removed: a winner was faster, or it is not in the table."""
    state, expected = part.commit.state, part.commit.expected_version
    removers = [f["removed_by"] for f in found if f["removed_by"] is not None]
    won = [w for r in removers for w in fetch(connection, "version_of_commit", {"commit_id": r})]
    if not any(w["version"] > state.version for w in won):
        return ValidationError(
            f"table {state.name}: cannot remove {path!r}: it is not in the table at version {state.version}, or has "
            f"another deletion vector. Paths are compared byte for byte; `deltasql files {state.name}` lists them",
            table=state.name,
            table_id=state.table_id,
            value=path,
        )
    if expected is not None:
        head = fetch(connection, "heads", {"keys": [part.key]})[0]["current_version"]
        return _version_conflict(part.commit, head)
    try:
        check(part.commit, fetch_winners(connection, part))
    except CommitConflict as conflict:
        return conflict
    return DatabaseError(f"table {state.name}: {path!r} was removed and no commit tells by whom")


def place_again(database: Database, parts: Sequence[Part]) -> None:
    """Look every path up anew; raises the conflict if a file that we remove is gone."""
    with translated(), database.connection() as connection:
        for part in parts:
            part.places.clear()
            part.superseded.clear()
            place_removes(connection, part)
            place_adds(connection, part, part.foreign)


def place_files_of_others(connection: Connection, part: Part) -> None:
    """Files that another transaction named as its own are not in the index: look them up before they are added."""
    known = [path for path in part.foreign if _TOKEN.search(path)]
    if known:
        place_adds(connection, part, known)
        named = {UUID(token) for path in known for token in _TOKEN.findall(path)}
        here = fetch(connection, "committed_here", {"table_key": part.key, "txn_ids": list(named)})
        part.borrowed = sorted(str(txn) for txn in named - {row["txn_id"] for row in here})


def _gens(part: Part) -> Iterable[int | None]:
    """The place of each path among those of its name; none for the files that this transaction named."""
    token, gens, paths = part.token, part.gens, part.commit.changes.of_adds("path")
    if not part.foreign and not gens:
        return repeat(None)
    return [None if token in path else gens.get(path, 0) for path in paths]


def _next_gen(found: Sequence[Row]) -> int:
    return max((f["path_gen"] for f in found if f["path_gen"] is not None), default=-1) + 1


def place_adds(connection: Connection, part: Part, paths: list[str]) -> None:
    """Give a path that was in the table before its next place; one that is still live is superseded."""
    adds = {a.path: a for a in part.commit.changes.adds}
    for path, found in _find(connection, part, paths).items():
        part.gens[path] = _next_gen(found)
        if path not in part.places:
            for row in _live(found):
                _check_same_file(part, adds[path], row)
                part.superseded[path] = _place(row)


def _live(found: Sequence[Row]) -> list[Row]:
    """The row that holds the path now; a place taken by another path of the same hash has no commit id."""
    return [row for row in found if row["commit_id"] is not None and row["removed_by"] is None]


def _vector_of(row: Row) -> str | None:
    vector = rows.vector_of(row["deletion_vector"])
    return vector.unique_id if vector else None


def _check_same_file(part: Part, add: Add, row: Row) -> None:
    """A file is a path with a deletion vector: to Delta's readers the same path with another vector is another file."""
    if _vector_of(row) != (add.deletion_vector.unique_id if add.deletion_vector else None):
        state = part.commit.state
        raise ValidationError(
            f"table {state.name}: {add.path!r} is in the table with another deletion vector: remove it with that "
            f"vector in the same commit",
            table=state.name,
            table_id=state.table_id,
            value=add.path,
        )


def _place(row: Row) -> Placed:
    return Placed(row["commit_id"], row["ord"])


def stage(connection: Connection, part: Part) -> None:
    """Copy all file rows in, before any lock. They stay invisible until COMMIT."""
    changes = part.commit.changes
    part.partitions = Partitions()
    if changes.adds:
        key = (part.key, part.commit_id)
        adds = rows.add_rows(changes, _gens(part), part.partitions, *key)
        copy_rows(connection, "dl_add_files", (*rows.KEY_COLUMNS, *rows.ADD_COLUMNS), adds)
    removes = rows.remove_rows(changes.removes, part.places, part.superseded)
    _copy(connection, part, "dl_remove_files", rows.REMOVE_COLUMNS, removes)
    _copy(connection, part, "dl_cdc_files", rows.CDC_COLUMNS, rows.cdc_rows(changes.cdc))
    copy_places(connection, part.key, part.commit_id, part.partitions.places())


def _copy(
    connection: Connection, part: Part, table: str, columns: rows.Columns, values: Sequence[tuple[Any, ...]]
) -> None:
    if values:
        key = (part.key, part.commit_id)
        copy_rows(connection, table, (*rows.KEY_COLUMNS, *columns), (key + row for row in values))


def lock_heads(connection: Connection, parts: Sequence[Part]) -> dict[int, int]:
    """Lock every table of the commit, in key order, and check strict versions."""
    found = fetch(connection, "lock_heads", {"keys": [part.key for part in parts]})
    heads = {row["table_key"]: row["current_version"] for row in found}
    _check_strict(parts, heads)
    return heads


def examine_winners(connection: Connection, part: Part, heads: Mapping[int, int]) -> None:
    """Under the lock: may this part be rebased on what landed since it was read?"""
    if part.commit.expected_version is None and heads[part.key] > part.commit.state.version:
        check(part.commit, fetch_winners(connection, part))


def fetch_winners(connection: Connection, part: Part) -> list[Winner]:
    """Every version after the one that was read, in order, in at most three queries."""
    params = {"table_key": part.key, "read": part.commit.state.version}
    adds: dict[int, list[AddedFile]] = {}
    removes: dict[int, list[RemovedFile]] = {}
    if not part.commit.is_blind_append:
        for row in fetch(connection, "winner_adds", params):
            file = AddedFile(row["path"], loads(row["partition_values"]), row["stats"], row["data_change"])
            adds.setdefault(row["version"], []).append(file)
        for row in fetch(connection, "winner_removes", params):
            removes.setdefault(row["version"], []).append(RemovedFile(row["path"], row["data_change"]))
    return [
        _winner(row, adds.get(row["version"], ()), removes.get(row["version"], ()))
        for row in fetch(connection, "winners", params)
    ]


def _winner(row: Mapping[str, Any], adds: Sequence[AddedFile], removes: Sequence[RemovedFile]) -> Winner:
    return Winner(
        version=row["version"],
        operation=row["operation"],
        committer=row["committer"],
        txn_id=str(row["txn_id"]),
        is_blind_append=row["is_blind_append"],
        has_metadata=row["has_metadata"],
        protocol=rows.protocol_of(row) if row["has_protocol"] else None,
        domains=frozenset(row["domains"] or ()),
        txns=row["txns"] or {},
        adds=adds,
        removes=removes,
    )


def finish(
    connection: Connection,
    parts: Sequence[Part],
    txn: Transaction,
    request: list[dict[str, Any]],
) -> dict[str, Committed]:
    """Write versions, heads and the outbox."""
    params = {
        "txn_id": txn.txn_id,
        "author": txn.author,
        "message": txn.message,
        "tables": Jsonb(request, dumps=rows.encode),
    }
    landed = connection.execute(queries()["commit"], params, prepare=True).fetchall()
    ids = {part.key: part.commit.state.table_id for part in parts}
    return {ids[r["table_key"]]: Committed(ids[r["table_key"]], r["version"], r["committed_at"]) for r in landed}


def end(connection: Connection) -> None:
    """COMMIT: from here on the outcome is the server's to tell."""
    connection.execute("commit")


def describe(own: TableCommit) -> dict[str, Any]:
    """What `dl_commit` reads for one table besides its files: known before the database is asked anything."""
    changes = own.changes
    if own.is_check:
        return {"check": True}
    info = commit_info(own)
    details = changes.metadata or changes.protocols or changes.txns or changes.domains
    required = {
        "seen": own.state.version,
        "blind": own.is_blind_append,
        "data_change": changes.data_change,
        "isolation": isolation_of(own),
        "operation": info.operation,
        "info": rows.dumps(info.to_dict()),
        "num_adds": len(changes.adds),
        "num_removes": len(changes.removes),
    }
    optional = {
        "expected": own.expected_version,
        "committer": info.user_name,
        "parameters": rows.dumps(info.operation_parameters) if info.operation_parameters is not None else None,
        "metadata": rows.metadata_json(changes.metadata[0]) if changes.metadata else None,
        "protocol": rows.protocol_json(changes.protocols[0]) if changes.protocols else None,
        "txns": rows.txn_json(changes.txns) or None,
        "domains": rows.domain_json(changes.domains) or None,
        "reshapes": True if changes.metadata or changes.protocols else None,
        "details": True if details else None,
        "in_commit_timestamp": True if own.in_commit_timestamp else None,
    }
    return required | {key: value for key, value in optional.items() if value is not None}


def _described(own: TableCommit, txn: Transaction) -> dict[str, Any]:
    """`describe`, for texts that can be stored: no NUL characters, no halves of surrogate pairs."""
    problem = "a text holds a NUL character"
    try:
        description = describe(own)
        if b"\\u0000" not in rows.encode([description, txn.author, txn.message]):
            return description
    except UnicodeEncodeError as error:
        problem = f"a text is not valid Unicode: {error}"
    raise ValidationError(f"table {own.state.name}: {problem}", table=own.state.name)


def _request(part: Part, *, inline: bool, head: int | None = None) -> dict[str, Any]:
    """What `dl_commit` reads for one table. Under the lock, examined winners count as read."""
    changes = part.commit.changes
    request = part.description | {
        "key": part.key,
        "commit": part.commit_id,
        "read": part.commit.state.version if head is None else head,
        "growth": len(changes.adds) - len(changes.removes) - len(part.superseded),
    }
    optional: dict[str, Any] = {"borrowed": part.borrowed}
    if inline:
        request["inline"] = True
        part.partitions = Partitions()
        optional["adds"] = list(rows.add_rows(changes, _gens(part), part.partitions))
        optional["places"] = part.partitions.places()
        optional["removes"] = rows.remove_rows(changes.removes, part.places, part.superseded)
        optional["cdc"] = rows.cdc_rows(changes.cdc)
    optional["partitions"] = part.partitions.rows()
    return request | {key: value for key, value in optional.items() if value}


def commit_info(own: TableCommit) -> CommitInfo:
    """The commit information as stored: what the caller gave, completed by what the commit itself knows."""
    given = own.changes.infos[0]
    read = own.state.version if own.state.version >= 0 else None
    return msgspec.structs.replace(
        given,
        is_blind_append=own.is_blind_append,
        isolation_level=isolation_of(own),
        read_version=given.read_version if given.read_version is not None else read,
    )
