"""Which files of a log are old enough to go, and which can therefore never have gone by the clean-up."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from deltasql.core.intervals import property_interval
from deltasql.mirror.hint import decode_hint
from deltasql.mirror.layout import LAST_CHECKPOINT, LOG, any_version, checkpoint_version, commit_version
from deltasql.mirror.replay import Log
from deltasql.objects import Directory
from deltasql.store.outbox import MirroredTable, Outbox

_LOG_RETENTION = timedelta(days=30)


def retained_from(properties: Mapping[str, str]) -> datetime | None:
    """The midnight before which a log may be cleaned; none if it must not be."""
    if properties.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return None
    kept = property_interval(properties, "delta.logRetentionDuration", _LOG_RETENTION)
    return (datetime.now(UTC) - kept).replace(hour=0, minute=0, second=0, microsecond=0)


def kept_from(outbox: Outbox, table: MirroredTable, log: Log, published: int) -> int:
    """The first version that no clean-up can have removed: it never goes beyond the last checkpoint before the first
    version that is younger than the retention. 0 if there was none."""
    before = retained_from(table.properties)
    if before is None:
        return 0
    young, recorded = outbox.retained(table, before)
    listed = (version for version in log.checkpoints if version < young and version <= published)
    return max([recorded, *listed])


def clean_log(directory: Directory, outbox: Outbox, table: MirroredTable, before: datetime) -> list[str]:
    """Delete what no reader needs: everything before the last checkpoint that is older than a moment, by the time of
    its file and of its commit."""
    entries = [(version, entry) for entry in directory.list(LOG) if (version := any_version(entry.path)) is not None]
    young = min((version for version, entry in entries if entry.modified > before), default=None)
    limit = young - 1 if young is not None else max((v for v, _ in entries), default=-1)
    commits = {v for _, entry in entries if (v := commit_version(entry.path)) is not None}
    checkpoints = {v for _, entry in entries if (v := checkpoint_version(entry.path)) is not None}
    usable = [v for v in checkpoints if v <= limit and v in commits]
    last = outbox.last_before(table, usable, before) if usable else None
    hinted = decode_hint(directory.get(LAST_CHECKPOINT)) if last is not None else None
    if last is None or hinted is None or hinted < last:
        return []
    gone = [entry.path for version, entry in sorted(entries, key=lambda e: e[0]) if version < last]
    directory.delete(gone)
    return gone
