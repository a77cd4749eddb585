"""URLs of lakes and tables, names, redaction, paths of data files and partition values."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from deltasql.addresses import (
    Address,
    parse_lake_url,
    parse_table_uri,
    redact,
    split_name,
    without_secrets,
)
from deltasql.errors import ValidationError
from deltasql.protocol.file_paths import encode_path, hive_values
from deltasql.protocol.partition_values import partition_text
from tests.effort import rounds


@pytest.mark.parametrize(
    ("url", "target"),
    [
        (None, Address("embedded", path=".deltasql")),
        ("deltasql://embedded", Address("embedded", path=".deltasql")),
        ("deltasql://embedded/data/lake", Address("embedded", path="data/lake")),
        ("deltasql://embedded//srv/my%20lake/", Address("embedded", path="/srv/my lake")),
        ("deltasql://embedded/%2Fsrv%2Flake", Address("embedded", path="/srv/lake")),
        (
            "postgresql://u:p@h:5/db?sslmode=require",
            Address("postgres", "postgresql://u:p@h:5/db?sslmode=require"),
        ),
        ("postgres:///db", Address("postgres", "postgres:///db")),
        ("host=h dbname = d password='a b'", Address("postgres", "host=h dbname = d password='a b'")),
        ("deltasql://postgres", Address("postgres", "")),
        ("deltasql://postgres/db", Address("postgres", "dbname=db")),
        (
            "deltasql://postgres/my%20db?host=%2Ftmp&application_name=a+b",
            Address("postgres", "dbname='my db' host=/tmp application_name=a+b"),
        ),
        ("deltasql://postgres:5432/db", Address("postgres", "postgresql://postgres:5432/db")),
        ("deltasql://u:p%40@[::1]:5/db?a=b", Address("postgres", "postgresql://u:p%40@[::1]:5/db?a=b")),
        ("deltasql://h/db/shop/orders", Address("postgres", "postgresql://h/db", None, "shop", "orders")),
    ],
)
def test_lake_urls(url: str | None, target: Address) -> None:
    assert parse_lake_url(url) == target


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        ("deltasql://postgres/db/shop/orders", Address("postgres", "dbname=db", None, "shop", "orders")),
        (
            "deltasql://u:p%2F@h:5/d%20b/shop/orders?sslmode=require",
            Address("postgres", "postgresql://u:p%2F@h:5/d%20b?sslmode=require", None, "shop", "orders"),
        ),
        ("deltasql://embedded/a/b/shop/orders", Address("embedded", None, "a/b", "shop", "orders")),
        ("deltasql://embedded//a/b@c/shop/orders", Address("embedded", None, "/a/b@c", "shop", "orders")),
        ("deltasql://embedded/%2Fa%2Fb/shop/orders", Address("embedded", None, "/a/b", "shop", "orders")),
    ],
)
def test_table_uris(uri: str, target: Address) -> None:
    assert parse_table_uri(uri) == target


@pytest.mark.parametrize(
    "url",
    [
        "data/lake",
        "mysql://u:secret@h/db",
        "postgresql+psycopg://u:secret@h/db",
        "deltasql://u:secret@h/db/schema",
        "deltasql://u:secret@h/db/a/b/c",
        "deltasql://u:se@cret@h/db",
        "deltasql://u:se/cret@h/db",
        "deltasql://u:se?cret@h/db",
        "deltasql://h/db/a/b c?password=secret",
        "deltasql://postgres/db?passwort=cret&password=secret",
    ],
)
def test_invalid_urls_are_rejected_without_showing_the_password(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_lake_url(url)
    assert "secret" not in repr((str(caught.value), vars(caught.value)))
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "shop.orders",
        "postgresql://h/db",
        "deltasql://postgres/db",
        "deltasql://postgres/db/orders",
        "deltasql://postgres//shop/orders",
        "deltasql://postgres/db/shop/orders/x",
        "deltasql://embedded/shop/orders",
        "deltasql://embedded//shop/orders",
    ],
)
def test_uris_that_name_no_table_show_the_three_forms(uri: str) -> None:
    with pytest.raises(ValidationError, match="use deltasql://postgres/<db>/<namespace>/<table>"):
        parse_table_uri(uri)


def test_a_target_does_not_show_its_dsn() -> None:
    assert "secret" not in repr(parse_lake_url("postgresql://u:secret@h/db"))


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:p@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("postgresql://u:p@ss/w@h/db", "postgresql://u:***@h/db"),
        ("postgresql:///db?user=u&password=p&sslmode=x", "postgresql:///db?user=u&password=***&sslmode=x"),
        ("deltasql://u:p@h/db/s/t?sslpassword=q", "deltasql://u:***@h/db/s/t?sslpassword=***"),
        ("host=h password=p dbname=d", "host=h password=*** dbname=d"),
        ("password = 'a \\' b' host=h", "password = *** host=h"),
        (r"password=a\ b host=h", "password=*** host=h"),
        ("password=a'b host=h", "password=*** host=h"),
        ("host=h password='left open", "host=h password=***"),
        ("host=h PASSWORD=x://y", "host=h PASSWORD=***"),
        ("postgresql://us#er:p@h/db", "postgresql://us#er:***@h/db"),
        ("postgresql://us?er:p/w@h/db", "postgresql://us?er:***@h/db"),
        ("postgresql://u@h/db?pass%77ord=secret&a=b", "postgresql://u@h/db?pass%77ord=***&a=b"),
        ("postgresql://u@h/db?oauth_client_secret=s#x", "postgresql://u@h/db?oauth_client_secret=***"),
        ("postgresql://u@h/db?scram_client_key=s", "postgresql://u@h/db?scram_client_key=***"),
        ("host=h oauth_client_secret='a b' scram_server_key=c", "host=h oauth_client_secret=*** scram_server_key=***"),
    ],
)
def test_redact(dsn: str, shown: str) -> None:
    assert redact(dsn) == shown


def test_a_connection_string_without_secrets() -> None:
    dsn = "postgresql://u:p@h:5/db?sslpassword=q&sslmode=require"
    assert conninfo_to_dict(without_secrets(dsn)) == {
        "user": "u", "host": "h", "port": "5", "dbname": "db", "sslmode": "require",
    }  # fmt: skip


_word = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@settings(max_examples=rounds(100), deadline=None)
@given(_word)
def test_passwords_with_special_characters_are_hidden_and_kept(password: str) -> None:
    quoted = password.replace("\\", r"\\").replace("'", r"\'")
    dsn = f"dbname=x password='{quoted}'"
    assert redact(dsn) == "dbname=x password=***"
    uri = f"deltasql://postgres/x/s/t?password={quote(password, safe='')}"
    assert redact(uri) == "deltasql://postgres/x/s/t?password=***"
    parsed = conninfo_to_dict(parse_table_uri(uri).dsn or "")
    assert parsed == {"dbname": "x", "password": password}


# --- names


def test_names() -> None:
    assert split_name("shop.orders") == ("shop", "orders")
    assert split_name("orders") == ("public", "orders")
    assert split_name("_x.é-1") == ("_x", "é-1")
    assert split_name("x" * 255) == ("public", "x" * 255)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.b.c", "has 3 parts: write namespace.table"),
        ("", "a name is empty"),
        ("a.", "a name is empty"),
        (".a", "a name is empty"),
        ("x" * 256, "256 characters, 255 at most"),
        ("my table", "use 'my_table'"),
        ("a/b", "use 'a_b'"),
        ("a\nb", "use 'a_b'"),
        ("a\x00b", "use 'a_b'"),
        ("1st", "use 't_1st'"),
        ('shop."orders"', "use 'orders'"),
        ("-", "use 't'"),
    ],
)
def test_invalid_names(name: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        split_name(name)


# --- data files


@pytest.mark.parametrize(
    ("path", "encoded"),
    [
        ("day=2026-01-01/part-0.parquet", "day=2026-01-01/part-0.parquet"),
        ("p=a%3Ab/x.parquet", "p=a%253Ab/x.parquet"),
        ("p=a b/x.parquet", "p=a%20b/x.parquet"),
        ("a:b.parquet", "a%3Ab.parquet"),
        ("p=é/x#1?.parquet", "p=%C3%A9/x%231%3F.parquet"),
        ("p=a+b,c/x(1).parquet", "p=a+b,c/x(1).parquet"),
    ],
)
def test_paths_are_uri_encoded_once_more_than_on_disk(path: str, encoded: str) -> None:
    assert encode_path(path) == encoded


def test_hive_directories() -> None:
    assert hive_values("a=1/x/b=a%3Ab%2Fc=d/c=__HIVE_DEFAULT_PARTITION__/d=/e=1.parquet") == {
        "a": "1",
        "b": "a:b/c=d",
        "c": None,
        "d": None,
    }
    assert hive_values("p=%C3%A9 +/x.parquet") == {"p": "é +"}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("integer", "01", "1"),
        ("byte", "-128", "-128"),
        ("byte", "128", None),
        ("long", "1_0", None),
        ("long", "١", None),
        ("double", "1e3", "1e3"),
        ("double", "1_0", None),
        ("double", " 1", None),
        ("decimal(10,2)", "1.50", "1.50"),
        ("decimal(10,2)", "x", None),
        ("boolean", "True", "true"),
        ("boolean", "1", None),
        ("date", "2026-01-31", "2026-01-31"),
        ("date", "2026-02-30", None),
        ("date", "20260131", None),
        ("date", "2026-W01-1", None),
        ("timestamp", "2026-01-31 10:00:00.5", "2026-01-31 10:00:00.5"),
        ("timestamp", "2026-01-31T10:00:00.123456Z", "2026-01-31T10:00:00.123456Z"),
        ("timestamp_ntz", "2026-01-31 25:00:00", None),
        ("timestamp_ntz", "2026-01-31", None),
        ("string", "anything", "anything"),
        ("binary", "x", "x"),
    ],
)
def test_partition_values_by_type(kind: str, value: str, text: str | None) -> None:
    assert partition_text(kind, value) == text
