"""Telling somebody that a version could not be published."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec

from deltasql.errors import MirrorConflict, MirrorFailure
from deltasql.store.outbox import MirroredTable

_log = logging.getLogger(__name__)

_SECONDS = 10


class Alerts:
    """Tells of failures. The webhook is called by a thread of its own: no commit waits for whoever listens there."""

    def __init__(self, webhook: str) -> None:
        self._webhook = webhook
        self._lock = threading.Lock()
        self._sender: ThreadPoolExecutor | None = None

    def tell(self, table: MirroredTable, failure: MirrorFailure) -> None:
        """A line in the log at ERROR, and soon a POST to the webhook if there is one."""
        _log.error("%s", failure)
        if self._webhook:
            with self._lock:
                if self._sender is None:
                    self._sender = ThreadPoolExecutor(1, "deltasql-alerts")
                self._sender.submit(_post, self._webhook, table, failure)

    def close(self) -> None:
        """Wait until everything was told."""
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.shutdown(wait=True)


def _post(webhook: str, table: MirroredTable, failure: MirrorFailure) -> None:
    import urllib.request
    from http.client import HTTPException

    event = {
        "event": "mirror_conflict" if isinstance(failure, MirrorConflict) else "mirror_failed",
        "table": table.name,
        "table_id": table.id,
        "version": failure.version,
        "error": failure.error,
    }
    headers = {"content-type": "application/json"}
    try:
        request = urllib.request.Request(webhook, msgspec.json.encode(event), headers)  # noqa: S310 - it is http(s)
        with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310
            pass
    except (OSError, HTTPException, ValueError) as error:
        _log.warning("the alert for table %s did not reach its webhook: %s", table.name, error)
