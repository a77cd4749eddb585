"""The examples of the SQL reference run, its rejected statements are rejected, and its types are correct."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from docs.generate.sql_reference import REJECTED, REJECTED_TYPES, TYPES

import deltasql

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
_EXAMPLE = re.compile(r"^```(sql|python)\n(.*?)```", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.usefixtures("shared_lake")


def test_examples_run_and_rejected_statements_fail(lake: deltasql.Lake) -> None:
    for language, body in _EXAMPLE.findall(PAGE.read_text("utf-8")):
        if language == "python":
            exec(body, {"lake": lake})
        else:
            run(lake, body)
    for statement in REJECTED:
        with pytest.raises(deltasql.UsageError):
            lake.sql(statement)


def run(lake: deltasql.Lake, statements: str) -> None:
    for statement in filter(str.strip, statements.split(";\n")):
        result = lake.sql(statement)
        if hasattr(result, "collect"):
            result.collect()


def test_types(lake: deltasql.Lake) -> None:
    simple = {name: kind for name, kind in TYPES.items() if name.replace(" ", "").isalnum()}
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(simple))
    lake.sql(f"CREATE TABLE docs.types ({columns}, d NUMERIC(10, 2), v VARCHAR(5))")
    fields = json.loads(lake.table("docs.types").snapshot().metadata.schema_string)["fields"]
    assert [field["type"] for field in fields] == [*simple.values(), "decimal(10,2)", "string"]


@pytest.mark.parametrize("name", REJECTED_TYPES)
def test_rejected_type(lake: deltasql.Lake, name: str) -> None:
    with pytest.raises(deltasql.UsageError):
        lake.sql(f"CREATE TABLE docs.rejected (c {name})")
