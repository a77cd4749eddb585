"""Which files of a log are old enough to go."""

from __future__ import annotations

from datetime import UTC, datetime

from deltasql.delta_log.last_checkpoint import decode_hint
from deltasql.delta_log.layout import LAST_CHECKPOINT, LOG, any_version, checkpoint_version, commit_version
from deltasql.protocol.properties import TableProperties
from deltasql.storage import Directory
from deltasql.store.outbox import MirroredTable, Outbox


def retained_from(properties: TableProperties) -> datetime | None:
    """The midnight before which a log may be cleaned; none if it must not be."""
    if not properties.expired_log_cleanup:
        return None
    return (datetime.now(UTC) - properties.log_retention).replace(hour=0, minute=0, second=0, microsecond=0)


def clean_log(directory: Directory, outbox: Outbox, table: MirroredTable, before: datetime) -> list[str]:
    """Delete what no reader needs: everything before the last checkpoint that is older than a moment. What goes is
    recorded first, so that what is missing otherwise can be told from it."""
    entries = [(version, entry) for entry in directory.list(LOG) if (version := any_version(entry.path)) is not None]
    young = min((version for version, entry in entries if entry.modified > before), default=None)
    limit = young - 1 if young is not None else max((v for v, _ in entries), default=-1)
    commits = {v for _, entry in entries if (v := commit_version(entry.path)) is not None}
    checkpoints = {v for _, entry in entries if (v := checkpoint_version(entry.path)) is not None}
    usable = [v for v in checkpoints if v <= limit and v in commits]
    hinted = decode_hint(directory.get(LAST_CHECKPOINT)) if usable else None
    if hinted is None or hinted < max(usable):
        return []
    gone = [entry.path for version, entry in sorted(entries, key=lambda e: e[0]) if version < max(usable)]
    if gone:
        outbox.cleaned(table, max(usable))
        directory.delete(gone)
    return gone
