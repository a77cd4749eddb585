"""The package layout is the one that CONTRIBUTING.md describes."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "deltasql"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_the_map_in_contributing_lists_every_top_level_module_and_package():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    block = text.split("src/deltasql/\n", 1)[1].split("\ntests/", 1)[0]
    mapped = {match[1] for match in re.finditer(r"^  ([a-z_]+(?:/|\.py)) ", block, re.MULTILINE)}
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    files = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert mapped == packages | files


def test_no_two_modules_have_the_same_name():
    found = defaultdict(list)
    for path in modules():
        if not path.name.startswith("__"):
            found[path.stem].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_packages_have_fewer_than_sixteen_modules():
    found = defaultdict(int)
    for path in modules():
        if path.name != "__init__.py":
            found[path.parent.relative_to(PACKAGE).as_posix()] += 1
    assert {name: count for name, count in found.items() if count > 15} == {}


def test_no_two_public_classes_have_the_same_name():
    found = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_embedded_and_addresses_use_psycopg_only_for_connection_strings_and_the_state_of_a_server():
    allowed = {"psycopg.conninfo", "psycopg.pq"}
    for path in (PACKAGE / "addresses.py", *(PACKAGE / "embedded").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert not [alias.name for alias in node.names if alias.name.startswith("psycopg")], path
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("psycopg"):
                assert node.module in allowed, path


def test_no_test_module_imports_another():
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    imported = {
        (path.name, node.module)
        for path in tests
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and re.search(r"(^|\.)test_\w+$", node.module or "")
    }
    assert imported == set()
