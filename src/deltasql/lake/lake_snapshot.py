"""One consistent point in time over all tables of a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.addresses import split_name
from deltasql.errors import ValidationError
from deltasql.lake.table import Table

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame
    from deltasql.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """The versions of all tables at one moment.

    Attributes:
        lake: The lake.
        versions: The version of each table, by name.
        ids: The id of each table, by name.
    """

    lake: Lake
    versions: Mapping[str, int]
    ids: Mapping[str, str]

    def files(self, name: str, where: str | None = None) -> pa.Table:
        """Return the files of one table, as `Table.files` does.

        Args:
            name: The table's name.
            where: A condition in Spark SQL by which files are pruned.

        Returns:
            A pyarrow.Table with one row per file.

        Raises:
            ValidationError: The table is not part of the snapshot.
        """
        table, version = self._table(name)
        return table.files(where, version=version)

    def arrow(self, name: str, where: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of one table, as `Table.arrow` does.

        Args:
            name: The table's name.
            where: A condition in Spark SQL.
            columns: Read only these columns.

        Returns:
            All matching rows in memory.

        Raises:
            ValidationError: The table is not part of the snapshot.
        """
        table, version = self._table(name)
        return table.arrow(version, where=where, columns=columns)

    def batches(
        self, name: str, where: str | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows of one table as a stream, as `Table.batches` does.

        Args:
            name: The table's name.
            where: A condition in Spark SQL.
            columns: Read only these columns.

        Returns:
            A pyarrow.RecordBatchReader.

        Raises:
            ValidationError: The table is not part of the snapshot.
        """
        table, version = self._table(name)
        return table.batches(version, where=where, columns=columns)

    def df(self, name: str, where: str | None = None) -> DataFrame:
        """Return the rows of one table as a Spark DataFrame, as `Table.df` does.

        Args:
            name: The table's name.
            where: A condition in Spark SQL.

        Returns:
            A DataFrame of `lake.spark`.

        Raises:
            ValidationError: The table is not part of the snapshot.
        """
        table, version = self._table(name)
        return table.df(version, where=where)

    def _table(self, name: str) -> tuple[Table, int]:
        full = ".".join(split_name(name))
        if full not in self.versions or full not in self.ids:
            raise ValidationError(f"table {full} is not part of this snapshot", table=full)
        return Table(self.lake, self.ids[full], full), self.versions[full]
