"""Add columns to a snapshot that have one value per file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.protocol.schema_fit import with_columns
from deltasql.protocol.table_changes import Snapshot


def with_file_constants(snapshot: Snapshot, constants: Mapping[str, tuple[str, Sequence[str | None]]]) -> Snapshot:
    """Return a snapshot with more partition columns, which every reader fills in without reading them from files.

    Args:
        snapshot: The files.
        constants: By column name, the Delta type and the value of each file, serialized as a partition value.
    """
    metadata, files = snapshot.metadata, snapshot.files
    text = with_columns(metadata.schema_string, {name: kind for name, (kind, _) in constants.items()})
    existing = files["partition_values"].combine_chunks()
    values = {
        **{name: pc.struct_field(existing, [name]) for name in metadata.partition_columns},
        **{name: pa.array(given, pa.string()) for name, (_, given) in constants.items()},
    }
    index = files.schema.get_field_index("partition_values")
    column = pa.StructArray.from_arrays(list(values.values()), names=list(values))
    return replace(
        snapshot,
        metadata=msgspec.structs.replace(metadata, schema_string=text, partition_columns=tuple(values)),
        files=files.set_column(index, "partition_values", column),
    )
