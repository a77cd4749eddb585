"""Waiting for something that gives no notice: a lock, a process, a socket."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE = 0.01


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE)
    return True
