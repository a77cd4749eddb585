"""New values of fields of a struct column: `SET address.city = …`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from deltasql.sql.parse import Tree


@dataclass
class StructChange:
    """A struct some of whose fields get new values; the others keep theirs, or are null if the struct is."""

    old: Tree
    type: Any
    """The type of the struct, as a Delta schema has it."""
    values: dict[str, Tree | StructChange] = field(default_factory=dict)

    def set(self, path: Sequence[str], value: Tree) -> str | None:
        """Give a field a value; return what is wrong with it, if anything."""
        if not isinstance(self.type, dict) or self.type.get("type") != "struct":
            return "it is not a struct"
        known = {one["name"].lower(): one for one in self.type["fields"]}
        found = known.get(path[0].lower())
        if found is None:
            names = ", ".join(one["name"] for one in self.type["fields"])
            return f"there is no field {path[0]!r} (known: {names})"
        name = found["name"]
        inner = self.values.get(name)
        if len(path) == 1:
            if inner is not None:
                return f"field {name!r} gets two values"
            self.values[name] = value
            return None
        if inner is None:
            inner = self.values.setdefault(name, StructChange(self._field(name), found["type"]))
        return inner.set(path[1:], value) if isinstance(inner, StructChange) else f"field {name!r} gets two values"

    def _field(self, name: str) -> Tree:
        return exp.Dot(this=self.old.copy(), expression=exp.to_identifier(name, quoted=True))

    def tree(self) -> Tree:
        """Return the new struct."""
        parts: list[Tree] = []
        for one in self.type["fields"]:
            given = self.values.get(one["name"])
            value = given.tree() if isinstance(given, StructChange) else given
            parts += [
                exp.Literal.string(one["name"]),
                self._field(one["name"]) if value is None else _typed(value, one),
            ]
        return exp.Anonymous(this="named_struct", expressions=parts)


def _typed(value: Tree, one: dict[str, Any]) -> Tree:
    """Return a value cast to the type of its field."""
    if isinstance(one["type"], dict):
        return value
    return exp.cast(value, exp.DataType.build(_SQL_NAMES.get(one["type"], one["type"]), dialect="spark"))


_SQL_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "timestamp": "timestamp_ltz"}
