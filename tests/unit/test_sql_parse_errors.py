"""Parser errors name the problem and its position. No server and no Spark is needed."""

from __future__ import annotations

from typing import Any

import pytest

import deltasql
from deltasql.sql.parse import parse


def problem_of(text: str, params: Any = None) -> str:
    """Return the first line of a statement's error; assert that it has no internal names of deltasql or sqlglot."""
    with pytest.raises(deltasql.ValidationError) as caught:
        parse(text, params)
    message = str(caught.value)
    for inner in ("__deltasql", "sqlglot", "Token"):
        assert inner not in message
    return message.partition("\n")[0]


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
        ("ALTER TABLE ns.c\n  ADD COLUMN q INT,\n  OWNER TO bob", None, "line 3, column 3: cannot be run: ALTER TABLE OWNER TO bob is not supported"),
        ("COPY ns.c FROM 'x.csv' WITH (FORMAT csv)\nWHERE id > 2", None, "line 2, column 1: COPY with WHERE is not supported"),
        ("-- nothing\n", None, "there is no statement"),
        ("INSERT INTO ns.c VALUES (1, 3, 'n') ON CONFLICT (id)\nWHERE k > 15 DO UPDATE SET v = 'x'", None, "line 2, column 7: cannot be run: it has WHERE after the keys"),
        ("DELETE FROM ns.c\nRETURNING id INTO x", None, "line 2, column 19: cannot be run: it has RETURNING INTO"),
        ("DELETE FROM ns.c WHERE id IN (SELECT id FROM ns.c ORDER BY id\nLIMIT 1)\nLIMIT 1", None, "line 3"),
        ("SELECT * FROM (\n DELETE FROM ns.c RETURNING id) q", None, "line 2"),
        ("INSERT INTO ns.c WITH d AS (\nDELETE FROM ns.c RETURNING *) SELECT * FROM d", None, "line 2, column 13: cannot be run: it changes rows inside a query"),
        ("CREATE TABLE ns.t (id INT,\n d TIME)", None, "line 2, column 2: cannot be run: type TIME is not supported"),
        ("CREATE TABLE ns.t (id INT,\n d MONEY)", None, "line 2, column 2: cannot be run: type MONEY is not supported"),
        ("ALTER TABLE ns.c\n ADD COLUMN d TIME WITH TIME ZONE", None, "line 2, column 13: cannot be run: type TIMETZ is not supported"),
        ("ALTER TABLE ns.c SET UNLOGGED", None, "line 1, column 13: cannot be run: it has SET UNLOGGED: lake tables have only properties"),
        ("ALTER TABLE ns.c SET LOGGED", None, "it has SET LOGGED"),
        ("ALTER TABLE ns.c SET WITHOUT OIDS", None, "it has SET WITHOUT OIDS"),
        ("ALTER TABLE ns.c SET\n TABLESPACE x", None, "line 2, column 13: cannot be run: it has SET TABLESPACE"),
        ("ALTER TABLE ns.c SET ACCESS METHOD heap", None, "it has SET ACCESS METHOD"),
        ("ALTER TABLE ns.c ADD CONSTRAINT p CHECK (id > 5) NOT VALID", None, "it adds a constraint with NOT VALID"),
        ("ALTER TABLE ns.c ADD COLUMN z INT FIRST", None, "the position of a new column: new columns come last"),
        ("SELECT\n sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM ns.c", None, "line 2, column 41: cannot be run: it has EXCLUDE"),
        ("SELECT id FROM ns.c ORDER BY id\nFETCH FIRST 1 ROWS WITH TIES", None, "line 2, column 13: cannot be run: it has FETCH … WITH TIES"),
        (f"SELECT {'(' * 300}1{')' * 300}", None, "line 1, column 1: cannot be run: it is nested too deeply"),
    ],
)  # fmt: skip
def test_rejected_statements_name_the_position(text: str, params: Any, problem: str) -> None:
    assert problem in problem_of(text, params)


@pytest.mark.parametrize(
    ("clauses", "problem"),
    [
        ("WHEN MATCHED THEN UPDATE SET v = 'x' WHERE t.id = 1", "line 2, column 44: cannot be run: it has WHERE after THEN: write WHEN MATCHED AND"),
        ("WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHERE s.id = 7", "WHERE after THEN: write WHEN NOT MATCHED AND"),
    ],
)  # fmt: skip
def test_rejected_merge_clauses(clauses: str, problem: str) -> None:
    assert problem in problem_of(f"MERGE INTO ns.c t USING ns.d s ON t.id = s.id\n{clauses}")


@pytest.mark.parametrize(
    ("text", "params", "problem"),
    [
        ("SELECT * FROM ns.c WHERE id = ?", None, r"need a list of values: params=\[…\]"),
        ("SELECT '\ud800'", None, "not valid Unicode text"),
    ],
)
def test_invalid_parameters_and_texts(text: str, params: Any, problem: str) -> None:
    with pytest.raises(deltasql.UsageError, match=problem):
        parse(text, params)


def test_the_users_text_is_shown() -> None:
    with pytest.raises(deltasql.ValidationError) as caught:
        parse("EXPLAIN SELECT ? FROM (", [1])
    assert str(caught.value).endswith("\n  EXPLAIN SELECT ? FROM (")
