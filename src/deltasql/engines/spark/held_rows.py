"""Rows that Spark computes once and keeps until no frame refers to them."""

from __future__ import annotations

import logging
import threading
import weakref
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from deltasql.engines.spark.session import is_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)


def hold(frame: DataFrame) -> DataFrame:
    """Compute the rows of a frame, and return a frame that reads the computed rows."""
    held = frame.localCheckpoint()
    release_in_thread(held)
    return held


def release_in_thread(frame: DataFrame) -> None:
    """Let a thread of deltasql release the rows that a Spark Connect server holds for a frame.

    PySpark releases them in `__del__`, with a request that waits for its answer. The garbage collector may call it
    inside of gRPC, under a lock that the request needs, and the process would wait forever.
    """
    if is_classic(frame.sparkSession):
        return
    relation: Any = frame._plan
    client, relation_id = relation._spark_session.client, relation._relation_id
    relation._spark_session = None  # __del__ sends no request without a session
    weakref.finalize(relation, _unused().put, (client, relation_id)).atexit = False


@cache
def _unused() -> SimpleQueue[tuple[Any, str]]:
    """Return the queue of rows to release, and start the thread that empties it. Unlike other queues, this one may be
    filled while the garbage collector runs."""
    queue: SimpleQueue[tuple[Any, str]] = SimpleQueue()
    threading.Thread(target=_release_all, args=(queue,), name="deltasql-release-rows", daemon=True).start()
    return queue


def _release_all(queue: SimpleQueue[tuple[Any, str]]) -> None:
    from pyspark.sql.connect.plan import CachedRemoteRelation, RemoveRemoteCachedRelation

    while True:
        client, relation_id = queue.get()
        if client.is_closed:  # the server has released the rows with the session
            continue
        relation: Any = CachedRemoteRelation(relation_id, None)
        try:
            client.execute_command(RemoveRemoteCachedRelation(relation).command(client))
        except Exception:
            _log.warning("Spark Connect did not release rows that are no longer used", exc_info=True)
