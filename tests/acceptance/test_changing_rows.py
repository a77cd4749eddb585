"""INSERT, UPDATE and DELETE step by step.

After each statement, outside readers find the same rows in the published table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltasql
from tests.effort import LONG
from tests.readers import assert_same_rows

Run = Callable[..., Any]
Make = Callable[..., deltasql.Table]
READERS = ("delta-rs", "duckdb", *(["spark"] if LONG else []))


@pytest.fixture(params=["copied", "marked"])
def orders(request: pytest.FixtureRequest, make_table: Make, spark_session: SparkSession) -> deltasql.Table:
    """A table of two files: orders 1 to 10 on Monday, and 11 to 20 on Tuesday, with and without deletion vectors."""
    properties = {"delta.enableDeletionVectors": str(request.param == "marked").lower()}
    table = make_table(
        schema="id BIGINT NOT NULL, day STRING, amount INT",
        constraints={"positive": "amount > 0"},
        properties=properties,
    )
    for start, day in ((1, "Mon"), (11, "Tue")):
        ids = list(range(start, start + 10))
        table.append(pa.table({"id": ids, "day": [day] * 10, "amount": pa.array(ids, pa.int32())}))
    return table


@pytest.fixture
def run(orders: deltasql.Table, lake: deltasql.Lake, spark_session: SparkSession) -> Run:
    """Run a statement on `orders`, and compare the rows that outside readers return."""

    def run(text: str, *params: Any) -> Any:
        result = lake.sql(text.replace("orders", orders.name), list(params))
        assert_same_rows(Path(orders.location), orders.arrow(), READERS, spark=spark_session)
        return result

    return run


def amounts(orders: deltasql.Table) -> dict[int, int]:
    rows = orders.arrow().sort_by("id")
    return dict(zip(rows["id"].to_pylist(), rows["amount"].to_pylist(), strict=True))


def files(orders: deltasql.Table) -> set[str]:
    return set(orders.files()["path"].to_pylist())


BEFORE = {i: i for i in range(1, 21)}


class TestInsert:
    def test_1_incoming_rows_are_captured(self, orders: deltasql.Table, run: Run) -> None:
        returned = run("INSERT INTO orders VALUES (21, 'Wed', 5), (22, 'Wed', 6) RETURNING id, amount + 1 AS more")
        assert sorted(map(tuple, returned.collect())) == [(21, 6), (22, 7)]
        assert amounts(orders) == BEFORE | {21: 5, 22: 6}

    def test_1_rows_of_a_query(self, orders: deltasql.Table, run: Run) -> None:
        run("INSERT INTO orders SELECT id + 100, day, amount FROM orders WHERE id <= 2")
        assert amounts(orders) == BEFORE | {101: 1, 102: 2}

    @pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
    def test_1_rows_of_a_file(self, orders: deltasql.Table, run: Run, tmp_path: Path, suffix: str) -> None:
        file = tmp_path / f"more.{suffix}"
        match suffix:
            case "csv":
                file.write_text("id,day,amount\n30,Thu,7\n")
            case "json":
                file.write_text('{"id": 30, "day": "Thu", "amount": 7}\n')
            case _:
                pq.write_table(pa.table({"id": [30], "day": ["Thu"], "amount": pa.array([7], pa.int32())}), file)
        run(f"COPY orders FROM '{file}'" + (" WITH (HEADER)" if suffix == "csv" else ""))
        assert amounts(orders) == BEFORE | {30: 7}

    def test_2_rows_are_written_to_a_new_parquet_file(self, orders: deltasql.Table, run: Run) -> None:
        before = files(orders)
        run("INSERT INTO orders VALUES (21, 'Wed', 5)")
        [added] = files(orders) - before
        assert pq.read_table(Path(orders.location) / added).to_pylist() == [{"id": 21, "day": "Wed", "amount": 5}]
        assert before < files(orders), "the other files are kept"

    def test_constraints_are_checked(self, orders: deltasql.Table, run: Run) -> None:
        with pytest.raises(deltasql.ConstraintViolation, match="positive"):
            run("INSERT INTO orders VALUES (21, 'Wed', 5), (22, 'Wed', 0)")
        with pytest.raises(deltasql.ConstraintViolation, match="id NOT NULL"):
            run("INSERT INTO orders VALUES (NULL, 'Wed', 5)")
        assert (orders.version, amounts(orders)) == (2, BEFORE)


class TestUpdate:
    def test_1_from_entries(self, orders: deltasql.Table, run: Run) -> None:
        run(
            "UPDATE orders AS o SET amount = p.amount FROM (VALUES (3, 300), (13, 1300)) AS p(id, amount) WHERE o.id = p.id"
        )
        assert amounts(orders) == BEFORE | {3: 300, 13: 1300}

    def test_2_rows_are_identified_by_file_and_row_number(self, orders: deltasql.Table, run: Run) -> None:
        """Two rows with equal values in all columns are different rows."""
        run("INSERT INTO orders VALUES (50, 'Wed', 1), (50, 'Wed', 1)")
        result = run("UPDATE orders SET amount = 2 WHERE id = 50")
        assert result.metrics["numUpdatedRows"] == "2"
        found = orders.arrow(where="id = 50")["amount"].to_pylist()
        assert found == [2, 2]

    def test_3_matching_rows_and_no_others(self, orders: deltasql.Table, run: Run) -> None:
        run("UPDATE orders SET amount = amount * 10 WHERE day = 'Tue' AND id % 5 = 0")
        assert amounts(orders) == BEFORE | {15: 150, 20: 200}

    def test_4_deleted_rows_new_rows_and_checks(self, orders: deltasql.Table, run: Run) -> None:
        returned = run("UPDATE orders SET amount = amount + 1 WHERE id <= 2 RETURNING id, amount")
        assert sorted(map(tuple, returned.collect())) == [(1, 2), (2, 3)]
        with pytest.raises(deltasql.ConstraintViolation, match="positive"):
            run("UPDATE orders SET amount = amount - 10 WHERE day = 'Tue' AND id < 13 OR id = 1")
        assert amounts(orders) == BEFORE | {1: 2, 2: 3}

    def test_5_files_with_updates_are_replaced(self, orders: deltasql.Table, run: Run) -> None:
        before = files(orders)
        [other] = orders.files(where="day = 'Tue'")["path"].to_pylist()
        run("UPDATE orders SET amount = 99 WHERE id IN (1, 2, 3, 4, 5)")
        assert other in files(orders), "a file without updates stays"
        assert len(before - files(orders)) == 1, "half of the rows are too many to be marked"
        assert amounts(orders) == BEFORE | dict.fromkeys(range(1, 6), 99)
        assert orders.version == 3, "removed and added in one commit"


class TestDelete:
    def test_1_using_entries(self, orders: deltasql.Table, run: Run) -> None:
        run("DELETE FROM orders AS o USING (VALUES (3), (13), (13)) AS gone(id) WHERE o.id = gone.id")
        assert amounts(orders).keys() == BEFORE.keys() - {3, 13}

    def test_2_rows_are_identified_by_file_and_row_number(self, orders: deltasql.Table, run: Run) -> None:
        run("INSERT INTO orders VALUES (50, 'Wed', 1), (50, 'Wed', 1), (51, 'Wed', 1)")
        assert run("DELETE FROM orders WHERE id = 50").metrics["numDeletedRows"] == "2"
        assert amounts(orders) == BEFORE | {51: 1}

    def test_3_matching_rows_and_no_others(self, orders: deltasql.Table, run: Run) -> None:
        run("DELETE FROM orders WHERE amount BETWEEN 9 AND 12")
        assert amounts(orders).keys() == BEFORE.keys() - {9, 10, 11, 12}

    def test_4_returning_holds_the_old_row(self, orders: deltasql.Table, run: Run) -> None:
        returned = run("DELETE FROM orders WHERE id = 7 RETURNING *, amount * 2 AS twice")
        assert list(map(tuple, returned.collect())) == [(7, "Mon", 7, 14)]
        assert amounts(orders).keys() == BEFORE.keys() - {7}

    def test_5_files_that_lose_rows_are_replaced(self, orders: deltasql.Table, run: Run) -> None:
        [monday], [tuesday] = (orders.files(where=f"day = '{day}'")["path"].to_pylist() for day in ("Mon", "Tue"))
        run("DELETE FROM orders WHERE id > 10 OR id < 4")
        assert not files(orders) & {monday, tuesday}
        assert len(files(orders)) == 1, "nothing is written of a file that loses all rows"
        assert amounts(orders).keys() == set(range(4, 11))
        assert orders.version == 3


class TestCombinedChanges:
    """Statements that combine these steps."""

    def test_merge(self, orders: deltasql.Table, run: Run) -> None:
        run(
            "MERGE INTO orders AS o USING (VALUES (1, 100), (2, 0), (30, 7)) AS s(id, amount) ON o.id = s.id "
            "WHEN MATCHED AND s.amount = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET amount = s.amount "
            "WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (s.id, s.amount) "
            "WHEN NOT MATCHED BY SOURCE AND o.id = 20 THEN DELETE"
        )
        assert amounts(orders) == {k: v for k, v in (BEFORE | {1: 100, 30: 7}).items() if k not in (2, 20)}

    def test_on_conflict(self, orders: deltasql.Table, run: Run) -> None:
        run(
            "INSERT INTO orders VALUES (1, 'Fri', 5), (31, 'Fri', 6) "
            "ON CONFLICT (id) DO UPDATE SET amount = orders.amount + excluded.amount"
        )
        run("INSERT INTO orders VALUES (2, 'Fri', 5), (32, 'Fri', 6) ON CONFLICT (id) DO NOTHING")
        assert amounts(orders) == BEFORE | {1: 6, 31: 6, 32: 6}

    def test_rows_that_move(self, orders: deltasql.Table, run: Run, lake: deltasql.Lake) -> None:
        archive = lake.create_table(f"{orders.name}_archive", "id BIGINT, day STRING, amount INT")
        run(
            f"WITH moved AS (DELETE FROM orders WHERE day = 'Mon' RETURNING *) INSERT INTO {archive.name} SELECT * FROM moved"
        )
        assert amounts(orders).keys() == set(range(11, 21))
        assert amounts(archive).keys() == set(range(1, 11))

    def test_alter_and_truncate(self, orders: deltasql.Table, run: Run) -> None:
        run("ALTER TABLE orders ADD COLUMN note STRING")
        run("UPDATE orders SET note = 'first' WHERE id = 1")
        assert orders.arrow(where="note = 'first'")["id"].to_pylist() == [1]
        run("TRUNCATE orders")
        assert amounts(orders) == {}
