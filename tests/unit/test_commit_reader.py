"""Commit files of any writer are read, and damage is named with file and line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deltasql
from deltasql.delta_log.commit_reader import commit_actions, commit_entries

PATH = "_delta_log/00000000000000000007.json"
ADD = {"add": {"path": "a", "size": 1, "modificationTime": 2, "partitionValues": {}, "dataChange": True}}
TXN = {"txn": {"appId": "x", "version": 3}}


def kinds(data: bytes) -> list[tuple[int, str]]:
    return [(entry.line, entry.kind) for entry in commit_entries(data, PATH)]


def test_one_action_per_line() -> None:
    data = "\n".join([json.dumps(ADD), "", json.dumps(TXN), '{"future":{"x":1},"remove":null}', ""]).encode()
    assert kinds(data) == [(1, "add"), (3, "txn"), (4, "future")]
    assert [type(action) for action in commit_actions(data, PATH)] == [deltasql.Add, deltasql.Txn]


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n "])
def test_an_empty_file_is_an_empty_commit(data: bytes) -> None:
    assert kinds(data) == []


def test_pretty_printed_json() -> None:
    data = "\n".join(json.dumps(action, indent=2) for action in (ADD, TXN)).encode()
    assert kinds(data) == [(1, "add"), (10, "txn")]
    assert [action.to_dict() for action in commit_actions(data, PATH)] == [ADD["add"], TXN["txn"]]


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers(-(2**63), 2**63 - 1)), max_size=5), st.booleans())
def test_both_layouts_are_the_same(values: list[dict[str, object]], ascii_only: bool) -> None:
    lines = "\n".join(json.dumps(value, ensure_ascii=ascii_only) for value in values).encode()
    pretty = "\n".join(json.dumps(value, ensure_ascii=ascii_only, indent=1) for value in values).encode()
    found = [(entry.kind, entry.body) for entry in commit_entries(lines, PATH)]
    assert found == [(entry.kind, entry.body) for entry in commit_entries(pretty, PATH)]
    assert found == [pair for value in values for pair in value.items()]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"txn":{"appId":"x","version":3}}\ngarbage', "line 2: this is not an action as a JSON object"),
        (b'{"txn":{"appId":"x","version":3}}\n{"add":{"path"', "line 2: this is not an action as a JSON object"),
        (b'{"txn":{"appId":"x","version":3}} garbage', "line 1: an action is followed by other text"),
        (b'{"txn":{"appId":"x"}}{"txn":{}}', "line 1: an action is followed by other text"),
        (b'{\n"txn": {"appId": "x"}\n}\n[1]', "line 4: this is not an action as a JSON object"),
        (b'{"txn":{"appId":"x"}}\n\xff', "line 2: this is not UTF-8"),
        (b'{"x":' * 100_000, "line 1: this is not an action as a JSON object"),
    ],
)
def test_damage_is_named_with_its_line(data: bytes, problem: str) -> None:
    with pytest.raises(deltasql.ValidationError) as caught:
        commit_entries(data, PATH)
    assert str(caught.value).startswith(f"{PATH}, {problem}")


@pytest.mark.parametrize("body", ['"text"', "1", "[]", '{"size":1}'])
def test_an_invalid_action_is_named_with_its_line(body: str) -> None:
    with pytest.raises(deltasql.ValidationError, match=r"00007\.json, line 2: add is invalid"):
        list(commit_actions(f'{{"commitInfo":{{}}}}\n{{"add":{body}}}'.encode(), PATH))
