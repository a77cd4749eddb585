"""PostgreSQL syntax that Spark does not have gives the same results as in PostgreSQL."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql
from tests.effort import LONG

Run = Callable[..., Any]


@pytest.fixture
def sql(lake: deltasql.Lake, namespace: str, spark_session: SparkSession) -> Run:
    """Run a statement, with `ns` replaced by the test's namespace, and return its sorted rows or its result."""

    def run(text: str, params: Any = None) -> Any:
        found = lake.sql(text.replace("ns.", f"{namespace}."), params)
        return sorted(map(tuple, found.collect()), key=repr) if hasattr(found, "collect") else found

    return run


@pytest.fixture
def tables(sql: Run, lake: deltasql.Lake, namespace: str) -> None:
    sql("CREATE TABLE ns.a (id INT, k INT, v TEXT DEFAULT 'q')")
    sql("CREATE TABLE ns.b (id INT, k INT, v TEXT)")
    rows = {
        "a": {"id": [1, 2, 3], "k": [10, 20, None], "v": ["x", "y", "z"]},
        "b": {"id": [1, 2, 9], "k": [100, 200, 900], "v": ["xx", "yy", "zz"]},
    }
    schema = pa.schema([("id", pa.int32()), ("k", pa.int32()), ("v", pa.string())])
    for name, columns in rows.items():
        lake.table(f"{namespace}.{name}").append(pa.table(columns, schema))


CONDITIONS: list[tuple[str, Any, list[int]]] = [
    ("id = ANY(ARRAY[1, 2])", None, [1, 2]),
    ("id = SOME(ARRAY[1, 2])", None, [1, 2]),
    ("id = ANY($1)", [[1, 2]], [1, 2]),
    ("id = ANY(:ids::int[])", {"ids": [3]}, [3]),
    ("id = ANY($1)", [[]], []),
    ("id <> ALL(ARRAY[1, 2])", None, [3]),
    ("id <> ALL($1)", [[]], [1, 2, 3]),
    ("id >= ALL($1)", [[1, 2]], [2, 3]),
    ("id > ANY(ARRAY[1, 5])", None, [2, 3]),
    ("id = ANY(array_append(ARRAY[1], 3))", None, [1, 3]),
    ("id = ANY(SELECT id FROM ns.b)", None, [1, 2]),
    ("id = SOME(SELECT id FROM ns.b)", None, [1, 2]),
    ("id <> ALL(SELECT id FROM ns.b)", None, [3]),
    ("v LIKE ANY(ARRAY['x%', 'y%'])", None, [1, 2]),
    ("id = ANY(SELECT id FROM ns.b WHERE k = ANY($1) AND (id, k) = (1, 100))", [[100, 200]], [1]),
    ("id = ANY($1)", [list(range(2, 3000))], [2, 3]),
    ("id <= ALL($1)", [list(range(2, 3000))], [1, 2]),
    ("(id, k) IN ((1, 10), (2, 21))", None, [1]),
    (f"(id, k) IN ({', '.join(f'({n}, {10 * n})' for n in range(2, 300))})", None, [2]),
    ("(id, k) = (1, 10)", None, [1]),
    ("(id, k) <> (1, 10)", None, [2, 3]),
    ("(id, v) NOT IN ((1, 'x'), (2, $1))", ["y"], [3]),
]


@pytest.mark.usefixtures("tables")
class TestArraysAndRows:
    @pytest.mark.parametrize(("condition", "params", "ids"), CONDITIONS)
    def test_conditions(self, sql: Run, condition: str, params: Any, ids: list[int]) -> None:
        assert sql(f"SELECT id FROM ns.a WHERE {condition}", params) == [(i,) for i in ids]

    @pytest.mark.parametrize(("condition", "params", "ids"), CONDITIONS if LONG else CONDITIONS[::3])
    def test_conditions_of_delete(self, sql: Run, condition: str, params: Any, ids: list[int]) -> None:
        assert sql(f"DELETE FROM ns.a WHERE {condition} RETURNING id", params) == [(i,) for i in ids]

    def test_values(self, sql: Run) -> None:
        sql("UPDATE ns.a SET k = CASE WHEN id = ANY($1) THEN 1 ELSE 0 END WHERE (id, v) IN ((1, 'x'), (2, 'y'))", [[1]])
        sql(
            "MERGE INTO ns.a t USING ns.b s ON t.id = s.id AND (t.id, s.id) = (2, 2) "
            "WHEN MATCHED AND s.id = ANY(ARRAY[2]) THEN UPDATE SET v = 'm'"
        )
        assert sql("SELECT * FROM ns.a") == [(1, 1, "x"), (2, 0, "m"), (3, None, "z")]

    def test_history_holds_no_parameter_values(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql("DELETE FROM ns.a WHERE v = ANY($1)", [["x", "secret"]])
        [entry] = lake.table(f"{namespace}.a").history(1)
        assert entry.parameters["predicate"] == '["v = ANY($1)"]'


class TestParameters:
    @pytest.mark.parametrize(
        ("condition", "value", "plan"),
        [
            ("part = $1", 1, "removes 1 whole files and reads none"),
            ("part = ANY($1)", [0, 1], "removes 2 whole files and reads none"),
            ("day = $1", "2026-01-01", "removes 1 whole files and reads none"),
            ("day = $1", dt.date(2026, 1, 1), "removes 1 whole files and reads none"),
            ("m > $1", Decimal("100.5"), "reads 0 of 2 files"),
            ("f > $1", 100.5, "reads 0 of 2 files"),
            ("f < $1", -1e-7, "reads 0 of 2 files"),
            ("at > $1", dt.datetime(2030, 1, 1, tzinfo=dt.UTC), "reads 0 of 2 files"),
            ("at > $1", dt.datetime(2030, 1, 1), "reads 0 of 2 files"),
            ("m > $1", Decimal("0.5"), "reads 1 of 2 files"),
        ],
    )
    def test_files_are_pruned_by_parameters(
        self, sql: Run, lake: deltasql.Lake, namespace: str, condition: str, value: Any, plan: str
    ) -> None:
        sql(
            "CREATE TABLE ns.p (part INT, day DATE, m NUMERIC(5, 2), f DOUBLE PRECISION, at TIMESTAMPTZ) "
            "PARTITIONED BY (part, day)"
        )
        columns = {
            "part": pa.array([0, 1], pa.int32()),
            "day": [dt.date(2026, 1, 1), dt.date(2026, 1, 2)],
            "m": pa.array([Decimal(0), Decimal(1)], pa.decimal128(5, 2)),
            "f": [0.0, 1.0],
            "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 2, pa.timestamp("us", "UTC")),
        }
        lake.table(f"{namespace}.p").append(pa.table(columns))
        [(found,)] = sql(f"EXPLAIN DELETE FROM ns.p WHERE {condition}", [value])
        assert plan in found
        left = sql(f"SELECT count(*) FROM ns.p WHERE NOT ({condition})", [value])
        sql(f"DELETE FROM ns.p WHERE {condition}", [value])
        assert sql("SELECT count(*) FROM ns.p") == left

    @pytest.mark.usefixtures("tables")
    def test_of_versions_and_files(self, sql: Run, lake: deltasql.Lake, namespace: str, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("4,40,w\n")
        sql("COPY ns.a FROM $1", [f"{tmp_path}/x.csv"])
        sql("COPY ns.a FROM :file WITH (FORMAT csv)", {"file": f"{tmp_path}/x.csv"})
        assert sql("SELECT count(*) FROM ns.a") == [(5,)]
        assert sql("SELECT count(*) FROM ns.a FOR VERSION AS OF $1", [1]) == [(3,)]
        written = lake.table(f"{namespace}.a").history()[0].timestamp
        for moment in (written, written.isoformat()):
            assert sql("SELECT count(*) FROM ns.a FOR TIMESTAMP AS OF $1", [moment]) == [(5,)]
        moment = f"TIMESTAMP '{written.isoformat()}' + INTERVAL '1 hour' - INTERVAL '1 hour'"
        assert sql(f"SELECT count(*) FROM ns.a FOR TIMESTAMP AS OF {moment}") == [(5,)]
        with pytest.raises(deltasql.ValidationError, match="is after the last commit"):
            sql("SELECT count(*) FROM ns.a FOR TIMESTAMP AS OF now()")
        with pytest.raises(deltasql.UsageError, match="is a whole number, got 'x'"):
            sql("SELECT count(*) FROM ns.a FOR VERSION AS OF $1", ["x"])


@pytest.mark.usefixtures("tables")
class TestStatements:
    def test_with_recursive(self, sql: Run) -> None:
        numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3)"
        assert sql(f"{numbers} SELECT n FROM r") == [(1,), (2,), (3,)]
        sql(f"{numbers} INSERT INTO ns.a (id) SELECT n + 20 FROM r")
        sql(
            "WITH RECURSIVE x AS (SELECT id FROM ns.b), y AS (SELECT id FROM x) DELETE FROM ns.a USING y WHERE y.id = a.id"
        )
        assert [row[0] for row in sql("SELECT id FROM ns.a")] == [21, 22, 23, 3]

    def test_several_columns_from_a_query(self, sql: Run) -> None:
        sql("UPDATE ns.a SET (k, v) = (SELECT b.k, b.v FROM ns.b b WHERE b.id = a.id)")
        assert sql("SELECT * FROM ns.a") == [(1, 100, "xx"), (2, 200, "yy"), (3, None, None)]
        sql("UPDATE ns.a SET (k, v) = (SELECT max(k), 'm' FROM ns.b), id = 5 WHERE id = 3")
        assert sql("SELECT * FROM ns.a WHERE id = 5") == [(5, 900, "m")]

    def test_only(self, sql: Run) -> None:
        sql("DELETE FROM ONLY ns.a WHERE id = 1")
        sql("UPDATE ONLY ns.a SET v = 'o' WHERE id = 2")
        assert sql("SELECT id, v FROM ONLY ns.a") == [(2, "o"), (3, "z")]

    def test_truncate_several(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql("TRUNCATE ns.a, ns.b")
        assert sql("SELECT id FROM ns.a UNION ALL SELECT id FROM ns.b") == []
        first, second = (lake.table(f"{namespace}.{name}").history(1)[0] for name in "ab")
        assert first.txn_id == second.txn_id

    def test_default_values(self, sql: Run) -> None:
        assert sql("INSERT INTO ns.a DEFAULT VALUES RETURNING *") == [(None, None, "q")]
        sql("INSERT INTO ns.a DEFAULT VALUES")
        sql("MERGE INTO ns.a t USING ns.b s ON t.id = s.id WHEN NOT MATCHED THEN INSERT DEFAULT VALUES")
        assert sql("SELECT count(*) FROM ns.a WHERE v = 'q'") == [(3,)]

    def test_merge_gives_fewer_values_than_columns(self, sql: Run) -> None:
        found = sql(
            "MERGE INTO ns.a t USING ns.b s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.k) RETURNING *"
        )
        assert found == [(9, 900, "zz", 9, 900, "q")]  # columns of the source first
        with pytest.raises(deltasql.ValidationError, match="names 3 columns and gives 4 values"):
            sql("MERGE INTO ns.a t USING ns.b s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (1, 2, 3, 4)")


class TestTypes:
    def test_timestamps(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql(
            "CREATE TABLE ns.w (a TIMESTAMP WITHOUT TIME ZONE, b TIMESTAMP WITH TIME ZONE, c TIMESTAMPTZ, d TIMESTAMP, "
            "e TIMESTAMP(6) WITHOUT TIME ZONE)"
        )
        sql("ALTER TABLE ns.w ADD COLUMN f TIMESTAMP WITHOUT TIME ZONE")
        zones = [field.type.tz for field in lake.table(f"{namespace}.w").schema]
        assert zones == [None, "UTC", "UTC", "UTC", None, None]
        found = lake.sql(
            "SELECT CAST('2026-01-05 10:00:00' AS TIMESTAMP WITHOUT TIME ZONE), TIMESTAMP WITHOUT TIME ZONE '2026-01-05', "
            "'2026-01-05'::timestamp without time zone, TIMESTAMPTZ '2026-01-05 10:00:00+02'"
        )
        assert [kind for _, kind in found.dtypes] == ["timestamp_ntz"] * 3 + ["timestamp"]

    def test_a_session_whose_timestamps_have_no_zone(self, sql: Run, spark_session: SparkSession) -> None:
        sql("CREATE TABLE ns.w (id INT, a TIMESTAMPTZ, b TIMESTAMP WITHOUT TIME ZONE)")
        spark_session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
        spark_session.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            sql("INSERT INTO ns.w VALUES (1, '2026-01-05 10:00:00', '2026-01-05 10:00:00')")
            sql("INSERT INTO ns.w VALUES (2, TIMESTAMPTZ '2026-01-05 15:00:00+00', NULL)")
            sql("INSERT INTO ns.w VALUES (3, $1, NULL)", [dt.datetime(2026, 1, 5, 15, tzinfo=dt.UTC)])
            sql("UPDATE ns.w SET a = '2026-01-05 10:00:00' WHERE id = 3")
        finally:
            spark_session.conf.unset("spark.sql.timestampType")
            spark_session.conf.set("spark.sql.session.timeZone", "UTC")
        assert sql("SELECT id, a::text, b::text FROM ns.w") == [
            (1, "2026-01-05 15:00:00+00", "2026-01-05 10:00:00"),
            (2, "2026-01-05 15:00:00+00", None),
            (3, "2026-01-05 15:00:00+00", None),
        ]

    @pytest.mark.parametrize("value", ["'NaN'", "CAST('NaN' AS DOUBLE PRECISION)", "'Infinity'", "'-Infinity'"])
    def test_nan_and_infinity(self, sql: Run, value: str) -> None:
        sql("CREATE TABLE ns.r (f REAL)")
        sql(f"INSERT INTO ns.r VALUES ({value})")
        sql(f"INSERT INTO ns.r VALUES ({value}) RETURNING f")
        assert sql(f"SELECT count(*) FROM ns.r WHERE f = CAST({value} AS REAL)") == [(2,)]
        for wide in ("1e39", "'1e39'", "'-1e39'"):
            with pytest.raises(deltasql.ValidationError, match="is out of range for type real"):
                sql(f"INSERT INTO ns.r VALUES ({wide})")

    def test_floats_of_frames_and_files(self, sql: Run, lake: deltasql.Lake, namespace: str, tmp_path: Path) -> None:
        table = lake.create_table(f"{namespace}.r", "f FLOAT")
        table.insert(lake.sql("SELECT CAST('NaN' AS DOUBLE PRECISION) AS f"))
        (tmp_path / "x.csv").write_text("NaN\n")
        sql(f"COPY ns.r FROM '{tmp_path}/x.csv'")
        assert sql("SELECT count(*) FROM ns.r WHERE f = 'NaN'") == [(2,)]


class TestDrop:
    def test_all_or_none(self, tables: None, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        with pytest.raises(deltasql.TableNotFound, match="nope"):
            sql("DROP TABLE ns.a, ns.nope")
        assert sql("SELECT count(*) FROM ns.a") == [(3,)]
        sql("DROP TABLE IF EXISTS ns.a, ns.nope, ns.b")
        assert not [t for t in lake.tables() if t.name.startswith(f"{namespace}.")]


@pytest.mark.usefixtures("spark_session")
class TestFunctions:
    @pytest.mark.parametrize(
        "query",
        [
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n) FROM r",
            "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY n DESC) FROM r",
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY n) FROM r",
            "SELECT string_agg(n::text, ',' ORDER BY n DESC) FROM r WHERE n IS NOT NULL",
            "SELECT regexp_replace('aXbX', 'x', '-', 'gi'), regexp_replace('aXbX', 'X', '-', 'g')",
            "SELECT g.n FROM generate_series(1, 3) AS g(n)",
            "SELECT g FROM generate_series(3, 1) AS g",
            "SELECT generate_series FROM generate_series(1, 5, 2)",
            "SELECT u.x FROM unnest(ARRAY[1, 2]) AS u(x)",
            "SELECT u FROM unnest(ARRAY[1, 2]) AS u",
            "SELECT n, x FROM r, unnest(ARRAY[n, 7]) AS u(x)",
            "SELECT n, g FROM r CROSS JOIN generate_series(1, 2) AS g WHERE n = 1",
            "SELECT n FROM r WHERE EXISTS (SELECT FROM r AS q WHERE q.n = r.n + 1)",
            "SELECT column1 + 1, column2 FROM (VALUES (1, 'x'), (2, 'y')) AS v",
            "VALUES (1, 'x'), (2, 'y')",
        ],
    )
    def test_queries_match_postgresql(self, lake: deltasql.Lake, query: str) -> None:
        if "FROM r" in query:
            query = f"WITH r(n) AS (VALUES (1), (2), (4), (8), (NULL)) {query}"
        with psycopg.connect(lake.dsn) as connection:
            expected = sorted(connection.execute(query), key=repr)
        assert sorted(map(tuple, lake.sql(query).collect()), key=repr) == expected

    def test_names_of_values(self, lake: deltasql.Lake) -> None:
        assert lake.sql("VALUES (1, 'x')").columns == ["column1", "column2"]

    @pytest.mark.usefixtures("tables")
    def test_rows_of_a_function_in_statements(self, sql: Run) -> None:
        assert sql("DELETE FROM ns.a USING generate_series(2, 3) AS g(n) WHERE a.id = g.n RETURNING id") == [(2,), (3,)]
        assert sql("UPDATE ns.a SET k = 0 FROM unnest($1) AS u(x) WHERE a.id = u.x RETURNING id", [[1, 5]]) == [(1,)]


@pytest.mark.usefixtures("tables")
class TestValues:
    def test_computed_values(self, sql: Run) -> None:
        sql("INSERT INTO ns.a VALUES ((SELECT max(id) + 1 FROM ns.a), 1, gen_random_uuid()), (5, random() * 0, 'x')")
        assert sql("SELECT id, k, length(v) FROM ns.a WHERE id > 3") == [(4, 1, 36), (5, 0, 1)]

    def test_computed_defaults(self, sql: Run) -> None:
        sql("CREATE TABLE ns.c (id INT, u TEXT DEFAULT uuid(), x DOUBLE PRECISION DEFAULT rand())")
        sql("INSERT INTO ns.c VALUES (1, DEFAULT), (2, 'x')")
        sql("INSERT INTO ns.c VALUES (3, DEFAULT, DEFAULT) RETURNING id")
        assert sql("SELECT id, length(u), x < 1 FROM ns.c") == [(1, 36, True), (2, 1, True), (3, 36, True)]

    def test_excluded_has_the_columns_that_are_left_out(self, sql: Run) -> None:
        statement = (
            "INSERT INTO ns.a (id) VALUES (1), (7) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v, k = EXCLUDED.k"
        )
        assert sql(f"{statement} RETURNING *") == [(1, None, "q"), (7, None, "q")]

    def test_columns_by_their_full_names(self, sql: Run) -> None:
        sql("UPDATE ns.a SET k = ns.b.k FROM ns.b WHERE ns.a.id = ns.b.id AND ns.b.id = 1")
        sql(
            "MERGE INTO ns.a USING ns.b ON ns.a.id = ns.b.id WHEN MATCHED AND ns.b.id = 2 THEN UPDATE SET k = ns.b.k "
            "WHEN NOT MATCHED THEN INSERT VALUES (ns.b.id, ns.b.k, ns.b.v)"
        )
        assert sql("SELECT id, k FROM ns.a") == [(1, 100), (2, 200), (3, None), (9, 900)]
        assert sql("DELETE FROM ns.a USING ns.b WHERE ns.b.id = ns.a.id RETURNING ns.b.v") == [
            ("xx",),
            ("yy",),
            ("zz",),
        ]

    def test_comments_after_the_end(self, sql: Run) -> None:
        assert sql("SELECT 1; -- done") == [(1,)]


class TestWithQueryNames:
    """The name of a WITH query hides a table of the same name only inside its own statement."""

    @pytest.fixture
    def a(self, lake: deltasql.Lake, namespace: str, spark_session: SparkSession) -> Iterator[str]:
        """A table of three rows in the default namespace."""
        name = f"{namespace}_a"
        lake.sql(f"CREATE TABLE {name} AS SELECT * FROM (VALUES (1), (2), (3)) v(id)")
        yield name
        lake.sql(f"DROP TABLE {name}")

    @pytest.mark.parametrize(
        ("query", "rows"),
        [
            ("SELECT count(*) FROM a JOIN (WITH a AS (SELECT 50 AS id) SELECT * FROM a) q ON true", [(3,)]),
            ("SELECT id FROM a WHERE EXISTS (WITH a AS (SELECT 2 AS id) SELECT 1 FROM a)", [(1,), (2,), (3,)]),
            ("SELECT id FROM a WHERE id IN (WITH a AS (SELECT 2 AS id) SELECT id FROM a)", [(2,)]),
            ("WITH a AS (SELECT id FROM a WHERE id > 2) SELECT id FROM a", [(3,)]),
            ("SELECT * FROM (WITH a AS (SELECT id FROM a WHERE id > 1) SELECT id FROM a) q", [(2,), (3,)]),
            ("SELECT (WITH x AS (SELECT 1 AS i) SELECT i FROM x), (WITH x AS (SELECT 2 AS i) SELECT i FROM x)", [(1, 2)]),
            ("WITH x AS (SELECT 1 AS i) SELECT i, (WITH x AS (SELECT 2 AS i) SELECT i FROM x) FROM x", [(1, 2)]),
            ("WITH x AS (WITH a AS (SELECT 7 AS id) SELECT id FROM a) SELECT a.id, x.id FROM a, x WHERE a.id = 1", [(1, 7)]),
            ("WITH x AS MATERIALIZED (SELECT 1 AS i), y AS NOT MATERIALIZED (SELECT i FROM x) SELECT i FROM y", [(1,)]),
            ("WITH a AS (SELECT id + 1 AS id FROM a), b AS (SELECT max(id) AS id FROM a) SELECT id FROM b", [(4,)]),
        ],
    )  # fmt: skip
    def test_in_queries(self, sql: Run, a: str, query: str, rows: list[Any]) -> None:
        assert sql(re.sub(r"\ba\b", a, query)) == rows

    def test_in_statements(self, sql: Run, a: str, tables: None) -> None:
        inner = f"WITH {a} AS (SELECT id + 300 AS id FROM {a}) SELECT id FROM {a} WHERE id < 303"
        assert sql(f"INSERT INTO ns.a (id) {inner} RETURNING id") == [(301,), (302,)]
        assert sql(f"WITH x AS (SELECT 1) INSERT INTO ns.a (id) {inner} RETURNING id") == [(301,), (302,)]
        found = sql(f"UPDATE ns.a SET k = (WITH {a} AS (SELECT 5 AS q) SELECT q FROM {a}) WHERE id = 1 RETURNING k")
        assert found == [(5,)]
        assert sql(f"DELETE FROM ns.a WHERE id IN (WITH {a} AS (SELECT 2 AS id) SELECT id FROM {a}) RETURNING id") == [
            (2,)
        ]
        found = sql(
            f"WITH d AS (DELETE FROM ns.a WHERE id IN (SELECT id FROM {a}) RETURNING id), "
            f"{a} AS (SELECT id + 1 AS id FROM d) SELECT id, (WITH d AS (SELECT 9 AS id) SELECT id FROM d) FROM {a}"
        )
        assert found == [(2, 9), (4, 9)]


@pytest.mark.usefixtures("tables")
class TestAlter:
    def test_constraints_without_names(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql("ALTER TABLE ns.b ADD CHECK (k > 0), ADD CONSTRAINT small CHECK (k < 1000)")
        sql("ALTER TABLE ns.b ADD CHECK (id > 0)")
        known = lake.table(f"{namespace}.b").properties
        assert {key: known[key] for key in known if "constraints" in key} == {
            "delta.constraints.check_1": "k > 0",
            "delta.constraints.small": "k < 1000",
            "delta.constraints.check_2": "id > 0",
        }
        sql("ALTER TABLE ns.b DROP CONSTRAINT IF EXISTS nope, DROP CONSTRAINT IF EXISTS small")
        assert "delta.constraints.small" not in lake.table(f"{namespace}.b").properties

    def test_if_exists(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql("ALTER TABLE IF EXISTS ns.nothing ADD COLUMN x INT")
        sql("ALTER TABLE ns.b ADD COLUMN IF NOT EXISTS K INT, ADD COLUMN IF NOT EXISTS more INT")
        assert lake.table(f"{namespace}.b").schema.names == ["id", "k", "v", "more"]

    def test_defaults(self, sql: Run) -> None:
        with pytest.raises(deltasql.ValidationError, match="have no value for z"):
            sql("ALTER TABLE ns.b ADD COLUMN z INT GENERATED ALWAYS AS (id * 2) STORED")
        sql("ALTER TABLE ns.b ADD COLUMN z INT")
        sql("ALTER TABLE ns.b ALTER COLUMN z SET DEFAULT 2 + 3")
        assert sql("INSERT INTO ns.b (id) VALUES (4) RETURNING z") == [(5,)]
        sql("ALTER TABLE ns.b ALTER z DROP DEFAULT")
        assert sql("INSERT INTO ns.b (id) VALUES (4) RETURNING z") == [(None,)]
        for wrong in ("z SET DEFAULT 'abc'", "z SET DEFAULT id", "nope SET DEFAULT 5", "z SET NOT NULL"):
            with pytest.raises(deltasql.ValidationError):
                sql(f"ALTER TABLE ns.b ALTER COLUMN {wrong}")


class TestCopy:
    @pytest.mark.parametrize(
        ("content", "options", "rows"),
        [
            ("1,,NA\n", "(FORMAT csv)", [(1, None, "NA")]),
            ('2,"NA",""\n', "(FORMAT csv)", [(2, "NA", "")]),
            ("1,,NA\n", "(FORMAT csv, NULL 'NA')", [(1, "", None)]),
            ('1,"",x\n', "(FORMAT csv, NULL 'NA')", [(1, "", "x")]),
            ("1,,x\n", "(FORMAT csv, NULL '')", [(1, None, "x")]),
            ("1, x ,y\n", "(FORMAT csv)", [(1, " x ", "y")]),
            ("1;'a;b';'it''s'\n", "(FORMAT csv, DELIMITER ';', QUOTE '''')", [(1, "a;b", "it's")]),
            ('1,"a\\"b","c\\\\d"\n', "(FORMAT csv, ESCAPE '\\')", [(1, 'a"b', "c\\d")]),
            ('1,"a""b",\\\n', "(FORMAT csv)", [(1, 'a"b', "\\")]),
            ("1\tx\ty\n", "(FORMAT csv, DELIMITER E'\\t')", [(1, "x", "y")]),
            ("b,id\nx,1\n", "(FORMAT csv, HEADER)", [(1, None, "x")]),
            ("b,id\nx,1\n", "(HEADER on)", [(1, None, "x")]),
            ("1,id,x\n", "(HEADER false)", [(1, "id", "x")]),
            ("b;id\nx;1\n", "CSV HEADER DELIMITER ';'", [(1, None, "x")]),
            ("b;id\nx;1\n", "WITH CSV DELIMITER AS ';' HEADER", [(1, None, "x")]),
            ("b;id\nNA;1\n", "DELIMITER ';' CSV HEADER NULL AS 'NA'", [(1, None, None)]),
        ],
    )
    def test_csv(self, sql: Run, tmp_path: Path, content: str, options: str, rows: list[tuple[Any, ...]]) -> None:
        sql("CREATE TABLE ns.c (id INT, a TEXT, b TEXT)")
        (tmp_path / "x.csv").write_text(content)
        sql(f"COPY ns.c FROM '{tmp_path}/x.csv' {options}")
        assert sql("SELECT * FROM ns.c") == rows

    @pytest.mark.parametrize(("name", "codec"), [("LATIN1", "latin-1"), ("UTF8", "utf-8"), ("utf-16le", "utf-16le")])
    def test_encodings(self, sql: Run, tmp_path: Path, name: str, codec: str) -> None:
        sql("CREATE TABLE ns.c (id INT, a TEXT)")
        (tmp_path / "x.csv").write_bytes("1,é\n".encode(codec))
        sql(f"COPY ns.c FROM '{tmp_path}/x.csv' (FORMAT csv, ENCODING '{name}')")
        assert sql("SELECT * FROM ns.c") == [(1, "é")]

    def test_empty_text_is_not_a_number(self, sql: Run, tmp_path: Path) -> None:
        sql("CREATE TABLE ns.c (id INT, a TEXT)")
        (tmp_path / "x.csv").write_text(",x\n")
        with pytest.raises(deltasql.ConstraintViolation, match="id fits INT"):
            sql(f"COPY ns.c FROM '{tmp_path}/x.csv' (FORMAT csv, NULL 'NA')")

    def test_empty_lines(self, sql: Run, tmp_path: Path) -> None:
        sql("CREATE TABLE ns.c (a TEXT)")
        (tmp_path / "x.csv").write_text("x\n\ny\n")
        with pytest.raises(deltasql.UsageError, match="has an empty line, which Spark skips"):
            sql(f"COPY ns.c FROM '{tmp_path}/x.csv'")
        (tmp_path / "x.csv").write_text('x\n""\nNA\n')
        sql(f"COPY ns.c FROM '{tmp_path}/x.csv' (NULL 'NA')")
        assert sql("SELECT a FROM ns.c") == [("",), ("x",), (None,)]

    def test_json_as_lines_and_as_an_array(self, sql: Run, tmp_path: Path) -> None:
        sql("CREATE TABLE ns.c (id INT, a TEXT)")
        (tmp_path / "x.ndjson").write_text('{"id": 1, "a": "x"}\n\n{"id": 2}\n')
        (tmp_path / "x.json").write_text('\n [{"id": 3, "a": "y"},\n {"id": 4}]\n')
        sql(f"COPY ns.c FROM '{tmp_path}/x.ndjson'")
        sql(f"COPY ns.c FROM '{tmp_path}/x.json'")
        assert sql("SELECT * FROM ns.c") == [(1, "x"), (2, None), (3, "y"), (4, None)]


QUANTIFIED = [
    f"{no}{column} {operator} {quantifier}({array}){end}"
    for column, operators, arrays in (
        ("n", ["=", "<>", "<", "<=", ">", ">="], ["ARRAY[1, 2]", "ARRAY[2]", "ARRAY[1, NULL]"]),
        ("v", ["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"], ["ARRAY['x%', '%y']", "ARRAY['x%']", "ARRAY['X%', NULL]"]),
        ("v", ["=", "<>", "~", "~*"], ["ARRAY['x', 'y']", "ARRAY['xy']"]),
    )
    for operator in operators
    for array in arrays
    for quantifier in ("ANY", "SOME", "ALL")
    for no, end in (("", ""), ("NOT (", ")"))
]


def test_quantified_comparisons_match_postgresql(lake: deltasql.Lake, spark_session: SparkSession) -> None:
    rows = "(VALUES (1, 'x'), (2, 'xy'), (3, 'Y'), (NULL, NULL)) AS r(n, v)"
    query = f"SELECT n, {', '.join(f'({c}) AS c{i}' for i, c in enumerate(QUANTIFIED))} FROM {rows}"
    with psycopg.connect(lake.dsn) as connection:
        expected = {row[0]: row[1:] for row in connection.execute(query)}
    found = {row[0]: tuple(row)[1:] for row in lake.sql(query).collect()}
    assert found.keys() == expected.keys()
    for n, values in expected.items():
        assert dict(zip(QUANTIFIED, found[n], strict=True)) == dict(zip(QUANTIFIED, values, strict=True))


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("condition", ["v !~ ALL(ARRAY['x', 'y'])", "NOT v ~ ANY(ARRAY['x'])", "v !~* ANY($1)"])
def test_ambiguous_patterns_are_rejected(sql: Run, condition: str) -> None:
    with pytest.raises(deltasql.ValidationError, match=r"ambiguous negation, write NOT \(a ~ ANY"):
        sql(f"DELETE FROM ns.a WHERE {condition}", [["x"]] if "$1" in condition else None)


class TestParameterPositions:
    def test_names_that_look_alike(self, tables: None, sql: Run) -> None:
        params = {"ids": [1], "ids_": [2], "ids_item1": 3, "ids_1": 9}
        where = "id = ANY(:ids_) OR id = ANY(:ids) OR id = :ids_item1 OR id = :ids_1"
        assert sql(f"SELECT id FROM ns.a WHERE {where}", params) == [(1,), (2,), (3,)]
        assert sql(f"SELECT id FROM ns.a WHERE {where}", params | {"ids_item1": 9}) == [(1,), (2,)]

    def test_mixed_parameter_styles_are_rejected(self, tables: None, sql: Run) -> None:
        with pytest.raises(deltasql.ValidationError, match="given by order"):
            sql("SELECT id FROM ns.a WHERE id = $1 AND k = ?", [1])

    @pytest.mark.parametrize(
        "statement",
        [
            "ALTER TABLE ns.a ALTER COLUMN k SET DEFAULT $1",
            "ALTER TABLE ns.a ADD CONSTRAINT big CHECK (k > $1)",
            "CREATE TABLE ns.c (id INT DEFAULT $1)",
        ],
    )
    def test_parameters_in_definitions_are_rejected(self, tables: None, sql: Run, statement: str) -> None:
        with pytest.raises(deltasql.ValidationError, match="parameters are not supported in definitions"):
            sql(statement, [1])

    def test_parameters_in_create_table_as(self, tables: None, sql: Run) -> None:
        sql("CREATE TABLE ns.c AS SELECT id FROM ns.a WHERE id > $1", [1])
        assert sql("SELECT * FROM ns.c") == [(2,), (3,)]

    @pytest.mark.parametrize("sign", [1, -1])
    def test_floats_are_compared_as_floats(self, sql: Run, sign: int) -> None:
        """A decimal that equals a float only after rounding matches, and its file is not pruned."""
        sql("CREATE TABLE ns.d (id INT, p DECIMAL(38, 20))")
        sql(f"INSERT INTO ns.d VALUES (1, {'-' if sign < 0 else ''}0.10000000000000000001)")
        assert sql("SELECT id FROM ns.d WHERE p = $1", [0.1 * sign]) == [(1,)]
        assert sql("UPDATE ns.d SET id = 2 WHERE p = $1", [0.1 * sign]).metrics["numUpdatedRows"] == "1"


class TestJson:
    def test_arrays_on_lines(self, sql: Run, tmp_path: Path) -> None:
        sql("CREATE TABLE ns.j (a BIGINT)")
        (tmp_path / "lines.json").write_text('[{"a": 1}]\n[{"a": 2}, {"a": 3}]\n')
        sql(f"COPY ns.j FROM '{tmp_path / 'lines.json'}'")
        assert sql("SELECT a FROM ns.j") == [(1,), (2,), (3,)]

    def test_more_than_one_array(self, sql: Run, tmp_path: Path) -> None:
        sql("CREATE TABLE ns.j (a BIGINT)")
        (tmp_path / "two.json").write_text('[\n{"a": 1}\n]\n[\n{"a": 2}\n]\n')
        with pytest.raises(deltasql.ValidationError, match="or is one array of them"):
            sql(f"COPY ns.j FROM '{tmp_path / 'two.json'}'")
        assert sql("SELECT a FROM ns.j") == []


def test_count_of_no_rows(tables: None, sql: Run) -> None:
    sql("UPDATE ns.a SET (k, v) = (SELECT count(*), max(b.v) FROM ns.b AS b WHERE b.id = a.id + 100)")
    assert sql("SELECT id, k, v FROM ns.a") == [(1, 0, None), (2, 0, None), (3, 0, None)]


NULLS = [
    "SELECT n FROM r WHERE NULL",
    "SELECT n FROM r WHERE (NULL)",
    "SELECT n FROM r WHERE NOT NULL OR n = 1",
    "SELECT CASE WHEN NULL THEN 1 WHEN n = 2 THEN 2 ELSE 3 END FROM r",
    "SELECT CASE n WHEN NULL THEN 1 ELSE 2 END FROM r",
    "SELECT r.n, q.n FROM r LEFT JOIN r AS q ON NULL",
    "SELECT count(*) FROM r HAVING NULL",
    "SELECT count(*) FILTER (WHERE NULL) FROM r",
    "SELECT n FROM r WHERE n IN (NULL, 1)",
    "SELECT NULL FROM r",
]


@pytest.mark.parametrize("query", NULLS)
def test_null_is_a_condition(lake: deltasql.Lake, spark_session: SparkSession, query: str) -> None:
    query = f"WITH r(n) AS (VALUES (1), (2), (NULL)) {query}"
    with psycopg.connect(lake.dsn) as connection:
        expected = sorted(connection.execute(query), key=repr)
    assert sorted(map(tuple, lake.sql(query).collect()), key=repr) == expected


@pytest.mark.usefixtures("tables")
def test_null_changes_nothing(sql: Run) -> None:
    before = sql("SELECT * FROM ns.a")
    assert sql("DELETE FROM ns.a WHERE NULL").metrics["numDeletedRows"] == "0"
    assert sql("DELETE FROM ns.a USING ns.b WHERE NULL RETURNING *") == []
    assert sql("DELETE FROM ns.a WHERE $1 RETURNING *", [None]) == []
    assert sql("UPDATE ns.a SET k = 1 WHERE NULL RETURNING *") == []
    sql("MERGE INTO ns.a t USING ns.b s ON t.id = s.id WHEN MATCHED AND NULL THEN DELETE")
    sql("MERGE INTO ns.a t USING ns.b s ON NULL WHEN MATCHED THEN DELETE")
    sql("INSERT INTO ns.a (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET k = 5 WHERE NULL")
    assert sql("SELECT * FROM ns.a") == before
    sql("UPDATE ns.a SET k = CASE WHEN NULL THEN 1 ELSE 2 END WHERE id = 1")
    assert sql("SELECT k FROM ns.a WHERE id = 1") == [(2,)]
