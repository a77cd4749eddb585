"""The bytes of a commit file are equal whether they are made from the writer's memory or from the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.delta_log.commit_file import commit_bytes
from deltasql.protocol.actions import ACTIONS, from_dict
from deltasql.store import Landed
from tests.effort import rounds

text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=12)
name = st.text("abcdefgh-é漢😀 %+", min_size=1, max_size=12).map(lambda s: s.strip() or "x")
whole = st.integers(0, 2**63 - 1)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(st.sampled_from(["zzz", "aaa", "mid"]), values, max_size=2)
tags = st.none() | st.dictionaries(text, st.none() | text, max_size=3)
days = st.sampled_from(["2026-01-01", "2026-12-31", None])


@st.composite
def adds(draw: st.DrawFn) -> list[deltasql.Add]:
    paths = draw(st.lists(name, unique=True, max_size=6))
    return [
        deltasql.Add(
            path=f"p{number}{path.replace('%', 'x')}.parquet",
            size=draw(whole),
            modification_time=draw(whole),
            partition_values={"day": draw(days)},
            stats=draw(st.none() | st.just('{"numRecords":1,"minValues":{"s":"\\u00e9\\"\\n"}}')),
            tags=draw(tags),
            base_row_id=draw(st.none() | whole),
            clustering_provider=draw(st.none() | text),
            extra=draw(extras),
        )
        for number, path in enumerate(paths)
    ]


@st.composite
def commits(draw: st.DrawFn) -> list[Any]:
    info = deltasql.CommitInfo(
        draw(text.filter(bool)),
        draw(st.none() | st.dictionaries(text, values, max_size=3)),
        timestamp=draw(st.none() | whole),
        extra=draw(extras),
    )
    apps = draw(st.lists(name, unique=True, max_size=3))
    txns = [deltasql.Txn(app, draw(whole), draw(st.none() | whole)) for app in apps]
    domains = [deltasql.DomainMetadata(d, draw(text)) for d in draw(st.lists(name, unique=True, max_size=2))]
    return [*draw(adds()), *txns, *domains, info]


@pytest.fixture(scope="module")
def silent(embedded_lake: deltasql.Lake) -> Iterator[deltasql.Lake]:
    with deltasql.connect(embedded_lake.dsn, config={"mirror.mode": "off"}) as lake:
        yield lake


@settings(max_examples=rounds(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=commits(), stamped=st.booleans())
def test_from_memory_and_from_the_database(silent: deltasql.Lake, actions: list[Any], stamped: bool) -> None:
    committed: list[Landed] = []
    properties = {"delta.feature.domainMetadata": "supported"}
    if stamped:
        properties["delta.enableInCommitTimestamps"] = "true"
    table = silent.create_table(
        f"canonical.t{id(actions)}", "id BIGINT, day DATE", partition_by=["day"], properties=properties
    )
    silent.store.publish = committed.extend
    try:
        with silent.begin() as tx:
            tx.stage(table, actions)
    finally:
        silent.store.publish = silent.mirror.committed
    mirrored = silent.store.outbox.tables(table.state().table_key)[0]
    with silent.store.outbox.publishing(mirrored, wait=True) as session:
        assert session is not None
        read = commit_bytes(session.commits([1])[1])
        again = commit_bytes(session.commits([0, 1])[1])
    silent.drop_table(table.name)
    assert commit_bytes(committed[0].logged()) == read == again
    decoded = [json.loads(line) for line in read.splitlines()]
    back = [from_dict(ACTIONS[kind], body) for line in decoded for kind, body in line.items()]
    assert [a for a in back if isinstance(a, deltasql.Add)] == [a for a in actions if isinstance(a, deltasql.Add)]
    assert "commitInfo" in decoded[0]
