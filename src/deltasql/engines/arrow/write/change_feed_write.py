"""Write files of the change data feed from rows that are in files of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltasql.engines.arrow.read.change_feed_scan import removed_file
from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.file_writer import FilePlan, TableFiles, as_cdc
from deltasql.protocol.actions import CHANGE_TYPE, Add, Cdc, Remove
from deltasql.protocol.schema import loose_schema
from deltasql.protocol.table_changes import Snapshot, TableState
from deltasql.store.read.live_files import files_of_adds


@dataclass(frozen=True, slots=True)
class ChangeFeedWriter:
    """Writes change files of one table."""

    state: TableState
    options: Mapping[str, str]
    plan: FilePlan

    def write_files(self, files: Sequence[Add | Remove], kind: str) -> list[Cdc]:
        """Write all rows of some files as changes of one kind."""
        metadata = self.state.metadata
        if not files or metadata is None:
            return []
        adds = [file if isinstance(file, Add) else removed_file(file) for file in files]
        return self.write_rows(Snapshot.of(self.state, files_of_adds(adds, metadata.partition_columns)), kind)

    def write_rows(self, snapshot: Snapshot, kind: str) -> list[Cdc]:
        """Write the rows of a snapshot, filtered by its predicate, as changes of one kind."""
        schema = loose_schema(snapshot.schema)
        with TableFiles(self.plan.for_change_feed()) as files:
            for batch in scan(snapshot, self.options).batches():
                rows = batch.cast(schema)
                files.write(rows.append_column(CHANGE_TYPE, pa.repeat(kind, rows.num_rows)))
        return as_cdc(files.adds)
