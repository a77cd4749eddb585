"""The Python snippets of the documentation run as written.

The README runs in a separate process. The other pages share the embedded server and the Spark session of the test run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local_spark import JAVA_OPTIONS

REPOSITORY = Path(__file__).parents[2]
_SNIPPET = re.compile(r"<!-- executed by [^>]*-->\n```python\n(.*?)```", re.DOTALL)
PAGES = ["docs/tutorial.md"] + [
    f"docs/howto/{name}.md"
    for name in (
        "read-and-write-rows",
        "read-without-spark",
        "change-rows",
        "small-changes",
        "transactions",
        "register-files",
    )
]


def snippets(page: str) -> str:
    found = _SNIPPET.findall((REPOSITORY / page).read_text("utf-8"))
    assert found, f"{page} has no snippet to execute"
    return "\n".join(found)


def test_readme_runs_in_an_empty_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", snippets("README.md")],
        cwd=tmp_path,
        env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("shared_lake")
@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str) -> None:
    names: dict[str, Any] = {}
    try:
        exec(compile(snippets(page), page, "exec"), names)
    finally:
        if "lake" in names:
            names["lake"].close()
