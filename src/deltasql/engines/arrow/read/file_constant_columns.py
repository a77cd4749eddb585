"""Files with more to tell of them than the log's partition values: columns that have one value for each file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.protocol.schema_fit import with_columns
from deltasql.store import Snapshot


def with_file_constants(snapshot: Snapshot, labels: Mapping[str, tuple[str, Sequence[str | None]]]) -> Snapshot:
    """A snapshot whose rows have more columns: by name the type, in Delta's words, and the value of each file, as
    partition values are written. To whoever reads it they are partition columns."""
    metadata, files = snapshot.metadata, snapshot.files
    text = with_columns(metadata.schema_string, {name: kind for name, (kind, _) in labels.items()})
    known = files["partition_values"].combine_chunks()
    values = {
        **{name: pc.struct_field(known, [name]) for name in metadata.partition_columns},
        **{name: pa.array(given, pa.string()) for name, (_, given) in labels.items()},
    }
    place = files.schema.get_field_index("partition_values")
    column = pa.StructArray.from_arrays(list(values.values()), names=list(values))
    return replace(
        snapshot,
        metadata=msgspec.structs.replace(metadata, schema_string=text, partition_columns=tuple(values)),
        files=files.set_column(place, "partition_values", column),
    )
