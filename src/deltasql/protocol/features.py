"""Table features: what a protocol asks for, whether this release knows it, which protocol a new table needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from deltasql.errors import UnsupportedFeature, ValidationError
from deltasql.protocol.actions import Protocol
from deltasql.protocol.properties import TableProperties
from deltasql.protocol.schema_rules import has_required_fields, schema_metadata_keys, schema_types


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature: does it bind readers, and which legacy protocol versions imply it."""

    reads: bool
    legacy_reader: int | None = None
    legacy_writer: int | None = None
    known: bool = True


FEATURES: Mapping[str, Feature] = {
    "appendOnly": Feature(False, None, 2),
    "invariants": Feature(False, None, 2),
    "checkConstraints": Feature(False, None, 3),
    "changeDataFeed": Feature(False, None, 4),
    "generatedColumns": Feature(False, None, 4),
    "columnMapping": Feature(True, 2, 5, known=False),
    "identityColumns": Feature(False, None, 6, known=False),
    "deletionVectors": Feature(True),
    "timestampNtz": Feature(True),
    "domainMetadata": Feature(False),
    "v2Checkpoint": Feature(True),
    "inCommitTimestamp": Feature(False),
    "allowColumnDefaults": Feature(False),
    "vacuumProtocolCheck": Feature(True),
    "typeWidening": Feature(True),
    "typeWidening-preview": Feature(True),
    "clustering": Feature(False),
    "deltasqlFence": Feature(False),
}
"""The features that are known by name. Those with `known=False`, and all others, are refused."""

MAX_READER, MAX_WRITER = 3, 7


def check_protocol(protocol: Protocol, table: str) -> None:
    """Refuse a protocol that is malformed, or that asks for what this release does not know."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    for name, value in (("min_reader_version", reader), ("min_writer_version", writer)):
        if type(value) is not int or value < 1:
            raise ValidationError(
                f"table {table}: protocol {name} must be a whole number from 1 on, got {value!r}",
                table=table,
                value=value,
            )
    if reader > MAX_READER or writer > MAX_WRITER:
        raise UnsupportedFeature(
            f"table {table}: protocol ({reader}, {writer}) is newer than this release of deltasql knows, "
            f"({MAX_READER}, {MAX_WRITER}) at most: upgrade deltasql, or write a lower protocol",
            table=table,
        )
    _check_lists(protocol, table)
    unknown = unsupported(features_of(protocol))
    if unknown:
        raise UnsupportedFeature(
            f"table {table}: the protocol asks for {', '.join(unknown)}, which this release of deltasql does not "
            f"support: upgrade deltasql, or leave the feature out",
            features=unknown,
            table=table,
        )


def check_readable(protocol: Protocol, table: str) -> None:
    """Refuse a protocol whose rows cannot be read right without knowing what this release does not know."""
    if protocol.min_reader_version > MAX_READER:
        raise UnsupportedFeature(
            f"table {table}: the protocol asks readers for version {protocol.min_reader_version}, and this release of "
            f"deltasql knows {MAX_READER} at most: upgrade deltasql",
            table=table,
        )
    implied = {
        name
        for name, feature in FEATURES.items()
        if (feature.legacy_reader or MAX_READER) <= protocol.min_reader_version < MAX_READER
    }
    unknown = unsupported({*(protocol.reader_features or ()), *implied})
    if unknown:
        raise UnsupportedFeature(
            f"table {table}: the protocol asks readers for {', '.join(unknown)}, which this release of deltasql does "
            f"not support: upgrade deltasql",
            features=unknown,
            table=table,
        )


def unsupported(features: Collection[str]) -> tuple[str, ...]:
    """Those of the features that this release refuses."""
    return tuple(sorted(f for f in features if f not in FEATURES or not FEATURES[f].known))


def _check_lists(protocol: Protocol, table: str) -> None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    problem = None
    if (reader == MAX_READER) != (protocol.reader_features is not None):
        problem = f"reader_features go with min_reader_version {MAX_READER}, and only with it"
    elif (writer == MAX_WRITER) != (protocol.writer_features is not None):
        problem = f"writer_features go with min_writer_version {MAX_WRITER}, and only with it"
    elif reader == MAX_READER and writer != MAX_WRITER:
        problem = f"min_reader_version {MAX_READER} needs min_writer_version {MAX_WRITER}"
    else:
        missing = set(protocol.reader_features or ()) - set(protocol.writer_features or ())
        if missing:
            problem = f"reader feature {', '.join(sorted(missing))} is missing from writer_features"
    if problem:
        raise ValidationError(f"table {table}: malformed protocol: {problem}", table=table, value=protocol)


def check_change(old: Protocol | None, new: Protocol, table: str) -> None:
    """Refuse a protocol that takes back what the table already asks for."""
    if old is None:
        return
    lower = new.min_reader_version < old.min_reader_version or new.min_writer_version < old.min_writer_version
    dropped = features_of(old) - features_of(new)
    if lower or dropped:
        what = f"drops {', '.join(sorted(dropped))}" if dropped else "lowers the versions"
        raise ValidationError(
            f"table {table}: the protocol change from {_pair(old)} to {_pair(new)} {what}, "
            f"but a protocol only grows: keep what the table has and add to it",
            table=table,
            value=new,
        )


def _pair(protocol: Protocol) -> str:
    return f"({protocol.min_reader_version}, {protocol.min_writer_version})"


def features_of(protocol: Protocol) -> frozenset[str]:
    """The features a protocol asks for, whether it lists them or implies them by its versions."""
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    implied = {
        name
        for name, feature in FEATURES.items()
        if (feature.legacy_writer or MAX_WRITER) <= protocol.min_writer_version < MAX_WRITER
    }
    return frozenset(listed | implied)


def needed_features(properties: TableProperties, schema_string: str) -> frozenset[str]:
    """The features that properties and a schema switch on."""
    field_metadata = schema_metadata_keys(schema_string)
    needed = set(properties.enabled_features)
    if "timestamp_ntz" in schema_types(schema_string):
        needed.add("timestampNtz")
    if has_required_fields(schema_string) or "delta.invariants" in field_metadata:
        needed.add("invariants")  # Spark does not read a table of listed features that leaves this one out
    if "delta.generationExpression" in field_metadata:
        needed.add("generatedColumns")
    if "CURRENT_DEFAULT" in field_metadata:
        needed.add("allowColumnDefaults")
    return frozenset(needed)


def grown(protocol: Protocol | None, needed: Collection[str], table: str) -> Protocol | None:
    """The protocol that a table needs for some features; None if the one that it has is enough."""
    known = features_of(protocol) if protocol else frozenset()
    new = set(needed) - known
    if protocol is not None and not new:
        return None
    unknown = unsupported(new)
    if unknown:
        raise UnsupportedFeature(
            f"table {table}: this release of deltasql does not support the table feature {', '.join(unknown)}",
            features=unknown,
            table=table,
        )
    return protocol_for(known | new)


def protocol_for(needed: Collection[str]) -> Protocol:
    """The lowest protocol that carries these features: the one most readers accept."""
    features = [FEATURES[name] for name in needed]
    if all(feature.legacy_writer for feature in features):
        return Protocol(
            max([1, *(f.legacy_reader or 1 for f in features)]),
            max([2, *(f.legacy_writer or 2 for f in features)]),
        )
    reads = sorted(name for name in needed if FEATURES[name].reads)
    if reads:
        return Protocol(MAX_READER, MAX_WRITER, tuple(reads), tuple(sorted(needed)))
    return Protocol(1, MAX_WRITER, None, tuple(sorted(needed)))
