"""The parts of a lake and of a table that a transaction uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from deltasql.errors import UsageError, shown
from deltasql.operations.commit import MultiTableTransaction
from deltasql.protocol.table_changes import TableState

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession
    from deltasql.operations.dml import RowChanger
    from deltasql.operations.write import TableWriter
    from deltasql.sql.statement_session import TransactionSession
    from deltasql.store import Snapshot, Store


class LakeAccess(Protocol):
    """What a transaction needs of its lake."""

    dsn: str
    store: Store
    writer: TableWriter
    changer: RowChanger
    storage_options: dict[str, str]

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""

    def frame_of(self, snapshot: Snapshot, where: str | None = None) -> DataFrame:
        """Return the rows of a snapshot as a Spark DataFrame."""

    def statement_session(self, txn: MultiTableTransaction, drop: Callable[[str], object] | None) -> TransactionSession:
        """Return the context in which SQL statements find tables."""

    @property
    def stage_table(self) -> Callable[..., TableState]:
        """Stage a new table."""

    def local_name(self, name: str) -> str:
        """Return a table's name in this lake."""

    def close(self) -> None:
        """Close the connections."""


class TableHandle(Protocol):
    """A table of a lake."""

    id: str
    name: str

    @property
    def lake(self) -> LakeAccess:
        """The lake that the table belongs to."""


def lake_of(table: TableHandle) -> LakeAccess:
    """Return the lake of a table; raise `UsageError` for any other object."""
    try:
        return table.lake
    except AttributeError:
        problem = f"a table is given by its name, its URI or a Table, got {shown(table)}"
        raise UsageError(problem, value=table) from None
