"""The names of files in `_delta_log`."""

from __future__ import annotations

import re

LOG = "_delta_log"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"

_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.parquet")
_VERSIONED = re.compile(rf"{LOG}/(\d{{20}})\.(?:json|crc|checkpoint\..*|\d{{20}}\.compacted\.json)")


def commit_path(version: int) -> str:
    """The file of a version."""
    return f"{LOG}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """The classic checkpoint of a version."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def commit_version(path: str) -> int | None:
    """The version that a commit file holds."""
    return _number(_COMMIT, path)


def checkpoint_version(path: str) -> int | None:
    """The version that a classic checkpoint is of."""
    return _number(_CHECKPOINT, path)


def any_version(path: str) -> int | None:
    """The version that a file of the log belongs to, a compaction to its first."""
    return _number(_VERSIONED, path)


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    match = pattern.fullmatch(path)
    return int(match[1]) if match else None
