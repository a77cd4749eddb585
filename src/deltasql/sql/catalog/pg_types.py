"""PostgreSQL's types, and the Spark types that hold their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_DIGITS = 38
"""The number of digits that a decimal of Spark can have."""


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of an expression.

    A numeric has a precision and a scale, because Spark's decimals have a fixed size. `padded` says that values may
    have fewer decimals in PostgreSQL, as those of a quotient.
    """

    name: str
    """The name in PostgreSQL's catalog, such as int4; or map, record and other for types that only Spark has."""
    size: tuple[int, ...] = ()
    """Precision and scale of a numeric, or the length of a varchar or bpchar."""
    padded: bool = False
    items: tuple[SqlType, ...] = ()
    """The type of an array's items, of a map's keys and values, or of a record's fields."""
    fields: tuple[str, ...] = ()
    """The names of a record's fields."""
    spark: str = ""
    """The Spark type, for types whose name does not determine it."""

    def __str__(self) -> str:
        if self.name == "array":
            return f"{self.items[0]}[]"
        if self.name in ("other", "map", "record"):
            return self.ddl.lower()
        return _SHOWN.get(self.name, self.name)

    @property
    def ddl(self) -> str:
        """The type in Spark SQL."""
        match self.name:
            case "numeric":
                return f"DECIMAL({self.size[0]}, {self.size[1]})"
            case "array":
                return f"ARRAY<{self.items[0].ddl}>"
            case "map":
                return f"MAP<{self.items[0].ddl}, {self.items[1].ddl}>"
            case "record":
                fields = zip(self.fields, self.items, strict=True)
                return f"STRUCT<{', '.join(f'{_quoted(name)}: {item.ddl}' for name, item in fields)}>"
        return self.spark or _DDL[self.name]

    @property
    def element(self) -> SqlType:
        """The type of an array's items."""
        return self.items[0]


_SHOWN = {
    "bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real",
    "float8": "double precision", "varchar": "character varying", "bpchar": "character",
    "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone",
}  # fmt: skip
_DDL = {
    "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INT", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE",
    "text": "STRING", "varchar": "STRING", "bpchar": "STRING", "json": "STRING", "uuid": "STRING", "bytea": "BINARY",
    "date": "DATE", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP_LTZ", "unknown": "STRING",
}  # fmt: skip

BOOL, INT2, INT4, INT8 = (SqlType(name) for name in ("bool", "int2", "int4", "int8"))
FLOAT4, FLOAT8, TEXT, BYTEA = (SqlType(name) for name in ("float4", "float8", "text", "bytea"))
DATE, TIMESTAMP, TIMESTAMPTZ = (SqlType(name) for name in ("date", "timestamp", "timestamptz"))
JSON = SqlType("json")
UNKNOWN = SqlType("unknown")
"""The type of a quoted literal and of NULL, which take the type that the expression around them needs."""
INTERVAL = SqlType("interval", spark="INTERVAL")
"""An interval of months, days and time."""
DURATION = SqlType("interval", spark="INTERVAL DAY TO SECOND")
"""An interval without months, such as the difference of two timestamps: Spark can return it."""

OPAQUE = ("record", "map", "other")
"""Types that PostgreSQL does not have: their values are assigned as Spark does it."""
NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
"""The numeric types; each is cast implicitly to those after it."""
INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_CATEGORIES = {
    **dict.fromkeys(NUMBERS, "N"),
    **dict.fromkeys(("text", "varchar", "bpchar"), "S"),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "D"),
    "bool": "B", "interval": "T", "unknown": "X", "array": "A",
}  # fmt: skip
_PREFERRED = {"bool", "float8", "text", "timestamptz", "interval"}


def category(type_: SqlType) -> str:
    """Return PostgreSQL's category of a type, or the name of a type that has none."""
    return _CATEGORIES.get(type_.name, type_.name)


def is_preferred(type_: SqlType) -> bool:
    """Return whether PostgreSQL prefers a type in its category."""
    return type_.name in _PREFERRED


def numeric(precision: int, scale: int, *, padded: bool = False) -> SqlType:
    """Return a numeric type, with as many digits as Spark has at most."""
    return SqlType("numeric", (max(1, min(MOST_DIGITS, precision)), scale), padded)


def array_of(item: SqlType) -> SqlType:
    """Return the type of arrays of a type."""
    return SqlType("array", items=(item,))


def as_numeric(type_: SqlType) -> SqlType:
    """Return the numeric type that holds all values of an integer type; a numeric type is returned as it is."""
    return type_ if type_.name == "numeric" else numeric(INTEGER_DIGITS[type_.name], 0)


def common_numeric(types: Sequence[SqlType]) -> SqlType:
    """Return the numeric type that holds the values of all given numbers."""
    sizes = [as_numeric(type_) for type_ in types]
    scale = max(one.size[1] for one in sizes)
    whole = max(one.size[0] - one.size[1] for one in sizes)
    padded = any(one.padded for one in sizes) or len({one.size[1] for one in sizes}) > 1
    return numeric(whole + scale, scale, padded=padded)


_OF_SPARK = {
    "boolean": BOOL, "byte": INT2, "short": INT2, "integer": INT4, "long": INT8, "float": FLOAT4, "double": FLOAT8,
    "string": TEXT, "binary": BYTEA, "date": DATE, "timestamp": TIMESTAMPTZ, "timestamp_ntz": TIMESTAMP,
    "void": UNKNOWN, "interval day to second": DURATION,
}  # fmt: skip


def of_spark(type_: Any) -> SqlType:
    """Return the type of a Spark type in JSON, as a schema has it."""
    if isinstance(type_, dict):
        return _nested(type_)
    text = str(type_)
    if text in _OF_SPARK:
        return _OF_SPARK[text]
    if text.startswith("decimal("):
        precision, scale = (int(part) for part in text[8:-1].split(","))
        return numeric(precision, scale)
    if text.startswith(("varchar(", "char(", "string")):  # a string may have a collation
        return TEXT
    return SqlType("other", spark=text.upper())


def _nested(type_: dict[str, Any]) -> SqlType:
    match type_["type"]:
        case "array":
            return array_of(of_spark(type_["elementType"]))
        case "map":
            return SqlType("map", items=(of_spark(type_["keyType"]), of_spark(type_["valueType"])))
        case "struct":
            fields = type_["fields"]
            return SqlType(
                "record",
                items=tuple(of_spark(field["type"]) for field in fields),
                fields=tuple(field["name"] for field in fields),
            )
    return SqlType("other", spark=str(type_.get("sqlType", "STRING")))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
