"""The snippets of the README and the tutorial, executed in an empty directory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_SNIPPET = re.compile(r"<!-- executed by [^>]*-->\n```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_snippets_run(page: str, tmp_path: Path) -> None:
    snippets = _SNIPPET.findall((REPOSITORY / page).read_text())
    assert snippets
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(snippets)], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
