"""File names of the log, and `_last_checkpoint`."""

from __future__ import annotations

import json

from deltasql.delta_log.last_checkpoint import checksum, decode_hint, encode_hint
from deltasql.delta_log.layout import any_version, checkpoint_version, commit_path, commit_version


def test_names() -> None:
    assert commit_path(7) == "_delta_log/00000000000000000007.json"
    assert commit_version(commit_path(7)) == 7
    assert commit_version("_delta_log/00000000000000000007.json.tmp") is None
    assert checkpoint_version("_delta_log/00000000000000000010.checkpoint.parquet") == 10
    assert checkpoint_version("_delta_log/00000000000000000010.checkpoint.0000000001.0000000002.parquet") is None
    assert any_version("_delta_log/00000000000000000010.crc") == 10
    assert any_version("_delta_log/_last_checkpoint") is None
    assert any_version("part-00000000000000000010.json") is None


def test_checksum_of_the_example_in_the_protocol() -> None:
    sample = '{"k0":"\'v 0\'","checksum":"adsaskfljadfkjadfkj","k1":{"k2":2,"k3":["v3",[1,2],{"k4":"v4","k5":["v5","v6","v7"]}]}}'
    assert checksum(json.loads(sample)) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_hints() -> None:
    hint = encode_hint(10, 12, 345, 7)
    assert json.loads(hint)["numOfAddFiles"] == 7
    assert decode_hint(hint) == 10
    assert decode_hint(hint.replace(b'"version":10', b'"version":11')) is None
    assert decode_hint(b'{"version":3,"size":1}') == 3
    for garbage in (None, b"", b"{", b"[]", b'{"size":1}', b'{"version":"3"}'):
        assert decode_hint(garbage) is None
