"""The reference of the `dl_*` tables, from the comments in the database schema."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import psycopg

import deltasql

_HEAD = """# SQL tables

This page is generated from the comments in the database schema by `make docs`.

The transaction logs of all tables are ordinary PostgreSQL tables in the schema `deltasql` (configuration key
`postgres.schema`). Read them with any PostgreSQL client. Only deltasql may write to them.

File rows are keyed by `commit_id`, not by version, because a commit inserts them before its version is known: the
table is locked only for the moment in which it gets its next version. All rows of a commit become visible at the same
time. The views `dl_files` and `dl_history` show the log by table name and version.

"""

_COLUMNS = """
select c.relname, obj_description(c.oid, 'pg_class'), a.attname, format_type(a.atttypid, a.atttypmod),
       a.attnotnull or c.relkind = 'v', pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = 'deltasql'::regnamespace and c.relkind in ('r', 'v')
order by c.relkind, c.oid, a.attnum
"""
_CONSTRAINTS = """
select t.relname, k.conname, pg_get_constraintdef(k.oid)
from pg_constraint k join pg_class t on t.oid = k.conrelid
where k.connamespace = 'deltasql'::regnamespace and k.contype in ('p', 'u', 'f', 'c')
union all
select tablename, indexname, regexp_replace(indexdef, '^CREATE (UNIQUE )?INDEX .* USING btree', '\\1INDEX')
from pg_indexes
where schemaname = 'deltasql' and indexname not in (select conname from pg_constraint)
order by 1, 2
"""
_FUNCTIONS = """
select p.proname, pg_get_function_identity_arguments(p.oid), obj_description(p.oid, 'pg_proc')
from pg_proc p where p.pronamespace = 'deltasql'::regnamespace order by 1
"""


def tables_page(dsn: str) -> str:
    """Return the page for the schema `deltasql` of a database."""
    with psycopg.connect(dsn, options="-c search_path=deltasql") as connection:
        columns = connection.execute(_COLUMNS).fetchall()
        constraints = connection.execute(_CONSTRAINTS).fetchall()
        functions = connection.execute(_FUNCTIONS).fetchall()
    tables = [(name, comment, list(rows)) for (name, comment), rows in groupby(columns, itemgetter(0, 1))]
    overview = _grid(("table or view", "content"), [(f"[`{name}`](#{name})", comment) for name, comment, _ in tables])
    sections = [
        _section(name, comment, rows, [row[1:] for row in constraints if row[0] == name])
        for name, comment, rows in tables
    ]
    calls = [(f"`{name}({arguments})`", comment) for name, arguments, comment in functions]
    return "\n".join(
        [
            _HEAD + overview,
            "## Useful queries\n",
            *(f"### {title}\n\n```sql\n{query}\n```\n" for title, query in useful_queries()),
            "## Tables and views\n",
            *sections,
            "## Functions\n\nOnly deltasql calls these functions.\n",
            _grid(("function", "purpose"), calls),
        ]
    )


def useful_queries() -> list[tuple[str, str]]:
    """Return the title and the text of every query in `useful_queries.sql`."""
    blocks = Path(__file__).with_name("useful_queries.sql").read_text("utf-8").strip().split("\n\n")
    parts = [block.partition("\n") for block in blocks]
    return [(title.removeprefix("-- "), query) for title, _, query in parts]


def _section(name: str, comment: str, columns: Sequence[Sequence[str]], constraints: Sequence[Sequence[str]]) -> str:
    rows = [
        (f"`{column}`", _type(kind, default), "" if required else "yes", text)
        for _, _, column, kind, required, default, text in columns
    ]
    keys = "".join(f"- `{key}`: `{definition}`\n" for key, definition in constraints)
    return f"### {name}\n\n{comment}\n\n{_grid(('column', 'type', 'null', 'meaning'), rows)}{keys and chr(10) + keys}"


def _type(kind: str, default: str | None) -> str:
    return f"`{kind}`" if default is None else f"`{kind}`, default `{default}`"


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables_page_of_this_release() -> str:
    """Return the page for the schema that this release creates, on an embedded server in a temporary directory."""
    with (
        tempfile.TemporaryDirectory() as directory,
        deltasql.connect(f"deltasql://embedded/{directory}/lake") as lake,
    ):
        return tables_page(lake.dsn)
