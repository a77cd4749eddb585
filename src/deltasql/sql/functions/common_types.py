"""The type that PostgreSQL finds for several values: of CASE, UNION, ARRAY and COALESCE."""

from __future__ import annotations

from collections.abc import Sequence

from deltasql.sql.catalog.pg_types import (
    INTERVAL,
    TEXT,
    UNKNOWN,
    SqlType,
    array_of,
    category,
    common_numeric,
    is_preferred,
)
from deltasql.sql.functions.casts import castable


def common_type(types: Sequence[SqlType]) -> SqlType | None:
    """Return the type of several values, or None if they have none; values without a type are texts."""
    known = [type_ for type_ in types if type_ != UNKNOWN]
    if not known:
        return TEXT
    chosen = known[0]
    for type_ in known[1:]:
        if type_.name == chosen.name:
            chosen = _same(chosen, type_)
            continue
        if category(type_) != category(chosen):
            return None
        if not is_preferred(chosen) and castable(chosen, type_) and not castable(type_, chosen):
            chosen = type_
        elif not castable(type_, chosen):
            return None
    if chosen.name == "numeric":
        return common_numeric([type_ for type_ in known if type_.name in ("int2", "int4", "int8", "numeric")])
    return chosen


def _same(one: SqlType, other: SqlType) -> SqlType:
    """Return the type of two values whose types have one name."""
    if one == other:
        return one
    match one.name:
        case "array":
            return array_of(common_type([one.element, other.element]) or TEXT)
        case "interval":
            return INTERVAL
        case "varchar" | "bpchar":
            return SqlType(one.name)
    return one
