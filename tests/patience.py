"""Time limits that allow for a busy machine."""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    """Return a time limit for an idle machine, multiplied by the load of this machine."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
