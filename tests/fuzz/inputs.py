"""Invalid inputs: valid texts, bytes and JSON values with changes, and values that are odd in themselves."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

ODD_TEXTS = (
    "", " ", "\x00", "\x1a", "\ud800", "\udfff\ud800", "\ufeff", "\u202e", "\u2028", "e\u0301", "ﬁ", "ß", "İ", "\U0010ffff", "𝔘",
    "'", '"', "`", "\\", ";", "--", "/*", "*/", "$$", "$1", "%", "%00", "%ff", "..", "/", "\n", "\r\n", "(", ")", "[", "}", "<",
    "NaN", "null", "-1", "1e999", "9" * 400, "9" * 5_000, "٣", "²", "x" * 5_000, "(" * 2_000, "NOT " * 2_000, "a." * 2_000,
)  # fmt: skip
"""Texts that parsers, encoders and databases often do not expect."""

odd_texts = st.one_of(
    st.sampled_from(ODD_TEXTS),
    st.text(st.characters(codec=None, exclude_categories=()), max_size=20),
)


@st.composite
def changed_text(draw: st.DrawFn, originals: Sequence[str], words: Sequence[str] = ()) -> str:
    """Draw one of the texts, with one to three changes: parts cut, repeated, moved or replaced by odd texts."""
    text = draw(st.sampled_from(originals))
    pieces = st.sampled_from(words) | odd_texts if words else odd_texts
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        end = min(end, start + draw(st.sampled_from([0, 1, 5, 1_000])))
        middle = text[start:end]
        match draw(st.sampled_from(["cut", "put", "put", "put", "repeat", "swap", "case"])):
            case "cut":
                middle = ""
            case "put":
                middle = draw(pieces)
            case "repeat":
                middle *= draw(st.sampled_from([2, 3, 500]))
            case "swap":
                middle = middle[::-1]
            case "case":
                middle = middle.swapcase()
        text = text[:start] + middle + text[end:]
    return text


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """Draw the bytes with one to four changes: bits flipped, parts cut, repeated, zeroed or replaced."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(data) - 1)))
        end = min(len(data), start + draw(st.sampled_from([1, 1, 4, 8, 64, 100_000])))
        match draw(st.sampled_from(["flip", "flip", "set", "set", "cut", "cut_end", "zero", "repeat", "number"])):
            case "flip" if data:
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "set" if data:
                data[start] = draw(st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
            case "cut":
                del data[start:end]
            case "cut_end":
                del data[start:]
            case "zero":
                data[start:end] = bytes(min(end - start, 64))
            case "repeat":
                data[start:start] = data[start : min(end, start + 64)]
            case "number":
                number = draw(
                    st.sampled_from([b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff" * 8, b"\xff" * 9 + b"\x01"])
                )
                data[start : start + len(number)] = number
    return bytes(data)


# --- JSON


def nested(depth: int) -> Any:
    """Return lists and dicts inside each other."""
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


ODD_VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 1.5, -0.0, math.nan, math.inf, 1e308,
    [], {}, [None], {"": None}, [[]], {"a": {"b": []}}, [1, "a"], {"x": 1},
)  # fmt: skip
"""Values of JSON and of Python that a field rarely expects."""

odd_values = (
    st.sampled_from(ODD_VALUES).map(copy.deepcopy) | odd_texts | st.builds(nested, st.sampled_from([50, 5_000]))
)
huge_numbers = st.just(10).map(lambda base: base**5_000)
"""A number that Python does not print."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a JSON value, and of the value itself."""
    yield path
    if len(path) > 20:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@st.composite
def changed_json(draw: st.DrawFn, originals: Sequence[Any]) -> Any:
    """Draw one of the JSON values, with one to three parts replaced, removed, renamed, added or exchanged."""
    value = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 3))):
        paths = list(places(value))
        path = draw(st.sampled_from(paths))
        if not path:
            if isinstance(value, dict):
                value[draw(odd_texts)] = draw(odd_values)
            continue
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "exchange", "text"])):
            case "remove":
                del parent[path[-1]]
            case "rename" if isinstance(parent, dict):
                parent[draw(odd_texts)] = parent.pop(path[-1])
            case "exchange" if isinstance(parent, dict):
                other = draw(st.sampled_from(sorted(parent)))
                parent[path[-1]], parent[other] = parent[other], parent[path[-1]]
            case "text" if isinstance(parent[path[-1]], str):
                parent[path[-1]] = draw(changed_text([parent[path[-1]]]))
            case _:
                parent[path[-1]] = draw(odd_values)
    return value


_DEEP = "<deep>"


def json_text(value: Any, *, ensure_ascii: bool = True) -> str:
    """Return JSON text, which may hold NaN, numbers of any size, half surrogate pairs and any nesting."""
    text = json.dumps(_without_depth(value), ensure_ascii=ensure_ascii)
    return text.replace(f'"{_DEEP}"', "[" * 5_000 + "]" * 5_000)


def _without_depth(value: Any, depth: int = 0) -> Any:
    """Return a value whose parts below some levels are a mark: Python's encoder rejects what is nested deeply."""
    if depth > 100:
        return _DEEP
    if isinstance(value, dict):
        return {key: _without_depth(inner, depth + 1) for key, inner in value.items()}
    return [_without_depth(inner, depth + 1) for inner in value] if isinstance(value, list) else value
