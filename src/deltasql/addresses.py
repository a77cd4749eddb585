"""Addresses: URLs of lakes and tables, and names of tables.

`deltasql.connect()` and `deltasql.begin()` accept these addresses::

    None                                                 embedded PostgreSQL under ./.deltasql
    postgresql://user@host/db, host=... dbname=...       your own server, as libpq parses it
    deltasql://postgres/<db>[/<namespace>/<table>]       your own server, the rest from PGHOST, PGUSER, ...
    deltasql://user:pass@host:port/<db>[/<namespace>/<table>]
    deltasql://embedded/<path>[/<namespace>/<table>]     an embedded server; //<path> for an absolute path

No error of this module contains a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from deltasql.errors import ValidationError, shown

DEFAULT_PATH = ".deltasql"
DEFAULT_NAMESPACE = "public"

_SCHEME = "deltasql://"
_LIBPQ_SCHEMES = ("postgresql://", "postgres://")
_CONNINFO_START = re.compile(r"\s*[A-Za-z_]+\s*=")
_LAKE_FORMS = (
    "use postgresql://user@host/db, deltasql://postgres/<db>, deltasql://user@host/<db> or deltasql://embedded/<path>"
)
_TABLE_FORMS = (
    "use deltasql://postgres/<db>/<namespace>/<table>, deltasql://user@host/<db>/<namespace>/<table> or "
    "deltasql://embedded/<path>/<namespace>/<table>"
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a lake, and of one of its tables if the URL names one. The dsn may contain a password."""

    kind: Literal["embedded", "postgres"]
    dsn: str | None = field(default=None, repr=False)
    path: str | None = None
    namespace: str | None = None
    table: str | None = None


# --- lakes and tables


def parse_lake_url(url: str | None) -> Address:
    """Parse the URL that `deltasql.connect(url)` accepts."""
    if url is None:
        return Address("embedded", path=DEFAULT_PATH)
    _check_text("lake", url)
    if url.startswith(_LIBPQ_SCHEMES) or _CONNINFO_START.match(url):
        return Address("postgres", dsn=url)
    if not url.startswith(_SCHEME):
        raise _invalid("lake", url, _LAKE_FORMS)
    authority, segments, query = _split(url)
    if authority == "embedded":
        return Address("embedded", path="/".join(segments) or DEFAULT_PATH)
    if len(segments) not in (0, 1, 3):
        raise _invalid("lake", url, _LAKE_FORMS)
    dsn = _dsn(url, authority, segments[0] if segments else "", query)
    return Address("postgres", dsn, None, *map(check_name, segments[1:]))


def parse_table_uri(uri: str) -> Address:
    """Parse a deltasql:// URI that names a lake and a table."""
    _check_text("table", uri)
    if not uri.startswith(_SCHEME):
        raise _invalid("table", uri, _TABLE_FORMS)
    authority, segments, query = _split(uri)
    lake, name = "/".join(segments[:-2]), segments[-2:]
    if not lake or (len(segments) != 3 and authority != "embedded"):
        raise _invalid("table", uri, _TABLE_FORMS)
    if authority == "embedded":
        return Address("embedded", None, lake, *map(check_name, name))
    return Address("postgres", _dsn(uri, authority, lake, query), None, *map(check_name, name))


def _check_text(subject: str, url: str) -> None:
    if not isinstance(url, str):
        raise ValidationError(f"the address of a {subject} must be a text, got {type(url).__name__}", value=url)
    decoded = unquote(url) if _IS_URL.match(url) else url
    if _ILLEGAL.search(url) or "\x00" in decoded:
        raise ValidationError(f"{redact(url)!r} has a character that is not valid in an address", value=redact(url))


def _invalid(subject: str, url: str, forms: str) -> ValidationError:
    return ValidationError(f"{redact(url)!r} is not the address of a {subject}: {forms}", value=redact(url))


def _split(url: str) -> tuple[str, list[str], str]:
    """Return authority, decoded path segments and query of a deltasql:// URL."""
    address, _, query = url.removeprefix(_SCHEME).partition("?")
    authority, _, path = address.partition("/")
    if authority != "embedded" and ("@" in path or "@" in query or authority.count("@") > 1):
        raise ValidationError(
            f"{redact(url)!r} has an unexpected '@': in a user, a password or a parameter write %40 for '@', %2F for "
            f"'/', %3A for ':', %3F for '?'",
            value=redact(url),
        )
    return (
        authority,
        [unquote(segment) for segment in path.removesuffix("/").split("/")] if path else [],
        query,
    )


def _dsn(url: str, authority: str, database: str, query: str) -> str:
    # Alone, "postgres" means the server that libpq finds; with a user or a port it is a host of that name.
    if authority != "postgres":
        return f"postgresql://{authority}/{quote(database, safe='')}{'?' + query if query else ''}"
    parameters = _parameters(query)
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    if unknown := parameters.keys() - known:
        # The query is left out: the value of a mistyped parameter may be the password.
        without_query = redact(url.partition("?")[0])
        raise ValidationError(
            f"the address {without_query!r} has the parameter {min(unknown)!r}, which libpq does not know: check its "
            f"spelling",
            value=min(unknown),
        )
    return make_conninfo(**{**({"dbname": database} if database else {}), **parameters})


def _parameters(query: str) -> dict[str, str]:
    # parse_qsl would decode '+' to a space; libpq keeps it.
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    return {unquote(key): unquote(value) for key, _, value in pairs}


# --- passwords

# Patterns, not libpq's parser: a string that libpq rejects must not show its password either.
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_IS_URL = re.compile(r"\s*[\w+.-]+://")
_ILLEGAL = re.compile(r"[\x00\ud800-\udfff]")
_URL_PASSWORD = re.compile(r"((?:^|/)[^:/]*):(?!//).*@", re.DOTALL)
_QUERY_PARAMETER = re.compile(r"([?&])([^=&]*)=([^&]*)")
_KEYWORD_SECRET = re.compile(  # an empty password is none
    rf"\b((?:{'|'.join(_SECRETS)})\s*=\s*)(?!''(?:\s|$))(?:'(?:[^'\\]|\\.?)*(?:'|$)|(?:[^\s\\]|\\.?)*)",
    re.IGNORECASE | re.DOTALL,
)


def describe(dsn: str) -> str:
    """Return the host and the database of a connection string, without user and password."""
    parts = conninfo_to_dict(dsn)
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"{parts.get('host') or 'localhost'}{port}/{parts.get('dbname') or ''}"


def without_secrets(dsn: str) -> str:
    """Return a connection string without its passwords; libpq then looks for one in its own places (PGPASSFILE).

    An empty password stays: it keeps libpq from looking for one.
    """
    given = conninfo_to_dict(dsn)
    return make_conninfo(**{key: str(value) for key, value in given.items() if key not in _SECRETS or not value})


def redact(dsn: str) -> str:
    """Return a connection string with every password and other secret replaced by ***."""
    if "//" in dsn or not _CONNINFO_START.match(dsn):  # a URL, or a mistyped one
        dsn = _QUERY_PARAMETER.sub(_redacted_parameter, _URL_PASSWORD.sub(r"\1:***@", dsn))
    return dsn if _IS_URL.match(dsn) else _KEYWORD_SECRET.sub(r"\1***", dsn)


def _redacted_parameter(found: re.Match[str]) -> str:
    """Return a parameter of a URL; libpq decodes its name, so `pass%77ord` is a password too."""
    is_secret = unquote(found[2]).lower().strip() in _SECRETS
    return f"{found[1]}{found[2]}={'***' if is_secret else found[3]}"


# --- names

_NAME = re.compile(r"[^\W\d][\w-]*")
_MAX_NAME = 255


def split_name(name: str) -> tuple[str, str]:
    """Return namespace and table of a name such as `shop.orders`; `orders` alone is in the default namespace."""
    if not isinstance(name, str):
        raise ValidationError(f"the name of a table must be a text, got {shown(name)}", value=name)
    parts = name.split(".")
    if len(parts) > 2:
        raise ValidationError(
            f"the table name {shown(name)} has {len(parts)} parts: write namespace.table, or table alone for the "
            f"namespace {DEFAULT_NAMESPACE!r}",
            value=name,
        )
    namespace, table = parts if len(parts) == 2 else (DEFAULT_NAMESPACE, name)
    return check_name(namespace), check_name(table)


def check_name(name: str) -> str:
    """Return the name of a namespace or table, or raise if it is not valid."""
    if not isinstance(name, str):
        raise ValidationError(f"the name of a table must be a text, got {shown(name)}", value=name)
    if not name:
        raise ValidationError("a name is empty: write namespace.table, as in shop.orders", value=name)
    if len(name) > _MAX_NAME:
        raise ValidationError(
            f"the name {name[:40]!r}… has {len(name)} characters, {_MAX_NAME} at most: shorten it", value=name
        )
    if not _NAME.fullmatch(name):
        plain = re.sub(r"[^\w-]+", "_", name).strip("_-")
        better = plain if _NAME.fullmatch(plain) else f"t_{plain}".rstrip("_")
        raise ValidationError(
            f"{name!r} is not a valid name of a namespace or table: a name starts with a letter or '_', followed by "
            f"letters, digits, '_' and '-', without quotes: use {better!r}",
            value=name,
        )
    return name
