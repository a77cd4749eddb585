"""What one transaction does to one table: its actions by kind, what it read, and under which rules it commits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deltasql.core.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from deltasql.errors import ValidationError

SERIALIZABLE = "Serializable"
WRITE_SERIALIZABLE = "WriteSerializable"
SNAPSHOT_ISOLATION = "SnapshotIsolation"


@dataclass(frozen=True, slots=True)
class Changes:
    """The actions of a commit, by kind, each kind in the order given."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    cdc: tuple[Cdc, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    protocols: tuple[Protocol, ...] = ()
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    infos: tuple[CommitInfo, ...] = ()

    @classmethod
    def of(cls, actions: Iterable[Action], table: str) -> Changes:
        """Sort actions by kind; anything that is not an action is refused."""
        if isinstance(actions, Action):
            raise ValidationError(
                f"table {table}: stage a list of actions, as in [{type(actions).__name__}(…)]", table=table
            )
        kinds: dict[type[Any], list[Any]] = {kind: [] for kind in _FIELDS}
        for position, action in enumerate(actions):
            try:
                kinds[type(action)].append(action)
            except KeyError:
                raise ValidationError(
                    f"table {table}: action {position} is a {type(action).__name__}, not one of "
                    f"{', '.join(kind.__name__ for kind in _FIELDS)}",
                    table=table,
                    value=action,
                ) from None
        return cls(**{_FIELDS[kind]: tuple(values) for kind, values in kinds.items()})

    def merge(self, later: Changes) -> Changes:
        """These actions followed by others for the same table."""
        return Changes(*(getattr(self, name) + getattr(later, name) for name in _FIELDS.values()))

    @property
    def num_files(self) -> int:
        """How many file actions this commit holds."""
        return len(self.adds) + len(self.removes) + len(self.cdc)

    @property
    def data_change(self) -> bool:
        """Does any file action change rows, rather than rearrange them?"""
        return any(a.data_change for a in self.adds) or any(r.data_change for r in self.removes)


_FIELDS: dict[type[Action], str] = {
    Add: "adds",
    Remove: "removes",
    Cdc: "cdc",
    Metadata: "metadata",
    Protocol: "protocols",
    Txn: "txns",
    DomainMetadata: "domains",
    CommitInfo: "infos",
}


@dataclass(frozen=True, slots=True)
class Reads:
    """What a transaction read of a table: decides which winners it must give way to."""

    predicates: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    whole_table: bool = False

    def __or__(self, other: Reads) -> Reads:
        return Reads(
            tuple(dict.fromkeys(self.predicates + other.predicates)),
            self.files | other.files,
            self.whole_table or other.whole_table,
        )

    def __bool__(self) -> bool:
        return bool(self.predicates or self.files or self.whole_table)


@dataclass(frozen=True, slots=True)
class TableState:
    """The head of a table as a writer saw it: what its actions are validated against."""

    table_key: int
    table_id: str
    name: str
    version: int
    metadata: Metadata | None
    protocol: Protocol | None
    location: str = ""
    num_files: int = 0
    shape_version: int = -1
    """The last version that changed metadata or protocol: those of this state hold from there on."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """Where a table that a transaction creates will be known and kept."""

    namespace: str
    name: str
    location: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's part of a transaction, ready to commit.

    `expected_version` makes it strict: exactly that version or a conflict. Otherwise winners after `state.version`
    are examined and the commit is rebased on them where the rules allow it.
    """

    state: TableState
    changes: Changes
    reads: Reads = field(default_factory=Reads)
    expected_version: int | None = None
    isolation: str = WRITE_SERIALIZABLE
    create: NewTable | None = None

    @property
    def repartitions(self) -> bool:
        """Does it change the partition columns, so that every file must be one of its own?"""
        before, after = self.state.metadata, self.changes.metadata
        return bool(before and after and before.partition_columns != after[0].partition_columns)

    @property
    def is_blind_append(self) -> bool:
        """Only adds, and nothing was read."""
        c = self.changes
        return bool(c.adds) and not (self.reads or c.removes or c.metadata or c.protocols)
