"""Configuration: default values, precedence of sources, and errors that suggest the nearest key."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from deltasql import UsageError
from deltasql.config import KEYS, Config, duration

DEFAULTS = {
    "pool.size": 10,
    "pool.timeout": 30,
    "mirror.mode": "sync",
    "mirror.checkpoint_interval": 10,
    "mirror.reconcile_interval": 30,
    "mirror.max_retry_attempts": 5,
    "mirror.retry_backoff_base": 1,
    "mirror.parallel_tables": 5,
    "mirror.reconcile_concurrency": 10,
    "transaction.max_tables": 10,
    "transaction.max_files_per_table": 1000,
    "transaction.timeout": 60,
}


@pytest.mark.parametrize(("key", "value"), DEFAULTS.items())
def test_defaults(key: str, value: Any) -> None:
    assert Config({}, {})[key] == value


def test_layers() -> None:
    environment = {"DELTASQL_POOL_SIZE": "4", "DELTASQL_POOL_TIMEOUT": "5s", "DELTASQL_URL": "x", "PATH": "y"}
    config = Config({"pool.timeout": "7s"}, environment)
    assert (config["pool.size"], config["pool.timeout"]) == (4, 7)
    table = config.override({"deltasql.pool.timeout": "9s", "delta.checkpointInterval": "3"})
    assert (table["pool.size"], table["pool.timeout"]) == (4, 9)
    assert config["pool.timeout"] == 7


@pytest.mark.parametrize(
    ("share", "expected"),
    [("29%", "29/100"), (0.29, "29/100"), ("29.3 %", "293/1000"), ("1e-7", "1/10000000"), (0, "0"), (1, "1")],
)
def test_ratios_are_exact_fractions(share: Any, expected: str) -> None:
    config = Config({"optimize.deleted_share": share}, {})
    assert config["optimize.deleted_share"] == Fraction(expected)
    assert Config(config.values(), {})["optimize.deleted_share"] == Fraction(expected)


@pytest.mark.parametrize(
    ("values", "environment", "hint"),
    [
        ({"pool.sise": 1}, {}, "pool.size"),
        ({"zzzzzzz": 1}, {}, "pool.size"),
        ({}, {"DELTASQL_POOL_SISE": "1"}, "DELTASQL_POOL_SIZE"),
        ({"pool.size": 0}, {}, "whole number"),
        ({"pool.size": True}, {}, "whole number"),
        ({"pool.timeout": "soon"}, {}, "30s"),
        ({"mirror.mode": "maybe"}, {}, "sync, async or off"),
        ({"optimize.deleted_share": "101%"}, {}, "a share such as 20%"),
        ({"optimize.deleted_share": "1/3"}, {}, "a share such as 20%"),
        ({"optimize.deleted_share": "nan"}, {}, "a share such as 20%"),
        ({"optimize.deleted_share": "1e-999999999"}, {}, "a share such as 20%"),
        ({"optimize.deleted_share": True}, {}, "a share such as 20%"),
        ({"postgres.schema": ""}, {}, "a name of letters"),
        ({"postgres.schema": "a -c b=c"}, {}, "a name of letters"),
        ({"mirror.alert_webhook": "example.com/hook"}, {}, "http://"),
        ({"mirror.alert_webhook": "ftp://example.com"}, {}, "http://"),
    ],
)
def test_errors_name_the_setting_and_the_values(values: dict[str, Any], environment: dict[str, str], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        Config(values, environment)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("500ms", 0.5), ("5m", 300), ("2h", 7200), ("1.5s", 1.5), (3, 3), ("4", 4)]
)
def test_durations(text: Any, seconds: float) -> None:
    assert duration(text) == seconds


def test_schemes_in_any_case() -> None:
    assert Config({"mirror.alert_webhook": "HTTPS://example.com"}, {})["mirror.alert_webhook"] == "HTTPS://example.com"


def test_every_key_has_a_description() -> None:
    assert all(key.meaning for key in KEYS.values())


def test_variables_of_other_purposes_are_ignored() -> None:
    Config(environment={"DELTASQL_GOLDEN_DIR": "tables", "DELTASQL_URL": "x", "DELTASQL_POSTGRES_BIN": "y"})
