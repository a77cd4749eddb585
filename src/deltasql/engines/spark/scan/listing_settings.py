"""How Spark looks at the files that it is told to read.

It starts a task for each of more than 32 files: seconds for a hundred, most of a minute for ten thousand. The settings
that change this are the session's, so they are the user's again as soon as the read is planned; only one read at a
time borrows them, because the second would take what the first has set for the user's own. Where a session does not
allow it, the read takes its time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
# A local disk answers the driver at once. A store takes a round trip for each file: a few tasks share them.
_LOCAL = (THRESHOLD, "1000000")
_REMOTE = (PARALLELISM, "64")
_FEW = 32
_log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()


@contextmanager
def quick_listing(spark: SparkSession, root: str, files: int) -> Iterator[None]:
    """Let Spark look at files below a root without a task for each."""
    if files <= _FEW:
        yield
        return
    key, value = _LOCAL if root.startswith("file:") else _REMOTE
    with _one_at_a_time, ExitStack() as later:
        try:
            own = spark.conf.getAll.get(key)
            spark.conf.set(key, value)
            later.callback(spark.conf.unset, key) if own is None else later.callback(spark.conf.set, key, own)
        except Exception as error:
            _log.debug("%s cannot be set in this session: %r", key, error)
        yield
