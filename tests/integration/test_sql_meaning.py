"""Statements mean what PostgreSQL means by them, or what Spark means with dialect="spark"."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql

Run = Callable[..., Any]


@pytest.fixture
def sql(lake: deltasql.Lake, namespace: str, spark_session: SparkSession) -> Run:
    """Run a statement, with `ns` replaced by the test's namespace, and return its rows or its result."""

    def run(text: str, params: Any = None, **options: Any) -> Any:
        found = lake.sql(text.replace("ns.", f"{namespace}."), params, **options)
        return [tuple(row) for row in found.collect()] if hasattr(found, "collect") else found

    return run


@pytest.fixture
def items(lake: deltasql.Lake, namespace: str) -> deltasql.Table:
    table = lake.create_table(f"{namespace}.items", "id INT, name STRING, n INT, arr ARRAY<INT>, current BOOLEAN")
    rows = {
        "id": pa.array([1, 2, 3], pa.int32()),
        "name": ["one", "two", None],
        "n": pa.array([1, 2, 3], pa.int32()),
        "arr": pa.array([[10, 20], [30, 40], [50]], pa.list_(pa.int32())),
        "current": [True, False, True],
    }
    table.append(pa.table(rows))
    return table


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("SELECT 1 / (n - n) FROM ns.items", "Division by zero\\n  SELECT 1"),
            ("SELECT name::int FROM ns.items", "The value 'one' .* cannot be cast"),
            ("SELECT (SELECT id FROM ns.items)", "More than one row returned by a subquery"),
            ("SELECT n + 2147483647 FROM ns.items", "overflow\\n"),
        ],
    )
    def test_rows_that_cannot_be_computed(
        self, sql: Run, items: deltasql.Table, text: str, problem: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(deltasql.ValidationError, match=f"^SQL cannot be run: {problem}") as found:
            sql(text)
        shown = "".join(traceback.format_exception(found.value))
        assert "at org.apache" not in shown
        assert "try_" not in str(found.value)
        assert "QueryContextLogger" not in capfd.readouterr().err

    def test_frames_that_cannot_be_computed(
        self, items: deltasql.Table, lake: deltasql.Lake, namespace: str, spark_session: SparkSession
    ) -> None:
        rows = spark_session.sql("SELECT raise_error('broken') AS name")
        with pytest.raises(deltasql.ValidationError, match="cannot be computed, so nothing was written: broken"):
            items.append(rows)
        with pytest.raises(deltasql.ValidationError, match="cannot be computed, so nothing was written: broken"):
            lake.create_table(f"{namespace}.other", as_=rows)

    @pytest.mark.parametrize(
        ("text", "params", "problem"),
        [
            ("SELECT * FROM ns.item", None, 'did you mean ".*items"'),
            ("UPDATE ns.item SET n = 1", None, 'did you mean ".*items"'),
            ("MERGE INTO ns.items t USING ns.itmes s ON t.id = s.id WHEN MATCHED THEN DELETE", None, 'mean ".*items"'),
            ("DROP TABLE ns.item", None, 'did you mean ".*items"'),
            ("SELECT nme FROM ns.items", None, 'did you mean "name"'),
            ("SELECT $1 + 1", [object()], "a parameter is None, a bool, .* got object"),
            ("SELECT id FROM ns.items LIMIT -1", None, "LIMIT must not be negative"),
            ("SELECT id FROM ns.items LIMIT $1", [-1], "LIMIT must not be negative"),
            ("SELECT id FROM ns.items LIMIT n", None, "LIMIT must not contain columns"),
            ("INSERT INTO ns.items (id) VALUES (99999999999)", None, "99999999999 is out of range for type integer"),
            ("COPY (SELECT 1 AS x) TO '/no/folder/x.csv'", None, "there is no folder '/no/folder'"),
            ("SELECT sqrt(2.0)", None, "cast its arguments to double precision"),
            ("SELECT repeat('abc', 2147483647)", None, "requested length too large"),
        ],
    )
    def test_errors_before_anything_runs(
        self, sql: Run, items: deltasql.Table, text: str, params: Any, problem: str
    ) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            sql(text, params)

    def test_limits(self, sql: Run, items: deltasql.Table) -> None:
        for limit, params, count in (("1 + 1", None, 2), ("NULL", None, 3), ("$1", [None], 3), ("$1", [2], 2)):
            assert len(sql(f"SELECT id FROM ns.items LIMIT {limit}", params)) == count


class TestWithClauses:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("WITH d AS (DELETE FROM ns.items WHERE id = 1) SELECT count(*) FROM ns.items", "line 1, column .*reads"),
            ("WITH i AS (INSERT INTO ns.items (id) VALUES (9)) UPDATE ns.items SET n = 0", "changes .*items, which"),
            (
                "WITH u AS (UPDATE ns.items SET n = 5 RETURNING id), q AS (SELECT max(n) AS n FROM ns.ITEMS) SELECT * FROM q",
                "reads .*ITEMS, which an earlier part",
            ),
            (
                "WITH u AS (UPDATE ns.items SET n = 5 RETURNING id) INSERT INTO ns.items (id) SELECT n FROM ns.items",
                "reads .*items, which an earlier part",
            ),
            (
                "WITH u AS (UPDATE ns.items SET n = 5) INSERT INTO ns.items (id) VALUES (1) ON CONFLICT (id) DO NOTHING",
                "changes .*items, which",
            ),
        ],
    )
    def test_an_order_that_would_show_is_rejected(
        self, sql: Run, items: deltasql.Table, text: str, problem: str
    ) -> None:
        with pytest.raises(deltasql.ValidationError, match=problem):
            sql(text)
        assert items.version == 1

    def test_an_insert_after_an_update_of_the_same_table(self, sql: Run, items: deltasql.Table) -> None:
        sql(
            "WITH new(id, name) AS (VALUES (2, 'zwei'), (7, 'sieben')), "
            "u AS (UPDATE ns.items i SET name = new.name FROM new WHERE i.id = new.id RETURNING i.id) "
            "INSERT INTO ns.items (id, name) SELECT id, name FROM new WHERE id NOT IN (SELECT id FROM u)"
        )
        assert sql("SELECT id, name FROM ns.items ORDER BY id") == [(1, "one"), (2, "zwei"), (3, None), (7, "sieben")]

    def test_a_query_before_a_change_sees_the_old_rows(self, sql: Run, items: deltasql.Table) -> None:
        before = "WITH q AS (SELECT sum(n) AS n FROM ns.items), d AS (DELETE FROM ns.items RETURNING id)"
        assert sql(f"{before} SELECT q.n, count(d.id) FROM q, d GROUP BY q.n") == [(6, 3)]


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("5 / 2", 2),
            ("-5 / 2", -2),
            ("2.7::int", 3),
            ("2.5::double precision::int", 2),
            ("log(100)", 2.0),
            ("extract(dow FROM DATE '2026-11-15')", Decimal(0)),
            ("left('hello', -2)", "hel"),
            ("10.0 / 4", Decimal("2.5")),
            ("round(2.5)", Decimal(3)),
            ("length('äöü')", 3),
            ("'a' || NULL", None),
            ("coalesce(NULL, 'x')", "x"),
            ("1 = 1.0", True),
            ("'{1,2}'::int[]", [1, 2]),
            ("position('l' IN 'hello')", 3),
            ("1_000 + 0x1F", 1031),
        ],
    )
    def test_values(self, sql: Run, expression: str, value: Any) -> None:
        assert sql(f"SELECT {expression}") == [(value,)]

    def test_a_computed_subscript_starts_at_one(self, sql: Run, items: deltasql.Table) -> None:
        sql("UPDATE ns.items SET n = arr[n]")
        assert sql("SELECT id, n FROM ns.items ORDER BY id") == [(1, 10), (2, 40), (3, None)]

    def test_spark_functions_are_available(self, sql: Run, items: deltasql.Table) -> None:
        assert sql("SELECT transform(arr, x -> x / 20) FROM ns.items WHERE id = 1") == [([0, 1],)]

    @pytest.mark.parametrize(
        ("expression", "problem"),
        [
            ("sqrt(2.5)", r"column 8: cannot be run: function sqrt\(numeric\) is not supported"),
            ("pg_sleep(1)", "function pg_sleep.* is not supported"),
            ("1 + 'x'", 'column 12: cannot be run: invalid input syntax for type integer: "x"'),
            ("name + 1", "operator text . integer does not exist"),
        ],
    )
    def test_rejected(self, sql: Run, items: deltasql.Table, expression: str, problem: str) -> None:
        with pytest.raises(deltasql.ValidationError, match=problem):
            sql(f"SELECT {expression} FROM ns.items")


class TestQueries:
    def test_distinct_on_is_applied_before_limit(self, sql: Run, items: deltasql.Table) -> None:
        rows = sql("SELECT DISTINCT ON (current) current, id FROM ns.items ORDER BY current DESC, id DESC LIMIT 1")
        assert rows == [(True, 3)]

    def test_functions_that_return_rows_run_side_by_side(self, sql: Run) -> None:
        assert sql("SELECT unnest(ARRAY[1, 2]), unnest(ARRAY['a', 'b', 'c'])") == [(1, "a"), (2, "b"), (None, "c")]

    def test_functions_that_return_rows_beside_aggregates(self, sql: Run, items: deltasql.Table) -> None:
        assert sql("SELECT unnest(array_agg(id ORDER BY id DESC)), count(*) FROM ns.items") == [(3, 3), (2, 3), (1, 3)]

    def test_aggregates_in_order(self, sql: Run, items: deltasql.Table) -> None:
        query = "SELECT array_agg(name ORDER BY id DESC), string_agg(name, '-' ORDER BY id) FROM ns.items"
        assert sql(query) == [([None, "two", "one"], "one-two")]

    def test_json(self, sql: Run) -> None:
        assert sql("""SELECT j ->> 'a', j -> 'b' ->> 0 FROM (VALUES ('{"a": "x", "b": [7]}')) AS t(j)""") == [
            ("x", "7")
        ]


class TestStatements:
    def test_a_boolean_column_is_a_condition(self, sql: Run, items: deltasql.Table) -> None:
        assert sql("SELECT id FROM ns.items AS t WHERE t.current AND NOT t.id = 1") == [(3,)]
        sql("DELETE FROM ns.items AS t WHERE t.current")
        assert sql("SELECT id FROM ns.items") == [(2,)]
        sql(
            "MERGE INTO ns.items AS t USING (VALUES (2, TRUE)) AS s(id, go) ON t.id = s.id AND s.go "
            "WHEN MATCHED AND s.go THEN UPDATE SET current = s.go"
        )
        assert sql("SELECT id FROM ns.items WHERE items.current") == [(2,)]

    def test_fields_of_a_struct_are_assigned(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        table = lake.create_table(f"{namespace}.s", "id INT, a STRUCT<x: INT, b: STRUCT<y: STRING, z: INT>>")
        kind = pa.struct([("x", pa.int32()), ("b", pa.struct([("y", pa.string()), ("z", pa.int32())]))])
        values = pa.array([{"x": 1, "b": {"y": "k", "z": 5}}, None], kind)
        table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "a": values}))
        sql("UPDATE ns.s SET a.x = a.x + 1, a.b.z = 7.6 WHERE id = 1")
        sql("UPDATE ns.s AS t SET a.x = 9 WHERE t.id = 2")
        found = {row["id"]: row["a"] for row in table.arrow().to_pylist()}
        assert found == {1: {"x": 2, "b": {"y": "k", "z": 8}}, 2: {"x": 9, "b": None}}
        with pytest.raises(deltasql.ValidationError, match=r"there is no field 'nope' \(known: x, b\)"):
            sql("UPDATE ns.s SET a.nope = 1")

    def test_insert_by_name(self, sql: Run, items: deltasql.Table) -> None:
        sql("INSERT INTO ns.items BY NAME SELECT 'four' AS name, 4.4 AS id")
        assert sql("SELECT id, name, n FROM ns.items WHERE id = 4") == [(4, "four", None)]
        with pytest.raises(deltasql.ValidationError, match='column "nope" does not exist'):
            sql("INSERT INTO ns.items BY NAME SELECT 1 AS nope")

    def test_insert_overwrite_and_replace_where(self, sql: Run, items: deltasql.Table) -> None:
        sql("INSERT INTO ns.items REPLACE WHERE id >= 2 SELECT 7, 'seven', 7, NULL, TRUE")
        assert sql("SELECT id FROM ns.items ORDER BY id") == [(1,), (7,)]
        sql("INSERT OVERWRITE ns.items SELECT 8, 'eight', 8, NULL, TRUE")
        assert sql("SELECT id FROM ns.items") == [(8,)]

    def test_old_and_new_rows_are_returned(self, sql: Run, items: deltasql.Table) -> None:
        rows = sql("UPDATE ns.items SET n = n + 1 WHERE id = 1 RETURNING old.n, new.n, n, old.n + new.n AS both")
        assert rows == [(1, 2, 2, 3)]
        assert sql("DELETE FROM ns.items WHERE id = 2 RETURNING old.id, new.id, id") == [(2, None, 2)]
        rows = sql(
            "MERGE INTO ns.items AS t USING (VALUES (1, 5), (7, 8)) AS s(id, n) ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n) "
            "RETURNING merge_action(), old.n, new.n"
        )
        assert sorted(rows) == [("INSERT", None, 8), ("UPDATE", 2, 5)]

    def test_all_columns_of_a_source(
        self, sql: Run, items: deltasql.Table, lake: deltasql.Lake, namespace: str
    ) -> None:
        merge = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        wide = "SELECT 1 AS id, 'new' AS name, 9 AS n, ARRAY[1] AS arr, FALSE AS current, 'more' AS extra"
        sql(
            f"MERGE INTO ns.items t USING ({wide} UNION ALL SELECT 5, 'five', 5, NULL, NULL, '') s ON t.id = s.id {merge}"
        )
        assert sql("SELECT id, name, n FROM ns.items WHERE id IN (1, 5) ORDER BY id") == [(1, "new", 9), (5, "five", 5)]
        with pytest.raises(deltasql.ValidationError, match="takes all columns from s, which has no column 'name'"):
            sql(f"MERGE INTO ns.items t USING (SELECT 1 AS id) s ON t.id = s.id {merge}")
        lake.create_table(f"{namespace}.nested", "id INT, a STRUCT<x: INT, y: INT>")
        with pytest.raises(deltasql.ValidationError, match="column 'a' has no field y"):
            given = "SELECT 1 AS id, named_struct('x', 1) AS a"
            sql(f"MERGE INTO ns.nested t USING ({given}) s ON t.id = s.id {merge}")

    def test_merge_with_schema_evolution(self, sql: Run, items: deltasql.Table) -> None:
        sql(
            "MERGE WITH SCHEMA EVOLUTION INTO ns.items t USING (VALUES (1, 'new', 2.5), (8, 'eight', 3.5)) AS s(id, name, price) "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        found = sql("SELECT id, name, n, price FROM ns.items ORDER BY id")
        assert found == [
            (1, "new", 1, Decimal("2.5")),
            (2, "two", 2, None),
            (3, None, 3, None),
            (8, "eight", None, Decimal("3.5")),
        ]
        assert items.version == 2

    def test_schema_evolution_of_structs(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        table = lake.create_table(f"{namespace}.nested", "id INT, a STRUCT<x: INT, y: INT, z: STRUCT<u: INT, v: INT>>")
        rows = [{"x": 1, "y": 2, "z": {"u": 3, "v": 4}}, None, {"x": 1, "y": 2, "z": None}]
        kind = pa.struct(
            [("x", pa.int32()), ("y", pa.int32()), ("z", pa.struct([("u", pa.int32()), ("v", pa.int32())]))]
        )
        table.append(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "a": pa.array(rows, kind)}))
        given = (
            "SELECT id, named_struct('w', 7, 'X', id * 10, 'z', named_struct('v', 40)) AS a FROM (VALUES (1), (2), (9)) v(id) "
            "UNION ALL SELECT 3, NULL"
        )
        merge = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        sql(f"MERGE WITH SCHEMA EVOLUTION INTO ns.nested t USING ({given}) s {merge}")
        assert table.history(1)[0].operation == "MERGE"
        found = {row["id"]: row["a"] for row in table.arrow().to_pylist()}
        assert found == {
            1: {"x": 10, "y": 2, "z": {"u": 3, "v": 40}, "w": 7},
            2: {"x": 20, "y": None, "z": {"u": None, "v": 40}, "w": 7},
            3: {"x": None, "y": 2, "z": None, "w": None},
            9: {"x": 90, "y": None, "z": {"u": None, "v": 40}, "w": 7},
        }

    def test_columns_that_no_clause_names_are_not_added(self, sql: Run, items: deltasql.Table) -> None:
        source = "(VALUES (1, 5, 6)) AS s(id, size, rest)"
        sql(
            f"MERGE WITH SCHEMA EVOLUTION INTO ns.items t USING {source} ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET size = s.size"
        )
        assert items.schema.names == ["id", "name", "n", "arr", "current", "size"]
        assert sql("SELECT size FROM ns.items ORDER BY id") == [(5,), (None,), (None,)]

    def test_a_struct_that_lacks_a_field_replaces_no_other(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        table = lake.create_table(f"{namespace}.nested", "id INT, a STRUCT<x: INT, y: INT>")
        sql("INSERT INTO ns.nested SELECT 1, named_struct('x', 1, 'y', 2)")
        with pytest.raises(deltasql.ValidationError, match="column 'a' has no field 'y'"):
            sql("UPDATE ns.nested SET a = named_struct('x', 5)")
        with pytest.raises(deltasql.ValidationError, match="column 'a' has no field 'y'"):
            table.update({"a": "named_struct('x', 5)"})
        assert table.arrow()["a"].to_pylist() == [{"x": 1, "y": 2}]

    def test_a_merge_that_only_deletes_allows_several_matches(self, sql: Run, items: deltasql.Table) -> None:
        source = "(VALUES (1, 0), (1, 0), (9, 4), (9, 4)) AS s(id, n)"
        result = sql(
            f"MERGE INTO ns.items t USING {source} ON t.id = s.id WHEN MATCHED THEN DELETE "
            "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)"
        )
        assert result.metrics["numTargetRowsDeleted"] == "1"
        assert sql("SELECT id FROM ns.items ORDER BY id") == [(2,), (3,), (9,), (9,)]
        with pytest.raises(deltasql.UsageError, match="several source rows match"):
            sql(f"MERGE INTO ns.items t USING {source} ON t.id = s.id WHEN MATCHED AND t.n > 0 THEN DELETE")

    def test_a_new_column_with_a_default(self, sql: Run, items: deltasql.Table) -> None:
        sql("ALTER TABLE ns.items ADD COLUMN size INT DEFAULT 2 + 3, ADD COLUMN note TEXT")
        assert items.version == 2
        sql("INSERT INTO ns.items (id) VALUES (4)")
        assert sql("SELECT id, size, note FROM ns.items WHERE id > 2 ORDER BY id") == [(3, 5, None), (4, 5, None)]

    def test_a_table_like_another(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql("CREATE TABLE ns.a (id INT NOT NULL, n INT DEFAULT 5, CONSTRAINT small CHECK (n < 10)) PARTITIONED BY (id)")
        sql("CREATE TABLE ns.b (LIKE ns.a, more TEXT)")
        sql("CREATE TABLE ns.c (LIKE ns.a INCLUDING ALL, CHECK (id > 0))")
        sql("CREATE TABLE ns.d LIKE ns.a")
        found = {name: lake.table(f"{namespace}.{name}") for name in "bcd"}
        assert found["b"].schema.names == ["id", "n", "more"]
        assert sql("INSERT INTO ns.b (id) VALUES (1) RETURNING n") == [(None,)]
        assert sql("INSERT INTO ns.c (id) VALUES (1) RETURNING n") == [(5,)]
        for statement in (
            "INSERT INTO ns.c VALUES (1, 11)",
            "INSERT INTO ns.c VALUES (0, 1)",
            "INSERT INTO ns.d VALUES (1, 11)",
        ):
            with pytest.raises(deltasql.ConstraintViolation):
                sql(statement)
        assert found["d"].state().metadata.partition_columns == ("id",)
        with pytest.raises(deltasql.TableNotFound):
            sql("CREATE TABLE ns.e (LIKE ns.nothing)")

    def test_a_replaced_table(self, sql: Run, items: deltasql.Table, lake: deltasql.Lake) -> None:
        sql("CREATE OR REPLACE TABLE ns.items AS SELECT name, id::text AS id FROM ns.items WHERE id = 1")
        assert sql("SELECT * FROM ns.items") == [("one", "1")]
        assert items.version == 2
        sql("CREATE OR REPLACE TABLE ns.items (a INT, b INT) PARTITIONED BY (b)")
        assert sql("SELECT * FROM ns.items") == []
        assert items.state().metadata.partition_columns == ("b",)
        assert items.history(1)[0].operation == "CREATE OR REPLACE TABLE"
        assert items.arrow(version=1).num_rows == 3
        sql("CREATE OR REPLACE TABLE ns.fresh (a INT)")
        assert sql("SELECT * FROM ns.fresh") == []

    def test_copy_to_a_file(
        self, sql: Run, items: deltasql.Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        sql(
            "COPY (SELECT id, name, current, DATE '2026-01-31' AS day FROM ns.items ORDER BY id) TO 'out.csv' WITH (HEADER)"
        )
        assert (tmp_path / "out.csv").read_text().splitlines() == [
            '"id","name","current","day"',
            '1,"one","t","2026-01-31"',
            '2,"two","f","2026-01-31"',
            '3,,"t","2026-01-31"',
        ]
        sql("COPY ns.items (id, n) TO 'out.parquet'")
        sql("CREATE TABLE ns.back (id INT, n INT)")
        sql("COPY ns.back FROM 'out.parquet'")
        assert sorted(sql("SELECT * FROM ns.back")) == [(1, 1), (2, 2), (3, 3)]
        with pytest.raises(deltasql.ValidationError, match="COPY cannot write column 'arr', which is integer"):
            sql("COPY ns.items TO 'arrays.csv'")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.parquet"]

    @pytest.mark.parametrize("by", ["HASH (id)", "RANGE (id)"])
    def test_other_partitions_are_rejected(self, sql: Run, by: str) -> None:
        with pytest.raises(deltasql.ValidationError, match=rf"PARTITION BY {by.split(maxsplit=1)[0]} is not supported"):
            sql(f"CREATE TABLE ns.p (id INT) PARTITION BY {by}")


class TestSubstitution:
    """Spark replaces `${…}` in texts; deltasql lets it replace nothing."""

    TEXT = "price ${spark.app.name} ${env:PATH}"

    def test_of_statements(self, sql: Run, items: deltasql.Table) -> None:
        sql(f"INSERT INTO ns.items (id, name) VALUES (9, '{self.TEXT}')")
        assert sql(f"SELECT name FROM ns.items WHERE name = '{self.TEXT}'") == [(self.TEXT,)]
        sql(f"UPDATE ns.items SET name = 'x' || '{self.TEXT}' WHERE id = 9")
        assert sql("SELECT name FROM ns.items WHERE id = 9", dialect="spark") == [(f"x{self.TEXT}",)]

    def test_of_methods(self, items: deltasql.Table) -> None:
        items.update({"name": f"'{self.TEXT}'"}, where=f"id = 1 AND name <> '{self.TEXT}'")
        assert items.df(where=f"name = '{self.TEXT}'").count() == 1

    def test_of_stored_expressions(self, sql: Run) -> None:
        sql(
            f"CREATE TABLE ns.g (id INT, d TEXT DEFAULT '{self.TEXT}', "
            f"g TEXT GENERATED ALWAYS AS ('{self.TEXT}') STORED, CHECK (d = '{self.TEXT}'))"
        )
        sql("INSERT INTO ns.g (id) VALUES (1)")
        assert sql("SELECT d, g FROM ns.g") == [(self.TEXT, self.TEXT)]


def test_settings_of_the_session_do_not_change_the_meaning(sql: Run, spark_session: SparkSession) -> None:
    spark_session.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(Exception, match="Division by zero"):
            sql("SELECT 1 / (i - 1) FROM (VALUES (1)) AS t(i)")
        assert spark_session.conf.get("spark.sql.ansi.enabled") == "false"
    finally:
        spark_session.conf.unset("spark.sql.ansi.enabled")


def test_the_dialect_of_spark(sql: Run, items: deltasql.Table) -> None:
    assert sql("SELECT 5 / 2, arr[0] FROM ns.items WHERE id = 1", dialect="spark") == [(2.5, 10)]
    sql("UPDATE ns.items SET n = arr[0] WHERE id = 1", dialect="spark")
    assert sql("SELECT n FROM ns.items WHERE id = 1", dialect="spark") == [(10,)]
    with pytest.raises(deltasql.UsageError, match="dialect must be one of postgres, spark, got 'mysql'"):
        sql("SELECT 1", dialect="mysql")
