"""Read commit files of any writer: one action per line, or JSON objects over several lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from deltasql.errors import ValidationError
from deltasql.protocol.actions import ACTIONS, Action, from_dict

_objects = msgspec.json.Decoder(dict[str, Any])
_find_end = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\r\n]+")


class CommitEntry(NamedTuple):
    """An action of a commit file, of a known kind or not, and the line where it begins."""

    line: int
    kind: str
    body: Any


def commit_entries(data: bytes, path: str) -> list[CommitEntry]:
    """Return the actions of a commit file.

    Raises:
        ValidationError: The file is not a sequence of JSON objects; the text names the file and the line.
    """
    try:
        lines = [(n, _objects.decode(line)) for n, line in enumerate(data.splitlines(), start=1) if line.strip()]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        lines = list(_scattered(data, path))
    return [CommitEntry(n, kind, body) for n, entry in lines for kind, body in entry.items() if body is not None]


def commit_actions(data: bytes, path: str) -> Iterator[Action]:
    """Yield the actions of a commit file, except those of a kind that this release does not know.

    Raises:
        ValidationError: The file cannot be read; the text names the file and the line.
    """
    for line, kind, body in commit_entries(data, path):
        if kind in ACTIONS:
            if not isinstance(body, Mapping):
                raise _damaged(path, line, f"{kind} is invalid (an object was expected, got {json.dumps(body)[:80]})")
            try:
                action = from_dict(ACTIONS[kind], body)
            except (TypeError, ValueError) as error:
                raise _damaged(path, line, f"{kind} is invalid ({error})") from error
            yield action


def _scattered(data: bytes, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file that does not have one per line, each with its first line."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _damaged(path, data.count(b"\n", 0, error.start) + 1, "this is not UTF-8") from error
    at, line = 0, 1
    while (begin := _after_space(text, at)) < len(text):
        line += text.count("\n", at, begin)
        if at and "\n" not in text[at:begin]:
            raise _damaged(path, line, "an action is followed by other text in the same line")
        try:
            _, end = _find_end(text, begin)
            yield line, _objects.decode(text[begin:end])
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise _damaged(path, line, f"this is not an action as a JSON object ({error})") from error
        line += text.count("\n", begin, end)
        at = end


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _damaged(path: str, line: int, problem: str) -> ValidationError:
    return ValidationError(f"{path}, line {line}: {problem}", value=path)
