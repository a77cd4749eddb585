"""Configuration keys and their values.

Each source overrides the one before: the defaults, `DELTASQL_*` environment variables, `connect(config=…)`, and the
`deltasql.*` properties of a table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from deltasql.errors import UsageError, did_you_mean, shown

ENVIRONMENT_PREFIX = "DELTASQL_"
PROPERTY_PREFIX = "deltasql."
_OTHER_VARIABLES = {
    "DELTASQL_URL",
    "DELTASQL_POSTGRES_BIN",
    "DELTASQL_STATE_DIR",
    "DELTASQL_GOLDEN_DIR",
    "DELTASQL_STORAGE_OPTIONS_FILE",
}
"""Environment variables that are not configuration keys."""
STORAGE_OPTION_PREFIX = "DELTASQL_STORAGE_OPTION_"
"""What the environment variables with options of the object store begin with; the command line reads them."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(b|[kmgt](?:i?b)?)?\s*", re.IGNORECASE)
_ILLEGAL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_PLAIN = (int, float, str, Decimal)
_SIZES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)?\s*")
_SCHEMA = re.compile(r"[A-Za-z_]\w{0,62}", re.ASCII)
_MAX_FRACTION_DIGITS = 30
_LONGEST = 100 * 365.25 * 86400
_MOST = 2**63 - 1


def duration(value: Any) -> float:
    """Parse a number of seconds, or a text such as `30s`, `500ms`, `5m` or `7d`, into seconds."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LONGEST:
        return float(value)
    if match is None or (seconds := float(match[1]) * _UNITS[match[2] or "s"]) > _LONGEST:
        raise ValueError("a duration such as 30s, 500ms, 5m or 7d, of 100 years at most")
    return seconds


def count(value: Any) -> int:
    """Parse a whole number from 1."""
    number = int(value) if isinstance(value, str) and len(value) < 20 and value.strip().isdecimal() else value
    if type(number) is not int or not 1 <= number <= _MOST:
        raise ValueError("a whole number from 1")
    return number


def number(value: Any) -> int:
    """Parse a whole number from 0."""
    return 0 if type(value) in (int, str) and value in (0, "0") and value is not False else count(value)


def size(value: Any) -> int:
    """Parse a number of bytes, or a text such as `128MiB`, `64mb` or `1g`, into bytes."""
    match = _SIZE.fullmatch(value if isinstance(value, str) else repr(value)) if type(value) in _PLAIN else None
    number = float(match[1]) * _SIZES[(match[2] or "b").lower()[0]] if match else 0
    if not 1 <= number <= _MOST:
        raise ValueError("a size such as 128MiB, 64mb or 1g")
    return int(number)


def text(value: Any) -> str:
    """Parse a non-empty text."""
    if not isinstance(value, str) or not value or _ILLEGAL.search(value):
        raise ValueError("a non-empty text without control characters")
    return value


def schema_name(value: Any) -> str:
    """Parse the name of a PostgreSQL schema, which needs no quotes."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise ValueError("a name of letters, digits and '_', of 63 characters at most")
    return value


def share(value: Any) -> Fraction:
    """Parse a share, as a number from 0 to 1 or a text such as `20%`, into an exact fraction."""
    if isinstance(value, Fraction):
        return value
    text = value.strip() if isinstance(value, str) else repr(value) if type(value) in _PLAIN else ""
    try:
        number = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        number = Decimal(-1)
    whole = 100 if text.endswith("%") else 1
    is_share = number.is_finite() and 0 <= number <= whole and int(number.as_tuple().exponent) > -_MAX_FRACTION_DIGITS
    if not is_share:
        raise ValueError("a share such as 20% or 0.2")
    return Fraction(number) / whole


def optional_text(value: Any) -> str:
    """Parse a text that may be empty."""
    return text(value) if value not in (None, "") else ""


def web_address(value: Any) -> str:
    """Parse an http or https URL, or an empty text."""
    if value and not re.fullmatch(r"https?://[^/\s\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*", text(value), re.IGNORECASE):
        raise ValueError("a URL that begins with http:// or https://")
    return optional_text(value)


def switch(value: Any) -> bool:
    """Parse `on` or `off`."""
    if value not in ("on", "off", True, False):
        raise ValueError("on or off")
    return value in ("on", True)


def mode(value: Any) -> str:
    """Parse when commits are published: `sync`, `async` or `off`."""
    if value not in ("sync", "async", "off"):
        raise ValueError("sync, async or off")
    return str(value)


def progress_mode(value: Any) -> str:
    """Parse when progress is shown: `auto`, `on` or `off`."""
    if value not in ("auto", "on", "off"):
        raise ValueError("auto, on or off")
    return str(value)


@dataclass(frozen=True, slots=True)
class Key:
    """A configuration key.

    Attributes:
        default: The default value.
        read: The parser of a value; it raises ValueError with the expected form.
        meaning: What the key does, for the reference page.
    """

    default: str | int
    read: Callable[[Any], Any]
    meaning: str


KEYS: Mapping[str, Key] = {
    "postgres.schema": Key("deltasql", schema_name, "the PostgreSQL schema that holds the dl_* tables"),
    "lake.location": Key(
        "", optional_text, "where manifests of multi-table commits are written; if empty, none are written"
    ),
    "lake.manifest_retention": Key(
        "30d", duration, "how long manifests are retained; the latest manifest is always retained"
    ),
    "pool.size": Key(10, count, "maximum number of connections to PostgreSQL, per lake"),
    "pool.timeout": Key("30s", duration, "how long to wait for a free connection"),
    "mirror.mode": Key("sync", mode, "when a commit is published: sync, async or off"),
    "mirror.checkpoint_interval": Key(10, count, "number of versions between checkpoints"),
    "mirror.reconcile_interval": Key("30s", duration, "how often the reconciler looks for unpublished versions"),
    "mirror.max_retry_attempts": Key(
        5, count, "attempts to publish a version before it is marked FAILED; retries continue"
    ),
    "mirror.retry_backoff_base": Key("1s", duration, "pause before the first retry; it doubles with each retry"),
    "mirror.exit_timeout": Key(
        "30s", duration, "how long the end of a process waits for versions and checkpoints that are due"
    ),
    "mirror.alert_webhook": Key("", web_address, "URL that receives an alert when a version cannot be published"),
    "mirror.parallel_tables": Key(5, count, "maximum number of tables published in parallel"),
    "mirror.reconcile_concurrency": Key(10, count, "maximum number of parallel tasks of the reconciler"),
    "sql.allow_files": Key("off", switch, 'allow SQL statements to read files: FROM parquet."/data/x": on or off'),
    "storage.allowed_roots": Key(
        "",
        optional_text,
        "comma-separated directories and URLs; if set, LOCATION, COPY and files in SQL work only below them",
    ),
    "transaction.max_tables": Key(10, count, "maximum number of tables in one transaction"),
    "transaction.max_files_per_table": Key(
        1000, count, "maximum number of files per table in a multi-table transaction"
    ),
    "transaction.timeout": Key("60s", duration, "how long a commit may take in PostgreSQL"),
    "transaction.lock_timeout": Key("30s", duration, "how long a commit may wait for a table's lock"),
    "dml.retries": Key(3, number, "how often a statement that conflicts is retried on the latest version"),
    "dml.copy_on_write_threshold": Key(
        "20%",
        share,
        "in tables with deletion vectors: share of a file's rows up to which deleted rows are marked in a deletion "
        "vector; above it the file is rewritten",
    ),
    "optimize.deleted_share": Key("5%", share, "share of deleted rows above which OPTIMIZE rewrites a file"),
    "progress": Key("auto", progress_mode, "progress bar for long writes: auto (on a terminal), on or off"),
    "spark.fast_scan": Key("on", switch, "give Spark the list of files as a file index: on or off"),
    "writer.target_file_size": Key("128MiB", size, "target size of the files that writes produce"),
    "writer.copy_threshold": Key(32, count, "number of files in a commit from which they are staged before any lock"),
}


_SECRET = {"mirror.alert_webhook"}
"""Keys whose values may contain a secret and are not shown in errors."""
_ONLY_OF_LAKES = {
    "lake.location",
    "mirror.alert_webhook",
    "postgres.schema",
    "sql.allow_files",
    "storage.allowed_roots",
}
"""Keys that a property of a table cannot set."""


class Config:
    """The parsed values of all configuration keys."""

    def __init__(self, values: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, Any] = {name: key.read(key.default) for name, key in KEYS.items()}
        for variable, value in _from_environment(os.environ if environment is None else environment).items():
            self._set(variable, _key_of(variable), value)
        given = {} if values is None else values
        if not isinstance(given, Mapping):
            raise UsageError(f"the configuration must be a mapping of keys to values, got {shown(given)}", value=given)
        for name, value in given.items():
            self._set(name, name, value)

    def _set(self, source: str, name: str, value: Any) -> None:
        if not isinstance(name, str) or name not in KEYS:
            hint = _hint(source, name) if isinstance(name, str) else ""
            raise UsageError(f"unknown configuration key {shown(source)}{hint}", value=source)
        try:
            self._values[name] = KEYS[name].read(value)
        except ValueError as error:
            got = "" if name in _SECRET else f", got {shown(value)}"
            raise UsageError(f"{source} must be {error}{got}", value=None if name in _SECRET else value) from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def values(self) -> dict[str, Any]:
        """Return the parsed values by key."""
        return dict(self._values)

    def override(self, properties: Mapping[str, str]) -> Config:
        """Return this configuration with the `deltasql.<key>` properties of a table.

        Raises:
            UsageError: A `deltasql.*` property is not a configuration key, or its value is invalid.
        """
        own = {k.removeprefix(PROPERTY_PREFIX): v for k, v in properties.items() if k.startswith(PROPERTY_PREFIX)}
        if not own:
            return self
        for name in own.keys() & _ONLY_OF_LAKES:
            raise UsageError(
                f"{PROPERTY_PREFIX}{name} is not a property of tables, because their authors must not decide it: set "
                f"{name} in the configuration",
                value=PROPERTY_PREFIX + name,
            )
        merged = Config({}, {})
        merged._values = dict(self._values)
        for name, value in own.items():
            merged._set(PROPERTY_PREFIX + name, name, value)
        return merged


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
        and name not in _OTHER_VARIABLES
        and not name.startswith(STORAGE_OPTION_PREFIX)
    }


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def _key_of(variable: str) -> str:
    return {_variable(key): key for key in KEYS}.get(variable, variable)


def _hint(source: str, name: str) -> str:
    is_variable = source.startswith(ENVIRONMENT_PREFIX)
    known = [_variable(key) for key in KEYS] if is_variable else list(KEYS)
    return did_you_mean(name, known, cutoff=0.4)
