"""The Python snippets of the documentation, executed as written.

The README runs in a process of its own, as a user starts it. The other pages share the embedded server and the Spark
session of the test run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.generate.sql_reference import REJECTED, REJECTED_TYPES, TYPES
from pyspark.sql import SparkSession

import deltasql

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
        [sys.executable, "-c", snippets("README.md")], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def shared_lake(
    lake: deltasql.Lake, spark_session: SparkSession, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let `deltasql.connect()` open the embedded lake of the test run, and drop the tables that a page leaves there."""
    monkeypatch.chdir(workdir)
    before = {table.name for table in lake.tables()}
    yield
    for table in lake.tables():
        if table.name not in before:
            lake.drop_table(table.name, purge=True)


@pytest.mark.usefixtures("shared_lake")
class TestSqlReference:
    def test_examples_run(self, lake: deltasql.Lake) -> None:
        page = (REPOSITORY / "docs/reference/sql.md").read_text("utf-8")
        for language, body in re.findall(r"^```(sql|python)\n(.*?)```", page, re.DOTALL | re.MULTILINE):
            if language == "python":
                exec(body, {"lake": lake})
                continue
            for statement in body.split(";\n"):
                result = lake.sql(statement) if statement.strip() else None
                if hasattr(result, "collect"):
                    result.collect()
        for statement in REJECTED:
            with pytest.raises(deltasql.UsageError):
                lake.sql(statement)

    def test_types(self, lake: deltasql.Lake) -> None:
        simple = {name: kind for name, kind in TYPES.items() if name.replace(" ", "").isalnum()}
        columns = ", ".join(f"c{number} {name}" for number, name in enumerate(simple))
        lake.sql(f"CREATE TABLE docs.types ({columns}, d NUMERIC(10, 2), v VARCHAR(5), a INT[])")
        fields = json.loads(lake.table("docs.types").snapshot().metadata.schema_string)["fields"]
        assert [field["type"] for field in fields[:-3]] == list(simple.values())
        assert [field["type"] for field in fields[-3:-1]] == ["decimal(10,2)", "string"]
        for name in REJECTED_TYPES:
            with pytest.raises(deltasql.UsageError):
                lake.sql(f"CREATE TABLE docs.rejected (c {name})")


@pytest.mark.usefixtures("shared_lake")
@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str) -> None:
    names: dict[str, Any] = {}
    try:
        exec(compile(snippets(page), page, "exec"), names)
    finally:
        if "lake" in names:
            names["lake"].close()
