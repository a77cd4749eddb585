"""Choose the function or operator that PostgreSQL would call for given types of arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deltasql.sql.catalog.pg_catalog import Overload, catalog, category_of, is_pseudo
from deltasql.sql.catalog.pg_types import UNKNOWN, SqlType, array_of
from deltasql.sql.functions.common_types import common_type

_ARRAYS = {"anyarray", "anycompatiblearray"}
_SCALARS = {"anynonarray", "anycompatiblenonarray"}


@dataclass(frozen=True, slots=True)
class Match:
    """An overload, and the type of the parameter for each given argument."""

    overload: Overload
    parameters: tuple[str, ...]


def catalog_name(type_: SqlType) -> str:
    """Return the name of a type in the catalog."""
    return f"_{catalog_name(type_.element)}" if type_.name == "array" else type_.name


def choose(overloads: Sequence[Overload], given: Sequence[SqlType]) -> list[Match]:
    """Return the overload to call, by the rules of PostgreSQL; none if nothing fits, several if it is ambiguous."""
    types = [catalog_name(type_) for type_ in given]
    matches = [match for overload in overloads if (match := _match(overload, len(types))) is not None]
    exact = [match for match in matches if list(match.parameters) == types]
    if exact:
        return exact[:1]
    if len(types) == 2 and types.count("unknown") == 1:  # assume the type of the other side
        known = next(name for name in types if name != "unknown")
        same = [match for match in matches if match.parameters == (known, known) and not match.overload.names]
        if same and all(match.overload.kind == "f" for match in same):
            return same[:1]
    fitting = [match for match in matches if _fits(match, types)]
    for narrow in (_most_exact, _most_preferred, _of_unknowns, _of_known_type):
        if len(fitting) > 1:
            fitting = narrow(fitting, types)
    return _without_variadic(fitting)


def _match(overload: Overload, count: int) -> Match | None:
    """Return the parameters that an overload has for a number of arguments."""
    parameters = overload.parameters
    if overload.variadic and count >= len(parameters):
        item = parameters[-1].removeprefix("_")
        return Match(overload, (*parameters[:-1], *[item] * (count - len(parameters) + 1)))
    if len(parameters) - overload.defaults <= count <= len(parameters):
        return Match(overload, parameters[:count])
    return None


def _without_variadic(matches: Sequence[Match]) -> list[Match]:
    plain = [match for match in matches if not match.overload.variadic]
    return plain if len(matches) > 1 and plain else list(matches)


def _fits(match: Match, types: Sequence[str]) -> bool:
    pairs = list(zip(types, match.parameters, strict=True))
    if not all(implicitly(given, wanted) for given, wanted in pairs):
        return False
    return _is_consistent([(given, wanted) for given, wanted in pairs if is_pseudo(wanted)])


def implicitly(given: str, wanted: str) -> bool:
    """Return whether PostgreSQL casts a type implicitly to the type of a parameter."""
    if given in (wanted, "unknown") or wanted == "any":
        return True
    if is_pseudo(wanted):
        if wanted in _ARRAYS:
            return given.startswith("_")
        return wanted in ("anyelement", "anycompatible") or (wanted in _SCALARS and not given.startswith("_"))
    if given.startswith("_") and wanted.startswith("_"):
        return implicitly(given[1:], wanted[1:])
    return catalog().casts.get((given, wanted)) == "i"


def _is_consistent(pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether the parameters of anyelement have one type, and those of anycompatible a common one."""
    items = {
        given.removeprefix("_") if wanted == "anyarray" else given
        for given, wanted in pairs
        if wanted in ("anyelement", "anyarray", "anynonarray") and given != "unknown"
    }
    compatible = {
        category_of(given.removeprefix("_") if wanted == "anycompatiblearray" else given)
        for given, wanted in pairs
        if wanted.startswith("anycompatible") and given != "unknown"
    }
    return len(items) <= 1 and len(compatible) <= 1


def _best(matches: Sequence[Match], score: Callable[[Match], int]) -> list[Match]:
    scores = [score(match) for match in matches]
    return [match for match, points in zip(matches, scores, strict=True) if points == max(scores)]


def _most_exact(matches: Sequence[Match], types: Sequence[str]) -> list[Match]:
    return _best(matches, lambda m: sum(a == b for a, b in zip(types, m.parameters, strict=True) if a != "unknown"))


def _most_preferred(matches: Sequence[Match], types: Sequence[str]) -> list[Match]:
    def score(match: Match) -> int:
        pairs = zip(types, match.parameters, strict=True)
        return sum(
            given == wanted or (wanted in catalog().preferred and category_of(wanted) == category_of(given))
            for given, wanted in pairs
            if given != "unknown"
        )

    return _best(matches, score)


def _of_unknowns(matches: Sequence[Match], types: Sequence[str]) -> list[Match]:
    """Choose a category for each literal without a type: that of texts if it is possible."""
    left = list(matches)
    chosen: dict[int, str] = {}
    for index, name in enumerate(types):
        if name == "unknown":
            categories = [category_of(match.parameters[index]) for match in left]
            chosen[index] = "S" if "S" in categories else categories[0]
            if chosen[index] != "S" and len(set(categories)) > 1:
                return left
    for index, wanted in chosen.items():
        fitting = [match for match in left if category_of(match.parameters[index]) == wanted]
        preferred = [match for match in fitting if match.parameters[index] in catalog().preferred]
        left = preferred or fitting or left
    return left


def _of_known_type(matches: Sequence[Match], types: Sequence[str]) -> list[Match]:
    """Assume that literals without a type have the one type that all other arguments have."""
    known = {name for name in types if name != "unknown"}
    if len(known) != 1 or "unknown" not in types:
        return list(matches)
    [one] = known
    return [match for match in matches if _fits(match, [one] * len(types))] or list(matches)


def polymorphic_types(match: Match, types: Sequence[SqlType], default: SqlType | None = None) -> dict[str, SqlType]:
    """Return the types for which anyelement, anyarray and the like stand.

    Args:
        match: The chosen overload.
        types: The types of its arguments.
        default: The type if no argument for such a parameter has one; None returns nothing then.
    """
    given = [(one, wanted) for one, wanted in zip(types, match.parameters, strict=True) if one != UNKNOWN]
    items = [
        one.element if wanted in _ARRAYS else one for one, wanted in given if is_pseudo(wanted) and wanted != "any"
    ]
    item = (common_type(items) or items[0]) if items else default
    if item is None:
        return {}
    return {**dict.fromkeys(_ARRAYS, array_of(item)), **dict.fromkeys(_SCALARS | {"anyelement", "anycompatible"}, item)}
