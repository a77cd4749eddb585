"""Configuration: defaults, then `DELTASQL_*` environment, then `connect(config=…)`, then table properties."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from deltasql.errors import UsageError, did_you_mean

ENVIRONMENT_PREFIX = "DELTASQL_"
PROPERTY_PREFIX = "deltasql."
_OTHER_VARIABLES = {"DELTASQL_URL", "DELTASQL_POSTGRES_BIN", "DELTASQL_GOLDEN_DIR"}
"""Not of this module: the lake's address, PostgreSQL's programs, and tables that tests compare with."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(b|[kmgt](?:i?b)?)?\s*", re.IGNORECASE)
_SIZES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)?\s*")

_MOST_DIGITS = 30
"""Of a share."""


def duration(value: Any) -> float:
    """Seconds from a number of seconds or a text such as `30s`, `500ms`, `5m`, `7d`."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a duration such as 30s, 500ms, 5m or 7d")
    return float(match[1]) * _UNITS[match[2] or "s"]


def count(value: Any) -> int:
    """A whole number from 1 on."""
    number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
    if type(number) is not int or number < 1:
        raise ValueError("a whole number from 1 on")
    return number


def number(value: Any) -> int:
    """A whole number from 0 on."""
    return 0 if value in (0, "0") and value is not False else count(value)


def size(value: Any) -> int:
    """Bytes from a number or a text such as `128MiB`, `64mb`, `1g`."""
    match = _SIZE.fullmatch(str(value)) if not isinstance(value, bool) else None
    number = int(float(match[1]) * _SIZES[(match[2] or "b").lower()[0]]) if match else 0
    if number < 1:
        raise ValueError("a size such as 128MiB, 64mb or 1g")
    return number


def text(value: Any) -> str:
    """A non-empty text."""
    if not isinstance(value, str) or not value:
        raise ValueError("a non-empty text")
    return value


def share(value: Any) -> Fraction:
    """A part of a whole, from a number of 0 to 1 or a text such as `20%`: exactly that, so that counts can be compared
    with it."""
    if isinstance(value, Fraction):
        return value
    text = value.strip() if isinstance(value, str) else str(value)
    try:
        number = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        number = Decimal(-1)
    whole = 100 if text.endswith("%") else 1
    is_share = number.is_finite() and 0 <= number <= whole and int(number.as_tuple().exponent) > -_MOST_DIGITS
    if isinstance(value, bool) or not is_share:
        raise ValueError("a share such as 20% or 0.2")
    return Fraction(number) / whole


def optional_text(value: Any) -> str:
    """A text that may be empty."""
    return text(value) if value else ""


def web_address(value: Any) -> str:
    """A URL of the web, or none."""
    if value and not re.match("https?://[^/]", str(value), re.IGNORECASE):
        raise ValueError("a URL that begins with http:// or https://")
    return optional_text(value)


def switch(value: Any) -> bool:
    """On or off."""
    if value not in ("on", "off", True, False):
        raise ValueError("on or off")
    return value in ("on", True)


def mode(value: Any) -> str:
    """When the mirror publishes."""
    if value not in ("sync", "async", "off"):
        raise ValueError("sync, async or off")
    return str(value)


def watching(value: Any) -> str:
    """Whether progress is shown."""
    if value not in ("auto", "on", "off"):
        raise ValueError("auto, on or off")
    return str(value)


@dataclass(frozen=True, slots=True)
class Key:
    """A configuration key: its default, how a value is read, what it does."""

    default: str | int
    read: Callable[[Any], Any]
    meaning: str


KEYS: Mapping[str, Key] = {
    "postgres.schema": Key("deltasql", text, "the PostgreSQL schema that holds the dl_* tables"),
    "lake.location": Key("", optional_text, "where the manifests of multi-table commits go; none if empty"),
    "lake.manifest_retention": Key("30d", duration, "how long manifests are kept; the last one always is"),
    "pool.size": Key(10, count, "connections to PostgreSQL at most, per lake"),
    "pool.timeout": Key("30s", duration, "how long to wait for a free connection"),
    "mirror.mode": Key("sync", mode, "when a commit is published: sync, async or off"),
    "mirror.checkpoint_interval": Key(10, count, "versions between checkpoints"),
    "mirror.reconcile_interval": Key("30s", duration, "how often the reconciler looks for open versions"),
    "mirror.max_retry_attempts": Key(5, count, "attempts to publish a version before it counts as failed"),
    "mirror.retry_backoff_base": Key("1s", duration, "the first pause between attempts; it doubles"),
    "mirror.alert_webhook": Key("", web_address, "a URL that is told when a version cannot be published"),
    "mirror.parallel_tables": Key(5, count, "tables published side by side"),
    "mirror.reconcile_concurrency": Key(10, count, "tasks of the reconciler at once"),
    "transaction.max_tables": Key(10, count, "tables in one transaction at most"),
    "transaction.max_files_per_table": Key(1000, count, "files per table of a multi-table transaction"),
    "transaction.timeout": Key("60s", duration, "how long a commit may take in PostgreSQL"),
    "transaction.lock_timeout": Key("30s", duration, "how long a commit may wait for a table's lock"),
    "dml.retries": Key(3, number, "how often a statement is run again when others changed the same rows"),
    "dml.copy_on_write_threshold": Key(
        "20%", share, "the share of a file's rows up to which deleted rows are marked, in tables with deletion vectors"
    ),
    "optimize.deleted_share": Key("5%", share, "the share of deleted rows above which a compaction rewrites a file"),
    "progress": Key("auto", watching, "a progress bar for long writes: auto (on a terminal), on or off"),
    "spark.fast_scan": Key("on", switch, "hand Spark the file list as an index of its own: on or off"),
    "writer.target_file_size": Key("128MiB", size, "how large the files that writes produce should be"),
    "writer.copy_threshold": Key(32, count, "files in a commit from which COPY is used"),
}


_UNSHOWN = {"mirror.alert_webhook"}
"""Keys whose values may hold a secret."""


class Config:
    """The values of all keys, in their own types."""

    def __init__(self, values: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, Any] = {name: key.read(key.default) for name, key in KEYS.items()}
        for variable, value in _from_environment(os.environ if environment is None else environment).items():
            self._set(variable, _key_of(variable), value)
        for name, value in (values or {}).items():
            self._set(name, name, value)

    def _set(self, source: str, name: str, value: Any) -> None:
        if name not in KEYS:
            raise UsageError(f"unknown configuration key {source!r}{_hint(source, name)}", value=source)
        try:
            self._values[name] = KEYS[name].read(value)
        except ValueError as error:
            got = "" if name in _UNSHOWN else f", got {value!r}"
            raise UsageError(f"{source} must be {error}{got}", value=None if name in _UNSHOWN else value) from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def values(self) -> dict[str, Any]:
        """All of them, as another configuration takes them."""
        return dict(self._values)

    def override(self, properties: Mapping[str, str]) -> Config:
        """This configuration under a table's `deltasql.<key>` properties."""
        own = {k.removeprefix(PROPERTY_PREFIX): v for k, v in properties.items() if k.startswith(PROPERTY_PREFIX)}
        if not own:
            return self
        merged = Config({}, {})
        merged._values = dict(self._values)
        for name, value in own.items():
            merged._set(PROPERTY_PREFIX + name, name, value)
        return merged


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _OTHER_VARIABLES
    }


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def _key_of(variable: str) -> str:
    return {_variable(key): key for key in KEYS}.get(variable, variable)


def _hint(source: str, name: str) -> str:
    is_variable = source.startswith(ENVIRONMENT_PREFIX)
    known = [_variable(key) for key in KEYS] if is_variable else list(KEYS)
    return did_you_mean(name, known, cutoff=0.4)
