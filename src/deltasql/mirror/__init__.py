"""The mirror: publishes the versions that are committed in PostgreSQL to `_delta_log`, for every Delta reader."""

from deltasql.mirror.mirror import Mirror
from deltasql.mirror.reconciler import MirrorReport
from deltasql.store.mirror_records import MirrorStatus

__all__ = ["Mirror", "MirrorReport", "MirrorStatus"]
