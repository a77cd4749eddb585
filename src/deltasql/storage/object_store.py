"""Open object stores with obstore: client options, retries, and error texts without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, NotSupportedError
from obstore.store import LocalStore, MemoryStore, from_url

from deltasql.config import duration
from deltasql.errors import StorageError, UsageError

# The publisher retries with its own back-off, so an unavailable store must fail fast here.
_RETRY: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
# `read_timeout` detects a store that never answers, well before PostgreSQL ends the publisher's idle transaction;
# `timeout` covers the whole response, and a checkpoint may be large. Both run while a body is sent, so for large bodies
# they are extended by the time that the slowest supported link (in bytes per second) needs.
SLOWEST_LINK = 1 << 16
SMALL_BODY = 1 << 20
_EXTENDED = ("read_timeout", "timeout")
_CLIENT_DEFAULTS: dict[str, Any] = {"connect_timeout": "5s", "read_timeout": "20s", "timeout": "300s"}
# All client options of obstore, which panics if one of them is among the options of the store.
_CLIENT_KEYS = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_max_frame_size",
    "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url",
    "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
}  # fmt: skip
_PREFIXES = ("aws_", "azure_", "google_")
_SECRET = re.compile(r"secret|token|password|credential|signature|sas|account_key|master_key|access_key(?!_id)")
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_HINTS = {
    "BadScheme": 'for an http endpoint set the storage option allow_http="true"',
    "169.254.169.254": "no credentials are given, and this machine has no instance credentials",
    "ConnectionRefused": "connection refused",
    "TimedOut": "timed out",
}
"""Hints for errors whose cause obstore reports only in the details, or not at all."""

INSTANCE_CREDENTIALS = "instance_credentials"
"""The option that allows requests for credentials to the metadata service of a cloud machine."""


@dataclass(frozen=True, slots=True)
class _Credentials:
    """How credentials of a cloud are given, so that its metadata service is not asked."""

    names: frozenset[str]
    """Options, by their short names."""
    variables: tuple[str, ...]
    advice: str
    file: Path | None = None
    """Credentials of the user that the store finds by itself."""


_S3 = _Credentials(
    frozenset({"access_key_id", "skip_signature", "web_identity_token_file", "container_credentials_relative_uri",
               "container_credentials_full_uri"}),
    ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
     "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE"),
    'aws_access_key_id and aws_secret_access_key, or aws_skip_signature="true" for a public bucket',
)  # fmt: skip
_GOOGLE = _Credentials(
    frozenset({"service_account", "service_account_path", "service_account_key", "application_credentials",
               "skip_signature"}),
    ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY",
     "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE"),
    'google_service_account (a file), or google_skip_signature="true" for a public bucket',
    Path("~/.config/gcloud/application_default_credentials.json"),
)  # fmt: skip
_AZURE_NAMES = (
    "account_key", "access_key", "master_key", "sas_key", "sas_token", "bearer_token", "token", "client_id",
    "use_azure_cli", "federated_token_file", "msi_endpoint", "skip_signature", "use_emulator",
)  # fmt: skip
_AZURE = _Credentials(
    frozenset(prefix + name for prefix in ("", "storage_") for name in _AZURE_NAMES),
    (*(f"{prefix}{name.upper()}" for prefix in ("AZURE_", "AZURE_STORAGE_") for name in _AZURE_NAMES),
     "IDENTITY_ENDPOINT"),
    'azure_storage_account_name and azure_storage_account_key, or azure_skip_signature="true" for a public container',
)  # fmt: skip
_CREDENTIALS = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GOOGLE),
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), _AZURE),
}

# Stores in memory live as long as the process, not as long as a Directory.
_memory: dict[str, MemoryStore] = {}


def open_store(location: str, options: Mapping[str, str], extra_seconds: int = 0) -> obstore.store.ObjectStore:
    """Open a store; its requests may take some seconds longer than the default timeouts."""
    try:
        if is_local(location):
            return LocalStore(local_path(location), mkdir=True)
        if location.startswith("memory://"):
            return _memory.setdefault(location.rstrip("/"), MemoryStore())
        _require_credentials(location, options)
        client = {_client_key(k): v for k, v in options.items() if _client_key(k) in _CLIENT_KEYS}
        config: Any = {k: v for k, v in options.items() if _client_key(k) not in (*_CLIENT_KEYS, INSTANCE_CREDENTIALS)}
        settings: Any = _extended(_CLIENT_DEFAULTS | client, extra_seconds)
        return from_url(location, config=config or None, client_options=settings, retry_config=_RETRY)
    except (BaseError, ValueError, TypeError, OSError) as error:
        # No cause: its text repeats the values of invalid options.
        reason = error_text(error, secret_values(options))
        raise StorageError(f"cannot open the location {location!r}: {reason}") from None


def _require_credentials(location: str, options: Mapping[str, str]) -> None:
    """Raise `StorageError` rather than ask the metadata service of a cloud machine, unless an option asks for that."""
    known = _CREDENTIALS.get(location.partition("://")[0])
    given = {_client_key(key): str(value).lower() for key, value in options.items()}
    if known is None or given.get(INSTANCE_CREDENTIALS) == "true" or known.names & given.keys():
        return
    if any(os.environ.get(name) for name in known.variables) or (known.file and known.file.expanduser().exists()):
        return
    raise StorageError(
        f"cannot open the location {location!r}: no credentials are given: set the storage options {known.advice}, or "
        f'{INSTANCE_CREDENTIALS}="true" to use those of the machine'
    )


def _extended(settings: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Return client settings with longer timeouts; a timeout in a syntax that only obstore parses is unchanged."""
    extended = dict(settings)
    for name in _EXTENDED if seconds else ():
        with suppress(ValueError):
            extended[name] = f"{round((duration(settings[name]) + seconds) * 1000)}ms"
    return extended


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that concern the store and not the HTTP client, by their short names."""
    names = {key: _client_key(key) for key in options}
    return {name: str(options[key]) for key, name in names.items() if name not in (*_CLIENT_KEYS, INSTANCE_CREDENTIALS)}


def _client_key(key: str) -> str:
    name = key.lower()
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name)


def check_options(options: Any) -> dict[str, Any]:
    """Return the options of an object store; raise `UsageError` if they are not texts, numbers or booleans by name."""
    given = {} if options is None else options
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str | int | float) for name, value in given.items()
    ):
        raise UsageError("storage_options must map texts to texts, such as {'aws_region': 'eu-west-1'}")
    return dict(given)


def secret_values(options: Mapping[str, str]) -> list[str]:
    """Return the values of options that must not appear in messages."""
    return [str(value) for key, value in options.items() if value and _SECRET.search(key.lower())]


def error_text(error: Exception, secrets: Sequence[str]) -> str:
    """Return an error in one line: the first line of obstore's message, the store's answer, and hints. The rest of the
    message repeats the request."""
    whole = str(error).strip()
    text = whole.partition("\n")[0].partition("<?xml")[0].strip().rstrip(":")
    answer = _ANSWER.search(whole)
    if answer:
        text += f": {': '.join(part for part in answer.groups() if part)}"
    for sign, hint in _HINTS.items():
        if sign in whole:
            text += f" ({hint})"
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def is_unsupported(error: Exception) -> bool:
    """Return whether the store, or obstore, does not support a request, and so has done nothing."""
    if isinstance(error, NotSupportedError | NotImplementedError):
        return True
    return error_code(error) == "NotImplemented" or "status code: 501" in str(error).partition("\n")[0]


def error_code(error: Exception) -> str | None:
    """Return the error code of S3's answer, if any."""
    answer = _ANSWER.search(str(error))
    return answer[1] if answer else None


def is_local(location: str) -> bool:
    """Return whether a location is a directory of this machine."""
    return "://" not in location or location.startswith("file://")


def local_path(location: str) -> Path:
    """Return the directory of a local location."""
    return Path(unquote(urlsplit(location).path)) if location.startswith("file://") else Path(location)


def normal_location(location: str) -> str:
    """Return a location as the log stores it: local paths absolute, no trailing slash."""
    absolute = str(local_path(location).resolve()) if is_local(location) else location
    scheme, separator, path = absolute.rpartition("://")
    return f"{scheme}{separator}{path.rstrip('/')}" or "/"
