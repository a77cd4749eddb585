"""Broken configuration keys, values, environment variables, options of stores and of transactions are rejected."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.config import KEYS, Config
from deltasql.protocol.properties import TableProperties, canonical_properties
from deltasql.storage import Directory
from deltasql.store.database import session_conninfo
from tests.effort import rounds
from tests.fuzz.inputs import changed_json, changed_text, huge_numbers, odd_texts, odd_values
from tests.fuzz.limits import only_own_errors

VALUES = ("30s", "500ms", "7d", "128MiB", "1g", "20%", "0.2", "on", "sync", "auto", "https://host/path", "a, b")
PROPERTIES = (
    "interval 30 days", "interval 2 weeks 3 hours", "true", "7", "-1", "id,`a.b`", "Serializable", "zstd", "classic", "name",
    "supported", "interval 999999 weeks", f"interval {'9' * 50} days",
)  # fmt: skip
KEY_NAMES = [
    "delta.appendOnly", "delta.logRetentionDuration", "delta.deletedFileRetentionDuration", "delta.checkpointInterval",
    "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns", "delta.isolationLevel",
    "delta.parquet.compression.codec", "delta.checkpointPolicy", "delta.columnMapping.mode", "delta.constraints.x",
    "delta.feature.x", "delta.enableChangeDataFeed",
]  # fmt: skip

keys = st.sampled_from(list(KEYS))
values = changed_text(VALUES) | odd_values | huge_numbers | st.floats() | st.integers()


@settings(max_examples=rounds(100, 4_000))
@given(keys | changed_text(list(KEYS)) | st.sampled_from([None, 7, ("a", 1)]), values)
def test_values_of_keys(key: Any, value: Any) -> None:
    with only_own_errors():
        session_conninfo("host=localhost", Config({key: value}, {}))
    variable = f"DELTASQL_{str(key).upper().replace('.', '_')}"
    if isinstance(value, str):
        with only_own_errors():
            Config({}, {variable: value})
    with only_own_errors():
        Config({}, {}).override({f"deltasql.{key}": value})


@settings(max_examples=rounds(100, 4_000))
@given(
    st.dictionaries(
        st.sampled_from(KEY_NAMES) | changed_text(KEY_NAMES),
        changed_text(PROPERTIES) | st.sampled_from(PROPERTIES),
        max_size=3,
    )
)
def test_table_properties(properties: dict[str, str]) -> None:
    with only_own_errors():
        TableProperties.of(canonical_properties("t", properties))
    TableProperties.of(properties)  # a table of another engine may have any value


OPTIONS = {
    "isolation": "serializable", "timeout": "30s", "max_tables": 3, "max_files_per_table": 7, "author": "etl",
    "message": "nightly", "app": ["stream", 7],
}  # fmt: skip


@settings(max_examples=rounds(30, 600))
@given(changed_json([OPTIONS]) | st.dictionaries(st.sampled_from(list(OPTIONS)), values))
def test_options_of_transactions(embedded_lake: deltasql.Lake, options: dict[str, Any]) -> None:
    given_options = {name: value for name, value in options.items() if name in OPTIONS}
    if isinstance(given_options.get("app"), list):
        given_options["app"] = tuple(given_options["app"])
    with only_own_errors() as outcome:
        with embedded_lake.begin(**given_options) as tx:
            tx.create_table(f"fuzz_options.t{tx.token[:8]}", "id INT")
    if outcome.error is None:
        name = next(iter(tx.versions))
        assert embedded_lake.mirror.validate(name) == []
        embedded_lake.drop_table(name)
    else:
        assert not [info.name for info in embedded_lake.tables() if info.name.startswith("fuzz_options.")]


STORES = (
    "s3://bucket/path",
    "az://container/path",
    "gs://bucket/path",
    "memory:///x",
    "file:///tmp/nowhere",
    "abfss://c@a/x",
)
STORE_OPTIONS = {
    "aws_access_key_id": "a", "aws_secret_access_key": "s3cr3t", "aws_endpoint": "http://127.0.0.1:1", "aws_region": "r",
    "allow_http": "true", "timeout": "1s", "retry_timeout": "1s", "max_retries": "0", "google_service_account": "x",
    "azure_storage_account_key": "s3cr3t",
}  # fmt: skip


@settings(max_examples=rounds(30, 600))
@given(st.sampled_from(STORES) | changed_text(STORES), changed_json([STORE_OPTIONS]))
def test_options_of_object_stores(location: str, options: dict[Any, Any]) -> None:
    with only_own_errors() as outcome:
        Directory(location, options)
    assert outcome.error is None or "s3cr3t" not in str(outcome.error)


@settings(max_examples=rounds(15, 300))
@given(odd_values, odd_texts)
def test_configurations_of_lakes(value: Any, text: str) -> None:
    for config in (value, {text: value}, {"pool.size": value, "pool.timeout": 1}, {"postgres.schema": text}):
        with only_own_errors() as outcome:
            deltasql.connect("host=127.0.0.1 port=1 connect_timeout=1", config=config).close()
        assert outcome.error is not None
