"""Speed up how Spark lists the files of a plain scan.

For more than 32 files Spark starts a task per file: seconds for a hundred files, most of a minute for ten thousand. The
settings that change this belong to the user's session, so they are restored as soon as the read is planned. A lock
allows one read at a time to change them, because a second one would save the first one's setting as the user's. In a
session that rejects the setting, the read is slower.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
# The driver lists local files fast. Each file of an object store costs a round trip, which a few tasks share.
_LOCAL = (THRESHOLD, "1000000")
_REMOTE = (PARALLELISM, "64")
_FEW = 32
_log = logging.getLogger(__name__)
_lock = threading.Lock()


@contextmanager
def quick_listing(spark: SparkSession, root: str, files: int) -> Iterator[None]:
    """Let Spark list files below a root without a task for each, while the context lasts."""
    if files <= _FEW:
        yield
        return
    key, value = _LOCAL if root.startswith("file:") else _REMOTE
    with _lock, ExitStack() as restore:
        try:
            before = spark.conf.getAll.get(key)
            spark.conf.set(key, value)
            if before is None:
                restore.callback(spark.conf.unset, key)
            else:
                restore.callback(spark.conf.set, key, before)
        except Exception as error:
            _log.debug("the session rejects the setting %s: %r", key, error)
        yield
