"""Matching of the columns of written rows with the columns of a table.

Columns are matched by name, ignoring case and order. An error lists all columns that do not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deltasql.errors import ValidationError, did_you_mean
from deltasql.protocol.schema import DeltaType, Json, join_path, struct_type

GENERATED = "delta.generationExpression"
DEFAULT = "CURRENT_DEFAULT"

_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""The integer types from narrow to wide, with the decimal digits that each needs."""
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_NUMBER = re.compile(r"byte|short|integer|long|float|double|decimal(\(.*\))?")
_TIMES = {"date", "timestamp", "timestamp_ntz"}
_EXACT = {"float": {"byte", "short"}, "double": {"byte", "short", "integer", "float"}}


@dataclass(frozen=True, slots=True)
class Fit:
    """How the columns of written rows fit a table."""

    schema: Json
    """The schema of the table, with the columns that the rows add."""
    sources: Mapping[str, str]
    """The given column of each column of the table, if one is given."""
    narrowed: tuple[str, ...] = ()
    """Columns whose given type is wider: each value must be checked."""
    assigned: tuple[str, ...] = ()
    """Columns whose values are cast from another type: each value must be checked."""
    added: tuple[str, ...] = ()
    """Columns, nested ones included, that the rows add to the table."""

    @property
    def absent(self) -> list[Json]:
        """Return the fields of the table without a given column."""
        return [f for f in self.schema["fields"] if f["name"] not in self.sources]


def fit(given: Json, table: Json, *, name: str, merge: bool = False, assign: bool = False) -> Fit:
    """Match the columns of written rows with the columns of a table.

    Args:
        given: The schema of the rows.
        table: The schema of the table.
        name: The name of the table, for errors.
        merge: Whether new columns are added to the table.
        assign: Whether values are cast as SQL casts assigned values: numbers, times and texts of other types.

    Raises:
        ValidationError: The rows do not fit; the text lists every problem.
    """
    matching = _Matching(merge, assign)
    fields = matching.struct(given["fields"], table["fields"], "")
    _raise_problems(matching, name)
    known = {f["name"].lower(): f["name"] for f in given["fields"]}
    sources = {f["name"]: known[f["name"].lower()] for f in fields if f["name"].lower() in known}
    lists = (matching.narrowed, matching.assigned, matching.added)
    return Fit(struct_type(fields), sources, *map(tuple, lists))


def with_new_fields(given: Json, table: Json, *, name: str) -> tuple[Json, tuple[str, ...]]:
    """Return the schema of a table with the columns and nested fields of rows that it lacks, and their names.

    The types of columns that both have are not compared.
    """
    matching = _Matching(merge=True, compare=False)
    fields = matching.struct(given["fields"], table["fields"], "")
    _raise_problems(matching, name)
    return struct_type(fields), tuple(matching.added)


def missing_field(given: DeltaType, wanted: DeltaType) -> str | None:
    """Return the path of a field that a struct, or a struct inside of a type, lacks; None if it lacks none."""
    if isinstance(given, str) or isinstance(wanted, str) or given["type"] != wanted["type"]:
        return None
    if wanted["type"] != "struct":
        inner = (missing_field(given[key], wanted[key]) for key in wanted if key.endswith("Type"))
        return next((path for path in inner if path is not None), None)
    known = {one["name"].lower(): one for one in given["fields"]}
    for one in wanted["fields"]:
        found = known.get(one["name"].lower())
        if found is None:
            return str(one["name"])
        if (path := missing_field(found["type"], one["type"])) is not None:
            return f"{one['name']}.{path}"
    return None


def _raise_problems(matching: _Matching, name: str) -> None:
    if matching.problems:
        lines = "\n".join(f"  - {problem}" for problem in matching.problems)
        raise ValidationError(f"table {name}: the rows do not fit the schema:\n{lines}", table=name)


@dataclass(slots=True)
class _Matching:
    merge: bool
    assign: bool = False
    compare: bool = True
    """Whether columns that both have must fit, and NOT NULL columns must be given."""
    problems: list[str] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    def struct(self, given: list[Json], table: list[Json], path: str) -> list[Json]:
        """Return the fields of a struct or of the table after rows with the given fields are written."""
        by_name: dict[str, Json] = {}
        for one in given:
            twin = by_name.setdefault(one["name"].lower(), one)
            if twin is not one:
                names = f"{join_path(path, twin['name'])!r} and {join_path(path, one['name'])!r}"
                self.problems.append(f"columns {names} differ at most in case: rename one")
        fields = [self._field(by_name.pop(f["name"].lower(), None), f, path) for f in table]
        return fields + [self._new(one, table, path) for one in by_name.values()]

    def _field(self, given: Json | None, table: Json, path: str) -> Json:
        column = join_path(path, table["name"])
        if given is None:
            filled = not path and {GENERATED, DEFAULT} & (table.get("metadata") or {}).keys()
            if self.compare and not table.get("nullable", True) and not filled:
                self.problems.append(f"column {column!r} is missing, but NOT NULL in the table")
            return table
        return {**table, "type": self.type(given["type"], table["type"], column)}

    def _new(self, given: Json, table: list[Json], path: str) -> Json:
        column = join_path(path, given["name"])
        if not self.merge:
            hint = did_you_mean(given["name"], [f["name"] for f in table])
            self.problems.append(
                f"column {column!r} ({type_text(given['type'])}) is not in the table{hint}: "
                f"leave it out, or add it to the table with merge_schema=True"
            )
        elif _has_void(given["type"]):
            self.problems.append(
                f"column {column!r} is new and has no type, because it contains only nulls: cast it to a type"
            )
        self.added.append(column)
        return {"name": given["name"], "type": nullable(given["type"]), "nullable": True, "metadata": {}}

    def type(self, given: DeltaType, table: DeltaType, path: str) -> DeltaType:
        """Return the type of the table with added nested fields; record types that do not fit as problems."""
        if isinstance(given, str) or isinstance(table, str) or given["type"] != table["type"]:
            self._primitive(given, table, path)
            return table
        if table["type"] == "struct":
            return struct_type(self.struct(given["fields"], table["fields"], path))
        inner = [part for part in ("element", "key", "value") if f"{part}Type" in table]
        types = {f"{p}Type": self.type(given[f"{p}Type"], table[f"{p}Type"], join_path(path, p)) for p in inner}
        return {**table, **types}

    def _primitive(self, given: DeltaType, table: DeltaType, path: str) -> None:
        if not self.compare:
            return
        if isinstance(given, str) and isinstance(table, str):
            if _holds(table, given):
                return
            if self.assign and "." not in path and assignable(given, table):
                self.assigned.append(path)
                return
            if "." not in path and _may_hold(table, given):
                self.narrowed.append(path)
                return
        if given not in ("void", "null"):
            self.problems.append(f"column {path!r} is {type_text(given)}, but {type_text(table)} in the table")


def _holds(wide: str, narrow: str) -> bool:
    """Return whether a type holds every value of another type exactly."""
    if wide == narrow or narrow in ("void", "null") or narrow in _EXACT.get(wide, ()):
        return True
    if wide in _INTEGERS and narrow in _INTEGERS:
        return _INTEGERS[narrow] <= _INTEGERS[wide]
    whole, scale = _digits(wide)
    given_whole, given_scale = (_INTEGERS[narrow], 0) if narrow in _INTEGERS else _digits(narrow)
    return 0 <= given_whole <= whole and given_scale <= scale


def _may_hold(wide: str, narrow: str) -> bool:
    """Return whether a type may hold some values of another type exactly."""
    exact = (_INTEGERS.keys() | {t for t in (wide, narrow) if _DECIMAL.fullmatch(t)}).__contains__
    return exact(wide) and exact(narrow)


def assignable(given: str, target: str) -> bool:
    """Return whether SQL casts values of a type when they are assigned to a column of another type."""
    if target == "string" or given == "string":
        return "binary" not in (given, target)
    if _NUMBER.fullmatch(given):
        return _NUMBER.fullmatch(target) is not None
    return given in _TIMES and target in _TIMES


def _digits(type_: str) -> tuple[int, int]:
    """Return the digits of a decimal type before and after the point; -1 for other types."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]) - int(match[2]), int(match[2])) if match else (-1, -1)


def nullable(type_: DeltaType) -> DeltaType:
    """Return a type with all parts nullable, which is the type of a new column."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "struct":
        fields = [{**f, "type": nullable(f["type"]), "nullable": True} for f in type_["fields"]]
        return struct_type(fields)
    flags = ("containsNull", "valueContainsNull")
    return {k: True if k in flags else nullable(v) if k.endswith("Type") else v for k, v in type_.items()}


def _has_void(type_: DeltaType) -> bool:
    if isinstance(type_, str):
        return type_ in ("void", "null")
    children: Iterable[Any] = [f["type"] for f in type_.get("fields", ())]
    return any(map(_has_void, [*children, *(v for k, v in type_.items() if k.endswith("Type"))]))


def type_text(type_: DeltaType) -> str:
    """Return a type as users write it, for errors."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "struct":
        fields = [f"{f['name']}: {type_text(f['type'])}" for f in type_["fields"]]
        return f"struct<{', '.join(fields)}>"
    inner = [type_text(type_[f"{part}Type"]) for part in ("element", "key", "value") if f"{part}Type" in type_]
    return f"{type_['type']}<{', '.join(inner)}>"


def with_columns(schema_string: str, columns: Mapping[str, str]) -> str:
    """Return a schemaString with more columns at the end, given as Delta types by name."""
    struct = parse_struct(schema_string)
    more = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({**struct, "fields": [*struct["fields"], *more]})


def parse_struct(schema_string: str) -> Json:
    """Return the JSON of a schemaString of the log, without checking it again."""
    struct: Json = json.loads(schema_string)
    return struct
