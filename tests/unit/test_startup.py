"""The modules that `import deltasql` and the command line load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import deltasql

HEAVY = {"pandas", "sqlglot", "pyspark", "duckdb", "polars"}


def loaded(statement: str) -> set[str]:
    """Return the modules that a new process has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import deltasql",
        "import deltasql; deltasql.connect; deltasql.Transaction; deltasql.Mirror; deltasql.versions_as_of",
        "from deltasql import *",
    ],
)
def test_import_loads_no_heavy_package(statement: str) -> None:
    modules = loaded(statement)
    assert "deltasql" in modules
    assert not HEAVY & modules


def test_help_loads_no_lake() -> None:
    modules = loaded("from deltasql.cli.main import cli; cli(['mirror', '--help'], standalone_mode=False)")
    assert not {*HEAVY, "deltasql.lake", "pyarrow", "psycopg", "rich"} & modules


def test_every_public_name_is_listed_and_loads() -> None:
    assert set(deltasql.__all__) <= set(dir(deltasql))
    for name in deltasql.__all__:
        assert getattr(deltasql, name).__name__ == name


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        deltasql.conect  # noqa: B018
