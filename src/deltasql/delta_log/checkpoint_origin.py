"""The origin of a checkpoint: the table, version and transaction, which deltasql writes to the Parquet footer.

Another writer may have written a checkpoint for one of our versions. The footer shows whose checkpoint a file is, and
reading it is cheap even for a large file.
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
    """The number of actions and of add actions in a checkpoint."""

    num_actions: int
    num_adds: int


@dataclass(frozen=True, slots=True)
class CheckpointOrigin:
    """The version that a checkpoint was made from. The transaction id tells histories of a restored database apart."""

    table_id: str
    version: int
    txn_id: str

    def identity(self) -> dict[str, str]:
        """Return the footer entries that identify the version."""
        return {"deltasql.table": self.table_id, "deltasql.version": str(self.version), "deltasql.txnId": self.txn_id}

    def footer_entries(self, written: CheckpointSize) -> dict[str, str]:
        """Return all footer entries of a checkpoint."""
        return self.identity() | {_NUM_ADDS: str(written.num_adds)}


def existing_checkpoint(directory: Directory, origin: CheckpointOrigin) -> CheckpointSize | None:
    """Return the size of the existing checkpoint of a version, None if there is none that deltasql wrote and that is
    readable."""
    path = checkpoint_path(origin.version)
    if not directory.size(path):
        return None
    with directory.reading(path) as file:
        try:
            footer = pq.read_metadata(file)
        except (pa.ArrowException, OSError, ValueError):  # pyarrow decodes names, which need not be UTF-8
            return None
    entries = {
        key.decode(errors="replace"): value.decode(errors="replace") for key, value in (footer.metadata or {}).items()
    }
    adds = entries.get(_NUM_ADDS, "")
    if origin.identity().items() <= entries.items() and adds.isdigit():
        return CheckpointSize(footer.num_rows, int(adds))
    return None
