"""The functions, operators, casts and types of PostgreSQL 18, as its catalog lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

FILE = "pg_catalog.tsv"
_PSEUDO = {
    "any", "anyelement", "anyarray", "anynonarray", "anyenum", "anyrange", "anymultirange", "anycompatible",
    "anycompatiblearray", "anycompatiblenonarray", "anycompatiblerange", "anycompatiblemultirange", "record",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Overload:
    """A function or operator for certain types of arguments."""

    name: str
    parameters: tuple[str, ...]
    """The names of types in the catalog: int4, _int4 for its arrays, anyelement."""
    result: str
    kind: str = "f"
    """f for a function, a for an aggregate, w for a window function."""
    returns_rows: bool = False
    variadic: bool = False
    defaults: int = 0
    """The number of parameters at the end that may be left out."""
    names: tuple[str, ...] = ()
    """The names of parameters, for functions with defaults."""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The entries of the catalog by their names."""

    functions: Mapping[str, Sequence[Overload]]
    operators: Mapping[str, Sequence[Overload]]
    casts: Mapping[tuple[str, str], str]
    """The context of a cast: i for implicit, a for assignment, e for explicit."""
    categories: Mapping[str, str] = field(default_factory=dict)
    preferred: frozenset[str] = frozenset()


@cache
def catalog() -> Catalog:
    """Return the catalog."""
    text = (resources.files("deltasql.sql.catalog") / FILE).read_text()
    functions: defaultdict[str, list[Overload]] = defaultdict(list)
    operators: defaultdict[str, list[Overload]] = defaultdict(list)
    casts: dict[tuple[str, str], str] = {}
    categories: dict[str, str] = {}
    preferred: set[str] = set()
    for line in text.splitlines():
        sort, name, kind, parameters, result, defaults = line.split("\t")
        types = tuple(parameters.split(",")) if parameters else ()
        match sort:
            case "function":
                functions[name].append(_function(name, kind, types, result, defaults))
            case "operator":
                operators[name].append(Overload(name, types, result))
            case "cast":
                casts[name, result] = kind
            case _:
                categories[name] = kind[0]
                preferred |= {name} if kind.endswith("p") else set()
    return Catalog(functions, operators, casts, categories, frozenset(preferred))


def _function(name: str, kind: str, types: tuple[str, ...], result: str, defaults: str) -> Overload:
    count, *names = defaults.split(",")
    return Overload(name, types, result, kind[0], "s" in kind[1:], kind.endswith("v"), int(count or 0), tuple(names))


def category_of(name: str) -> str:
    """Return the category of a type by its name in the catalog."""
    if name.startswith("_"):
        return "A"
    return "X" if name == "unknown" else catalog().categories.get(name, "P")


def is_pseudo(name: str) -> bool:
    """Return whether a name stands for several types."""
    return name in _PSEUDO
