"""Which files of `_delta_log` lead to a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltasql.delta_log.log_files import LogFiles
from deltasql.errors import DeltaSqlError
from deltasql.storage import Directory

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def listed(folder: Path, *names: str) -> LogFiles:
    log = folder / "_delta_log"
    log.mkdir()
    for name in names:
        (log / name).write_text("")
    return LogFiles.of(Directory(str(folder), {}))


def commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


def steps(log: LogFiles, version: int) -> list[str]:
    """Return the files that lead to a version, by name."""
    checkpoint, files = log.path_to(version)
    return [path.rpartition("/")[2].lstrip("0") for path in (*(checkpoint.paths if checkpoint else ()), *files)]


def test_commits_alone(tmp_path: Path) -> None:
    assert steps(listed(tmp_path, *commits(0, 1, 2)), 1) == [".json", "1.json"]


def test_the_latest_complete_checkpoint_is_the_start(tmp_path: Path) -> None:
    parts = [f"{3:020d}.checkpoint.{number:010d}.{2:010d}.parquet" for number in (1, 2)]
    lost = f"{4:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    named = f"{5:020d}.checkpoint.{UUID}.json"
    log = listed(tmp_path, *commits(*range(8)), f"{1:020d}.checkpoint.parquet", *parts, lost, named)
    assert steps(log, 2) == ["1.checkpoint.parquet", "2.json"]
    assert steps(log, 4) == [
        "3.checkpoint.0000000001.0000000002.parquet",
        "3.checkpoint.0000000002.0000000002.parquet",
        "4.json",
    ]
    assert steps(log, 7) == [f"5.checkpoint.{UUID}.json", "6.json", "7.json"]


def test_a_compaction_covers_missing_commits(tmp_path: Path) -> None:
    log = listed(tmp_path, *commits(0, 1, 4), f"{1:020d}.{3:020d}.compacted.json")
    assert steps(log, 4) == [".json", "1.json", "1.00000000000000000003.compacted.json", "4.json"]
    with pytest.raises(DeltaSqlError, match=r"_delta_log/0{19}2\.json is missing"):
        log.path_to(2)


def test_other_names_are_ignored(tmp_path: Path) -> None:
    log = listed(
        tmp_path, *commits(0), "1.json", ".00000000000000000001.json.tmp", f"{2:020d}.checkpoint.x.parquet",
        f"{3:020d}.checkpoint.{0:010d}.{1:010d}.parquet",
    )  # fmt: skip
    assert (set(log.commits), dict(log.complete)) == ({0}, {})
