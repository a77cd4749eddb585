"""Retry of work that conflicts with other commits."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from deltasql.errors import CommitConflict

T = TypeVar("T")
_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 0.05


def retry_on_conflict(attempt: Callable[[], T], max_retries: Callable[[CommitConflict], int]) -> T:
    """Run `attempt`, and retry it on the latest version after a conflict, at most as often as `max_retries` allows."""
    number = 0
    while True:
        try:
            return attempt()
        except CommitConflict as conflict:
            most, number = max_retries(conflict), number + 1
            if number > most:
                raise
            pause = random.uniform(0.5, 1.5) * _FIRST_PAUSE_SECONDS * 2 ** (number - 1)  # noqa: S311 - jitter
            _log.warning("retry %d of %d in %.2f s: %s", number, most, pause, conflict)
            time.sleep(pause)
