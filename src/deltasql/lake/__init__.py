"""What a user holds: the lake, its tables, transactions and streams."""

from deltasql.lake.lake import Lake, begin, connect
from deltasql.lake.lake_snapshot import LakeSnapshot
from deltasql.lake.table import CommitResult, Table

__all__ = ["CommitResult", "Lake", "LakeSnapshot", "Table", "begin", "connect"]
