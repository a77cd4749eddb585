"""Errors of SQL statements name the problem and its position in the statement."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def schema(embedded_lake: deltasql.Lake) -> str:
    """A namespace with a table `c` of three columns and two rows, which rejected statements do not change."""
    name = "sql_errors"
    table = embedded_lake.create_table(f"{name}.c", "id INT, k INT, v STRING")
    embedded_lake.create_table(f"{name}.d", "id INT, other STRING")
    columns = {"id": pa.array([1, 2], pa.int32()), "k": pa.array([10, 20], pa.int32()), "v": ["x", "y"]}
    table.append(pa.table(columns))
    return name


@pytest.fixture
def sql(lake: deltasql.Lake, schema: str, spark_session: SparkSession) -> Iterator[Run]:
    """Run a statement, with `ns` replaced by the namespace, and check that it changes no table."""
    yield lambda text, params=None: lake.sql(text.replace("ns.", f"{schema}."), params)
    versions = {table.name: table.version for table in lake.tables() if table.name.startswith(f"{schema}.")}
    assert versions == {f"{schema}.c": 1, f"{schema}.d": 0}


def problem_of(run: Run, text: str, params: Any = None) -> str:
    """Return the first line of a statement's error; assert that it has no internal names of deltasql, sqlglot or Spark."""
    with pytest.raises(deltasql.ValidationError) as caught:
        run(text, params)
    message = str(caught.value)
    for inner in ("__deltasql", "_pyspark", "sqlglot", "Token", "SQLSTATE", "Project ["):
        assert inner not in message
    return message.partition("\n")[0]


class TestPositions:
    @pytest.mark.parametrize(
        ("text", "params", "problem"),
        [
            ("  CREATE INDEX i ON ns.c (id)", None, "line 1, column 3: cannot be run: only CREATE TABLE is supported"),
            ("CREATE TABLE ns.t (\n  id INT,\n  k INT REFERENCES x)", None, "line 3, column 3: cannot be run: REFERENCES x is not supported for columns"),
            ("COPY ns.c", None, "line 1, column 1: cannot be run: COPY"),
            ("COPY ns.c FROM\nSTDIN", None, "line 2, column 1: cannot be run: COPY reads a file"),
            ("UPDATE ns.c SET k = 1,\n  K = 2", None, "line 2, column 3: cannot be run: it gives column 'k' two"),
            ("UPDATE ns.c SET k = 1,\n  nope = 2", None, "line 2, column 3: cannot be run: table"),
            ("INSERT INTO ns.c (id,\n  nope) VALUES (1, 2)", None, "line 2, column 3: cannot be run: table"),
            ("WITH d AS (SELECT 1)\nUPDATE ns.c SET\n q.x = 1", None, "line 3, column 2: cannot be run: it assigns to q.x"),
            ("DELETE ns.c", None, "line 1, column 1: cannot be run: it does not name a table"),
            ("INSERT INTO\n ns.c", None, "line 2, column 2: cannot be run: it gives no rows"),
            ("INSERT INTO ns.c (id)", None, "cannot be run: it gives no rows"),
            ("DELETE FROM ns.c\nPARTITION (x)", None, "line 2, column 12: cannot be run: it renames columns of"),
            ("UPDATE ns.c AS t\n(x, y) SET x = 1", None, "line 2, column 2: cannot be run: it renames columns of"),
            ("MERGE INTO ns.c AS t (x) USING ns.d s ON t.id = s.id WHEN MATCHED THEN DELETE", None, "it renames columns of"),
            ("SELECT id FROM ns.c\nWHERE (id, k) IN ((1, 2, 3))", None, "a row of 2 is compared with one of 3"),
            ("SELECT id FROM ns.c\nWHERE id = ANY('1,2')", None, "line 2, column 16: cannot be run: malformed array literal"),
            ("SELECT\n v::time FROM ns.c", None, "line 2, column 2: cannot be run: type TIME is not supported"),
            ("CREATE TABLE ns.t (id INT,\n d INET)", None, "line 2, column 2: cannot be run: expected a type for column 'd'"),
        ],
    )  # fmt: skip
    def test_rejected_statements_name_the_position(self, sql: Run, text: str, params: Any, problem: str) -> None:
        assert problem in problem_of(sql, text, params)

    @pytest.mark.parametrize(
        ("clauses", "problem"),
        [
            ("WHEN MATCHED THEN INSERT VALUES (7, 7, 'x')", "WHEN MATCHED THEN INSERT: use UPDATE, DELETE or DO"),
            ("WHEN NOT MATCHED THEN UPDATE SET v = 'x'", "WHEN NOT MATCHED THEN UPDATE: use INSERT or DO"),
            ("WHEN NOT MATCHED THEN DELETE", "WHEN NOT MATCHED THEN DELETE: use"),
            ("WHEN NOT MATCHED BY SOURCE THEN INSERT VALUES (8, 8, 'x')", "WHEN NOT MATCHED BY SOURCE THEN INSERT: use"),
            ("WHEN MATCHED BY SOURCE THEN DELETE", "WHEN MATCHED BY"),
            ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = s.other", "reads s.other WHEN NOT MATCHED BY SOURCE"),
            ("WHEN NOT MATCHED BY SOURCE AND s.other IS NULL THEN DELETE", "reads s.other WHEN NOT MATCHED BY SOURCE"),
            ("WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1, t.v)", "reads t.v WHEN NOT MATCHED"),
            ("WHEN NOT MATCHED AND t.v IS NULL THEN INSERT VALUES (s.id, 1, 'x')", "reads t.v WHEN NOT MATCHED"),
            ("WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET k = 1", "a WHEN clause that no row reaches"),
        ],
    )  # fmt: skip
    def test_rejected_merge_clauses(self, sql: Run, clauses: str, problem: str) -> None:
        assert problem in problem_of(sql, f"MERGE INTO ns.c t USING ns.d s ON t.id = s.id\n{clauses}")

    @pytest.mark.parametrize(
        ("text", "params", "problem"),
        [
            ("SELECT * FROM ns.c WHERE v = $1", ["\ud800"], "not valid Unicode text"),
        ],
    )
    def test_invalid_parameters_and_texts(self, sql: Run, text: str, params: Any, problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            sql(text, params)

    def test_nothing_is_logged(self, sql: Run, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "sqlglot"):
            problem_of(sql, "ALTER TABLE ns.c OWNER TO bob")
        assert not [record for record in caplog.records if record.name == "sqlglot"]


class TestErrorsOfSpark:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                "SELECT * FROM ns.c\nWHERE nosuch = 1",
                'line 2, column 7: column "nosuch" does not exist (known: ',
            ),
            (
                "UPDATE ns.c\nSET v = upper(nosuch)",
                'line 2, column 15: column "nosuch" does not exist (known: ',
            ),
            ("SELECT c.nosuch FROM ns.c", 'line 1, column 8: column "nosuch" does not exist'),
            (
                "MERGE INTO ns.c t USING ns.d s ON t.id = s.id\nWHEN MATCHED THEN UPDATE SET v = zzz",
                'line 2, column 34: column "zzz" does not exist',
            ),
            ("INSERT INTO ns.c (id)\nSELECT nosuch FROM ns.c", 'line 2, column 8: column "nosuch" does not exist'),
            ("DELETE FROM ns.c WHERE id = 1\nRETURNING nosuch", 'line 2, column 11: column "nosuch" does not exist'),
            ("CREATE TABLE ns.x AS SELECT nosuch FROM ns.c", 'column "nosuch" does not exist'),
            ("ALTER TABLE ns.c ADD CHECK (nosuch > 0)", 'column "nosuch" does not exist'),
            ("EXPLAIN SELECT nosuch FROM ns.c", 'column "nosuch" does not exist'),
            ("SELECT\n nosuch(1)", "line 2, column 2: function nosuch does not exist"),
            ("SELECT *\nFROM nosuch(1)", "line 2, column 6: function nosuch does not exist"),
            ("SELECT\n CAST(1 AS NOSUCH)", "line 2, column 7: cannot be run: type NOSUCH is not supported"),
            (
                "MERGE INTO ns.c USING ns.d s ON\n nosuch = 1 WHEN MATCHED THEN DELETE",
                'line 2, column 2: column "nosuch" does not exist',
            ),
            (
                "UPDATE ns.c SET v = 'x' FROM ns.d\nWHERE id = 1",
                'line 2, column 7: column "id" is ambiguous: write c.id or d.id',
            ),
            ("SELECT id FROM ns.c\nWHERE v IS JSON", "line 2, column 7: cannot be run: IS is followed by NULL"),
            ("SELECT id FROM ns.c GROUP BY k", "is based on columns which are not participating in the GROUP BY"),
            ("SELECT * FROM ns.c WHERE 'a' > ARRAY[1]", "malformed array literal"),
            ("UPDATE ns.c SET k = 1 / 0", "cannot be run: Division by zero"),
            ("UPDATE ns.c SET k = (SELECT k FROM ns.c)", "More than one row returned by a subquery"),
            ("COPY ns.c FROM '/nowhere/x.csv'", "path file:/nowhere/x.csv does not exist"),
        ],
    )
    def test_errors_of_spark_are_translated(self, sql: Run, text: str, problem: str) -> None:
        assert problem in problem_of(sql, text)

    def test_the_cause_is_kept(self, sql: Run) -> None:
        with pytest.raises(deltasql.ValidationError) as caught:
            sql("SELECT nosuch(id) FROM ns.c")
        assert "UNRESOLVED_ROUTINE" in str(caught.value.__cause__)

    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("few.csv", "1,x\n", "the file has a row that cannot be parsed.*: 1,x"),
            ("many.csv", "1,x,y,z\n", "the file has a row that cannot be parsed.*: 1,x,y,z"),
            ("bad.json", '{"id": 1}\n{"id": oops\n', "the file has a row that cannot be parsed"),
            ("bad.parquet", "hello", "error while reading file"),
        ],
    )
    def test_files(self, sql: Run, tmp_path: Path, name: str, content: str, problem: str) -> None:
        (tmp_path / name).write_text(content)
        with pytest.raises(deltasql.ValidationError, match=problem):
            sql(f"COPY ns.c FROM '{tmp_path}/{name}'")
