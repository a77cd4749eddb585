"""SQL statements in PostgreSQL syntax: parsing, parameters, results and commits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql
from tests.readers import assert_same_rows

Run = Callable[..., Any]


@pytest.fixture
def sql(lake: deltasql.Lake, namespace: str, spark_session: SparkSession) -> Run:
    """Run a statement, with `ns` replaced by the test's namespace, and return its rows or its result."""

    def run(text: str, params: Any = None) -> Any:
        found = lake.sql(text.replace("ns.", f"{namespace}."), params)
        return [tuple(row) for row in found.collect()] if hasattr(found, "collect") else found

    return run


@pytest.fixture
def orders(sql: Run, lake: deltasql.Lake, namespace: str) -> deltasql.Table:
    """A table with three orders in two files."""
    sql("CREATE TABLE ns.orders (id BIGINT NOT NULL, day TEXT, amount NUMERIC(10, 2) DEFAULT 7)")
    amounts = pa.array([Decimal(10), Decimal(20), Decimal(30)], pa.decimal128(10, 2))
    rows = pa.table({"id": [1, 2, 3], "day": ["a", "b", "a"], "amount": amounts})
    with lake.begin() as tx:
        for file in (rows.slice(0, 1), rows.slice(1)):
            tx.write(f"{namespace}.orders", file)
    return lake.table(f"{namespace}.orders")


def rows(table: deltasql.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.arrow().sort_by("id").to_pylist()]


D = Decimal


class TestInsert:
    def test_values_with_defaults(self, sql: Run, orders: deltasql.Table) -> None:
        found = sql("INSERT INTO ns.orders (id, amount) VALUES (4, DEFAULT), (5, '1.5') RETURNING id, amount, day")
        assert sorted(found) == [(4, D("7.00"), None), (5, D("1.50"), None)]
        assert rows(orders)[3:] == [(4, None, D("7.00")), (5, None, D("1.50"))]

    def test_from_a_query_on_itself(self, sql: Run, orders: deltasql.Table) -> None:
        result = sql("INSERT INTO ns.orders SELECT id + 10, day, amount FROM ns.orders WHERE id < 3")
        assert (result.version, result.metrics["numOutputRows"]) == (2, "2")
        assert [row[0] for row in rows(orders)] == [1, 2, 3, 11, 12]

    def test_a_changed_source_is_a_conflict(self, lake: deltasql.Lake, orders: deltasql.Table) -> None:
        tx = lake.begin()
        tx.sql(f"INSERT INTO {orders.name} SELECT max(id) + 1, 'x', 1 FROM {orders.name}")
        orders.delete(where="id = 3")
        with pytest.raises(deltasql.CommitConflict):
            tx.commit()
        blind = lake.begin()
        blind.sql(f"INSERT INTO {orders.name} VALUES (9, 'x', 1)")
        orders.delete(where="id = 2")
        blind.commit()
        assert [row[0] for row in rows(orders)] == [1, 9]

    def test_generated_and_default_values_are_returned(self, sql: Run) -> None:
        sql("CREATE TABLE ns.g (id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2) STORED, n INT DEFAULT 5)")
        assert sql("INSERT INTO ns.g (id) VALUES (4) RETURNING *") == [(4, 8, 5)]
        assert sql("UPDATE ns.g SET id = 5 RETURNING *") == [(5, 10, 5)]

    def test_on_conflict(self, sql: Run, orders: deltasql.Table) -> None:
        found = sql(
            "INSERT INTO ns.orders AS o (id, day, amount) VALUES (1, 'x', 1), (9, 'y', 2) ON CONFLICT (id) DO UPDATE "
            "SET amount = o.amount + EXCLUDED.amount WHERE o.amount < 15 RETURNING id, amount, merge_action()"
        )
        assert sorted(found) == [(1, D("11.00"), "UPDATE"), (9, D("2.00"), "INSERT")]
        sql("INSERT INTO ns.orders (id, day) VALUES (1, 'z'), (10, 'z'), (10, 'zz') ON CONFLICT (id) DO NOTHING")
        assert [row[0] for row in rows(orders)] == [1, 2, 3, 9, 10]
        assert rows(orders)[0] == (1, "a", D("11.00"))

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("INSERT INTO ns.orders (id, id) VALUES (1, 2)", "names a column twice"),
            ("INSERT INTO ns.orders (id) VALUES (1, 2)", "gives 2 values for 1 columns"),
            ("INSERT INTO ns.orders (idd) VALUES (1)", 'column "idd" does not exist .did you mean "id"'),
            ("INSERT INTO ns.orders VALUES ('x')", "invalid input syntax for type bigint"),
            ("INSERT INTO ns.orders (day) VALUES ('x')", "constraint id NOT NULL"),
            (
                "INSERT INTO ns.orders (id) VALUES (1), (1) ON CONFLICT (id) DO UPDATE SET day = 'x'",
                "a row twice.*id=1",
            ),
            ("INSERT INTO ns.orders (id) VALUES (1) ON CONFLICT DO NOTHING", "names no keys"),
            ("INSERT INTO ns.orders (day) VALUES ('x') ON CONFLICT (id) DO NOTHING", "no value for the key id"),
            ("INSERT INTO ns.nothing VALUES (1)", "nothing does not exist"),
        ],
    )
    def test_rejected_rows(self, sql: Run, orders: deltasql.Table, text: str, problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            sql(text)
        assert orders.version == 1

    @pytest.mark.parametrize(
        "rest",
        ["(day) VALUES ('x')", "(id, day) VALUES (NULL, 'x')", "(day) VALUES ('x') RETURNING *", "(day) SELECT 'x'"],
    )
    def test_a_not_null_column_without_a_value(self, sql: Run, orders: deltasql.Table, rest: str) -> None:
        with pytest.raises(deltasql.ConstraintViolation) as caught:
            sql(f"INSERT INTO ns.orders {rest}")
        assert (caught.value.constraint, orders.version) == ("id NOT NULL", 1)
        assert sql("INSERT INTO ns.orders (day) SELECT 'x' WHERE false").metrics["numOutputRows"] == "0"


class TestCopy:
    def test_csv(self, sql: Run, orders: deltasql.Table, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("amount;id\n5.5;7\n;8\n")
        sql(f"COPY ns.orders (id, amount) FROM '{tmp_path}/x.csv' WITH (FORMAT csv, HEADER true, DELIMITER ';')")
        (tmp_path / "plain.csv").write_text('9,"a,b",1\n')
        result = sql(f"COPY ns.orders FROM '{tmp_path}/plain.csv'")
        assert result.metrics["numOutputRows"] == "1"
        assert rows(orders)[3:] == [(7, None, D("5.50")), (8, None, None), (9, "a,b", D("1.00"))]

    def test_parquet_and_json(self, sql: Run, orders: deltasql.Table, tmp_path: Path) -> None:
        orders.df().where("id = 1").selectExpr("id + 100 AS id", "day").write.parquet(str(tmp_path / "p.parquet"))
        (tmp_path / "x.json").write_text('{"id": 200, "amount": 3}\n')
        sql(f"COPY ns.orders FROM '{tmp_path}/p.parquet'")
        sql(f"COPY ns.orders FROM '{tmp_path}/x.json'")
        assert rows(orders)[3:] == [(101, "a", D("7.00")), (200, None, D("3.00"))]

    @pytest.mark.parametrize(
        ("rest", "problem"),
        [
            ("FROM 'x.xlsx'", "format 'xlsx' is not supported"),
            ("FROM 'x.csv' WITH (FORCE_NULL 'x')", "no option FORCE_NULL"),
        ],
    )
    def test_rejected_statements(self, sql: Run, orders: deltasql.Table, rest: str, problem: str) -> None:
        with pytest.raises(deltasql.ValidationError, match=problem):
            sql(f"COPY ns.orders {rest}")


class TestUpdate:
    def test_from_and_returning(self, sql: Run, orders: deltasql.Table) -> None:
        sql("CREATE TABLE ns.staging AS SELECT id, amount * 10 AS amount FROM ns.orders WHERE id > 1")
        found = sql(
            "UPDATE ns.orders SET amount = s.amount, day = DEFAULT FROM ns.staging s, (SELECT 5 AS plus) p "
            "WHERE s.id = orders.id RETURNING orders.id, orders.amount + plus AS more, s.amount"
        )
        assert sorted(found) == [(2, D("205.00"), D("200.00")), (3, D("305.00"), D("300.00"))]
        assert rows(orders) == [(1, "a", D("10.00")), (2, None, D("200.00")), (3, None, D("300.00"))]

    def test_by_its_full_name_and_by_an_alias(self, sql: Run, orders: deltasql.Table) -> None:
        sql("UPDATE ns.orders SET day = 'x' WHERE ns.orders.id = 1")
        sql("UPDATE ns.orders AS o SET (day, amount) = ('y', o.amount + 1) WHERE o.id = 2")
        assert rows(orders)[:2] == [(1, "x", D("10.00")), (2, "y", D("21.00"))]

    def test_subqueries_and_ctes(self, sql: Run, orders: deltasql.Table) -> None:
        sql(
            "WITH top AS (SELECT max(id) AS id FROM ns.orders) UPDATE ns.orders SET amount = "
            "(SELECT sum(amount) FROM ns.orders) FROM top WHERE orders.id = top.id"
        )
        sql("UPDATE ns.orders o SET day = 'z' WHERE EXISTS (SELECT 1 FROM ns.orders i WHERE i.id = o.id + 2)")
        assert rows(orders) == [(1, "z", D("10.00")), (2, "b", D("20.00")), (3, "a", D("60.00"))]

    def test_adjacent_numbers(self, sql: Run, orders: deltasql.Table) -> None:
        """`$1,$` and `$1),($` do not begin a dollar-quoted text."""
        sql("INSERT INTO ns.orders VALUES ($1,$2,$3),($4,$2,$3)", [8, "$1,$2", 1, 9])
        assert [row[:2] for row in rows(orders)[3:]] == [(8, "$1,$2"), (9, "$1,$2")]
        text = "SELECT $1+$2, $$it's $1,$2$$, $tag$ $1 $tag$ FROM ns.orders WHERE id IN ($1,$2) -- $1,$3"
        assert sql(text, [1, 7]) == [(8, "it's $1,$2", " $1 ")]

    def test_every_way_to_give_parameters(self, sql: Run, orders: deltasql.Table) -> None:
        evil = "'; DROP TABLE orders; -- {x} \\"
        sql("UPDATE ns.orders SET day = $2 WHERE id = $1", [1, evil])
        sql("UPDATE ns.orders SET day = %s, amount = ? WHERE id = ?", [evil, 5, 2])
        sql("UPDATE ns.orders SET day = :text WHERE id = %(key)s AND day <> ':text'", {"text": evil, "key": 3})
        assert [row[1] for row in rows(orders)] == [evil] * 3
        assert sql("SELECT count(*) FROM ns.orders WHERE day = $1 AND id IN ($2, 2)", [evil, 1]) == [(2,)]

    @pytest.mark.parametrize(
        ("text", "params", "problem"),
        [
            ("UPDATE ns.orders SET id = $1", None, "parameter 1 has no value"),
            ("UPDATE ns.orders SET id = :a", {"b": 1}, "parameter 'a' has no value"),
            ("UPDATE ns.orders SET id = 1", [5], "no parameter for 1"),
            ("UPDATE ns.orders SET id = 1, ID = 2", None, "column 'id' two values"),
            ("UPDATE ns.orders SET amout = 1", None, 'did you mean "amount"'),
            ("UPDATE ns.orders SET amount = 'much'", None, "invalid input syntax for type numeric"),
            ("UPDATE ns.orders SET amount = s.amount FROM ns.orders", None, "the same name"),
            ("UPDATE ns.orders SET (id, day) = (1)", None, "as many values as columns"),
            ("UPDATE ns.orders SET amount = ", None, r"line 1, column \d+"),
            ("UPDATE ns.orders SET amount = 1; DELETE FROM ns.orders", None, "holds 2 statements"),
            ("VACUUM ns.orders", None, "VACUUM is not supported"),
            ("", None, "a statement is a text"),
            ("SELECT * FROM ns.nothing", None, "nothing does not exist"),
            ("CREATE VIEW v AS SELECT 1", None, "only CREATE TABLE is supported"),
        ],
    )
    def test_rejected_statements(self, sql: Run, orders: deltasql.Table, text: str, params: Any, problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            sql(text, params)
        assert orders.version == 1


class TestDelete:
    def test_using_and_returning(self, sql: Run, orders: deltasql.Table, spark_session: SparkSession) -> None:
        spark_session.sql("SELECT 2L AS key, 'why' AS reason").createOrReplaceTempView("doomed")
        found = sql("DELETE FROM ns.orders USING doomed d WHERE d.key = id RETURNING *, reason AS r")
        assert found == [(2, "b", D("20.00"), 2, "why", "why")]
        assert [row[0] for row in rows(orders)] == [1, 3]

    def test_moved_in_one_statement(
        self, sql: Run, orders: deltasql.Table, lake: deltasql.Lake, spark_session: SparkSession
    ) -> None:
        sql("CREATE TABLE ns.archive (id BIGINT, day TEXT, amount NUMERIC(10, 2))")
        sql(
            "WITH moved AS (DELETE FROM ns.orders WHERE day = 'a' RETURNING *) INSERT INTO ns.archive SELECT * FROM moved"
        )
        archive = lake.table(orders.name.replace("orders", "archive"))
        assert [row[0] for row in rows(archive)] == [1, 3]
        assert [row[0] for row in rows(orders)] == [2]
        assert orders.history(1)[0].txn_id == archive.history(1)[0].txn_id
        assert_same_rows(Path(archive.location), archive.arrow(), spark=spark_session)

    def test_truncate(self, sql: Run, orders: deltasql.Table) -> None:
        assert sql("TRUNCATE TABLE ns.orders").metrics["numDeletedRows"] == "3"
        assert rows(orders) == []


class TestMerge:
    def test_every_clause(self, sql: Run, orders: deltasql.Table) -> None:
        found = sql(
            """
            MERGE INTO ns.orders AS t
            USING (SELECT * FROM (VALUES (1, 100), (2, 200), (8, 800)) AS v(id, amount)) AS s
            ON t.id = s.id
            WHEN MATCHED AND s.amount = 200 THEN DELETE
            WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount
            WHEN NOT MATCHED AND s.id > 100 THEN DO NOTHING
            WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (s.id, DEFAULT)
            WHEN NOT MATCHED BY SOURCE THEN UPDATE SET day = 'left'
            RETURNING merge_action(), t.*, s.amount AS given
            """
        )
        assert sorted(found, key=lambda row: row[1]) == [
            ("UPDATE", 1, "a", D("110.00"), 100),
            ("DELETE", 2, "b", D("20.00"), 200),
            ("UPDATE", 3, "left", D("30.00"), None),
            ("INSERT", 8, None, D("7.00"), 800),
        ]
        assert [row[0] for row in rows(orders)] == [1, 3, 8]

    def test_by_stars(self, sql: Run, orders: deltasql.Table) -> None:
        sql(
            "MERGE INTO ns.orders t USING (SELECT 1 AS id, 'q' AS day, 5 AS amount UNION ALL SELECT 4, 'q', 6) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        assert rows(orders)[0] == (1, "q", D("5.00"))
        assert rows(orders)[3] == (4, "q", D("6.00"))

    def test_ambiguous_columns(self, sql: Run, orders: deltasql.Table) -> None:
        with pytest.raises(deltasql.ValidationError, match=r"which 'amount' is meant: write t.amount or s.amount"):
            sql(
                "MERGE INTO ns.orders t USING ns.orders s ON t.id = s.id WHEN MATCHED THEN UPDATE SET amount = amount + 1"
            )


class TestSelect:
    def test_tables_views_and_versions(self, sql: Run, orders: deltasql.Table, spark_session: SparkSession) -> None:
        spark_session.range(1, 3).createOrReplaceTempView("some_ids")
        sql("DELETE FROM ns.orders WHERE id = 2")
        query = "SELECT o.id, old.day FROM ns.orders o JOIN ns.orders FOR VERSION AS OF 1 old USING (id) JOIN some_ids USING (id)"
        assert sql(query) == [(1, "a")]
        [created, *_] = [entry.timestamp for entry in reversed(orders.history())]
        assert sql(f"SELECT count(*) FROM ns.orders FOR TIMESTAMP AS OF '{created.isoformat()}'") == [(0,)]
        assert sql("SELECT '{braces}' AS a, 'it''s' || $1 AS b", ["x"]) == [("{braces}", "it'sx")]
        assert sql("VALUES (1, 'x')") == [(1, "x")]
        assert sql("WITH a AS (SELECT id FROM ns.orders) SELECT count(*) FROM a") == [(2,)]

    def test_explain(self, sql: Run, orders: deltasql.Table) -> None:
        [(plan,)] = sql("EXPLAIN SELECT * FROM ns.orders WHERE id = 1")
        assert "FileScan parquet" in plan
        [(plan,)] = sql("EXPLAIN DELETE FROM ns.orders WHERE id = $1 AND length(day) > 3", [1])
        assert "version 1" in plan
        assert "(id = 1) AND (LENGTH(day) > 3)" in plan
        assert "reads 1 of 2 files" in plan
        [(plan,)] = sql("EXPLAIN UPDATE ns.orders SET day = 'x' WHERE id > 1000")
        assert "reads 0 of 2 files, 0 bytes" in plan
        [(plan,)] = sql("EXPLAIN DELETE FROM ns.orders")
        assert "removes 2 whole files and reads none" in plan
        assert orders.version == 1


class TestTables:
    def test_names_in_any_case(self, sql: Run, orders: deltasql.Table, lake: deltasql.Lake, namespace: str) -> None:
        sql("update NS.Orders set Day = 'x' where ID = 1".replace("NS.", "ns."))
        assert sql("SELECT day FROM ns.ORDERS WHERE id = 1") == [("x",)]
        sql("CREATE TABLE ns.Mixed (id INT)")
        assert sql("SELECT count(*) FROM ns.mixed") == [(0,)]
        with pytest.raises(deltasql.TableExists):
            sql("CREATE TABLE ns.mixed (id INT)")
        with pytest.raises(deltasql.TableExists):
            lake.create_table(f"{namespace}.MIXED", "id INT")
        table = lake.table(f"{namespace.upper()}.mixed")
        assert table.name == f"{namespace}.Mixed"
        with lake.begin() as tx:
            tx.sql(f"INSERT INTO {namespace}.MIXED VALUES (1)")
        assert tx.versions == {f"{namespace}.MIXED": 1}
        sql("DROP TABLE ns.ORDERS")
        with pytest.raises(deltasql.TableNotFound):
            lake.table(orders.name)

    def test_create_alter_drop(self, sql: Run, lake: deltasql.Lake, namespace: str, tmp_path: Path) -> None:
        sql(
            f"""
            CREATE TABLE ns.t (
                id BIGINT NOT NULL, note VARCHAR(5) DEFAULT 'x', day DATE, CHECK (id > 0),
                CONSTRAINT short CHECK (length(note) < 4)
            ) PARTITIONED BY (day) LOCATION '{tmp_path}/t' TBLPROPERTIES ('delta.checkpointInterval' = '3')
            """
        )
        table = lake.table(f"{namespace}.t")
        assert (table.partition_columns, table.location) == (("day",), f"{tmp_path}/t")
        with pytest.raises(deltasql.ConstraintViolation, match="short"):
            sql("INSERT INTO ns.t (id, note) VALUES (1, 'long')")
        sql("ALTER TABLE ns.t DROP CONSTRAINT short, ADD COLUMN more INT")
        sql("INSERT INTO ns.t (id, note) VALUES (1, 'long')")
        with pytest.raises(deltasql.ConstraintViolation, match="big"):
            sql("ALTER TABLE ns.t ADD CONSTRAINT big CHECK (id > 5)")
        sql("ALTER TABLE ns.t ADD CONSTRAINT small CHECK (id < 5)")
        sql("ALTER TABLE ns.t SET TBLPROPERTIES ('delta.checkpointInterval' = '7')")
        assert table.schema.names == ["id", "note", "day", "more"]
        assert table.properties["delta.checkpointInterval"] == "7"
        operations = [entry.operation for entry in table.history(2)]
        assert operations == ["SET TBLPROPERTIES", "ADD CONSTRAINT"]
        sql("CREATE TABLE IF NOT EXISTS ns.t (x INT)")
        with pytest.raises(deltasql.TableExists):
            sql("CREATE TABLE ns.t (x INT)")
        sql("DROP TABLE ns.t")
        sql("DROP TABLE IF EXISTS ns.t")
        with pytest.raises(deltasql.TableNotFound):
            sql("DROP TABLE ns.t")

    @pytest.mark.parametrize("create", ["TBLPROPERTIES", "WITH"])
    @pytest.mark.parametrize("alter", ["SET TBLPROPERTIES", "SET"])
    def test_properties_keep_their_text(
        self, sql: Run, lake: deltasql.Lake, namespace: str, create: str, alter: str
    ) -> None:
        sql(f'CREATE TABLE ns.p (id INT) {create} (my.least = -1.50, "delta.appendOnly" = TRUE, word = some)')
        table = lake.table(f"{namespace}.p")
        assert table.properties.items() >= {"my.least": "-1.50", "delta.appendOnly": "true", "word": "some"}.items()
        sql(f"ALTER TABLE ns.p {alter} (delta.enableChangeDataFeed = true, my.own.least = -007, 'a b' = 'NULL')")
        assert table.properties["delta.enableChangeDataFeed"] == "true"
        assert (table.properties["my.own.least"], table.properties["a b"]) == ("-007", "NULL")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                "CREATE TABLE ns.t (id INT) TBLPROPERTIES (\n my.x = NULL)",
                "line 2, column 2: .* invalid value NULL of property my.x",
            ),
            (
                "ALTER TABLE ns.orders SET TBLPROPERTIES (\n'x' = 1 + 2)",
                "line 2, column 1: .* invalid value 1 \\+ 2 of property x",
            ),
            ("ALTER TABLE ns.orders SET (\nx = NULL)", "line 2, column 1: .* invalid value NULL of property x"),
            ("ALTER TABLE ns.orders SET TABLESPACE x", "has SET TABLESPACE"),
            ("CREATE TABLE ns.t (id BIGINT PRIMARY KEY)", "PRIMARY KEY is not supported for columns"),
            ("CREATE TABLE ns.t (id BIGINT, UNIQUE (id))", "UNIQUE .id. is not supported for tables"),
            ("ALTER TABLE ns.orders ADD COLUMN x INT NOT NULL", "the new column 'x' cannot be NOT NULL"),
            ("ALTER TABLE ns.orders DROP CONSTRAINT nope", "constraint 'nope' does not exist"),
            ("ALTER TABLE ns.orders RENAME TO x", "ALTER TABLE RENAME TO x is not supported"),
            ("ALTER TABLE ns.orders SET ('delta.constraints.x' = 'id > 5')", "use ADD CONSTRAINT"),
        ],
    )
    def test_rejected_statements(self, sql: Run, orders: deltasql.Table, text: str, problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            sql(text)
        assert orders.version == 1


class TestTransactions:
    def test_statements_commit_together(self, sql: Run, orders: deltasql.Table, lake: deltasql.Lake) -> None:
        sql("CREATE TABLE ns.log (id BIGINT, what TEXT)")
        name = orders.name
        log = name.replace("orders", "log")
        with lake.begin() as tx:
            gone = tx.sql(f"DELETE FROM {name} WHERE id = $1 RETURNING id", [2]).collect()
            assert tx.sql(f"INSERT INTO {log} VALUES ($1, 'gone')", [gone[0]["id"]])["numOutputRows"] == "1"
            assert orders.version == 1
        assert tx.versions == {name: 2, log: 1}
        with pytest.raises(ZeroDivisionError), lake.begin() as tx:
            tx.sql(f"DELETE FROM {name}")
            raise ZeroDivisionError
        assert [row[0] for row in rows(orders)] == [1, 3]

    def test_statements_rejected_in_a_transaction(self, orders: deltasql.Table, lake: deltasql.Lake) -> None:
        with pytest.raises(deltasql.UsageError, match="cannot be part of a transaction"), lake.begin() as tx:
            tx.sql(f"DROP TABLE {orders.name}")
        assert orders.version == 1


class TestUnsupportedClauses:
    """A statement with an unsupported clause is rejected: without the clause it would change other rows."""

    @pytest.mark.parametrize(
        "text",
        [
            "TRUNCATE TABLE ns.orders PARTITION (day = 'a')",
            "TRUNCATE ns.orders, ns.orders",
            "DELETE FROM ns.orders TABLESAMPLE (1 PERCENT)",
            "DELETE FROM ns.orders a JOIN ns.orders b ON a.id = b.id + 1",
            "DELETE FROM ns.orders FOR VERSION AS OF 0 WHERE id = 1",
            "UPDATE ns.orders a JOIN ns.orders b ON a.id = b.id SET day = 'z'",
            "UPDATE ns.orders TABLESAMPLE (1 PERCENT) SET day = 'z'",
            "INSERT INTO ns.orders PARTITION (day = 'q') SELECT 9",
            "INSERT OR REPLACE INTO ns.orders VALUES (1, 'x', 2)",
            "EXPLAIN WITH d AS (DELETE FROM ns.orders RETURNING *) SELECT * FROM d",
            "WITH d AS (DELETE FROM ns.orders) SELECT * FROM d",
            "UPDATE ns.orders SET other.day = 'z'",
            "UPDATE ns.orders SET day[1] = 'z'",
            "CREATE TEMPORARY TABLE ns.x (id INT)",
            "CREATE TABLE ns.x (n NUMERIC)",
            "UPDATE ns.orders SET WHERE id = 1",
            "MERGE INTO ns.orders t USING ns.orders s ON t.id = s.id WHEN MATCHED THEN UPDATE SET",
            "SELECT * FROM ns.orders FOR UPDATE",
            "DELETE FROM ns.orders WHERE id IN (SELECT id FROM ns.orders FOR SHARE)",
            "SELECT 1 AS x INTO ns.x",
            "UPDATE ns.orders SET day = 'x' RETURNING other.*",
            "UPDATE ns.orders SET (day, amount) = (SELECT day, amount FROM ns.orders LIMIT 1)",
            "COPY ns.orders FROM 'x.csv' WHERE id > 2",
            "EXPLAIN (COSTS OFF) SELECT 1",
            "EXPLAIN INSERT INTO ns.orders VALUES (1)",
        ],
    )
    def test_statements_that_change_nothing_when_rejected(self, sql: Run, orders: deltasql.Table, text: str) -> None:
        with pytest.raises(deltasql.UsageError):
            sql(text)
        assert (orders.version, len(rows(orders))) == (1, 3)

    def test_a_field_of_a_struct_is_not_a_column(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql("CREATE TABLE ns.s AS SELECT 1 AS id, struct(5 AS id, 6 AS y) AS o")
        with pytest.raises(deltasql.ValidationError, match="there is no field 'nope'"):
            sql("UPDATE ns.s SET o.nope = 9")
        sql(
            "MERGE INTO ns.s t USING (SELECT 1 AS k) s ON t.id = s.k WHEN MATCHED AND o.y = 6 THEN UPDATE SET id = o.id + k"
        )
        assert lake.table(f"{namespace}.s").arrow()["id"].to_pylist() == [6]
        for value in ("struct(5, 6)", "named_struct('id', 5, 'z', 9)", "named_struct('id', 'abc')"):
            with pytest.raises(deltasql.ValidationError, match=r"o"):
                sql(f"UPDATE ns.s SET o = {value}")


class TestPostgresSemantics:
    def test_full_names_in_subqueries(self, sql: Run, orders: deltasql.Table) -> None:
        assert sql("SELECT ns.orders.id FROM ns.orders WHERE ns.orders.day = 'b'") == [(2,)]
        sql("DELETE FROM ns.orders AS o WHERE EXISTS (SELECT 1 FROM ns.orders WHERE ns.orders.id = o.id + 2)")
        assert [row[0] for row in rows(orders)] == [2, 3]

    def test_keys_are_compared_with_the_column_type(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        sql("CREATE TABLE ns.days (day DATE, k TEXT, n INT)")
        sql("INSERT INTO ns.days VALUES ('2026-01-01', '01', 1), ('2026-01-02', '1', 1)")
        sql(
            "INSERT INTO ns.days (day, n) SELECT TIMESTAMP '2026-01-01 10:00:00', 2 ON CONFLICT (day) DO UPDATE SET n = n + EXCLUDED.n"
        )
        sql("INSERT INTO ns.days (k, n) VALUES (1, 9) ON CONFLICT (k) DO UPDATE SET n = EXCLUDED.n")
        found = lake.table(f"{namespace}.days").arrow().sort_by("day").to_pylist()
        assert [(row["k"], row["n"]) for row in found] == [("01", 3), ("1", 9)]

    def test_numbers(self, sql: Run, lake: deltasql.Lake, namespace: str) -> None:
        assert sql("SELECT 1.57::numeric") == [(D("1.57"),)]
        sql("CREATE TABLE ns.n (id INT, f REAL)")
        sql("INSERT INTO ns.n (id) SELECT 2.7")
        assert sql("INSERT INTO ns.n (id) SELECT CAST(2.7 AS DOUBLE) RETURNING id") == [(3,)]
        sql("UPDATE ns.n SET id = id + 0.5")
        assert lake.table(f"{namespace}.n").arrow()["id"].to_pylist() == [4, 4]
        for statement in (
            "UPDATE ns.n SET f = CAST(1e300 AS DOUBLE PRECISION)",
            "INSERT INTO ns.n (f) SELECT CAST(1e300 AS DOUBLE PRECISION)",
        ):
            with pytest.raises(deltasql.UsageError, match="f"):
                sql(statement)

    def test_default_of_a_generated_column(self, sql: Run) -> None:
        sql("CREATE TABLE ns.g (id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2) STORED)")
        assert sql("INSERT INTO ns.g (id, twice) VALUES (4, DEFAULT), (5, DEFAULT) RETURNING twice") == [(8,), (10,)]
        sql("UPDATE ns.g SET id = id + 1, twice = DEFAULT")
        assert sorted(sql("SELECT twice FROM ns.g")) == [(10,), (12,)]

    def test_csv(self, sql: Run, lake: deltasql.Lake, namespace: str, tmp_path: Path) -> None:
        sql("CREATE TABLE ns.c (a TEXT, b TEXT)")
        (tmp_path / "x.csv").write_text('"a""b","C:\\"\n"",\n"two\nlines",x\n')
        (tmp_path / "x.tsv").write_text("p\tq,r\n")
        sql(f"COPY ns.c FROM '{tmp_path}/x.csv'")
        sql(f"COPY ns.c FROM '{tmp_path}/x.tsv'")
        found = lake.table(f"{namespace}.c").arrow().to_pylist()
        assert {tuple(row.values()) for row in found} == {
            ('a"b', "C:\\"),
            ("", None),
            ("two\nlines", "x"),
            ("p", "q,r"),
        }


class TestFailures:
    def test_a_statement_that_fails_leaves_nothing_staged(
        self, sql: Run, orders: deltasql.Table, lake: deltasql.Lake
    ) -> None:
        sql("CREATE TABLE ns.strict (id BIGINT, n INT NOT NULL)")
        strict = orders.name.replace("orders", "strict")
        tx = lake.begin()
        tx.sql(f"INSERT INTO {strict} VALUES (1, 1)")
        with pytest.raises(deltasql.UsageError):
            tx.sql(f"WITH d AS (DELETE FROM {orders.name} RETURNING *) INSERT INTO {strict} SELECT id, NULL FROM d")
        with pytest.raises(deltasql.ConstraintViolation):
            tx.sql(f"ALTER TABLE {orders.name} ADD COLUMN c INT, ADD CONSTRAINT k CHECK (id > 100)")
        assert tx.commit() == {strict: 1}
        assert (orders.version, len(rows(orders))) == (1, 3)


class TestWith:
    """A WITH query that changes rows reads the results of the WITH queries before it."""

    @pytest.mark.parametrize(
        ("text", "returned", "left"),
        [
            (
                "WITH s AS (SELECT 1 AS id), d AS (DELETE FROM ns.orders WHERE id IN (SELECT id FROM s) RETURNING id) "
                "SELECT * FROM d",
                [(1,)],
                [2, 3],
            ),
            (
                "WITH s AS (SELECT 1 AS id), d AS (DELETE FROM ns.orders o USING s WHERE o.id = s.id RETURNING o.id, s.id) "
                "SELECT * FROM d",
                [(1, 1)],
                [2, 3],
            ),
            (
                "WITH s(n) AS (SELECT 1), u AS (UPDATE ns.orders o SET id = o.id + 10 FROM s WHERE o.id = s.n RETURNING o.id)"
                " SELECT u.id, s.n FROM u, s",
                [(11, 1)],
                [2, 3, 11],
            ),
            (
                "WITH s AS (SELECT id FROM ns.orders), t AS (SELECT max(id) + 1 AS id FROM s), "
                "i AS (INSERT INTO ns.orders (id) SELECT id FROM t RETURNING id) SELECT i.id, (SELECT count(*) FROM s) FROM i",
                [(4, 3)],
                [1, 2, 3, 4],
            ),
            (
                "WITH s AS (SELECT 1 AS id UNION ALL SELECT 9), m AS (MERGE INTO ns.orders o USING s ON o.id = s.id "
                "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) RETURNING merge_action(), s.id) "
                "SELECT * FROM m ORDER BY 1",
                [("DELETE", 1), ("INSERT", 9)],
                [2, 3, 9],
            ),
            (
                "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 2), "
                "d AS (DELETE FROM ns.orders WHERE id IN (SELECT n FROM r) RETURNING id) SELECT sum(n), (SELECT count(*) "
                "FROM d) FROM r",
                [(3, 2)],
                [3],
            ),
            (
                "WITH s AS (SELECT 1 AS id), d AS (WITH s AS (SELECT id + 1 AS id FROM s) DELETE FROM ns.orders "
                "WHERE id IN (SELECT id FROM s) RETURNING id) SELECT d.id, s.id FROM d, s",
                [(2, 1)],
                [1, 3],
            ),
            (
                "WITH d(x) AS (DELETE FROM ns.orders WHERE id = 2 RETURNING id, day) SELECT x, day, d.x FROM d",
                [(2, "b", 2)],
                [1, 3],
            ),
            (
                "WITH d(x) AS (DELETE FROM ns.orders WHERE id = 2 RETURNING id) "
                "INSERT INTO ns.orders (id) SELECT x + 3 FROM d RETURNING id",
                [(5,)],
                [1, 3, 5],
            ),
        ],
    )
    def test_ctes_that_change_rows(
        self, sql: Run, orders: deltasql.Table, text: str, returned: list[Any], left: list[int]
    ) -> None:
        assert sql(text) == returned
        assert [row[0] for row in rows(orders)] == left

    def test_a_query_that_is_read_twice_is_computed_once(self, sql: Run, orders: deltasql.Table) -> None:
        [(deleted, chosen, key, same)] = sql(
            "WITH s AS (SELECT id, uuid() AS key FROM ns.orders ORDER BY rand() LIMIT 1), "
            "u AS (UPDATE ns.orders o SET day = s.key FROM s WHERE o.id = s.id RETURNING o.id, o.day) "
            "SELECT u.id, s.id, u.day, s.key FROM u, s"
        )
        assert (deleted, key) == (chosen, same)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("WITH d(x, y) AS (DELETE FROM ns.orders RETURNING id) SELECT x FROM d", "names 2 columns of d, .* returns 1"),
            ("WITH d(x) AS (DELETE FROM ns.orders) SELECT 1", "names 1 columns of d, which returns 0"),
            ("WITH s AS (SELECT 1), s AS (DELETE FROM ns.orders RETURNING id) SELECT * FROM s", "two queries named s"),
            ("WITH d AS (DELETE FROM ns.orders RETURNING id) SELECT 1 / (id - id) FROM d", "Division by zero"),
            ("WITH d AS (DELETE FROM ns.orders WHERE id IN (SELECT id FROM s)), s AS (SELECT 1 AS id) SELECT 1", "table s does not exist"),
        ],
    )  # fmt: skip
    def test_rejected_statements(self, sql: Run, orders: deltasql.Table, text: str, problem: str) -> None:
        with pytest.raises(deltasql.UsageError, match=problem):
            sql(text)
        assert orders.version == 1
