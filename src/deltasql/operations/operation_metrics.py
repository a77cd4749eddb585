"""The metrics that history shows for a statement, under the names that delta-spark uses."""

from __future__ import annotations

from deltasql.engines.arrow.write.file_writer import count_rows
from deltasql.engines.row_change import DELETE, INSERT, MERGE, UNMATCHED, UPDATE, WRITE, ChangedFiles


def metrics_of(operation: str, changed: ChangedFiles, milliseconds: float) -> dict[str, str]:
    """Return the counts of changed rows and files, and the times, of a statement."""
    if operation == WRITE:
        written = {
            "numFiles": len(changed.added),
            "numOutputRows": changed.counts.get(INSERT, 0),
            "numOutputBytes": sum(add.size for add in changed.added),
        }
        return {key: str(value) for key, value in written.items()}
    spent = {"executionTimeMs": milliseconds, "scanTimeMs": changed.scan_ms}
    spent["rewriteTimeMs"] = milliseconds - changed.scan_ms - changed.source_ms
    if operation == MERGE:
        spent["materializeSourceTimeMs"] = changed.source_ms
    found = _merged(changed) if operation == MERGE else _changed(operation, changed)
    found |= _vectors("numTargetDeletionVectors" if operation == MERGE else "numDeletionVectors", changed)
    return {key: str(int(value)) for key, value in (found | spent).items()}


def _changed(operation: str, changed: ChangedFiles) -> dict[str, int | float]:
    rows = {UPDATE: "numUpdatedRows", DELETE: "numDeletedRows"}[operation]
    return {
        **({rows: changed.counts[operation]} if operation in changed.counts else {}),
        "numCopiedRows": count_rows(changed.rewritten),
        "numAddedChangeFiles": len(changed.change_files),
        **_files("num{}Files", "num{}Bytes", changed),
    }


def _merged(changed: ChangedFiles) -> dict[str, int | float]:
    counts, copied = changed.counts, count_rows(changed.rewritten)
    found: dict[str, int | float] = {
        "numSourceRows": changed.source_rows,
        "numTargetRowsInserted": counts.get(INSERT, 0),
        "numTargetRowsCopied": copied,
        "numOutputRows": counts.get(INSERT, 0) + counts.get(UPDATE, 0) + copied,
        "numTargetChangeFilesAdded": len(changed.change_files),
        **_files("numTargetFiles{}", "numTargetBytes{}", changed),
    }
    for action, done in ((UPDATE, "Updated"), (DELETE, "Deleted")):
        rows, alone = counts.get(action, 0), counts.get(UNMATCHED[action], 0)
        found |= {
            f"numTargetRows{done}": rows,
            f"numTargetRowsMatched{done}": rows - alone,
            f"numTargetRowsNotMatchedBySource{done}": alone,
        }
    return found


def _files(count: str, size: str, changed: ChangedFiles) -> dict[str, int]:
    """Count added and removed files. A file that got a deletion vector counts as neither."""
    files = [*changed.added, *changed.rewritten]
    stayed = sum(add.size for add in changed.marked)
    return {
        count.format("Added"): len(files),
        count.format("Removed"): changed.removed.num_rows - len(changed.marked),
        size.format("Added"): sum(add.size for add in files),
        size.format("Removed"): sum(changed.removed["size"].to_pylist()) - stayed,
    }


def _vectors(name: str, changed: ChangedFiles) -> dict[str, int]:
    marked = changed.removed.filter(changed.removed["deletion_vector"].is_valid())
    before, after = set(marked["path"].to_pylist()), {add.path for add in changed.marked}
    return {
        f"{name}Added": len(after - before),
        f"{name}Updated": len(after & before),
        f"{name}Removed": len(before - after),
    }
