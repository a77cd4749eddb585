"""The rules for the actions of a commit, without a database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql import (
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
    UnsupportedFeature,
    UsageError,
    ValidationError,
)
from deltasql.protocol.features import features_of, grown, protocol_for
from deltasql.protocol.file_paths import check_path
from deltasql.protocol.schema import schema_string
from deltasql.protocol.table_changes import Changes, TableState
from deltasql.protocol.validation.commit_rules import validate
from tests.factories import add, remove

SCHEMA = schema_string("id BIGINT, day DATE, amount DOUBLE")
DV = DeletionVector("u", "0" * 20, 1, 1)


def state(partition_by: tuple[str, ...] = (), version: int = 3, protocol: Any = None, **conf: str) -> TableState:
    metadata = Metadata(id="i", schema_string=SCHEMA, partition_columns=partition_by, configuration=conf)
    return TableState(1, "id", "shop.orders", version, metadata, protocol or Protocol(1, 2), num_files=5)


def check(*actions: Any, at: TableState | None = None) -> None:
    validate(Changes.of(actions, "shop.orders"), at or state())


GOOD = [
    [add("a.parquet")],
    [add("a/b/c=1/x.parquet")],
    [add("p=a%253Ab/x.parquet")],
    [add("naïve-日本.parquet")],
    [add("_p=1/x.parquet", )],
    [add("a b.parquet")],
    [remove("a.parquet")],
    [remove("a.parquet"), add("b.parquet", data_change=False)],
    [add("a.parquet"), Txn("x", 1), Txn("y", 1)],
    [Cdc(path="_change_data/x.parquet", size=1)],
    [Metadata(id="i", schema_string=SCHEMA)],
    [CommitInfo("WRITE")],
    [],
]  # fmt: skip


@pytest.mark.parametrize("actions", GOOD, ids=lambda a: str(a)[:50])
def test_legal(actions: list[Any]) -> None:
    check(*actions)


BAD: list[tuple[str, list[Any], str]] = [
    ("two metaData", [Metadata(id="i", schema_string=SCHEMA)] * 2, "at most one metaData"),
    ("two protocols", [Protocol(1, 2)] * 2, "at most one protocol"),
    ("two commitInfos", [CommitInfo("A"), CommitInfo("B")], "at most one commitInfo"),
    ("two txns of one app", [Txn("a", 1), Txn("a", 2)], "'a'"),
    ("two domains", [DomainMetadata("d", "1"), DomainMetadata("d", "2")], "'d'"),
    ("a path twice", [add("a"), add("a")], "at most one add per path"),
    ("a removed path twice", [remove("a"), remove("a")], "at most one remove per path"),
    ("added and removed", [add("a"), remove("a")], "both added and removed"),
    ("rearranged without a remove", [add("a", data_change=False)], "rearrange"),
    ("cdc elsewhere", [Cdc(path="x.parquet", size=1)], "_change_data/"),
    ("cdc that changes data", [Cdc(path="_change_data/x", size=1, data_change=True)], "cdc"),
    ("cdc outside of _change_data", [Cdc(path="_change_data/../x", size=1)], "illegal path"),
    ("unknown partition column", [add(partition_values={"day": "2026-01-01"})], "partitioned by"),
    ("size too large", [add(size=2**63)], "2\\^63"),
    ("float size", [add(size=1.5)], "size"),
    ("path of bytes", [add(b"a")], "string"),
    ("stats not an object", [add(stats="[1]")], "JSON object"),
    ("stats with NaN", [add(stats='{"maxValues":{"a":NaN}}')], "JSON object"),
    ("numRecords as text", [add(stats='{"numRecords":"1"}')], "JSON object"),
    ("data_change not a boolean", [add(data_change="yes")], "True or False"),
    ("schema not JSON", [Metadata(id="i", schema_string="x")], "schema"),
    ("configuration of numbers", [Metadata(id="i", schema_string=SCHEMA, configuration={"a": 1})], "configuration.* of metaData: expected `str`"),
    ("metadata without id", [Metadata(id="", schema_string=SCHEMA)], "id"),
    ("new partitioning, old files", [Metadata(id="i", schema_string=SCHEMA, partition_columns=("day",))], "rewrite"),
    ("new types, old files", [Metadata(id="i", schema_string=SCHEMA.replace("long", "string"))], "from long to string.*rewrite"),
    ("NOT NULL, old files", [Metadata(id="i", schema_string=schema_string("id BIGINT NOT NULL, day DATE, amount DOUBLE"))], "become NOT NULL: id.*rewrite"),
    ("another id", [Metadata(id="j", schema_string=SCHEMA)], "id must not change"),
    ("two stats in one text", [add(stats='{"numRecords":1},{"numRecords":2}')], "JSON object"),
    ("half a surrogate pair", [add("a\ud800.parquet")], "Unicode"),
    ("txn version too large", [Txn("a", 2**70)], "version of txn"),
    ("long path", [add("x" * 5000)], "4096"),
    ("tags of numbers", [add(tags={"a": 1})], "tags must map strings to strings"),
    ("tags in a list", [add(tags=["a"])], "tags must map"),
    ("tags of a remove", [remove("a", tags={1: "a"})], "tags must map"),
    ("clustering provider as a number", [add(clustering_provider=7)], "clustering_provider must be a string"),
    ("extra with a field that an add has", [add(extra={"path": "other.parquet"})], "not an unknown field"),
    ("extra nested deeply", [add(extra=json.loads('{"a":' * 200 + "1" + "}" * 200))], "more than 100 levels"),
    ("partition values of a remove as a list", [remove("x.parquet", partition_values=["day"])], "partition_values"),
    ("extra as a list", [add(extra=[])], "extra of add must be a dict"),
    ("extra with an object", [add(extra={"a": object()})], "extra of add must hold values of JSON"),
    ("extra with NUL", [add(extra={"a": "\x00"})], "NUL"),
]  # fmt: skip


@pytest.mark.parametrize(("actions", "hint"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_illegal(actions: list[Any], hint: str) -> None:
    with pytest.raises(ValidationError, match=hint) as caught:
        check(*actions)
    assert "shop.orders" in str(caught.value)
    assert caught.value.table == "shop.orders"


@pytest.mark.parametrize(
    "bad", [{}, {"day": "", "id": "1"}, {"day": ""}, {"day": 5}, {"day": "a\x00"}, {"dya": "x"}, {"day": "2026-13-01"}]
)
def test_partition_values(bad: dict[str, Any]) -> None:
    check(add(partition_values={"day": "2026-01-01"}), add(partition_values={"day": None}), at=state(("day",)))
    with pytest.raises(ValidationError):
        check(add(partition_values={"day": "2026-01-01"}), add(partition_values=bad), at=state(("day",)))


@given(
    st.lists(st.sampled_from(["..", ".", "", "a", "%2e%2e", "%2E.", "x%2f..", "\\", "\x01", "_h", ".h", "b=.."])).map(
        "/".join
    )
)
def test_no_path_leaves_the_root(path: str) -> None:
    """Every accepted path is below the root, also after a reader decodes it."""
    from posixpath import normpath
    from urllib.parse import unquote

    try:
        check_path(path, "t")
    except ValidationError:
        return
    below = normpath("/table/" + unquote(path))
    assert below.startswith("/table/")
    assert below == "/table/" + unquote(path)


class TestProtocol:
    def test_version_zero_needs_both(self) -> None:
        new = TableState(1, "id", "shop.orders", -1, None, None)
        with pytest.raises(ValidationError, match="version 0"):
            check(add(), at=new)
        check(Protocol(1, 2), Metadata(id="i", schema_string=SCHEMA), at=new)

    @pytest.mark.parametrize("lower", [Protocol(1, 2), Protocol(1, 7, None, ("appendOnly",))])
    def test_the_protocol_never_shrinks(self, lower: Protocol) -> None:
        with pytest.raises(ValidationError, match="only grows"):
            check(lower, at=state(protocol=Protocol(1, 4)))

    def test_a_table_with_a_newer_protocol_is_not_written(self) -> None:
        newer = Protocol(3, 7, ("catalogManaged",), ("catalogManaged",))
        with pytest.raises(UnsupportedFeature, match="catalogManaged") as caught:
            check(add(), at=state(protocol=newer))
        assert caught.value.features == ("catalogManaged",)

    @pytest.mark.parametrize(
        ("configuration", "feature"),
        [
            ({"delta.constraints.a": "id > 0"}, "checkConstraints"),
            ({"delta.enableDeletionVectors": "true"}, "deletionV"),
        ],
    )
    def test_metadata_needs_its_features(self, configuration: dict[str, str], feature: str) -> None:
        with pytest.raises(UnsupportedFeature, match=feature):
            check(Metadata(id="i", schema_string=SCHEMA, configuration=configuration))

    @pytest.mark.parametrize("protocol", [Protocol(2, 5), Protocol(3, 7, ("columnMapping",), ("columnMapping",))])
    def test_column_mapping_is_rejected_by_name(self, protocol: Protocol) -> None:
        with pytest.raises(UnsupportedFeature, match="columnMapping"):
            check(protocol)

    def test_append_only(self) -> None:
        table = state(**{"delta.appendOnly": "true"})
        check(add(), at=table)
        check(remove("a", data_change=False), add(data_change=False), at=table)
        with pytest.raises(ValidationError, match="append-only"):
            check(remove("a"), at=table)

    def test_actions_that_need_a_feature(self) -> None:
        for actions, feature in (
            ([remove("a"), add("a", deletion_vector=DV)], "deletionVectors"),
            ([DomainMetadata("d", "{}")], "domainMetadata"),
        ):
            with pytest.raises(UnsupportedFeature, match=feature):
                check(*actions)
            features = (feature,)
            allowed = Protocol(3, 7, features if feature == "deletionVectors" else (), features)
            check(*actions, at=state(protocol=allowed))

    @pytest.mark.parametrize(
        ("needed", "protocol"),
        [
            ((), Protocol(1, 2)),
            (("checkConstraints",), Protocol(1, 3)),
            (("changeDataFeed", "appendOnly"), Protocol(1, 4)),
            (("inCommitTimestamp",), Protocol(1, 7, None, ("inCommitTimestamp",))),
            (("timestampNtz",), Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))),
            (
                ("checkConstraints", "deletionVectors"),
                Protocol(3, 7, ("deletionVectors",), ("checkConstraints", "deletionVectors")),
            ),
        ],
    )
    def test_the_lowest_protocol_is_chosen(self, needed: tuple[str, ...], protocol: Protocol) -> None:
        assert protocol_for(needed) == protocol
        assert set(needed) <= features_of(protocol)


VECTORS = protocol_for(["deletionVectors"])
SIX = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
"""Six rows, the last of which is 29, from the specification of Delta."""


@pytest.mark.parametrize(
    ("vector", "records", "problem"),
    [
        (DeletionVector("i", SIX, 40, 6), 30, None),
        (DeletionVector("i", SIX, 40, 6), 29, "deletes row 29, and the file has 29 rows"),
        (DeletionVector("i", SIX, 40, 5), 100, "cannot be decoded"),
        (DeletionVector("i", SIX[:-5], 40, 6), 100, "cannot be decoded"),
        (DeletionVector("i", "äöü", 40, 6), 100, "cannot be decoded"),
        (DeletionVector("u", "0" * 20, 40, 6), 5, "has 6 rows, and the file only 5"),
        (DeletionVector("u", "short", 40, 6), 100, "invalid file name"),
        (DeletionVector("u", "0" * 20, -1, 6), 100, "size_in_bytes"),
        (DeletionVector("u", "0" * 20, 40, "6"), 100, "cardinality"),
        (DeletionVector("u", "0" * 20, 40, 6, 2**31), 100, "offset"),
        (DeletionVector("u", 7, 40, 6, 1), 100, "path_or_inline_dv"),
    ],
)
def test_deletion_vectors(vector: DeletionVector, records: int, problem: str | None) -> None:
    actions = [remove("a"), add("a", deletion_vector=vector, stats=f'{{"numRecords":{records}}}')]
    if problem is None:
        check(*actions, at=state(protocol=VECTORS))
        return
    with pytest.raises(ValidationError, match=problem):
        check(*actions, at=state(protocol=VECTORS))


def test_not_an_action() -> None:
    with pytest.raises(UsageError, match="action 1 is a dict"):
        Changes.of([add(), {"add": {}}], "shop.orders")


def test_clustering_alone_is_rejected() -> None:
    with pytest.raises(UnsupportedFeature, match="does not cluster tables yet"):
        grown(None, ["clustering"], "shop.orders")
    known = protocol_for(["clustering", "domainMetadata"])
    assert grown(known, ["clustering"], "shop.orders") is None, "a table of another writer may have it"


def test_preview_features_are_named_as_such() -> None:
    with pytest.raises(UnsupportedFeature, match=r"variantShredding-preview \(a preview feature\)"):
        grown(None, ["variantShredding-preview"], "shop.orders")
