"""Find the commits, checkpoints and compactions in `_delta_log`, of any kind and of any writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deltasql.delta_log.layout import (
    LOG,
    any_version,
    checkpoint_part,
    checkpoint_version,
    commit_path,
    commit_version,
    compacted_versions,
    uuid_checkpoint_version,
)
from deltasql.errors import DeltaSqlError
from deltasql.storage import Directory


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that has all its files, except sidecars, which are named inside of it."""

    version: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of `_delta_log` that hold versions.

    Attributes:
        commits: The sizes of the commit files, by version.
        checkpoints: The versions that have a classic checkpoint.
        strays: Files that readers use and the mirror never writes: checksums, compactions, other checkpoints.
        complete: A complete checkpoint of any kind, by version.
        compactions: The path of each compaction, by its first and last version.
    """

    commits: Mapping[int, int]
    checkpoints: frozenset[int]
    strays: tuple[str, ...]
    complete: Mapping[int, Checkpoint] = field(default_factory=dict)
    compactions: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: Directory) -> LogFiles:
        """List the log of a table directory."""
        entries = list(directory.list(LOG))
        paths = [entry.path for entry in entries]
        return cls(
            {v: entry.size for entry in entries if (v := commit_version(entry.path)) is not None},
            frozenset(v for path in paths if (v := checkpoint_version(path)) is not None),
            tuple(
                p for p in paths if any_version(p) is not None and commit_version(p) is checkpoint_version(p) is None
            ),
            {one.version: one for one in _checkpoints(paths)},
            {versions: path for path in paths if (versions := compacted_versions(path)) is not None},
        )

    def missing(self, first: int, published: int) -> list[int]:
        """Return the versions from `first` to `published` without a commit file."""
        return [version for version in range(first, published + 1) if version not in self.commits]

    def lacks_first_checkpoint(self, first: int) -> bool:
        """Return whether log retention has deleted the versions before `first`, but the checkpoint of `first` is
        missing."""
        return first > 0 and first not in self.checkpoints

    def path_to(self, version: int) -> tuple[Checkpoint | None, list[str]]:
        """Return the checkpoint and then the commit files and compactions, in order, that result in a version.

        Raises:
            DeltaSqlError: A commit file is missing, and no checkpoint or compaction covers it.
        """
        start = max((v for v in self.complete if v <= version), default=None)
        files: list[str] = []
        at = 0 if start is None else start + 1
        while at <= version:
            if at in self.commits:
                files.append(commit_path(at))
                at += 1
                continue
            covering = [
                (last, path) for (first, last), path in self.compactions.items() if first <= at <= last <= version
            ]
            if not covering:
                raise DeltaSqlError(f"{commit_path(at)} is missing from the log")
            last, path = max(covering)
            files.append(path)
            at = last + 1
        return (None if start is None else self.complete[start]), files


def _checkpoints(paths: Iterable[str]) -> list[Checkpoint]:
    """Return the complete checkpoints; of several kinds for one version, the last one is to be preferred."""
    classic, parted, named = [], defaultdict[tuple[int, int], dict[int, str]](dict), []
    for path in paths:
        if (version := checkpoint_version(path)) is not None:
            classic.append(Checkpoint(version, (path,)))
        elif (part := checkpoint_part(path)) is not None:
            parted[part.version, part.parts][part.number] = path
        elif (version := uuid_checkpoint_version(path)) is not None:
            named.append(Checkpoint(version, (path,)))
    whole = [
        Checkpoint(version, tuple(found[number] for number in sorted(found)))
        for (version, parts), found in parted.items()
        if len(found) == parts
    ]
    return [*classic, *whole, *named]
