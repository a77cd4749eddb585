"""Table properties are parsed into one typed value."""

from __future__ import annotations

import logging
import pickle
from datetime import timedelta
from typing import Any

import pytest

from deltasql.protocol.actions import Metadata
from deltasql.protocol.properties import TableProperties, parse_interval

CONFIGURATION = {
    "delta.appendOnly": "TRUE",
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.deltasql.fence": "true",
    "delta.checkpointInterval": "20",
    "delta.checkpointPolicy": "v2",
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.columnMapping.mode": "name",
    "delta.constraints.positive": "amount > 0",
    "delta.constraints.named": "name IS NOT NULL",
    "delta.dataSkippingNumIndexedCols": "-1",
    "delta.dataSkippingStatsColumns": "id,s.x",
    "delta.deletedFileRetentionDuration": "interval 1 day",
    "delta.enableExpiredLogCleanup": "False",
    "delta.feature.domainMetadata": "supported",
    "delta.isolationLevel": "Serializable",
    "delta.logRetentionDuration": "interval 2 weeks",
    "delta.parquet.compression.codec": "ZSTD",
    "owner": "me",
}
PROPERTIES = TableProperties(
    append_only=True,
    change_data_feed=True,
    checkpoint_interval=20,
    codec="zstd",
    column_mapping_mode="name",
    constraints={"named": "name IS NOT NULL", "positive": "amount > 0"},
    deleted_file_retention=timedelta(days=1),
    deletion_vectors=True,
    enabled_features=frozenset(
        {
            "appendOnly",
            "changeDataFeed",
            "checkConstraints",
            "columnMapping",
            "deletionVectors",
            "deltasqlFence",
            "inCommitTimestamp",
            "v2Checkpoint",
        }
    ),
    expired_log_cleanup=False,
    in_commit_timestamps=True,
    isolation_level="Serializable",
    log_retention=timedelta(weeks=2),
    num_indexed_columns=-1,
    requested_features=frozenset({"domainMetadata"}),
    stats_as_json=False,
    stats_as_struct=True,
    stats_columns=("id", "s.x"),
)


def test_every_property_is_typed() -> None:
    assert TableProperties.of(CONFIGURATION) == PROPERTIES
    assert Metadata("id", "{}", configuration=CONFIGURATION).table_properties == PROPERTIES


def test_absent_properties_have_the_defaults_of_delta() -> None:
    assert TableProperties.of({"owner": "me"}) == TableProperties()


def test_typed_properties_are_parsed_once_and_can_be_pickled() -> None:
    parsed = TableProperties.of(dict(CONFIGURATION))
    assert TableProperties.of(dict(CONFIGURATION)) is parsed
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_checkpoints_hold_statistics_in_at_least_one_form() -> None:
    assert TableProperties.of({"delta.checkpoint.writeStatsAsJson": "false"}).stats_as_json


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("delta.logRetentionDuration", "bogus", "log_retention"),
        ("delta.deletedFileRetentionDuration", "", "deleted_file_retention"),
        ("delta.dataSkippingNumIndexedCols", "many", "num_indexed_columns"),
    ],
)
def test_a_malformed_value_falls_back_with_a_warning(
    key: str, value: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "deltasql"):
        parsed: Any = getattr(TableProperties.of({key: value}), field)
    assert parsed == getattr(TableProperties(), field)
    assert key in caplog.text


@pytest.mark.parametrize("value", ["0", "-1", "ten", "²"])
def test_a_malformed_checkpoint_interval_counts_as_absent(value: str) -> None:
    assert TableProperties.of({"delta.checkpointInterval": value}).checkpoint_interval is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 30 days", timedelta(days=30)),
        ("INTERVAL 1 week", timedelta(weeks=1)),
        ("interval 1 day 12 hours", timedelta(days=1, hours=12)),
        ("168 hours", timedelta(days=7)),
        ("interval 0 days", timedelta()),
    ],
)
def test_an_interval_is_parsed(text: str, expected: timedelta) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize(
    "text", ["", "interval", "30", "interval 3 moons", "interval 1 day and more", "interval -1 days"]
)
def test_a_text_that_is_not_an_interval_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="interval"):
        parse_interval(text)
