"""Telling somebody that a version could not be published."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request

import msgspec

from deltasql.errors import MirrorConflict, MirrorFailure
from deltasql.store.outbox import MirroredTable

_log = logging.getLogger(__name__)

_SECONDS = 10


def alert(table: MirroredTable, failure: MirrorFailure, webhook: str) -> None:
    """A line in the log at ERROR, and a POST to the webhook if there is one."""
    _log.error("%s", failure)
    if not webhook.startswith(("http://", "https://")):
        return
    event = {
        "event": "mirror_conflict" if isinstance(failure, MirrorConflict) else "mirror_failed",
        "table": table.name,
        "table_id": table.id,
        "version": failure.version,
        "error": failure.error,
    }
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(webhook, msgspec.json.encode(event), headers)  # noqa: S310 - the scheme is checked
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310
            pass
    except (urllib.error.URLError, OSError) as error:
        _log.warning("the alert for table %s did not reach its webhook: %s", table.name, error)
