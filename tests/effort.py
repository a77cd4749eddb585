"""The number of test cases: with TEST_LONG=1, set by `make test-long`, tests run more examples, rounds and kills."""

from __future__ import annotations

import os

LONG = os.environ.get("TEST_LONG") == "1"


def rounds(short: int, long: int | None = None) -> int:
    """Return `short`, or in a long run `long`, by default ten times as many."""
    return (long or 10 * short) if LONG else short
