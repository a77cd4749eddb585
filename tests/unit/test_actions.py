"""Actions are frozen, complete, and converted from and to JSON without loss."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deltasql
from deltasql.protocol.actions import ACTIONS, DeletionVector, from_dict

WHOLE: dict[str, dict[str, Any]] = {
    "add": {
        "path": "a.parquet", "partitionValues": {"p": None, "q": "1"}, "size": 1, "modificationTime": 2,
        "dataChange": False, "stats": "{}", "tags": {"k": "v"},
        "deletionVector": {
            "storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40,
            "cardinality": 6,
        },
        "baseRowId": 0, "defaultRowCommitVersion": 3, "clusteringProvider": "liquid",
    },
    "remove": {
        "path": "a.parquet", "deletionTimestamp": 5, "dataChange": True, "extendedFileMetadata": True,
        "partitionValues": {"p": None}, "size": 7, "stats": "{}", "tags": {},
        "deletionVector": {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1},
        "baseRowId": 1, "defaultRowCommitVersion": 2,
    },
    "cdc": {"path": "_change_data/a", "partitionValues": {}, "size": 1, "dataChange": False, "tags": {"a": "b"}},
    "metaData": {
        "id": "i", "name": "n", "description": "d", "format": {"provider": "parquet", "options": {}},
        "schemaString": "{}", "partitionColumns": ["p"], "configuration": {"a": "b"}, "createdTime": 1,
    },
    "protocol": {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    },
    "txn": {"appId": "a", "version": 1, "lastUpdated": 2},
    "domainMetadata": {"domain": "d", "configuration": "{}", "removed": False},
    "commitInfo": {
        "operation": "WRITE", "operationParameters": {"mode": "Append"}, "operationMetrics": {"numFiles": "1"},
        "timestamp": 1, "inCommitTimestamp": 1, "userId": "u", "userName": "n", "readVersion": 0,
        "isolationLevel": "Serializable", "isBlindAppend": True, "userMetadata": "m", "tags": {"a": "b"},
        "engineInfo": "e", "txnId": "t",
    },
}  # fmt: skip


def test_every_action_of_the_protocol_exists() -> None:
    assert set(ACTIONS) == set(WHOLE)


@pytest.mark.parametrize("kind", WHOLE)
def test_round_trip_of_all_fields(kind: str) -> None:
    cls = ACTIONS[kind]
    action = from_dict(cls, WHOLE[kind])
    assert action.to_dict() == WHOLE[kind]
    assert set(WHOLE[kind]) == set(cls.__struct_encode_fields__) - {"extra"}
    assert pickle.loads(pickle.dumps(action)) == action


@pytest.mark.parametrize("kind", WHOLE)
@given(extra=st.dictionaries(st.text(min_size=1).map(lambda s: "x" + s), st.integers() | st.text() | st.none()))
def test_unknown_fields_are_kept(kind: str, extra: dict[str, Any]) -> None:
    action = from_dict(ACTIONS[kind], {**WHOLE[kind], **extra})
    assert action.to_dict() == {**WHOLE[kind], **extra}


def test_frozen() -> None:
    action = deltasql.Add(path="a", size=1, modification_time=2)
    with pytest.raises(AttributeError):
        action.path = "b"  # type: ignore[misc]
    assert action.partition_values == {}
    assert action.data_change is True


def test_positional_arguments_as_documented() -> None:
    assert deltasql.Txn("app", 3) == deltasql.Txn(app_id="app", version=3, last_updated=None)


def test_identity_of_a_deletion_vector() -> None:
    assert DeletionVector("u", "abc", 1, 1).unique_id == "uabc"
    assert DeletionVector("u", "abc", 1, 1, offset=4).unique_id == "uabc@4"
