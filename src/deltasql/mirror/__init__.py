"""The mirror: what is committed in PostgreSQL, published to `_delta_log` for every Delta reader."""

from deltasql.mirror.mirror import Mirror, MirrorReport
from deltasql.store.outbox import MirrorStatus

__all__ = ["Mirror", "MirrorReport", "MirrorStatus"]
