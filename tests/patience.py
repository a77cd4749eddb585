"""How long is too long on a machine that does other things as well."""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    """A limit for a machine that is idle, stretched by what this one has to do."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
