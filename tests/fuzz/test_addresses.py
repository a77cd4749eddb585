"""Broken addresses of lakes and tables, and broken names, are rejected without showing a password."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.addresses import (
    check_name,
    describe,
    parse_lake_url,
    parse_table_uri,
    redact,
    split_name,
    without_secrets,
)
from deltasql.cli.main import cli
from deltasql.config import Config
from deltasql.store.database import session_conninfo
from tests.effort import rounds
from tests.fuzz.inputs import changed_text, odd_texts, odd_values
from tests.fuzz.limits import only_own_errors

SECRET = "s3cr3t"
LAKES = (
    f"postgresql://user:{SECRET}@localhost:1/db?sslmode=prefer&application_name=x",
    f"postgres://user:{SECRET}@[::1]:1,otherhost:2/db",
    f"host=localhost port=1 dbname=db user=u password={SECRET} options='-c a=b'",
    f"host=localhost password='{SECRET}' port=1",
    f"deltasql://user:{SECRET}@localhost:1/db/space/table?sslmode=prefer",
    f"deltasql://postgres/db?host=localhost&port=1&password={SECRET}",
    "deltasql://embedded/some/where/space/table",
    "deltasql://embedded//some/where",
)
WORDS = (
    "@",
    ":",
    "/",
    "//",
    "?",
    "&",
    "=",
    "%",
    "%2",
    "%00",
    "%40",
    "[",
    "]",
    "'",
    "\\",
    " ",
    "password=",
    "port=99999999999",
)
NAMES = ("orders", "shop.orders", "shop.orders-2", "größe", "a.b.c", '"shop"."orders"')


@settings(max_examples=rounds(150, 10_000))
@given(changed_text(LAKES, WORDS) | odd_texts | odd_values)
@example("postgres://user:s3cr3t@[]:1,otherhost:2/db")
def test_addresses(text: Any) -> None:
    for parse in (parse_lake_url, parse_table_uri):
        with only_own_errors() as outcome:
            address = parse(text)
            if address.dsn is not None:
                session_conninfo(address.dsn, Config({}, {}))
                describe(address.dsn)
                redact(address.dsn)
                without_secrets(address.dsn)
        if outcome.error is not None and isinstance(text, str):
            assert _shows_no_password(text, str(outcome.error))


def _shows_no_password(text: str, shown: str) -> bool:
    """Return whether an error hides the password, if the text still has it where a password is."""
    whole = any(mark in text for mark in (f"user:{SECRET}@", f" password={SECRET} ", f"&password={SECRET}&"))
    return not whole or SECRET not in shown


@settings(max_examples=rounds(100, 5_000))
@given(changed_text(NAMES) | odd_texts | odd_values)
def test_names(text: Any) -> None:
    for check in (check_name, split_name):
        with only_own_errors():
            check(text)


@settings(max_examples=rounds(30, 600))
@given(changed_text([*NAMES, *LAKES[-2:]]) | odd_texts | odd_values)
def test_tables_that_do_not_exist(embedded_lake: deltasql.Lake, text: Any) -> None:
    for call in (
        embedded_lake.table,
        embedded_lake.drop_table,
        embedded_lake.mirror.validate,
        embedded_lake.mirror.repair,
    ):
        with only_own_errors() as outcome:
            call(text)
        assert outcome.error is not None
    with only_own_errors() as outcome, embedded_lake.begin() as tx:
        tx.arrow(text)
    assert outcome.error is not None


@settings(max_examples=rounds(12, 400))
@given(changed_text([text for text in LAKES if "embedded" not in text], WORDS))
def test_connections(text: str) -> None:
    if "://embedded" not in text:
        with only_own_errors() as outcome:
            deltasql.connect(_nowhere(text), config={"pool.timeout": 1}).close()
        assert outcome.error is not None


def _nowhere(text: str) -> str:
    """Return a connection string that reaches no server: a port that nothing listens on, and no wait."""
    return f"{text} port=1 connect_timeout=1" if "://" not in text else text


@settings(max_examples=rounds(12, 200))
@given(
    st.sampled_from(["show", "history", "files", "optimize"]),
    changed_text(NAMES) | odd_texts,
    changed_text(["id = 5"]) | odd_texts,
)
def test_command_line(embedded_lake: deltasql.Lake, command: str, name: str, where: str) -> None:
    options = ["--where", where] if command == "files" else []
    result = CliRunner().invoke(cli, [command, *options, "--url", "deltasql://embedded/.deltasql", "--", name])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code != 0
