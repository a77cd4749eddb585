"""Damage in `_delta_log` and in manifests is reported by `validate`, and `repair` mends it or names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from deltasql import MirrorFailure
from deltasql.cli.main import cli
from deltasql.delta_log.last_checkpoint import decode_hint, encode_hint
from deltasql.delta_log.log_files import LogFiles
from deltasql.delta_log.replay import replay
from deltasql.storage import Directory
from tests.effort import rounds
from tests.fuzz.inputs import changed_json, damaged, json_text, odd_texts
from tests.fuzz.limits import only_own_errors

SCHEMA = "id BIGINT, day DATE"
COMMITS = 6
CHECKPOINT = 4


@pytest.fixture(scope="module")
def table(embedded_lake: deltasql.Lake) -> Iterator[deltasql.Table]:
    properties = {"delta.checkpointInterval": str(CHECKPOINT), "delta.feature.domainMetadata": "supported"}
    made = embedded_lake.create_table("fuzz_log.t", SCHEMA, partition_by=["day"], properties=properties)
    for number in range(COMMITS):
        with embedded_lake.begin(app=("stream", number)) as tx:
            tx.write(made, pa.table({"id": [number]}))
            tx.stage(made, [deltasql.DomainMetadata("a.domain", "{}")])
    embedded_lake.mirror.run()
    assert (log_of(made) / f"{CHECKPOINT:020d}.checkpoint.parquet").exists()
    assert embedded_lake.mirror.validate(made.name) == []
    yield made
    # Versions that cannot be published again would keep the retries of this lake running, for all tables of the database.
    embedded_lake.drop_table(made.name)


def log_of(table: deltasql.Table) -> Path:
    return Path(table.location) / "_delta_log"


@contextmanager
def kept_log(table: deltasql.Table) -> Iterator[Path]:
    """Restore the whole log after a test."""
    log = log_of(table)
    copy = log.with_name("_kept")
    shutil.copytree(log, copy, dirs_exist_ok=True)
    try:
        yield log
    finally:
        shutil.rmtree(log)
        copy.rename(log)


def check(table: deltasql.Table, *, differs: bool = True) -> None:
    """Validate and repair a damaged log: `validate` finds the damage, `repair` mends it or raises MirrorFailure."""
    with only_own_errors() as outcome:
        problems = table.lake.mirror.validate(table.name)
        assert all(isinstance(problem, str) and problem for problem in problems)
        assert problems or not differs
        "\n".join(problems).encode()
    assert outcome.error is None
    with only_own_errors() as outcome:
        table.lake.mirror.repair(table.name)
    assert outcome.error is None or isinstance(outcome.error, MirrorFailure | deltasql.StorageError)
    with only_own_errors() as outcome:
        table.lake.mirror.validate(table.name)
    assert outcome.error is None


@settings(max_examples=rounds(12, 400))
@given(st.integers(0, COMMITS), st.data())
def test_commit_files(table: deltasql.Table, version: int, data: st.DataObject) -> None:
    with kept_log(table) as log:
        file = log / f"{version:020d}.json"
        before = file.read_bytes()
        file.write_bytes(data.draw(damaged(before)))
        check(table, differs=file.read_bytes() != before)


ACTIONS = [
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "x", "txnId": "y", "operationParameters": {}}},
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}},
    {"txn": {"appId": "stream", "version": 3, "lastUpdated": 1}},
    {"domainMetadata": {"domain": "a.domain", "configuration": "{}", "removed": False}},
    {"add": {"path": "a.parquet", "size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": {"day": None},
             "stats": "{}", "deletionVector": {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}}},
    {"remove": {"path": "a.parquet", "dataChange": True, "deletionTimestamp": 1}},
]  # fmt: skip


@settings(max_examples=rounds(12, 400))
@given(st.integers(0, COMMITS), changed_json([ACTIONS]), st.booleans())
def test_commits_of_odd_actions(table: deltasql.Table, version: int, actions: Any, ascii_only: bool) -> None:
    text = "\n".join(json_text(action, ensure_ascii=ascii_only) for action in actions) + "\n"
    data = text.encode("utf-8", "surrogatepass")
    with kept_log(table) as log:
        (log / f"{version:020d}.json").write_bytes(data)
        (log / f"{CHECKPOINT:020d}.checkpoint.parquet").unlink()
        check(table)
        directory = Directory(table.location, {})
        with only_own_errors():
            replay(directory, LogFiles.of(directory), COMMITS)


@settings(max_examples=rounds(12, 400))
@given(st.data())
def test_checkpoints(table: deltasql.Table, data: st.DataObject) -> None:
    with kept_log(table) as log:
        file = log / f"{CHECKPOINT:020d}.checkpoint.parquet"
        file.write_bytes(data.draw(damaged(file.read_bytes())))
        check(table, differs=False)


HINT = json.loads(encode_hint(CHECKPOINT, 10, 1000, 5))


@settings(max_examples=rounds(15, 600))
@given(changed_json([HINT]).map(lambda hint: json_text(hint).encode()) | damaged(encode_hint(CHECKPOINT, 10, 1000, 5)))
def test_hints(table: deltasql.Table, hint: bytes) -> None:
    decode_hint(hint)
    with kept_log(table) as log:
        (log / "_last_checkpoint").write_bytes(hint)
        check(table, differs=False)


@settings(max_examples=rounds(20, 200))
@given(
    st.sampled_from(
        ["{:020d}.json", "{:020d}.crc", "{:020d}.checkpoint.parquet", "{:020d}.{:020d}.compacted.json", "{}"]
    ),
    st.sampled_from([0, 3, COMMITS + 1, 10**19, 10**20 - 1]),
    st.binary(max_size=30),
)
def test_stray_files(table: deltasql.Table, name: str, number: int, content: bytes) -> None:
    with kept_log(table) as log:
        file = log / name.format(number, number)
        if not file.exists():
            file.write_bytes(content)
            check(table, differs="{:" in name and "checkpoint" not in name)


def test_bytes_that_are_not_utf8_are_a_finding(table: deltasql.Table) -> None:
    with kept_log(table) as log:
        for version, damage in ((2, b"\xff\xfe\n"), (COMMITS, b'{"add":{"path":"\xff"}}\n')):
            file = log / f"{version:020d}.json"
            file.write_bytes(file.read_bytes() + damage)
        problems = table.lake.mirror.validate(table.name)
        for version in (2, COMMITS):
            assert [problem for problem in problems if f"{version:020d}.json" in problem], problems
        url = "deltasql://embedded/.deltasql"
        result = CliRunner().invoke(cli, ["mirror", "validate", table.name, "--url", url])
        assert isinstance(result.exception, SystemExit)
        assert result.exit_code == 1
        assert f"{COMMITS:020d}.json" in result.output


# --- Manifests

MANIFEST = {
    "txnId": "00000000-0000-0000-0000-000000000000",
    "timestamp": 1_700_000_000_000,
    "author": "etl",
    "message": None,
    "tables": {"a.b": {"id": "x", "location": "/x", "version": 3, "timestamp": 1_700_000_000_000}},
    "snapshot": {"a.b": {"id": "x", "location": "/x", "version": 3, "timestamp": 1_700_000_000_000}},
}


@settings(max_examples=rounds(50, 2_000))
@given(
    changed_json([MANIFEST]).map(lambda manifest: json_text(manifest).encode()) | damaged(json_text(MANIFEST).encode()),
    st.none() | st.just("2026-01-01") | odd_texts,
)
def test_manifests(workdir: Path, content: bytes, timestamp: Any) -> None:
    folder = workdir / "fuzz_manifests/_deltasql/transactions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020d}.json").write_bytes(content)
    with only_own_errors():
        deltasql.versions_as_of(str(workdir / "fuzz_manifests"), timestamp)
