"""How far the tests explore: TEST_LONG=1, which `make test-long` sets, asks for more examples, rounds and kills."""

from __future__ import annotations

import os

LONG = os.environ.get("TEST_LONG") == "1"


def rounds(short: int, long: int | None = None) -> int:
    """Return a number of examples or rounds: `short`, or in a long run `long` or ten times as many."""
    return (long or 10 * short) if LONG else short
