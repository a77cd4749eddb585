"""Whose checkpoint a file is: ours name, in the Parquet footer, the table and the transaction that they are of.

A checkpoint of another writer may lie at a version of ours, and says nothing of our commits. Whoever asks reads no more
than the footer, however large the file is.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.delta_log.layout import checkpoint_path
from deltasql.storage import Directory

_NUM_ADDS = "deltasql.numOfAddFiles"


@dataclass(frozen=True, slots=True)
class CheckpointSize:
    """What a checkpoint holds."""

    num_actions: int
    num_adds: int


@dataclass(frozen=True, slots=True)
class Origin:
    """What a checkpoint is of. No two histories of a table have a transaction in common after they part."""

    table_id: str
    version: int
    txn_id: str

    def marks(self) -> dict[str, str]:
        """The entries of the footer that tell."""
        return {"deltasql.table": self.table_id, "deltasql.version": str(self.version), "deltasql.txnId": self.txn_id}

    def marks_of(self, written: CheckpointSize) -> dict[str, str]:
        """All entries of the footer."""
        return self.marks() | {_NUM_ADDS: str(written.num_adds)}


def found(directory: Directory, origin: Origin) -> CheckpointSize | None:
    """The checkpoint of ours that is in place already; None if there is none, or another writer's, or a broken one."""
    path = checkpoint_path(origin.version)
    if not directory.size(path):
        return None
    with directory.reading(path) as file:
        try:
            footer = pq.read_metadata(file)
        except (pa.ArrowException, OSError):
            return None
    marks = {key.decode(): value.decode(errors="replace") for key, value in (footer.metadata or {}).items()}
    adds = marks.get(_NUM_ADDS, "")
    if origin.marks().items() <= marks.items() and adds.isdigit():
        return CheckpointSize(footer.num_rows, int(adds))
    return None
