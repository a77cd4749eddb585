"""Log retention: delete the files of a log that readers no longer need."""

from __future__ import annotations

from datetime import UTC, datetime

from deltasql.delta_log.last_checkpoint import decode_hint
from deltasql.delta_log.layout import LAST_CHECKPOINT, LOG, any_version, checkpoint_version, commit_version
from deltasql.protocol.properties import TableProperties
from deltasql.storage import Directory
from deltasql.store.mirror_records import MirroredTable
from deltasql.store.outbox import Outbox


def retained_from(properties: TableProperties) -> datetime | None:
    """Return the midnight before which log files may be deleted, None if clean-up is disabled."""
    if not properties.expired_log_cleanup:
        return None
    return (datetime.now(UTC) - properties.log_retention).replace(hour=0, minute=0, second=0, microsecond=0)


def clean_log(directory: Directory, outbox: Outbox, table: MirroredTable, before: datetime) -> list[str]:
    """Delete the files before the last checkpoint that is older than `before`, and return their paths.

    The deletion is recorded in the database first, so that validation can tell deleted files from missing ones.
    """
    entries = [(version, entry) for entry in directory.list(LOG) if (version := any_version(entry.path)) is not None]
    young = min((version for version, entry in entries if entry.modified > before), default=None)
    limit = young - 1 if young is not None else max((v for v, _ in entries), default=-1)
    commits = {v for _, entry in entries if (v := commit_version(entry.path)) is not None}
    checkpoints = {v for _, entry in entries if (v := checkpoint_version(entry.path)) is not None}
    usable = [v for v in checkpoints if v <= limit and v in commits]
    hinted = decode_hint(directory.get(LAST_CHECKPOINT)) if usable else None
    if hinted is None or hinted < max(usable):
        return []
    expired = [entry.path for version, entry in sorted(entries, key=lambda e: e[0]) if version < max(usable)]
    if expired:
        outbox.record_cleaned(table, max(usable))
        directory.delete(expired)
    return expired
