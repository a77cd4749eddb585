"""Generated pages are up to date, relative links point to existing files, and `make help` lists the targets."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from docs.generate import REFERENCE, pages
from docs.generate.docstrings import markdown

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md")
    for path in REPOSITORY.glob(pattern)
)
_LINK = re.compile(r"\]\((?!https?://)([^)]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = (heading.lower().replace(" ", "-") for heading in _HEADING.findall(page.read_text("utf-8")))
    return {re.sub(r"[^\w-]", "", heading) for heading in headings}


def test_docstring_sections_become_lists() -> None:
    """Write a file.

    It is synced.

    Args:
        path: Where the file is,
            relative to the table.
        **options: Options of the writer.

    Returns:
        The number of bytes.

    Raises:
        StorageError: The store failed.
    """
    text = "\n".join(markdown(test_docstring_sections_become_lists.__doc__))
    assert text.split("\n\n") == [
        "Write a file.",
        "It is synced.",
        "Arguments:",
        "- `path`: Where the file is,\n  relative to the table.\n- `**options`: Options of the writer.",
        "Returns: The number of bytes.",
        "Raises:",
        "- `StorageError`: The store failed.\n",
    ]


@pytest.mark.parametrize("name", pages())
def test_generated_page_is_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text("utf-8") == pages()[name], "run `make docs` (python -m docs.generate)"


@pytest.mark.parametrize("page", PAGES)
def test_links_point_to_existing_files_and_headings(page: str) -> None:
    source = REPOSITORY / page
    for link in _LINK.findall(source.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        target = source.parent / path if path else source
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page} links to {link}"


def test_make_help_lists_the_targets() -> None:
    listed = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "test-long", "lint", "bench", "docs", "setup"):
        assert f"make {target}" in listed
