"""Time a value and its baseline alternately, and compare them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the results. `ratio` is value / baseline, and `target` is its limit."""

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
    """Return a result whose target is that `value` is at most `limit` times `baseline`."""
    ratio = value / baseline
    return Result(suite, name, value, baseline, unit, f"≤ {limit:g} ×", ratio <= limit, ratio, note)


def at_least(
    suite: str, name: str, value: float, baseline: float, limit: float, unit: str = "/s", note: str = ""
) -> Result:
    """Return a result whose target is that `value` is at least `limit` times `baseline`."""
    ratio = value / baseline
    return Result(suite, name, value, baseline, unit, f"≥ {limit:g} ×", ratio >= limit, ratio, note)


def faster(suite: str, name: str, value: float, baseline: float, limit: float, note: str = "") -> Result:
    """Return a result whose target is that `baseline` is at least `limit` times `value`, in milliseconds."""
    ratio = baseline / value
    return Result(suite, name, value, baseline, "ms", f"≥ {limit:g} × faster", ratio >= limit, ratio, note)


def below(suite: str, name: str, value: float, limit: float, note: str = "") -> Result:
    """Return a result whose target is that `value` milliseconds are below a limit."""
    return Result(suite, name, value, None, "ms", f"< {limit:g} ms", value < limit, None, note)


def milliseconds(action: Callable[[], Any]) -> float:
    """Return the duration of one call."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def in_turns(
    rounds: int, *, settle: Callable[[], Any] = lambda: None, **actions: Callable[[], Any]
) -> dict[str, float]:
    """Return the median of each action. Actions run alternately, so that noise affects all of them.

    Each round has another order: else noise with a period, like a new WAL segment, could meet the same action each time.

    `settle` runs between them, unmeasured: what an action leaves behind in the background must not slow the next.
    """
    spent: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in random.sample(list(actions.items()), len(actions)):
            took = milliseconds(action)
            settle()
            if number:  # the first round warms up
                spent[name].append(took)
    return {name: statistics.median(values) for name, values in spent.items()}


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
