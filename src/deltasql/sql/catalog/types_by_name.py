"""The types of parameters and results in PostgreSQL's catalog."""

from __future__ import annotations

from deltasql.sql.catalog.pg_types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
    array_of,
)

_TYPES = {
    type_.name: type_
    for type_ in (
        BOOL, BYTEA, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, INTERVAL, JSON, TEXT, TIMESTAMP, TIMESTAMPTZ, UNKNOWN,
        SqlType("numeric"), SqlType("varchar"), SqlType("bpchar"),
    )
}  # fmt: skip


def type_of_name(name: str) -> SqlType | None:
    """Return the type of a name in the catalog, or None if lake tables have no such type."""
    if name.startswith("_"):
        item = type_of_name(name[1:])
        return array_of(item) if item is not None else None
    return TEXT if name == "uuid" else _TYPES.get(name)
