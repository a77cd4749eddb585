"""Write checkpoints: the state of a table at a version in one Parquet file, written batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.delta_log.checkpoint_origin import CheckpointOrigin, CheckpointSize
from deltasql.delta_log.parsed_columns import ParsedColumns
from deltasql.protocol.actions import Metadata, Protocol
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.table_changes import TableContents

_TEXT = pa.string()
_LONG = pa.int64()
_MAP = pa.map_(_TEXT, _TEXT)
_VECTOR = pa.struct(
    {
        "storageType": _TEXT,
        "pathOrInlineDv": _TEXT,
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": _LONG,
    }
)
_TXN = pa.struct({"appId": _TEXT, "version": _LONG, "lastUpdated": _LONG})
_REMOVE = pa.struct(
    {
        "path": _TEXT,
        "deletionTimestamp": _LONG,
        "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(),
        "partitionValues": _MAP,
        "size": _LONG,
        "deletionVector": _VECTOR,
        "baseRowId": _LONG,
        "defaultRowCommitVersion": _LONG,
    }
)
_METADATA = pa.struct(
    {
        "id": _TEXT,
        "name": _TEXT,
        "description": _TEXT,
        "format": pa.struct({"provider": _TEXT, "options": _MAP}),
        "schemaString": _TEXT,
        "partitionColumns": pa.list_(_TEXT),
        "configuration": _MAP,
        "createdTime": _LONG,
    }
)
_PROTOCOL = pa.struct(
    {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(_TEXT),
        "writerFeatures": pa.list_(_TEXT),
    }
)
_DOMAIN = pa.struct({"domain": _TEXT, "configuration": _TEXT, "removed": pa.bool_()})
_SMALL = 1000
_CODECS = {"uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"}


def write_checkpoint(
    contents: TableContents, target: Path, origin: CheckpointOrigin, *, removed_after: int
) -> CheckpointSize:
    """Write a checkpoint to a local file, with one batch of files in memory at a time. Tombstones up to `removed_after`
    (milliseconds since 1970) are left out."""
    shape = _Shape.of(contents)
    count = adds = 0
    with pq.ParquetWriter(target, shape.schema, **_options(contents.metadata)) as writer:
        for batch in _joined(_batches(contents, shape, removed_after)):
            writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
            count += batch.num_rows
            adds += batch.num_rows - batch.column("add").null_count
        written = CheckpointSize(count, adds)
        writer.add_key_value_metadata(origin.footer_entries(written))
    return written


def _options(metadata: Metadata) -> dict[str, Any]:
    """Return the Parquet options. Paths and statistics are all distinct, so only partition values get a dictionary."""
    codec = metadata.table_properties.codec
    return {
        "compression": codec if codec in _CODECS else "snappy",
        "use_dictionary": ["add.partitionValues.key_value.key", "add.partitionValues.key_value.value"],
        "write_statistics": False,
        "store_schema": False,
    }


@dataclass(frozen=True, slots=True)
class _Shape:
    """The columns of a table's checkpoint."""

    schema: pa.Schema
    add: pa.StructType
    parsed: ParsedColumns
    stats_as_json: bool

    @classmethod
    def of(cls, contents: TableContents) -> _Shape:
        properties = contents.metadata.table_properties
        as_struct, as_json = properties.stats_as_struct, properties.stats_as_json
        schema = arrow_schema(contents.metadata.schema_string)
        parsed = ParsedColumns(schema, contents.partitions.distinct() if as_struct else {}, as_struct)
        add = pa.struct(
            {
                "path": _TEXT,
                "partitionValues": _MAP,
                "size": _LONG,
                "modificationTime": _LONG,
                "dataChange": pa.bool_(),
                "tags": _MAP,
                "deletionVector": _VECTOR,
                "baseRowId": _LONG,
                "defaultRowCommitVersion": _LONG,
                "clusteringProvider": _TEXT,
                **({"stats": _TEXT} if as_json else {}),
                **parsed.types,
            }
        )
        columns = {
            "txn": _TXN,
            "add": add,
            "remove": _REMOVE,
            "metaData": _METADATA,
            "protocol": _PROTOCOL,
            "domainMetadata": _DOMAIN,
        }
        return cls(pa.schema(columns), add, parsed, as_json)

    def batch(self, **columns: pa.Array) -> pa.RecordBatch:
        """Return rows with some of the columns, the other columns null."""
        length = len(next(iter(columns.values())))
        arrays = [columns.get(f.name, pa.nulls(length, f.type)) for f in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _batches(contents: TableContents, shape: _Shape, removed_after: int) -> Iterator[pa.RecordBatch]:
    yield shape.batch(protocol=pa.array([_protocol(contents.protocol)], _PROTOCOL))
    yield shape.batch(metaData=pa.array([_metadata(contents.metadata)], _METADATA))
    if contents.txns:
        txns = [{"appId": t.app_id, "version": t.version, "lastUpdated": t.last_updated} for t in contents.txns]
        yield shape.batch(txn=pa.array(txns, _TXN))
    if contents.domains:
        domains = [{"domain": d.domain, "configuration": d.configuration, "removed": False} for d in contents.domains]
        yield shape.batch(domainMetadata=pa.array(domains, _DOMAIN))
    for files in _read_ahead(contents.files()):
        if files.num_rows:
            yield shape.batch(add=_adds(files, contents, shape))
    for files in contents.tombstones(removed_after):
        if files.num_rows:
            yield shape.batch(remove=_removes(files))


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches, because a row group for a few rows costs more than the rows."""
    small: list[pa.RecordBatch] = []
    for batch in batches:
        small.append(batch)
        if sum(b.num_rows for b in small) >= _SMALL:
            yield pa.concat_batches(small)
            small.clear()
    if small:
        yield pa.concat_batches(small)


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the next batch in a thread while one is written."""
    with ThreadPoolExecutor(1, "deltasql-checkpoint") as pool:
        batch = pool.submit(next, batches, None)
        while (found := batch.result()) is not None:
            batch = pool.submit(next, batches, None)
            yield found


def _protocol(protocol: Protocol) -> dict[str, Any]:
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }


def _metadata(metadata: Metadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": metadata.format.provider, "options": list(metadata.format.options.items())},
        "schemaString": metadata.schema_string,
        "partitionColumns": metadata.partition_columns,
        "configuration": list(metadata.configuration.items()),
        "createdTime": metadata.created_time,
    }


def _adds(files: pa.RecordBatch, contents: TableContents, shape: _Shape) -> pa.StructArray:
    length = files.num_rows
    keys = pa.chunked_array([files.column("partition_key")])
    values = {c: contents.partitions.values(c, keys) for c in contents.partitions.columns}
    columns = {
        "path": files.column("path"),
        "partitionValues": _value_maps(values, length),
        "size": files.column("size"),
        "modificationTime": files.column("modification_time"),
        "dataChange": pa.repeat(False, length),
        "tags": _decoded(files.column("tags"), _MAP, lambda tags: list(tags.items())),
        "baseRowId": files.column("base_row_id"),
        "defaultRowCommitVersion": files.column("default_row_commit_version"),
        "clusteringProvider": files.column("clustering_provider"),
        "stats": files.column("stats"),
        **shape.parsed.arrays(files.column("stats"), values),
    }
    if "deletion_vector" in files.schema.names:
        columns["deletionVector"] = _decoded(files.column("deletion_vector"), _VECTOR)
    arrays = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(length, f.type) for f in shape.add]
    return pa.StructArray.from_arrays(arrays, fields=list(shape.add))


def _value_maps(values: Mapping[str, pa.Array], length: int) -> pa.MapArray:
    """Return one map per file from the columns of partition values."""
    width = len(values)
    offsets = pa.array(np.arange(length + 1, dtype=np.int32) * width)
    if not width:
        return pa.MapArray.from_arrays(offsets, pa.array([], _TEXT), pa.array([], _TEXT))
    names = pa.array(list(values), _TEXT).take(pa.array(np.tile(np.arange(width), length)))
    order = np.arange(width * length).reshape(width, length).T.ravel()
    items = pa.concat_arrays(list(values.values())).take(pa.array(order)) if width > 1 else next(iter(values.values()))
    return pa.MapArray.from_arrays(offsets, names, items)


def _removes(files: pa.RecordBatch) -> pa.StructArray:
    """Return tombstones without statistics and tags. Only VACUUM needs them."""
    columns = {
        "path": files.column("path"),
        "deletionTimestamp": files.column("deletion_timestamp"),
        "dataChange": pa.repeat(False, files.num_rows),
        "extendedFileMetadata": files.column("extended_file_metadata"),
        "partitionValues": _decoded(files.column("partition_values"), _MAP, lambda values: list(values.items())),
        "size": files.column("size"),
        "deletionVector": _decoded(files.column("deletion_vector"), _VECTOR),
        "baseRowId": files.column("base_row_id"),
        "defaultRowCommitVersion": files.column("default_row_commit_version"),
    }
    return pa.StructArray.from_arrays([columns[f.name].cast(f.type) for f in _REMOVE], fields=list(_REMOVE))


def _decoded(texts: pa.Array, kind: pa.DataType, read: Callable[[Any], Any] = lambda value: value) -> pa.Array:
    """Return parsed JSON texts. Most are null and many are equal, so each distinct text is parsed once."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    distinct = pc.dictionary_encode(texts)
    known: Sequence[Any] = [read(msgspec.json.decode(text)) for text in distinct.dictionary.to_pylist()]
    return pa.array(known, kind).take(distinct.indices)
