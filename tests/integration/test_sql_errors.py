"""What is wrong with a statement is said of the text that the user wrote: what it is, and where it stands."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import deltasql

Run = Callable[..., Any]


@pytest.fixture
def sql(lake: deltasql.Lake, namespace: str, spark_session: SparkSession) -> Run:
    """Run a statement in which `ns` stands for the test's namespace, which has a table `c` of three columns."""
    lake.create_table(f"{namespace}.c", "id INT, k INT, v STRING")
    lake.create_table(f"{namespace}.d", "id INT, other STRING")
    lake.sql(f"INSERT INTO {namespace}.c VALUES (1, 10, 'x'), (2, 20, 'y')")
    return lambda text, params=None: lake.sql(text.replace("ns.", f"{namespace}."), params)


def problem_of(run: Run, text: str, params: Any = None) -> str:
    """What a statement is refused for, in one line, without what is ours or the parser's."""
    with pytest.raises(deltasql.ValidationError) as caught:
        run(text, params)
    message = str(caught.value)
    for inner in ("__deltasql", "_pyspark", "sqlglot", "Token", "SQLSTATE", "Project ["):
        assert inner not in message
    return message.partition("\n")[0]


class TestPlaces:
    @pytest.mark.parametrize(
        ("text", "params", "problem"),
        [
            ("\n\n  VACUUM x", None, "line 3, column 3: VACUUM is not supported"),
            ("-- hi\nSHOW TABLES", None, "line 2, column 1: SHOW is not supported"),
            ("/* hi */ EXPLAIN\n VACUUM x", None, "line 2, column 2: VACUUM is not supported"),
            ("EXPLAIN SELECT * FRM x y", None, "line 1, column 22: near 'x'"),
            ("EXPLAIN\nSELECT 1 +", None, "line 2, column 10: near '+': something is missing"),
            ("EXPLAIN\n (COSTS OFF) SELECT 1", None, "line 2, column 3: EXPLAIN has no option COSTS"),
            ("SELECT ?, %s, ? FROM (", [1, 2, 3], "line 1, column 22: near '(': Expected table name but got the end"),
            ("SELECT 1 +\n  2 FROM c WHERE\n  AND", None, "line 3, column 3: near 'AND'"),
            ("SELECT 1,\n  'it''s", None, "line 2, column 3: this quote or comment is not closed"),
            ('SELECT "x', None, "line 1, column 8: this quote"),
            ("SELECT /* x", None, "line 1, column 8: this quote"),
            ("  CREATE INDEX i ON ns.c (id)", None, "line 1, column 3: cannot be run: only CREATE TABLE is supported"),
            ("CREATE TABLE ns.t (\n  id INT,\n  k INT REFERENCES x)", None, "line 3, column 3: cannot be run: REFERENCES x is not supported for columns"),
            ("ALTER TABLE ns.c\n  ADD COLUMN q INT,\n  OWNER TO bob", None, "line 3, column 3: cannot be run: ALTER TABLE OWNER TO bob is not supported"),
            ("COPY ns.c FROM 'x.csv' WITH (FORMAT csv)\nWHERE id > 2", None, "line 2, column 1: COPY with WHERE is not supported"),
            ("COPY ns.c", None, "line 1, column 1: cannot be run: COPY"),
            ("-- nothing\n", None, "there is no statement"),
            ("COPY ns.c FROM\nSTDIN", None, "line 2, column 1: cannot be run: COPY reads a file"),
            ("UPDATE ns.c SET k = 1,\n  K = 2", None, "line 2, column 3: cannot be run: it gives column 'k' two"),
            ("UPDATE ns.c SET k = 1,\n  nope = 2", None, "line 2, column 3: cannot be run: table"),
            ("INSERT INTO ns.c (id,\n  nope) VALUES (1, 2)", None, "line 2, column 3: cannot be run: table"),
            ("WITH d AS (DELETE FROM ns.c)\nUPDATE ns.c SET\n q.x = 1", None, "line 3, column 2: cannot be run: it assigns to q.x"),
            ("SELECT id FROM ns.c\nWHERE (id, k) < (1, 2)", None, "line 2, column 8: cannot be run: rows can only be compared"),
            ("SELECT id FROM ns.c\nWHERE (id, k) IN ((1, 2, 3))", None, "a row of 2 is compared with one of 3"),
            ("DELETE ns.c", None, "line 1, column 1: cannot be run: it does not name a table"),
            ("INSERT INTO\n ns.c", None, "line 2, column 2: cannot be run: it gives no rows"),
            ("INSERT INTO ns.c (id)", None, "cannot be run: it gives no rows"),
            ("SELECT id FROM ns.c\nWHERE id = ANY('{1,2}')", None, "line 2, column 16: cannot be run: an array is written ARRAY"),
            ("DELETE FROM ns.c\nPARTITION (x)", None, "line 2, column 12: cannot be run: it renames columns of"),
            ("UPDATE ns.c AS t\n(x, y) SET x = 1", None, "line 2, column 2: cannot be run: it renames columns of"),
            ("MERGE INTO ns.c AS t (x) USING ns.d s ON t.id = s.id WHEN MATCHED THEN DELETE", None, "it renames columns of"),
            ("INSERT INTO ns.c VALUES (1, 3, 'n') ON CONFLICT (id)\nWHERE k > 15 DO UPDATE SET v = 'x'", None, "line 2, column 7: cannot be run: it has WHERE after the keys"),
            ("DELETE FROM ns.c\nRETURNING id INTO x", None, "line 2, column 19: cannot be run: it has RETURNING INTO"),
            ("DELETE FROM ns.c WHERE id IN (SELECT id FROM ns.c ORDER BY id\nLIMIT 1)\nLIMIT 1", None, "line 3"),
            ("SELECT * FROM (\n DELETE FROM ns.c RETURNING id) q", None, "line 2"),
            ("INSERT INTO ns.c WITH d AS (\nDELETE FROM ns.c RETURNING *) SELECT * FROM d", None, "line 2, column 13: cannot be run: it changes rows inside a query"),
            ("CREATE TABLE ns.t (id INT,\n d TIME)", None, "line 2, column 2: cannot be run: type TIME is not supported"),
            ("CREATE TABLE ns.t (id INT,\n d MONEY)", None, "line 2, column 2: cannot be run: type MONEY is not supported"),
            ("ALTER TABLE ns.c\n ADD COLUMN d TIME WITH TIME ZONE", None, "line 2, column 13: cannot be run: type TIMETZ is not supported"),
            ("SELECT\n v::time FROM ns.c", None, "line 2, column 2: cannot be run: type TIME is not supported"),
            ("CREATE TABLE ns.t (id INT,\n d INET)", None, "line 2, column 2: cannot be run: expected a type for column 'd'"),
            ("ALTER TABLE ns.c SET UNLOGGED", None, "line 1, column 13: cannot be run: it has SET UNLOGGED: lake tables have only properties"),
            ("ALTER TABLE ns.c SET LOGGED", None, "it has SET LOGGED"),
            ("ALTER TABLE ns.c SET WITHOUT OIDS", None, "it has SET WITHOUT OIDS"),
            ("ALTER TABLE ns.c SET\n TABLESPACE x", None, "line 2, column 13: cannot be run: it has SET TABLESPACE"),
            ("ALTER TABLE ns.c SET ACCESS METHOD heap", None, "it has SET ACCESS METHOD"),
            ("ALTER TABLE ns.c ADD CONSTRAINT p CHECK (id > 5) NOT VALID", None, "it adds a constraint with NOT VALID"),
            ("ALTER TABLE ns.c ADD COLUMN z INT FIRST", None, "the position of a new column: new columns come last"),
            ("SELECT\n sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM ns.c", None, "line 2, column 41: cannot be run: it has EXCLUDE"),
            ("SELECT id FROM ns.c ORDER BY id\nFETCH FIRST 1 ROWS WITH TIES", None, "line 2, column 13: cannot be run: it has FETCH … WITH TIES"),
            ("SELECT\n array_agg(id ORDER BY k) FROM ns.c", None, "line 2, column 2: cannot be run: ORDER BY in an aggregate is not supported"),
            ("SELECT * FROM\nunnest(ARRAY[1, 2]) WITH ORDINALITY AS u(x, n)", None, "line 2, column 45: cannot be run: it has WITH ORDINALITY"),
            ("SELECT * FROM generate_series(1, 3) WITH ORDINALITY", None, "it has WITH ORDINALITY"),
            ("SELECT\n regexp_replace(v, 'X', '-', 'i') FROM ns.c", None, "line 2, column 2: cannot be run: regexp_replace supports the flags"),
            ("SELECT\n trunc(1.999, 2)", None, "line 2, column 2: cannot be run: trunc with a number of digits is not supported"),
            (f"SELECT {'(' * 300}1{')' * 300}", None, "line 1, column 1: cannot be run: it is nested too deeply"),
        ],
    )  # fmt: skip
    def test_what_is_refused_and_where(self, sql: Run, text: str, params: Any, problem: str) -> None:
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
            ("WHEN MATCHED THEN UPDATE SET v = 'x' WHERE t.id = 1", "line 2, column 44: cannot be run: it has WHERE after THEN: write WHEN MATCHED AND"),
            ("WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHERE s.id = 7", "WHERE after THEN: write WHEN NOT MATCHED AND"),
        ],
    )  # fmt: skip
    def test_clauses_that_a_merge_cannot_have(self, sql: Run, clauses: str, problem: str) -> None:
        before = sql("SELECT * FROM ns.c").collect()
        assert problem in problem_of(sql, f"MERGE INTO ns.c t USING ns.d s ON t.id = s.id\n{clauses}")
        assert sql("SELECT * FROM ns.c").collect() == before

    @pytest.mark.parametrize(
        ("text", "params", "problem"),
        [
            ("SELECT * FROM ns.c WHERE id = ?", None, r"need a list of values: params=\[…\]"),
            ("SELECT * FROM ns.c WHERE v = $1", ["\ud800"], "not valid Unicode text"),
            ("SELECT '\ud800'", None, "not valid Unicode text"),
        ],
    )
    def test_what_is_used_wrongly(self, sql: Run, text: str, params: Any, problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            sql(text, params)

    def test_the_users_text_is_shown(self, sql: Run) -> None:
        with pytest.raises(deltasql.ValidationError) as caught:
            sql("EXPLAIN SELECT ? FROM (", [1])
        assert str(caught.value).endswith("\n  EXPLAIN SELECT ? FROM (")

    def test_nothing_is_logged(self, sql: Run, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "sqlglot"):
            problem_of(sql, "ALTER TABLE ns.c OWNER TO bob")
        assert not [record for record in caplog.records if record.name == "sqlglot"]


class TestWhatSparkFinds:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                "SELECT * FROM ns.c\nWHERE nosuch = 1",
                'line 2, column 7: column "nosuch" does not exist (existing columns: ',
            ),
            (
                "UPDATE ns.c\nSET v = upper(nosuch)",
                'line 2, column 15: column "nosuch" does not exist (existing columns: ',
            ),
            ("SELECT c.nosuch FROM ns.c", 'line 1, column 8: column "c.nosuch" does not exist'),
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
            ("SELECT\n CAST(1 AS NOSUCH)", 'line 2, column 12: Unsupported data type "NOSUCH"'),
            (
                "MERGE INTO ns.c USING ns.d s ON\n nosuch = 1 WHEN MATCHED THEN DELETE",
                'line 2, column 2: column "nosuch" does not exist',
            ),
            (
                "UPDATE ns.c SET v = 'x' FROM ns.d\nWHERE id = 1",
                'line 2, column 7: column "id" is ambiguous: write c.id or d.id',
            ),
            ("SELECT id FROM ns.c\nWHERE v IS JSON", "line 2, column 9: Syntax error at or near 'IS'"),
            ("SELECT id FROM ns.c GROUP BY k", "is based on columns which are not participating in the GROUP BY"),
            ("SELECT * FROM ns.c WHERE 'a' > ARRAY[1]", "incompatible types"),
            ("UPDATE ns.c SET k = 1 / 0", "cannot be run: Division by zero"),
            ("UPDATE ns.c SET k = (SELECT k FROM ns.c)", "More than one row returned by a subquery"),
            ("COPY ns.c FROM '/nowhere/x.csv'", "path file:/nowhere/x.csv does not exist"),
        ],
    )
    def test_in_few_words(self, sql: Run, lake: deltasql.Lake, namespace: str, text: str, problem: str) -> None:
        assert problem in problem_of(sql, text)
        assert lake.table(f"{namespace}.c").version == 1

    def test_the_cause_is_kept(self, sql: Run) -> None:
        with pytest.raises(deltasql.ValidationError) as caught:
            sql("SELECT nosuch FROM ns.c")
        assert "UNRESOLVED_COLUMN" in str(caught.value.__cause__)

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
