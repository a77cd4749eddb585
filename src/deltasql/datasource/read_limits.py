"""What Spark asks a stream for at a time. Before 4.2 it asks for everything, and has no words for less."""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """Stands for Spark's own, as the others do."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All there is."""

    class ReadMaxFiles(ReadLimit):  # type: ignore[no-redef]
        """Never asked for."""

        max_files = 0

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark notes by itself where a stream ends for now."""
else:
    LIMITS = True

__all__ = ["LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxFiles", "SupportsTriggerAvailableNow"]
