"""The names of files in `_delta_log`."""

from __future__ import annotations

import re

LOG = "_delta_log"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"

_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.parquet")
_VERSIONED = re.compile(rf"{LOG}/(\d{{20}})\.(?:json|crc|checkpoint\..*|\d{{20}}\.compacted\.json)")


def commit_path(version: int) -> str:
    """Return the path of the commit file of a version."""
    return f"{LOG}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """Return the path of the classic checkpoint of a version."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def commit_version(path: str) -> int | None:
    """Return the version of a commit file, None for any other path."""
    return _number(_COMMIT, path)


def checkpoint_version(path: str) -> int | None:
    """Return the version of a classic checkpoint, None for any other path."""
    return _number(_CHECKPOINT, path)


def any_version(path: str) -> int | None:
    """Return the version of any file of the log, the first version for a compaction, None for any other path."""
    return _number(_VERSIONED, path)


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    match = pattern.fullmatch(path)
    return int(match[1]) if match else None
