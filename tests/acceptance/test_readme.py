"""The snippets of README and tutorial, executed in an empty directory, and the links, followed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_SNIPPET = re.compile(r"<!-- executed by [^>]*-->\n```python\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_snippets_run(page: str, tmp_path: Path) -> None:
    snippets = _SNIPPET.findall((REPOSITORY / page).read_text())
    assert snippets
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(snippets)], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page",
    sorted(p.relative_to(REPOSITORY).as_posix() for p in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]),
)
def test_links_lead_somewhere(page: str) -> None:
    source = REPOSITORY / page
    for target in _LINK.findall(source.read_text()):
        assert (source.parent / target).exists(), f"{page} links to {target}"


def test_the_makefile_lists_its_targets() -> None:
    listed = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "lint", "bench", "docs", "setup"):
        assert f"make {target}" in listed
