"""Alerts: report that a version could not be published."""

from __future__ import annotations

import itertools
import logging
from functools import partial

import msgspec

from deltasql.errors import MirrorConflict, MirrorFailure
from deltasql.mirror.background import BackgroundJobs
from deltasql.store.mirror_records import MirroredTable

_log = logging.getLogger(__name__)

_SECONDS = 10


class Alerts:
    """Logs failures and posts them to a webhook, in a separate thread so that no commit waits for it."""

    def __init__(self, webhook: str) -> None:
        self._webhook = webhook
        self._jobs = BackgroundJobs(1)
        self._numbers = itertools.count()

    def send(self, table: MirroredTable, failure: MirrorFailure) -> None:
        """Log a failure at level ERROR, and post it to the webhook if one is configured."""
        _log.error("%s", failure)
        if self._webhook:
            self._jobs.add(next(self._numbers), partial(_post, self._webhook, table, failure))

    def close(self) -> None:
        """Wait until all alerts are sent."""
        self._jobs.wait()


def _post(webhook: str, table: MirroredTable, failure: MirrorFailure) -> None:
    import urllib.request
    from http.client import HTTPException

    class _NoRedirects(urllib.request.HTTPRedirectHandler):
        """Follows no redirect: the alert goes to the configured host, and to no other."""

        def redirect_request(self, *_: object) -> None:
            return None

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
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_SECONDS):
            pass
    except (OSError, HTTPException, ValueError) as error:
        _log.warning("table %s: the alert could not be posted to the webhook: %s", table.name, error)
