"""The logs of other engines, replayed at every version: checkpoints of all kinds, compactions, sidecars, gaps.

The tables are taken from public test suites and are not part of this project; DELTASQL_GOLDEN_DIR is their directory.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from deltasql.delta_log.log_files import LogFiles
from deltasql.delta_log.replay import replay
from deltasql.errors import DeltaSqlError
from deltasql.storage import Directory
from tests.golden import GOLDEN

pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason=f"no golden tables in {GOLDEN}")
# What delta-rs found, by table.
_FOUND = GOLDEN / "expected_deltars.json"
EXPECTED: dict[str, Any] = json.loads(_FOUND.read_text()) if _FOUND.exists() else {}
READABLE = sorted(name for name, found in EXPECTED.items() if found.get("version") is not None)
GAP = "kernel-rs-golden/versions-not-contiguous"


@pytest.mark.parametrize("name", READABLE)
def test_every_version_has_the_files_that_delta_rs_finds(name: str) -> None:
    directory = Directory(str(GOLDEN / name / "delta"), {})
    log = LogFiles.of(directory)
    found = EXPECTED[name]
    table = replay(directory, log, found["version"])
    assert max([*log.commits, *log.complete]) == found["version"]
    assert table.protocol is not None
    assert table.metadata is not None
    assert len(table.files) == found["file_count"]
    by_version = {
        int(v): one["files"] for v, one in (found.get("by_version") or {}).items() if one["files"] is not None
    }
    assert {version: len(replay(directory, log, version).files) for version in by_version} == by_version


def test_statistics_that_are_only_structs_are_read() -> None:
    for name in ("delta-rs/delta-1.2.1-only-struct-stats", "kernel-rs-data/v2-json-sidecars-struct-stats-only"):
        directory = Directory(str(GOLDEN / name / "delta"), {})
        table = replay(directory, LogFiles.of(directory), EXPECTED[name]["version"])
        rows = [json.loads(add.stats or "{}").get("numRecords") for add in table.files.values()]
        assert sum(rows) == EXPECTED[name]["row_count"]


def test_a_gap_is_an_error() -> None:
    directory = Directory(str(GOLDEN / GAP / "delta"), {})
    with pytest.raises(DeltaSqlError, match=r"00000000000000000001\.json is missing from the log"):
        replay(directory, LogFiles.of(directory), 2)
