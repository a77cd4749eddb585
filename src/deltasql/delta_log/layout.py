"""The names of files in `_delta_log`."""

from __future__ import annotations

import re
from typing import NamedTuple

LOG = "_delta_log"
SIDECARS = f"{LOG}/_sidecars"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"

_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.parquet")
_PART = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.(\d{{10}})\.(\d{{10}})\.parquet")
_UUID_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.[0-9A-Za-z-]{{36}}\.(?:json|parquet)")
_COMPACTED = re.compile(rf"{LOG}/(\d{{20}})\.(\d{{20}})\.compacted\.json")
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


class CheckpointPart(NamedTuple):
    """The name of a part of a multi-part checkpoint."""

    version: int
    number: int
    parts: int


def checkpoint_part(path: str) -> CheckpointPart | None:
    """Return which part of a multi-part checkpoint a file is, None for any other path."""
    match = _PART.fullmatch(path)
    part = CheckpointPart(int(match[1]), int(match[2]), int(match[3])) if match else None
    return part if part and 1 <= part.number <= part.parts else None


def uuid_checkpoint_version(path: str) -> int | None:
    """Return the version of a checkpoint whose name has a UUID, None for any other path."""
    return _number(_UUID_CHECKPOINT, path)


def compacted_versions(path: str) -> tuple[int, int] | None:
    """Return the first and the last version of a compaction, None for any other path."""
    match = _COMPACTED.fullmatch(path)
    return (int(match[1]), int(match[2])) if match else None


def any_version(path: str) -> int | None:
    """Return the version of any file of the log, the first version for a compaction, None for any other path."""
    return _number(_VERSIONED, path)


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    match = pattern.fullmatch(path)
    return int(match[1]) if match else None
