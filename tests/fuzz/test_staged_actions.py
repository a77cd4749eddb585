"""Staged actions with wrong types, odd texts and mixed-up fields are rejected, and nothing of them is committed."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.protocol.actions import ACTIONS, Action, from_dict
from deltasql.protocol.deletion_vectors import bitmap_of, encode, inline
from deltasql.protocol.schema import schema_string
from tests.effort import rounds
from tests.fuzz.inputs import changed_json, changed_text, huge_numbers, json_text, odd_texts, odd_values
from tests.fuzz.limits import only_own_errors, trace

SCHEMA = "id BIGINT, day DATE, name STRING, more STRUCT<a: INT, b: ARRAY<STRING>>"
STATS = {
    "numRecords": 3,
    "minValues": {"id": 1, "name": "a", "more": {"a": 1}},
    "maxValues": {"id": 9, "name": "b", "more": {"a": 2}},
    "nullCount": {"id": 0, "name": 1, "more": {"a": 0}},
    "tightBounds": True,
}
SCHEMA_STRING = schema_string(SCHEMA)
METADATA = {
    "id": "<id>",
    "schemaString": SCHEMA_STRING,
    "partitionColumns": ["day"],
    "configuration": {"delta.constraints.positive": "id >= 0", "delta.enableDeletionVectors": "true"},
    "format": {"provider": "parquet", "options": {}, "unknown": 1},
    "createdTime": 1_700_000_000_000,
    "description": "text",
    "name": "a name",
}
VECTOR = inline(encode(bitmap_of([0, 2])), 2).to_dict()


_numbers = itertools.count()


class Target:
    """A table that inputs are tried on; an input that is committed gets a new table after it."""

    def __init__(self, lake: deltasql.Lake) -> None:
        self.lake = lake
        self.table = self._made()

    def _made(self) -> deltasql.Table:
        table = self.lake.create_table(
            f"fuzz_actions.t{next(_numbers)}",
            SCHEMA,
            partition_by=["day"],
            properties={"delta.enableDeletionVectors": "true", "delta.feature.domainMetadata": "supported"},
            constraints={"positive": "id >= 0"},
        )
        with self.lake.begin() as tx:
            tx.stage(table, [action("add", valid()["add"] | {"path": "kept.parquet"})])
        return table

    def commit(self, actions: Any, **options: Any) -> None:
        """Commit actions: they are rejected and leave nothing, or they are published and other readers can read them."""
        table, before = self.table, trace(self.table)
        with only_own_errors() as outcome:
            with self.lake.begin() as tx:
                tx.stage(table, actions, **options)
        if outcome.error is not None:
            assert trace(table) == before
        elif tx.versions:
            self.table = self._made()
            assert tx.mirror == {}
            assert self.lake.mirror.validate(table.name) == []
            table.history()
            table.files()
            self.lake.drop_table(table.name)


@pytest.fixture(scope="module")
def target(embedded_lake: deltasql.Lake) -> Target:
    return Target(embedded_lake)


def action(kind: str, fields: Any) -> Action | None:
    """Make an action without any check of its fields; None if not even Python makes it."""
    try:
        return from_dict(ACTIONS[kind], fields)
    except (KeyError, TypeError, AttributeError):
        return None


def valid() -> dict[str, Any]:
    """Return one valid action of each kind."""
    return {
        "add": {
            "path": "day=2026-01-01/part-0.parquet",
            "size": 100,
            "modificationTime": 1_700_000_000_000,
            "partitionValues": {"day": "2026-01-01"},
            "dataChange": True,
            "stats": json.dumps(STATS),
            "tags": {"k": "v"},
            "deletionVector": dict(VECTOR),
            "baseRowId": None,
            "defaultRowCommitVersion": None,
            "clusteringProvider": None,
            "unknown": {"a": [1, None, "x"]},
        },
        "remove": {
            "path": "kept.parquet",
            "deletionTimestamp": 1_700_000_000_000,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {"day": "2026-01-01"},
            "size": 100,
            "stats": None,
            "tags": None,
            "deletionVector": dict(VECTOR),
        },
        "cdc": {
            "path": "_change_data/c.parquet",
            "size": 10,
            "partitionValues": {"day": "2026-01-01"},
            "dataChange": False,
            "tags": None,
        },
        "txn": {"appId": "stream", "version": 7, "lastUpdated": 1_700_000_000_000},
        "domainMetadata": {"domain": "some.domain", "configuration": '{"a":1}', "removed": False},
        "commitInfo": {
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "x": [1]},
            "operationMetrics": {"numFiles": "1"},
            "timestamp": 1_700_000_000_000,
            "userName": "someone",
            "isBlindAppend": True,
            "userMetadata": "text",
            "tags": {"a": "b"},
            "engineInfo": "test",
            "extra": {"any": 1},
        },
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["appendOnly", "invariants", "checkConstraints", "deletionVectors", "domainMetadata"],
        },
    }


def test_the_valid_actions_are_committed(target: Target) -> None:
    for kind, fields in {**valid(), "metaData": METADATA}.items():
        table = target.table
        target.commit([action(kind, fields | ({"id": table.id} if "id" in fields else {}))])
        assert target.table is not table, kind


@settings(max_examples=rounds(12, 500))
@given(changed_json([valid()]), st.booleans())
def test_changed_actions(target: Target, changed: Any, together: bool) -> None:
    actions = [made for kind, fields in changed.items() if (made := action(kind, fields)) is not None]
    for some in [actions] if together else [[one] for one in actions]:
        if len(some) > 1 or some[0].to_dict() != valid().get(some[0].kind):
            target.commit(some)


@settings(max_examples=rounds(15, 300))
@given(changed_json([json.loads(SCHEMA_STRING)]) | changed_text([SCHEMA_STRING]), st.booleans())
def test_changed_schemas(target: Target, schema: Any, ensure_ascii: bool) -> None:
    text = schema if isinstance(schema, str) else json_text(schema, ensure_ascii=ensure_ascii)
    target.commit([action("metaData", METADATA | {"id": target.table.id, "schemaString": text})])


@settings(max_examples=rounds(15, 300))
@given(changed_json([METADATA]))
def test_changed_metadata(target: Target, changed: Any) -> None:
    if changed.get("id") == METADATA["id"]:
        changed["id"] = target.table.id
    target.commit([action("metaData", changed)])


@settings(max_examples=rounds(15, 300))
@given(changed_json([STATS]), st.sampled_from(["add", "remove"]))
def test_changed_statistics(target: Target, stats: Any, kind: str) -> None:
    target.commit([action(kind, valid()[kind] | {"stats": json_text(stats)})])
    target.commit([action(kind, valid()[kind] | {"stats": json_text(stats, ensure_ascii=False)})])


@settings(max_examples=rounds(15, 300))
@given(
    odd_values | st.lists(odd_values, max_size=3),
    odd_values | huge_numbers,
    st.none() | st.builds(deltasql.Reads, st.lists(odd_texts, max_size=2).map(tuple), st.frozensets(odd_texts)),
)
def test_values_that_are_not_actions_and_odd_options(target: Target, actions: Any, version: Any, reads: Any) -> None:
    target.commit(actions)
    target.commit([action("add", valid()["add"])], expected_version=version, reads=reads)
