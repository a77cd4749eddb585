"""Timing, and what a measurement is: a value beside its baseline, taken in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table. `ratio` is value / baseline; `target` says what it should be."""

    suite: str
    name: str
    value: float
    baseline: float | None
    unit: str
    target: str
    holds: bool
    ratio: float | None = None
    note: str = ""


def at_most(
    suite: str, name: str, value: float, baseline: float, limit: float, unit: str = "ms", note: str = ""
) -> Result:
    """`value` costs at most `limit` times `baseline`."""
    ratio = value / baseline
    return Result(suite, name, value, baseline, unit, f"≤ {limit:g} ×", ratio <= limit, ratio, note)


def at_least(
    suite: str, name: str, value: float, baseline: float, limit: float, unit: str = "/s", note: str = ""
) -> Result:
    """`value` is at least `limit` times `baseline`."""
    ratio = value / baseline
    return Result(suite, name, value, baseline, unit, f"≥ {limit:g} ×", ratio >= limit, ratio, note)


def faster(suite: str, name: str, value: float, baseline: float, limit: float, note: str = "") -> Result:
    """`value` milliseconds are at least `limit` times fewer than `baseline`."""
    ratio = baseline / value
    return Result(suite, name, value, baseline, "ms", f"≥ {limit:g} × faster", ratio >= limit, ratio, note)


def below(suite: str, name: str, value: float, limit: float, note: str = "") -> Result:
    """`value` milliseconds stay below a limit."""
    return Result(suite, name, value, None, "ms", f"< {limit:g} ms", value < limit, None, note)


def milliseconds(action: Callable[[], Any]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def in_turns(
    rounds: int, *, settle: Callable[[], Any] = lambda: None, **actions: Callable[[], Any]
) -> dict[str, float]:
    """The median of each action, all measured in turns so that noise falls on all of them alike.

    `settle` runs between them, unmeasured: what an action leaves behind in the background must not slow the next.
    """
    spent: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in actions.items():
            took = milliseconds(action)
            settle()
            if number:  # the first round warms up
                spent[name].append(took)
    return {name: statistics.median(values) for name, values in spent.items()}


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
