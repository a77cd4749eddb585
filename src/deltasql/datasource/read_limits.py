"""Read limits of streams, with stand-ins for PySpark before 4.2, which always reads everything."""

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
        """Stand-in for the class of PySpark 4.2."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Stand-in: read everything."""

    class ReadMaxFiles(ReadLimit):  # type: ignore[no-redef]
        """Stand-in that is never used."""

        max_files = 0

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stand-in: older releases record by themselves where a stream ends."""
else:
    LIMITS = True

__all__ = ["LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxFiles", "SupportsTriggerAvailableNow"]
