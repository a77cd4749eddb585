"""Addresses: URLs of lakes and tables, names of tables, paths of data files and the partition values in them.

What `deltasql.connect()` and `deltasql.begin()` take::

    None                                                 embedded PostgreSQL under ./.deltasql
    postgresql://user@host/db, host=... dbname=...       your server, as libpq understands it
    deltasql://postgres/<db>[/<namespace>/<table>]       your server, the rest from PGHOST, PGUSER, ...
    deltasql://user:pass@host:port/<db>[/<namespace>/<table>]
    deltasql://embedded/<path>[/<namespace>/<table>]     an embedded server; //<path> when absolute

Text in, text out. No error of this module repeats a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote, urlencode, urlsplit

from deltasql.errors import ValidationError

DEFAULT_PATH = ".deltasql"
DEFAULT_NAMESPACE = "public"

_SCHEME = "deltasql://"
_LIBPQ_SCHEMES = ("postgresql://", "postgres://")
_LAKE_FORMS = (
    "use postgresql://user@host/db, deltasql://postgres/<db>, deltasql://user@host/<db> or deltasql://embedded/<path>"
)
_TABLE_FORMS = (
    "use deltasql://postgres/<db>/<namespace>/<table>, deltasql://user@host/<db>/<namespace>/<table> or "
    "deltasql://embedded/<path>/<namespace>/<table>"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a lake is, and which table of it, if any. The dsn is not shown: it may hold a password."""

    kind: Literal["embedded", "postgres"]
    dsn: str | None = field(default=None, repr=False)
    path: str | None = None
    namespace: str | None = None
    table: str | None = None


# --- lakes and tables


def parse_lake_url(url: str | None) -> Address:
    """What `deltasql.connect(url)` connects to."""
    if url is None:
        return Address("embedded", path=DEFAULT_PATH)
    if url.startswith(_LIBPQ_SCHEMES) or _CONNINFO_START.match(url):
        return Address("postgres", dsn=url)
    if not url.startswith(_SCHEME):
        raise _not_a("lake", url, _LAKE_FORMS)
    authority, segments, query = _split(url)
    if authority == "embedded":
        return Address("embedded", path="/".join(segments) or DEFAULT_PATH)
    if len(segments) not in (0, 1, 3):
        raise _not_a("lake", url, _LAKE_FORMS)
    dsn = _dsn(authority, segments[0] if segments else "", query)
    return Address("postgres", dsn, None, *map(check_name, segments[1:]))


def parse_table_uri(uri: str) -> Address:
    """The lake and the table that a deltasql:// URI names."""
    if not uri.startswith(_SCHEME):
        raise _not_a("table", uri, _TABLE_FORMS)
    authority, segments, query = _split(uri)
    place, name = "/".join(segments[:-2]), segments[-2:]
    if not place or (len(segments) != 3 and authority != "embedded"):
        raise _not_a("table", uri, _TABLE_FORMS)
    if authority == "embedded":
        return Address("embedded", None, place, *map(check_name, name))
    return Address("postgres", _dsn(authority, place, query), None, *map(check_name, name))


def table_uri(lake: Address, namespace: str, table: str) -> str:
    """The URI of a table: what `parse_table_uri` reads. It holds the password that the lake's dsn holds."""
    name = f"{quote(check_name(namespace), safe='')}/{quote(check_name(table), safe='')}"
    if lake.kind == "embedded":
        return f"{_SCHEME}embedded/{quote(lake.path or DEFAULT_PATH)}/{name}"
    authority, database, query = _libpq_parts(lake.dsn or "")
    if not database:
        raise ValidationError(
            f"the connection {redact(lake.dsn or '')!r} names no database, so {namespace}.{table} has no "
            f"address: add one, as in postgresql://host/db",
            value=redact(lake.dsn or ""),
        )
    return f"{_SCHEME}{authority}/{quote(database, safe='')}/{name}{'?' + query if query else ''}"


def _not_a(what: str, url: str, forms: str) -> ValidationError:
    return ValidationError(f"{redact(url)!r} is not the address of a {what}: {forms}", value=redact(url))


def _split(url: str) -> tuple[str, list[str], str]:
    """Authority, decoded path segments and query of a deltasql:// URL."""
    address, _, query = url.removeprefix(_SCHEME).partition("?")
    authority, _, path = address.partition("/")
    if authority != "embedded" and ("@" in path or "@" in query or authority.count("@") > 1):
        raise ValidationError(
            f"{redact(url)!r} has an '@' out of place: in a user, a password or a parameter write %40 for "
            f"'@', %2F for '/', %3A for ':', %3F for '?'",
            value=redact(url),
        )
    return (
        authority,
        [unquote(segment) for segment in path.removesuffix("/").split("/")] if path else [],
        query,
    )


def _dsn(authority: str, database: str, query: str) -> str:
    # Alone, "postgres" means wherever libpq looks; with a user or a port it is a host of that name.
    if authority != "postgres":
        return f"postgresql://{authority}/{quote(database, safe='')}{'?' + query if query else ''}"
    return _conninfo({**({"dbname": database} if database else {}), **_parameters(query)})


def _libpq_parts(dsn: str) -> tuple[str, str, str]:
    """Authority, database and query of the deltasql:// URL for a libpq connection string."""
    if not dsn.startswith(_LIBPQ_SCHEMES):
        values = _conninfo_values(dsn)
        return "postgres", values.pop("dbname", ""), urlencode(values, quote_via=quote)
    parts = urlsplit(dsn)
    query = _parameters(parts.query)
    database = query.pop("dbname", "") or unquote(parts.path.removeprefix("/"))
    if parts.netloc in ("", "postgres", "embedded"):
        host = {"host": parts.netloc} if parts.netloc else {}
        return "postgres", database, urlencode({**host, **query}, quote_via=quote)
    return parts.netloc, database, urlencode(query, quote_via=quote)


def _parameters(query: str) -> dict[str, str]:
    # Not parse_qsl: to libpq a '+' is a '+'.
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    return {unquote(key): unquote(value) for key, _, value in pairs}


# --- libpq's "keyword = value" strings

_CONNINFO_START = re.compile(r"\s*[A-Za-z_]+\s*=")
_CONNINFO_PAIR = re.compile(r"(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s\\]|\\.)*))", re.DOTALL)


def _conninfo(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={_conninfo_value(value)}" for key, value in values.items())


def _conninfo_value(value: str) -> str:
    if re.fullmatch(r"[^\s'\\]+", value):
        return value
    return "'" + value.replace("\\", r"\\").replace("'", r"\'") + "'"


def _conninfo_values(dsn: str) -> dict[str, str]:
    return {
        match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or "", flags=re.DOTALL)
        for match in _CONNINFO_PAIR.finditer(dsn)
    }


# --- passwords

_IS_URL = re.compile(r"\s*[\w+.-]+://")
_URL_PASSWORD = re.compile(r"(://[^:/?#@]*):.*@", re.DOTALL)
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)
_KEYWORD_PASSWORD = re.compile(
    r"\b((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.?)*(?:'|$)|(?:[^\s\\]|\\.?)*)", re.IGNORECASE | re.DOTALL
)


def redact(dsn: str) -> str:
    """A connection string as it may be shown: every password replaced by ***."""
    if _IS_URL.match(dsn):
        return _QUERY_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", dsn))
    return _KEYWORD_PASSWORD.sub(r"\1***", dsn)


# --- names

_NAME = re.compile(r"[^\W\d][\w-]*")
_MAX_NAME = 255


def split_name(name: str) -> tuple[str, str]:
    """Namespace and table of `shop.orders`; of `orders` alone, the default namespace."""
    parts = name.split(".")
    if len(parts) > 2:
        raise ValidationError(
            f"the table name {name!r} has {len(parts)} parts: write namespace.table, or table alone for the "
            f"namespace {DEFAULT_NAMESPACE!r}",
            value=name,
        )
    namespace, table = parts if len(parts) == 2 else (DEFAULT_NAMESPACE, name)
    return check_name(namespace), check_name(table)


def check_name(name: str) -> str:
    """The name of a namespace or table, if it is one."""
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
            f"{name!r} cannot name a namespace or a table: a name begins with a letter or '_' and goes on "
            f"with letters, digits, '_' and '-', without quotes: call it {better!r}",
            value=name,
        )
    return name
