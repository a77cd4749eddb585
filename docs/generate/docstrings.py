"""Docstrings with Google-style sections, as Markdown."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes|Example|Examples):\s*$")
_ENTRY = re.compile(r"^(\*{0,2}[\w.]+)(?: \([^)]*\))?:\s+(.*)$")
_TITLES = {"Args": "Arguments"}


def markdown(docstring: str | None, *, without: str = "") -> list[str]:
    """Return a docstring as lines of Markdown, without one of its sections."""
    lines: list[str] = []
    for name, body in _sections(docstring):
        if name == without:
            continue
        if name is None:
            lines += body
        elif name in ("Example", "Examples"):
            lines += [f"{name}:", "", "```python", *body, "```"]
        elif name in ("Returns", "Yields"):
            lines += [f"{name}: {body[0]}", *body[1:]]
        else:
            lines += [f"{_TITLES.get(name, name)}:", "", *_items(body)]
        lines.append("")
    return lines


def entries(docstring: str | None, section: str) -> dict[str, str]:
    """Return the entries of one section: the text by name."""
    found: dict[str, str] = {}
    for line in (line for name, body in _sections(docstring) if name == section for line in body):
        if entry := _ENTRY.match(line):
            found[entry[1]] = entry[2]
        elif found and line.strip():
            found[list(found)[-1]] += f" {line.strip()}"
    return found


def _sections(docstring: str | None) -> list[tuple[str | None, list[str]]]:
    """Split a docstring into its description and its named sections."""
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in inspect.cleandoc(docstring or "").splitlines():
        if heading := _SECTION.match(line):
            parts.append((heading[1], []))
        elif line[:1].strip() and parts[-1][0] is not None:
            parts.append((None, [line]))
        else:
            parts[-1][1].append(line)
    return [(name, _trimmed(body)) for name, body in parts if any(line.strip() for line in body)]


def _trimmed(body: list[str]) -> list[str]:
    return inspect.cleandoc("\n".join(["", *body])).splitlines()


def _items(body: list[str]) -> list[str]:
    """Return the entries of a section as list items; lines that are indented continue an entry."""
    items: list[str] = []
    for line in body:
        entry = _ENTRY.match(line)
        if entry:
            items.append(f"- `{entry[1]}`: {entry[2]}")
        elif items and line.strip():
            items.append(f"  {line.strip()}")
        elif line.strip():
            items.append(f"- {line.strip()}")
    return items
