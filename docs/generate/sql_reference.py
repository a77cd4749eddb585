"""The SQL reference: a template, with tables from the code and the statements that are rejected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from deltasql.protocol import schema_ddl
from deltasql.sql import parse

_TEMPLATE = Path(__file__).with_name("sql.md.template")

TYPES = {
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT2": "short",
    "INTEGER": "integer",
    "INT": "integer",
    "INT4": "integer",
    "BIGINT": "long",
    "INT8": "long",
    "REAL": "float",
    "FLOAT4": "float",
    "DOUBLE PRECISION": "double",
    "FLOAT": "double",
    "FLOAT8": "double",
    "TEXT": "string",
    "VARCHAR": "string",
    "UUID": "string",
    "BYTEA": "binary",
    "BOOLEAN": "boolean",
    "BOOL": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP WITHOUT TIME ZONE": "timestamp_ntz",
    "NUMERIC(p, s)": "decimal(p,s)",
    "DECIMAL(p, s)": "decimal(p,s)",
    "VARCHAR(n)": "string, limited to n characters",
    "CHARACTER VARYING(n)": "string, limited to n characters",
    "CHAR(n)": "string, limited to n characters",
    "type[]": "array",
    "MAP<key, value>": "map",
    "STRUCT<name: type, …>": "struct",
}
"""The Delta type of each type in a statement; `p`, `s` and `n` are numbers."""
REJECTED_TYPES = ("TIME", "TIMETZ", "MONEY", "INTERVAL", "JSON", "JSONB", "SERIAL", "VARIANT", "GEOMETRY", "GEOGRAPHY")

REJECTED = {
    "SELECT * FROM shop.orders FOR UPDATE": "nothing: conflicts are detected at the commit",
    "SELECT * INTO shop.copy FROM shop.orders": "`CREATE TABLE … AS SELECT`",
    "SELECT x FROM unnest(ARRAY[1]) WITH ORDINALITY AS u(x, n)": "`row_number()`",
    "SELECT id FROM shop.orders ORDER BY id FETCH FIRST 3 ROWS WITH TIES": "`rank()`",
    "SELECT array_agg(id ORDER BY day) FROM shop.orders": "`array_sort(…)`; only `string_agg` takes ORDER BY",
    "SELECT trunc(amount, 1) FROM shop.orders": "`trunc(amount * 10) / 10`",
    "SELECT regexp_replace('a', 'b', 'c', 'n')": "flags in the pattern; only `g` and `gi` are supported",
    "SELECT id FROM shop.orders WHERE (id, day) < (1, current_date)": "`=`, `<>` or `IN`, or compare the columns",
    "SELECT id FROM shop.orders WHERE id > ANY(SELECT 1)": "`= ANY(query)`, `<> ALL(query)` or an array",
    "INSERT INTO shop.orders (id) VALUES (1) ON CONFLICT DO NOTHING": "`ON CONFLICT (id) DO NOTHING`",
    "UPDATE shop.orders SET amount = 2 RETURNING old.amount": "`RETURNING amount`, the new value",
    "COPY shop.orders FROM STDIN": "`COPY … FROM 'file'`",
    "COPY shop.orders TO 'orders.csv'": "`lake.table(…).df()`",
    "COPY shop.orders FROM 'orders.csv' WHERE id > 1": "a COPY into another table, and `INSERT … SELECT … WHERE`",
    "CREATE TABLE shop.keys (id INT PRIMARY KEY)": "a table without keys, and `MERGE` or `ON CONFLICT (id)`",
    "CREATE VIEW shop.v AS SELECT 1": "a temporary view of the Spark session",
    "ALTER TABLE shop.orders DROP COLUMN amount": "`overwrite(…, overwrite_schema=True)`",
    "ALTER TABLE shop.orders RENAME COLUMN amount TO total": "`overwrite(…, overwrite_schema=True)`",
    "ALTER TABLE shop.orders ADD COLUMN n INT DEFAULT 1": "`ADD COLUMN`, `UPDATE`, `ALTER COLUMN … SET DEFAULT`",
    "EXPLAIN ANALYZE SELECT 1": "`EXPLAIN SELECT 1`",
    "EXPLAIN INSERT INTO shop.orders VALUES (1)": "EXPLAIN of its query",
}
"""Statements that deltasql rejects, and what to use instead."""


def sql_page() -> str:
    """Return the SQL reference."""
    text = _TEMPLATE.read_text("utf-8")
    for name, value in {
        "statements": ", ".join(f"`{word}`" for word in parse._KINDS),
        "types": _types(),
        "rejected_types": _listed(REJECTED_TYPES),
        "rejected": _grid("statement", "use instead", rows=[(f"`{sql}`", use) for sql, use in REJECTED.items()]),
    }.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _types() -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for name, delta in schema_ddl._DDL.items():
        names[str(delta)].append(name)
    names["decimal(p,s)"] = [f"{name}(p, s)" for name in schema_ddl._DDL_DECIMAL]
    names["string, limited to n characters"] = [f"{name}(n)" for name in schema_ddl._DDL_CHAR]
    names["array"], names["map"], names["struct"] = ["ARRAY<type>"], ["MAP<key, value>"], ["STRUCT<name: type, …>"]
    rows = [
        (delta, _listed(name for name, kind in TYPES.items() if kind == delta), _listed(in_text))
        for delta, in_text in names.items()
    ]
    return _grid("Delta type", "SQL statements", "schema text of `create_table`", rows=rows)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _grid(*head: str, rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
