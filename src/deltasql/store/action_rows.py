"""Convert actions to rows of the log and back.

Large commits send a column at a time to `dl_stage_adds` and the like, small commits send rows as JSON arrays to
`dl_stage`. Both use the order of the column lists here, as do the functions in migrations/0001_initial.sql.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any
from uuid import UUID

import msgspec

from deltasql.protocol.actions import (
    Add,
    Cdc,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    Remove,
    Txn,
    from_dict,
)
from deltasql.protocol.table_changes import Changes

Columns = Sequence[tuple[str, str]]

ADD_COLUMNS: Columns = (
    ("ord", "int4"),
    ("size", "int8"),
    ("modification_time", "int8"),
    ("partition_key", "int8"),
    ("data_change", "bool"),
    ("path_gen", "int2"),
    ("path", "text"),
    ("partition_values", "text"),
    ("stats", "text"),
    ("tags", "text"),
    ("deletion_vector", "text"),
    ("base_row_id", "int8"),
    ("default_row_commit_version", "int8"),
    ("clustering_provider", "text"),
    ("extra", "text"),
)
REMOVE_COLUMNS: Columns = (
    ("ord", "int4"),
    ("add_commit_id", "int8"),
    ("add_ord", "int4"),
    ("deletion_timestamp", "int8"),
    ("data_change", "bool"),
    ("superseded", "bool"),
    ("extended_file_metadata", "bool"),
    ("path", "text"),
    ("partition_values", "text"),
    ("size", "int8"),
    ("stats", "text"),
    ("tags", "text"),
    ("deletion_vector", "text"),
    ("base_row_id", "int8"),
    ("default_row_commit_version", "int8"),
    ("extra", "text"),
)
CDC_COLUMNS: Columns = (
    ("ord", "int4"),
    ("size", "int8"),
    ("path", "text"),
    ("partition_values", "text"),
    ("tags", "text"),
    ("extra", "text"),
)

_sorted = msgspec.json.Encoder(order="sorted")
encode = msgspec.json.Encoder().encode


def dumps(value: Any) -> str:
    """Return a value as compact JSON with sorted keys."""
    return _sorted.encode(value).decode()


def loads(text: str) -> Any:
    """Return the value of a JSON text."""
    return msgspec.json.decode(text)


def _text(value: Mapping[str, Any] | None) -> str | None:
    return dumps(value) if value else None


def map_text(value: Mapping[str, Any] | None) -> str | None:
    """Return a map as JSON, an empty one included; return None only for None."""
    return None if value is None else dumps(value)


def vector_text(vector: DeletionVector | None) -> str | None:
    """Return a deletion vector as JSON."""
    return None if vector is None else dumps(vector.to_dict())


@dataclass(frozen=True, slots=True)
class AddRowKey:
    """The key of a row of `dl_add_files` within its table."""

    commit_id: int
    ord: int


class CommitPartitions:
    """The distinct partitions of a commit, each with its key, its canonical text and the ords of its files."""

    def __init__(self) -> None:
        self._partitions: set[tuple[int, str]] = set()
        self._ords: dict[int, list[int]] = {}

    def collect(self, values: Sequence[Mapping[str, str | None]]) -> tuple[Iterable[int | None], Iterable[str]]:
        """Record the partitions of all files of a commit, and return the partition key and text of each file. The keys
        are None in a table without partition columns."""
        if not any(values):
            return repeat(None), repeat("{}")
        columns = sorted(values[0])
        serialised = [[v[c] for v in values] for c in columns]
        items: Sequence[Any] = serialised[0] if len(columns) == 1 else list(zip(*serialised, strict=True))
        keys: dict[Any, int] = {}
        texts: dict[Any, str] = {}
        for item in set(items):
            texts[item] = text = dumps(dict(zip(columns, item if len(columns) > 1 else [item], strict=True)))
            keys[item] = partition_key(text)
            self._partitions.add((keys[item], text))
            self._ords[keys[item]] = []
        ords = self._ords
        file_keys = [keys[item] for item in items]
        for ord_, key in enumerate(file_keys):
            ords[key].append(ord_)
        return file_keys, [texts[item] for item in items]

    def rows(self) -> list[tuple[int, str]]:
        """Return the key and the text of each distinct partition."""
        return sorted(self._partitions)

    def files(self) -> list[tuple[int, list[int]]]:
        """Return the ords of the files of each partition."""
        return sorted(self._ords.items())


def file_token(txn_id: str) -> str:
    """Return the token that the names of a transaction's files contain. It makes the names unique."""
    return f"-tx{UUID(txn_id).hex}"


def partition_key(text: str) -> int:
    """Return the 63-bit key of a partition. The database rejects two partitions with the same key."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def add_rows(
    changes: Changes, path_gens: Iterable[int | None], partitions: CommitPartitions
) -> Iterator[tuple[Any, ...]]:
    """Return a row of `ADD_COLUMNS` per add."""
    return zip(range(len(changes.adds)), *add_columns(changes, path_gens, partitions), strict=False)


def add_columns(
    changes: Changes, path_gens: Iterable[int | None], partitions: CommitPartitions
) -> tuple[Iterable[Any], ...]:
    """Return the columns of all adds but `ord`, in the order of `ADD_COLUMNS`. A column that repeats one value is a
    `repeat` without end."""
    column = changes.of_adds
    keys, texts = partitions.collect(column("partition_values"))
    return (
        column("size"),
        column("modification_time"),
        keys,
        column("data_change"),
        path_gens,
        column("path"),
        texts,
        column("stats"),
        _texts(column("tags")),
        _vector_texts(column("deletion_vector")),
        column("base_row_id"),
        column("default_row_commit_version"),
        column("clustering_provider"),
        _texts([extra or None for extra in column("extra")] if any(column("extra")) else ()),
    )


def _texts(values: Sequence[Mapping[str, Any] | None]) -> Iterable[str | None]:
    """Return maps as JSON. Nearly always all of them are None, which is the fast path."""
    return repeat(None) if values.count(None) == len(values) else map(map_text, values)


def _vector_texts(values: Sequence[DeletionVector | None]) -> Iterable[str | None]:
    return repeat(None) if values.count(None) == len(values) else map(vector_text, values)


def remove_rows(
    removes: Sequence[Remove], removed_adds: Mapping[str, AddRowKey], superseded: Mapping[str, AddRowKey]
) -> list[tuple[Any, ...]]:
    """Return a row per remove and per superseded file, sorted by add row so that concurrent commits cannot deadlock."""
    rows = [_remove_row(ord_, r, removed_adds[r.path]) for ord_, r in enumerate(removes)]
    for ord_, (path, key) in enumerate(superseded.items(), start=len(rows)):
        rows.append((ord_, key.commit_id, key.ord, None, False, True, None, path, *[None] * 8))
    return sorted(rows, key=lambda row: row[1:3])


def _remove_row(ord_: int, r: Remove, key: AddRowKey) -> tuple[Any, ...]:
    return (
        ord_, key.commit_id, key.ord, r.deletion_timestamp, r.data_change, False, r.extended_file_metadata,
        r.path, map_text(r.partition_values), r.size, r.stats, map_text(r.tags),
        vector_text(r.deletion_vector), r.base_row_id, r.default_row_commit_version, _text(r.extra),
    )  # fmt: skip


def cdc_rows(files: Sequence[Cdc]) -> list[tuple[Any, ...]]:
    """Return a row per change data file."""
    return [
        (ord_, c.size, c.path, dumps(c.partition_values), map_text(c.tags), _text(c.extra))
        for ord_, c in enumerate(files)
    ]


def metadata_json(m: Metadata) -> dict[str, Any]:
    """Return a metaData action in the form that `dl_write_details` reads."""
    return _present(
        id=m.id,
        name=m.name,
        description=m.description,
        provider=m.format.provider,
        options=dumps(m.format.options),
        schema=m.schema_string,
        partition_columns=list(m.partition_columns),
        configuration=dumps(m.configuration),
        created_time=m.created_time,
        # The column has the unknown fields of metaData; `format` is a known one, so its unknown fields fit there.
        extra=_text({**m.extra, **({"format": m.format.extra} if m.format.extra else {})}),
    )


def protocol_json(p: Protocol) -> dict[str, Any]:
    """Return a protocol action in the form that `dl_write_details` reads."""
    return _present(
        reader=p.min_reader_version,
        writer=p.min_writer_version,
        reader_features=None if p.reader_features is None else list(p.reader_features),
        writer_features=None if p.writer_features is None else list(p.writer_features),
        extra=_text(p.extra),
    )


def txn_json(txns: Iterable[Txn]) -> list[list[Any]]:
    """Return txn actions in the form that `dl_write_details` reads."""
    return [[t.app_id, t.version, t.last_updated, _text(t.extra)] for t in txns]


def domain_json(domains: Iterable[DomainMetadata]) -> list[list[Any]]:
    """Return domainMetadata actions in the form that `dl_write_details` reads."""
    return [[d.domain, d.configuration, d.removed, _text(d.extra)] for d in domains]


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def metadata_of(row: Mapping[str, Any]) -> Metadata | None:
    """Return the metaData action of a row of the `state` query."""
    if row["metadata_id"] is None:
        return None
    extra = loads(row["metadata_extra"] or "{}")
    return Metadata(
        id=row["metadata_id"],
        schema_string=row["schema_string"],
        partition_columns=tuple(row["partition_columns"]),
        configuration=loads(row["configuration"]),
        name=row["name"],
        description=row["description"],
        format=Format(row["format_provider"], loads(row["format_options"]), extra.pop("format", {})),
        created_time=row["created_time"],
        extra=extra,
    )


def protocol_of(row: Mapping[str, Any]) -> Protocol | None:
    """Return the protocol action of a row of the `state` query."""
    if row["min_reader_version"] is None:
        return None
    readers, writers = row["reader_features"], row["writer_features"]
    return Protocol(
        row["min_reader_version"],
        row["min_writer_version"],
        None if readers is None else tuple(readers),
        None if writers is None else tuple(writers),
        extra=loads(row.get("protocol_extra") or "{}"),
    )


def vector_of(text: str | None) -> DeletionVector | None:
    """Return the deletion vector of a stored row."""
    return None if text is None else from_dict(DeletionVector, loads(text))


def add_of(row: Sequence[Any]) -> Add:
    """Return the add action of a row of the `logged_adds` query."""
    path, size, modified, values, data_change, stats, tags, vector, base, version, provider, extra = row[1:]
    return Add(
        path, size, modified, _decoded(values) or {}, data_change, stats, _decoded(tags), vector_of(vector), base,
        version, provider, _decoded(extra) or {},
    )  # fmt: skip


def remove_of(row: Sequence[Any]) -> Remove:
    """Return the remove action of a row of the `logged_removes` query."""
    path, deleted, data_change, extended, values, size, stats, tags, vector, base, version, extra = row[1:]
    return Remove(
        path, deleted, data_change, extended, _decoded(values), size, stats, _decoded(tags), vector_of(vector), base,
        version, _decoded(extra) or {},
    )  # fmt: skip


def cdc_of(row: Sequence[Any]) -> Cdc:
    """Return the cdc action of a row of the `logged_cdc` query."""
    path, size, values, tags, extra = row[1:]
    return Cdc(path, size, _decoded(values) or {}, tags=_decoded(tags), extra=_decoded(extra) or {})


def txn_of(row: Sequence[Any]) -> Txn:
    """Return the txn action of a row of the `logged_txns` query."""
    app_id, version, last_updated, extra = row[1:]
    return Txn(app_id, version, last_updated, _decoded(extra) or {})


def domain_of(row: Sequence[Any]) -> DomainMetadata:
    """Return the domainMetadata action of a row of the `logged_domains` query."""
    domain, configuration, removed, extra = row[1:]
    return DomainMetadata(domain, configuration, removed, _decoded(extra) or {})


def _decoded(text: str | None) -> Any:
    return None if text is None else loads(text)
