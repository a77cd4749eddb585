"""Table features: those of a protocol, those that this release supports, and the protocol that a table needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from deltasql.errors import UnsupportedFeature, ValidationError
from deltasql.protocol.actions import Protocol
from deltasql.protocol.properties import TableProperties
from deltasql.protocol.schema_rules import has_required_fields, schema_metadata_keys, schema_types


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature.

    Attributes:
        reads: Whether readers must support it too, not only writers.
        legacy_reader: The reader version that implies it, if there is one.
        legacy_writer: The writer version that implies it, if there is one.
        supported: Whether this release supports it.
    """

    reads: bool
    legacy_reader: int | None = None
    legacy_writer: int | None = None
    supported: bool = True


FEATURES: Mapping[str, Feature] = {
    "appendOnly": Feature(False, None, 2),
    "invariants": Feature(False, None, 2),
    "checkConstraints": Feature(False, None, 3),
    "changeDataFeed": Feature(False, None, 4),
    "generatedColumns": Feature(False, None, 4),
    "columnMapping": Feature(True, 2, 5, supported=False),
    "identityColumns": Feature(False, None, 6, supported=False),
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
"""All features with their legacy versions. Features that are not listed are rejected."""

MAX_READER, MAX_WRITER = 3, 7


def check_protocol(protocol: Protocol, table: str) -> None:
    """Raise if a protocol is malformed or requires a feature that this release does not support."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    for name, value in (("min_reader_version", reader), ("min_writer_version", writer)):
        if type(value) is not int or value < 1:
            raise ValidationError(
                f"table {table}: protocol {name} must be a whole number from 1, got {value!r}",
                table=table,
                value=value,
            )
    if reader > MAX_READER or writer > MAX_WRITER:
        raise UnsupportedFeature(
            f"table {table}: protocol ({reader}, {writer}) is not supported: this release of deltasql supports up to "
            f"({MAX_READER}, {MAX_WRITER}); upgrade deltasql, or use a lower protocol",
            table=table,
        )
    _check_lists(protocol, table)
    unknown = unsupported(features_of(protocol))
    if unknown:
        raise UnsupportedFeature(
            f"table {table}: the protocol requires {_shown(unknown)}, which this release of deltasql does not "
            f"support: upgrade deltasql, or leave the feature out",
            features=unknown,
            table=table,
        )


def check_readable(protocol: Protocol, table: str) -> None:
    """Raise if a protocol requires readers to support a feature that this release does not support."""
    if protocol.min_reader_version > MAX_READER:
        raise UnsupportedFeature(
            f"table {table}: reader version {protocol.min_reader_version} is not supported: this release of deltasql "
            f"supports up to {MAX_READER}; upgrade deltasql",
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
            f"table {table}: the protocol requires readers to support {_shown(unknown)}, which this release of "
            f"deltasql does not support: upgrade deltasql",
            features=unknown,
            table=table,
        )


def unsupported(features: Collection[str]) -> tuple[str, ...]:
    """Return the features that this release does not support."""
    return tuple(sorted(f for f in features if f not in FEATURES or not FEATURES[f].supported))


def _shown(features: Collection[str]) -> str:
    """Return the names of features; those of previews, which engines may drop again, are marked."""
    previews = ("-preview", "-dev")
    return ", ".join(f"{name} (a preview feature)" if name.endswith(previews) else name for name in features)


def _check_lists(protocol: Protocol, table: str) -> None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    problem = None
    if (reader == MAX_READER) != (protocol.reader_features is not None):
        problem = f"reader_features must be given with min_reader_version {MAX_READER} and only then"
    elif (writer == MAX_WRITER) != (protocol.writer_features is not None):
        problem = f"writer_features must be given with min_writer_version {MAX_WRITER} and only then"
    elif reader == MAX_READER and writer != MAX_WRITER:
        problem = f"min_reader_version {MAX_READER} needs min_writer_version {MAX_WRITER}"
    else:
        missing = set(protocol.reader_features or ()) - set(protocol.writer_features or ())
        if missing:
            problem = f"reader feature {', '.join(sorted(missing))} is missing from writer_features"
    if problem:
        raise ValidationError(f"table {table}: malformed protocol: {problem}", table=table, value=protocol)


def check_change(old: Protocol | None, new: Protocol, table: str) -> None:
    """Raise if a new protocol lowers a version or drops a feature of the current one."""
    if old is None:
        return
    lower = new.min_reader_version < old.min_reader_version or new.min_writer_version < old.min_writer_version
    dropped = features_of(old) - features_of(new)
    if lower or dropped:
        problem = f"drops {', '.join(sorted(dropped))}" if dropped else "lowers a version"
        raise ValidationError(
            f"table {table}: the protocol change from {_pair(old)} to {_pair(new)} {problem}, "
            f"but a protocol only grows: keep its versions and features",
            table=table,
            value=new,
        )


def _pair(protocol: Protocol) -> str:
    return f"({protocol.min_reader_version}, {protocol.min_writer_version})"


def features_of(protocol: Protocol) -> frozenset[str]:
    """Return the features that a protocol lists or implies by its versions."""
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    implied = {
        name
        for name, feature in FEATURES.items()
        if (feature.legacy_writer or MAX_WRITER) <= protocol.min_writer_version < MAX_WRITER
    }
    return frozenset(listed | implied)


def needed_features(properties: TableProperties, schema_string: str) -> frozenset[str]:
    """Return the features that a table with these properties and this schema needs."""
    field_metadata = schema_metadata_keys(schema_string)
    needed = set(properties.enabled_features)
    if "timestamp_ntz" in schema_types(schema_string):
        needed.add("timestampNtz")
    if has_required_fields(schema_string) or "delta.invariants" in field_metadata:
        needed.add("invariants")  # Spark rejects a table with listed features that does not list this one
    if "delta.generationExpression" in field_metadata:
        needed.add("generatedColumns")
    if "CURRENT_DEFAULT" in field_metadata:
        needed.add("allowColumnDefaults")
    return frozenset(needed)


def grown(protocol: Protocol | None, needed: Collection[str], table: str) -> Protocol | None:
    """Return the protocol with the needed features, or None if the current protocol has them all."""
    known = features_of(protocol) if protocol else frozenset()
    new = set(needed) - known
    if protocol is not None and not new:
        return None
    unknown = unsupported(new)
    if not unknown and "clustering" in new:
        raise UnsupportedFeature(
            f"table {table}: deltasql does not cluster tables yet, and other engines cannot open a table that only has "
            f"the feature clustering: leave it out",
            features=("clustering",),
            table=table,
        )
    if unknown:
        raise UnsupportedFeature(
            f"table {table}: this release of deltasql does not support the table feature {_shown(unknown)}",
            features=unknown,
            table=table,
        )
    return protocol_for(known | new)


def protocol_for(needed: Collection[str]) -> Protocol:
    """Return the lowest protocol with these features, which most readers accept."""
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
