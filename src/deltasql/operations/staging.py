"""The view of a transaction: the tables as they were when it began, with the actions that it has staged."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.errors import TableNotFound, UsageError, ValidationError
from deltasql.operations.commit_details import StagedTable, expected_version, parse_isolation, table_names
from deltasql.protocol.actions import Action, Metadata, Protocol
from deltasql.protocol.table_changes import Changes, Head, NewTable, Reads, TableState
from deltasql.store import Snapshot, Store
from deltasql.store.read.file_lists import StaleTableState
from deltasql.store.read.live_files import files_of_adds
from deltasql.store.read.log_reader import parse_where

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

_log = logging.getLogger(__name__)

UNKNOWN_COUNT = -1


@dataclass(frozen=True, slots=True)
class StagingPoint:
    """The staged tables at one moment of a transaction."""

    staged: Mapping[str, StagedTable]


class Staging:
    """Stages actions per table and reads tables with these actions applied. Locks and writes nothing."""

    def __init__(self, store: Store, txn_id: str, point: Mapping[str, Head] | None) -> None:
        self.id = txn_id
        self._store = store
        self._point = point
        """The version of every table when the transaction began, by id; None if each table is taken as first seen."""
        self._staged: dict[str, StagedTable] = {}
        self._reads: dict[str, Reads] = {}
        self._states: dict[str, TableState] = {}
        self._ended: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can still stage and commit."""
        return self._ended is None

    def check_open(self) -> None:
        """Raise `UsageError` if the transaction has ended."""
        if self._ended is not None:
            raise UsageError(
                f"transaction {self.id} is {self._ended} already: a transaction is used once, begin another"
            )

    def stage_on(
        self,
        state: TableState,
        actions: Iterable[Action],
        version: int | None = None,
        *,
        reads: Reads | None = None,
        isolation: str | None = None,
    ) -> None:
        """Stage actions for a head that was read already. Conflicts are checked against that head."""
        self.check_open()
        known = self._staged.get(state.table_id) or StagedTable(state)
        self._staged[state.table_id] = replace(
            known,
            changes=known.changes.followed_by(Changes.of(actions, state.name)),
            reads=known.reads | (reads or Reads()),
            expected_version=expected_version(version, known),
            isolation=parse_isolation(isolation) or known.isolation,
        )

    def create(self, state: TableState, new: NewTable, actions: Iterable[Action]) -> None:
        """Stage a new table, whose version 0 is part of this transaction."""
        self.check_open()
        changes = Changes.of(actions, state.name)
        self._staged[state.table_id] = StagedTable(state, changes, create=new, expected_version=0)

    def stage_metadata(self, state: TableState, metadata: Metadata, protocol: Protocol | None) -> None:
        """Stage metadata in place of metadata that was staged before."""
        self.check_open()
        known = self._staged.get(state.table_id) or StagedTable(state)
        protocols = (protocol,) if protocol else known.changes.protocols
        changes = replace(known.changes, metadata=(metadata,), protocols=protocols)
        self._staged[state.table_id] = replace(known, changes=changes)

    def unstage_files(self, state: TableState) -> None:
        """Drop the files that were staged for a table, because the whole table is about to be overwritten."""
        staged = self._staged.get(state.table_id)
        if staged is not None:
            changes = replace(staged.changes, adds=(), removes=(), cdc=())
            self._staged[state.table_id] = replace(staged, changes=changes)

    def staged(self, state: TableState) -> Changes:
        """Return the changes that are staged for a table."""
        known = self._staged.get(state.table_id)
        return known.changes if known else Changes()

    def staging_point(self) -> StagingPoint:
        """Return the staged tables as they are now, for `return_to`."""
        return StagingPoint(dict(self._staged))

    def return_to(self, point: StagingPoint) -> None:
        """Drop the actions that were staged since a point. Reads stay: they may be the reason for going back."""
        for staged in self._staged.values():
            self.note_read(staged.state, staged.reads)
        self._staged = dict(point.staged)

    # --- Reading

    def find(self, table: str | UUID) -> TableState:
        """Return a table as this transaction sees it, by id or name."""
        for staged in self._staged.values():
            names = [name.lower() for name in (staged.state.table_id, *table_names(staged.state))]
            if staged.create is not None and str(table).lower() in names:
                return self.state_of(staged.state)
        return self.state_of(self._store.state(table))

    def find_or_none(self, table: str | UUID) -> TableState | None:
        """Return a table as this transaction sees it, or None if there is no such table."""
        try:
            return self.find(table)
        except (TableNotFound, ValidationError):
            return None

    def state_of(self, state: TableState) -> TableState:
        """Return a table's state when the transaction began, with the metadata that was staged since."""
        staged = self._staged.get(state.table_id)
        if staged is None:
            return self._at_point(state)
        metadata, protocols = staged.changes.metadata, staged.changes.protocols
        return replace(
            staged.state,
            metadata=metadata[0] if metadata else staged.state.metadata,
            protocol=protocols[0] if protocols else staged.state.protocol,
        )

    def _at_point(self, state: TableState) -> TableState:
        """Return a table's state when the transaction began; a table that is newer, as it was first seen."""
        if self._point is None:
            return state
        head = self._point.get(state.table_id)
        if head is None:
            return self._states.setdefault(state.table_id, state)
        if state.head_id == head.commit_id:
            return state
        if state.table_id not in self._states:
            old = self._store.state_at(state.table_id, head.version)
            begun = replace(old, version=head.version, head_id=head.commit_id, num_files=UNKNOWN_COUNT)
            self._states[state.table_id] = begun
        return self._states[state.table_id]

    def _first_state(self, table_id: str | UUID) -> TableState:
        staged = self._staged.get(str(table_id))
        return staged.state if staged else self._at_point(self._store.state(table_id))

    def files(self, state: TableState, predicate: Predicate | None = None) -> pa.Table:
        """Return the committed files that may hold matching rows, less staged removes, plus all staged adds."""
        changes = self.staged(state)
        base = None if state.version < 0 else self._committed_files(state, predicate)
        columns = state.metadata.partition_columns if state.metadata else ()
        if base is None:
            return files_of_adds(changes.adds, columns)
        if changes.removes:
            removed = pa.array([r.path for r in changes.removes], base.schema.field("path").type)
            # A replaced deletion vector removes its file's path, too: the new add brings it back.
            base = base.filter(pc.invert(pc.is_in(base["path"], removed)))
        return (
            pa.concat_tables([base, files_of_adds(changes.adds, columns).cast(base.schema)]) if changes.adds else base
        )

    def _committed_files(self, state: TableState, predicate: Predicate | None = None) -> pa.Table:
        try:
            found = self._store.files(state, predicate)
            if found.version == state.version:
                return found.files
        except StaleTableState:
            _log.debug("table %s has another schema now", state.name)
        return self._store.files_at(state, state.version, predicate)

    def snapshot(self, state: TableState, where: str | None = None) -> Snapshot:
        """Return a table as this transaction sees it, and record the read for the conflict check."""
        current = self.state_of(state)
        if current.metadata is None:
            raise ValidationError(f"table {state.name} has no metadata yet", table=state.name)
        if self._point is not None and current.version >= 0 and current.table_id not in self._point:
            text = f"table {state.name} was created after transaction {self.id} began: begin another to read it"
            raise TableNotFound(state.name, message=text)
        predicate = parse_where(where, current)
        files = self.files(current, predicate)
        paths = frozenset(files["path"].to_pylist()) if where is not None else frozenset()
        self.note_read(current, Reads(whole_table=True) if where is None else Reads((where,), paths))
        return Snapshot.of(current, files, predicate)

    def note_read(self, state: TableState, reads: Reads) -> None:
        """Record that rows of a committed table were read."""
        self.check_open()
        staged = self._staged.get(state.table_id)
        if state.version >= 0 and reads:
            self._states.setdefault(state.table_id, staged.state if staged else state)
            self._reads[state.table_id] = self._reads.get(state.table_id, Reads()) | reads
