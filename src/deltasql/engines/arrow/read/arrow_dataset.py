"""A scan as a `pyarrow.dataset.Dataset`, which engines ask for the columns and the rows that a query needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from deltasql.engines.arrow.read.scan import Scan


class ScanDataset(ds.Dataset):  # type: ignore[misc]
    """Only what engines use: `schema` and `scanner`. Everything else of the base class has no dataset beneath it."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._scan.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> ds.Scanner:
        """A pass over the rows, which reads the named columns alone."""
        return _Pass(self._scan.narrowed(columns or self._scan.schema.names, filter))


class _Pass(ds.Scanner):  # type: ignore[misc]
    """A scanner of Arrow's own would take the stream on its few threads for input, and tables of a join would wait for
    each other there."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that are read."""
        return self._scan.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return self._scan.batches()
