"""The SQL reference: a template, with tables from the code and the statements that are rejected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from deltasql.protocol import schema_ddl
from deltasql.sql import parse
from deltasql.sql.functions import (
    aggregates,
    array_functions,
    casts,
    number_functions,
    operator_table,
    row_functions,
    text_functions,
)
from deltasql.sql.functions.dates import time_functions

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
    "SELECT id FROM shop.orders ORDER BY id FETCH FIRST 3 ROWS WITH TIES": "`rank()`",
    "SELECT sqrt(amount) FROM shop.orders": "`sqrt(amount::double precision)`",
    "SELECT regexp_replace('ab', 'a|ab', 'c')": "a pattern with one way to match, such as `ab?`",
    "SELECT ARRAY(SELECT id FROM shop.orders)": "`(SELECT array_agg(id ORDER BY id) FROM shop.orders)`",
    "SELECT id FROM shop.orders WHERE id > ANY(SELECT 1)": "`= ANY(query)`, `<> ALL(query)` or an array",
    "INSERT INTO shop.orders (id) VALUES (1) ON CONFLICT DO NOTHING": "`ON CONFLICT (id) DO NOTHING`",
    "COPY shop.orders FROM STDIN": "`COPY … FROM 'file'`",
    "COPY shop.orders FROM 'orders.csv' WHERE id > 1": "a COPY into another table, and `INSERT … SELECT … WHERE`",
    "CREATE TABLE shop.keys (id INT PRIMARY KEY)": "a table without keys, and `MERGE` or `ON CONFLICT (id)`",
    "CREATE VIEW shop.v AS SELECT 1": "a temporary view of the Spark session",
    "ALTER TABLE shop.orders DROP COLUMN amount": "`overwrite(…, overwrite_schema=True)`",
    "ALTER TABLE shop.orders RENAME COLUMN amount TO total": "`overwrite(…, overwrite_schema=True)`",
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
        "functions": _functions(),
        "operators": _operators(),
        "casts": _casts(),
        "rejected": _grid("statement", "use instead", rows=[(f"`{sql}`", use) for sql, use in REJECTED.items()]),
    }.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _functions() -> str:
    """Return the functions of each family with the types of their arguments."""
    families = {
        "texts and bytes": text_functions.TEXT_FUNCTIONS,
        "numbers": number_functions.NUMBER_FUNCTIONS,
        "dates and times": time_functions.TIME_FUNCTIONS,
        "arrays": array_functions.ARRAY_FUNCTIONS,
        "rows": row_functions.ROW_FUNCTIONS,
        "aggregates": aggregates.AGGREGATES,
        "windows": aggregates.WINDOWS,
    }
    rows = [(family, _by_name(table)) for family, table in families.items()]
    return _grid("of", "functions", rows=rows)


def _by_name(keys: Iterable[str]) -> str:
    """Return the names of a table's entries, each with the types of its arguments."""
    found: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        name, _, types = key.partition("(")
        found[name].append(types.removesuffix(")").replace(",", ", "))
    return ", ".join(f"`{name}({' ǀ '.join(types)})`" for name, types in sorted(found.items()))


def _operators() -> str:
    rows: dict[str, list[str]] = defaultdict(list)
    for key in operator_table.OPERATORS:
        symbol, _, types = key.rpartition("(")
        rows[symbol].append(types.removesuffix(")").replace(",", ", "))
    compared = [(f"`{_escaped(symbol)}`", "all types but maps and structs") for symbol in operator_table.COMPARISONS]
    return _grid("operator", "types", rows=[*compared, *((f"`{_escaped(s)}`", "; ".join(t)) for s, t in rows.items())])


def _escaped(symbol: str) -> str:
    return symbol.replace("|", "\\|")


def _casts() -> str:
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for cast in casts.CASTS:
        rows[cast.source, cast.context].append(cast.target)
    order = [casts.IMPLICIT, casts.ASSIGNMENT, casts.EXPLICIT]
    return _grid(
        "from",
        "implicitly",
        "in an assignment",
        "by CAST",
        rows=[
            (source, *(", ".join(rows.get((source, context), [])) for context in order))
            for source in dict.fromkeys(cast.source for cast in casts.CASTS)
        ],
    )


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
