"""How Spark looks at the files that it is told to read.

It starts a task for each of more than 32 files: seconds for a hundred, most of a minute for ten thousand. The settings
that change this are the session's, so they are the user's again as soon as the read is planned; only one read at a
time borrows them, because the second would take what the first has set for the user's own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
# A local disk answers the driver at once. A store takes a round trip for each file: a few tasks share them.
_LOCAL = {THRESHOLD: "1000000"}
_REMOTE = {PARALLELISM: "64"}
_FEW = 32
_one_at_a_time = threading.Lock()


@contextmanager
def quick_listing(spark: SparkSession, root: str, files: int) -> Iterator[None]:
    """Let Spark look at files below a root without a task for each."""
    if files <= _FEW:
        yield
        return
    wanted = _LOCAL if root.startswith("file:") else _REMOTE
    with _one_at_a_time:
        own = spark.conf.getAll
        for key, value in wanted.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in wanted:
                if key in own:
                    spark.conf.set(key, own[key])
                else:
                    spark.conf.unset(key)
