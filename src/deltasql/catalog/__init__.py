"""The lake and its tables, as users hold them."""

from deltasql.catalog.lake import Lake, LakeSnapshot, begin, connect, open_store
from deltasql.catalog.table import CommitResult, Table

__all__ = ["CommitResult", "Lake", "LakeSnapshot", "Table", "begin", "connect", "open_store"]
