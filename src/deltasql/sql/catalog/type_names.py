"""The names of types in statements."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

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
    SqlType,
    array_of,
    numeric,
)

_Type = exp.DataType.Type
_PLAIN = {
    _Type.BOOLEAN: BOOL, _Type.TINYINT: INT2, _Type.SMALLINT: INT2, _Type.INT: INT4, _Type.BIGINT: INT8,
    _Type.FLOAT: FLOAT4, _Type.DOUBLE: FLOAT8, _Type.TEXT: TEXT, _Type.VARBINARY: BYTEA, _Type.DATE: DATE,
    _Type.TIMESTAMP: TIMESTAMP, _Type.TIMESTAMPNTZ: TIMESTAMP, _Type.TIMESTAMPTZ: TIMESTAMPTZ,
    _Type.TIMESTAMPLTZ: TIMESTAMPTZ, _Type.JSON: JSON, _Type.INTERVAL: INTERVAL,
}  # fmt: skip
_SIZED = {_Type.VARCHAR: "varchar", _Type.CHAR: "bpchar", _Type.BPCHAR: "bpchar"}


def of_name(tree: Any) -> SqlType | None:
    """Return the type that a node names, or None if it is not supported."""
    sizes = tuple(int(part.name) for part in tree.expressions if isinstance(part, exp.DataTypeParam))
    if tree.this == _Type.ARRAY:
        item = of_name(tree.expressions[0]) if tree.expressions else None
        return array_of(item) if item is not None else None
    if tree.this == _Type.DECIMAL:
        return numeric(*(*sizes, 0)[:2]) if sizes else SqlType("numeric")
    if tree.this in _SIZED:
        default = (1,) if tree.this == _Type.CHAR else ()
        return SqlType(_SIZED[tree.this], sizes or default)
    return _PLAIN.get(tree.this) if not sizes else None
