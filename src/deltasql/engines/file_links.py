"""Reject files of a table that are links to files elsewhere."""

from __future__ import annotations

from urllib.parse import unquote

from deltasql.errors import StorageError
from deltasql.protocol.table_changes import Snapshot
from deltasql.storage import first_link_out


def reject_links(snapshot: Snapshot) -> None:
    """Raise `StorageError` if a file of a snapshot leads out of its local table through a symbolic link."""
    paths = (unquote(path) if "%" in path else path for path in snapshot.files["path"].to_pylist())
    path = first_link_out(snapshot.location, paths)
    if path is not None:
        raise StorageError(
            f"table {snapshot.name}: {path} leads out of {snapshot.location} through a symbolic link, which is not "
            f"followed"
        )
