"""Savepoints of a transaction."""

from __future__ import annotations

from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.staging import StagingPoint


class Savepoint:
    """A moment of a transaction to return to."""

    def __init__(self, txn: MultiTableTransaction, mark: StagingPoint) -> None:
        self._txn, self._mark = txn, mark

    def rollback(self) -> None:
        """Drop the changes since the savepoint. It can be called several times."""
        self._txn.check_open()
        self._txn.return_to(self._mark)
