"""docs/reference/tables.md is up to date with the schema, and its queries run."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from docs.generate import REFERENCE
from docs.generate.sql_tables import tables_page, useful_queries
from psycopg.conninfo import make_conninfo

import deltasql
from tests.factories import add


def test_the_page_is_up_to_date(lake: deltasql.Lake) -> None:
    assert tables_page(lake.dsn) == (REFERENCE / "tables.md").read_text("utf-8"), "run `make docs`"


def test_every_table_view_column_and_function_has_a_comment(lake: deltasql.Lake) -> None:
    with psycopg.connect(lake.dsn) as connection:
        without = connection.execute(
            """
            select c.relname || coalesce('.' || a.attname, '') from pg_class c
            left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            where c.relnamespace = 'deltasql'::regnamespace and c.relkind in ('r', 'v')
              and (obj_description(c.oid, 'pg_class') is null or col_description(c.oid, a.attnum) is null)
            union all
            select proname from pg_proc
            where pronamespace = 'deltasql'::regnamespace and obj_description(oid, 'pg_proc') is null
            """
        ).fetchall()
    assert without == []


@pytest.fixture(scope="module")
def shop(embedded_lake: deltasql.Lake) -> Iterator[deltasql.Lake]:
    """A database with the table `shop.orders` at version 7 and a transaction over two tables."""
    with psycopg.connect(embedded_lake.dsn, autocommit=True) as connection:
        connection.execute("create database useful_queries")
        with deltasql.connect(make_conninfo(embedded_lake.dsn, dbname="useful_queries")) as lake:
            tables = [lake.create_table(f"shop.{name}", "id BIGINT, amount DOUBLE") for name in ("orders", "items")]
            for _ in range(6):
                with lake.begin() as tx:
                    tx.stage(tables[0], [add(), add()])
            with lake.begin() as tx:
                for table in tables:
                    tx.stage(table, [add()])
            yield lake
        connection.execute("drop database useful_queries with (force)")


EMPTY = {
    "Unpublished versions, how long they have waited, and why",
    "The progress of each streaming application",
    "Transactions that are writing files now",
}


@pytest.mark.parametrize(("title", "query"), useful_queries())
def test_a_useful_query_runs(shop: deltasql.Lake, title: str, query: str) -> None:
    with psycopg.connect(shop.dsn) as connection:
        rows = connection.execute(query).fetchall()
    assert rows or title in EMPTY


def test_the_queries_for_one_table_count_its_files(shop: deltasql.Lake) -> None:
    queries = dict(useful_queries())
    with psycopg.connect(shop.dsn) as connection:
        counts = {title: len(connection.execute(query).fetchall()) for title, query in queries.items()}
    assert counts["The live files of a table"] == 13
    assert counts["The live files of a table at version 7"] == 13
    assert counts["The files that a version added and removed"] == 1
    assert counts["The changes of the latest transaction, in all its tables"] == 2
