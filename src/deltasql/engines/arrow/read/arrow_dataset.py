"""Expose a scan as a `pyarrow.dataset.Dataset`, from which engines request the columns and rows of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from deltasql.engines.arrow.read.scan import Scan


class ScanDataset(ds.Dataset):  # type: ignore[misc]
    """Implements what engines use, `schema` and `scanner`. The other members of the base class do not work."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self._scan.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> ds.Scanner:
        """Return a scanner that reads only the named columns."""
        return _ScanScanner(self._scan.narrowed(columns or self._scan.schema.names, filter))


class _ScanScanner(ds.Scanner):  # type: ignore[misc]
    """A scanner without Arrow's I/O threads: on these few threads, the tables of a join would block each other."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    @property
    def projected_schema(self) -> pa.Schema:
        """Return the columns that are read."""
        return self._scan.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return self._scan.batches()
