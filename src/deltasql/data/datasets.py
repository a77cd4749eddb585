"""A scan as a `pyarrow.dataset.Dataset`, which engines ask for the columns and the rows that a query needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from deltasql.data.scan import Scan


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
        scan = self._scan if columns is None else self._scan.select(columns)
        return ds.Scanner.from_batches(scan.batches(), filter=filter)
