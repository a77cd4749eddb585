"""Snapshots of files: versions, timestamps, pruning, and consistent snapshots over several tables."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest

import deltasql
from deltasql import SqlTxnLogReader, SqlTxnLogWriter
from deltasql.store.read import file_lists
from tests.factories import add, paths, remove

Make = Callable[..., deltasql.Table]


def append(lake: deltasql.Lake, table: deltasql.Table, *actions: object) -> None:
    with lake.begin() as tx:
        tx.stage(table, actions)


class TestSnapshots:
    def test_latest_and_by_version(self, lake: deltasql.Lake, make_table: Make) -> None:
        table, reader = make_table(), SqlTxnLogReader(lake.store)
        append(lake, table, add("a.parquet"))
        append(lake, table, add("b.parquet"), remove("a.parquet"))
        latest = reader.snapshot(table.id)
        assert (latest.version, paths(latest.files), latest.name) == (2, ["b.parquet"], table.name)
        assert paths(reader.snapshot(table.id, version=1).files) == ["a.parquet"]
        assert paths(reader.snapshot(table.name, version=0).files) == []
        assert latest.schema.names == ["id", "day", "amount"]

    def test_a_snapshot_keeps_the_schema_of_its_version(self, lake: deltasql.Lake, make_table: Make) -> None:
        table, reader = make_table(), SqlTxnLogReader(lake.store)
        wider = deltasql.Metadata(
            id=table.id,
            schema_string='{"type":"struct","fields":[{"name":"x","type":"string","nullable":true,"metadata":{}}]}',
        )
        append(lake, table, wider)
        assert reader.snapshot(table.id, version=0).schema.names == ["id", "day", "amount"]
        assert reader.snapshot(table.id).schema.names == ["x"]
        with pytest.raises(deltasql.ValidationError, match="x"):
            table.files(where="x = 'a'", version=0)

    @pytest.mark.parametrize("version", [-1, 2, 10**12, "1", True, 1.0])
    def test_a_missing_version(self, lake: deltasql.Lake, make_table: Make, version: object) -> None:
        table = make_table()
        append(lake, table, add())
        with pytest.raises(deltasql.ValidationError, match="versions 0 to 1"):
            table.files(version=version)

    def test_version_and_timestamp_together(self, make_table: Make) -> None:
        with pytest.raises(deltasql.UsageError, match="not both"):
            make_table().files(version=0, timestamp="2026-01-01")


class TestTimestamps:
    def test_at_between_and_exactly(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        for name in ("a", "b"):
            append(lake, table, add(f"{name}.parquet"))
        moments = {h.version: h.timestamp for h in table.history()}
        assert paths(table.files(timestamp=moments[1])) == ["a.parquet"]
        assert paths(table.files(timestamp=moments[2] - timedelta(microseconds=1))) == ["a.parquet"]
        assert paths(table.files(timestamp=moments[2])) == ["a.parquet", "b.parquet"]
        assert table.files(timestamp=moments[0].isoformat()).num_rows == 0
        elsewhere = moments[1].astimezone(timezone(timedelta(hours=-7)))
        assert paths(table.files(timestamp=elsewhere)) == ["a.parquet"]
        naive = moments[1].astimezone(UTC).replace(tzinfo=None)
        assert paths(table.files(timestamp=naive)) == ["a.parquet"]

    def test_before_the_first_and_after_the_last(self, make_table: Make) -> None:
        table = make_table()
        with pytest.raises(deltasql.ValidationError, match=f"{table.name}.*before the first"):
            table.files(timestamp="2001-01-01")
        with pytest.raises(deltasql.ValidationError, match="after the last"):
            table.files(timestamp=datetime.now(UTC) + timedelta(days=1))

    @pytest.mark.parametrize("bad", ["yesterday", 17, object()])
    def test_invalid_timestamps(self, make_table: Make, bad: object) -> None:
        with pytest.raises(deltasql.UsageError, match="ISO"):
            make_table().files(timestamp=bad)

    def test_commit_times_strictly_increase(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        for _ in range(50):
            append(lake, table, add())
        times = [h.timestamp for h in reversed(table.history())]
        assert times == sorted(set(times))


class TestPruning:
    @pytest.mark.parametrize("known", [False, True], ids=["uncached", "cached"])
    def test_by_partition_and_statistics(self, lake: deltasql.Lake, make_table: Make, known: bool) -> None:
        table = make_table(partition_by=["day"])
        days = ["2026-01-01", "2026-01-02", "2026-01-03", None]
        files = [
            add(f"d{d}-{i}.parquet", lo=i * 10, hi=i * 10 + 9, partition_values={"day": d})
            for d in days
            for i in range(3)
        ]
        append(lake, table, *files, add("nostats.parquet", partition_values={"day": days[0]}))
        if known:
            table.files()
        assert len(paths(table.files(where="day = '2026-01-02'"))) == 3
        assert paths(table.files(where="day = '2026-01-02' AND id = 15")) == ["d2026-01-02-1.parquet"]
        assert len(paths(table.files(where="day IS NULL"))) == 3
        assert paths(table.files(where="day = '2026-01-01' AND id = 15")) == [
            "d2026-01-01-1.parquet",
            "nostats.parquet",
        ]
        assert paths(table.files(where="id > 1000")) == ["nostats.parquet"]
        assert paths(table.files(where="amount > 5")) == paths(table.files())

    def test_a_cached_snapshot_follows_the_table(self, lake: deltasql.Lake, make_table: Make) -> None:
        """After random commits of another connection, a reader with a cache finds all live files."""
        table, chance = make_table(partition_by=["day"]), random.Random(7)
        with deltasql.connect(lake.dsn) as writer:
            live: dict[str, int] = {}
            for step in range(40):
                gone = chance.sample(sorted(live), min(len(live), chance.randint(0, 3)))
                new = {f"{step}-{i}.parquet": chance.randint(0, 100) for i in range(chance.choice([1, 3, 70]))}
                actions = [
                    add(p, lo=v, hi=v + 5, partition_values={"day": f"2026-01-{v % 9 + 1:02d}"}) for p, v in new.items()
                ]
                append(writer, writer.table(table.name), *actions, *map(remove, gone))
                live = {p: v for p, v in live.items() if p not in gone} | new
                assert paths(table.files()) == sorted(live)
                found = paths(table.files(where="id = 50"))
                assert found == sorted(p for p, v in live.items() if v <= 50 <= v + 5)
                found = paths(table.files(where="day = '2026-01-03'"))
                assert found == sorted(p for p, v in live.items() if v % 9 == 2)

    def test_typed_bounds_prune_like_statistics(
        self, lake: deltasql.Lake, make_table: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a cache, stored bounds prune large commits, and statistics prune small commits without bounds."""
        monkeypatch.setattr(file_lists, "_MIN_FILES_FOR_BOUNDS", 1)
        table, chance = make_table(), random.Random(3)
        values: dict[str, int] = {}
        for size in (200, 1, 150, 2, 300):
            batch = {f"f{len(values) + i}.parquet": chance.randint(0, 10_000) for i in range(size)}
            append(lake, table, *(add(p, lo=v, hi=v + 50) for p, v in batch.items()))
            values |= batch
        gone = chance.sample(sorted(values), 40)
        append(lake, table, *map(remove, gone))
        lake.store.settle()
        for where, keep in [
            ("id = 5000", lambda v: v <= 5000 <= v + 50),
            ("id > 9000 OR id < 500", lambda v: v + 50 > 9000 or v < 500),
            ("id BETWEEN 10 AND 20", lambda v: v <= 20 and v + 50 >= 10),
            ("amount = 3", lambda v: True),
        ]:
            expected = sorted(p for p, v in values.items() if keep(v) and p not in gone)
            with deltasql.connect(lake.dsn) as cold:
                assert paths(cold.table(table.name).files(where=where)) == expected
            assert paths(table.files(where=where)) == expected

    @pytest.mark.parametrize(
        ("where", "hint"),
        [
            ("amout > 1", "amount"),
            ("id >", "position|line|col"),
            ("count(id) > 1", "aggregate"),
            ("id IN (SELECT 1)", "subquer"),
        ],
    )
    def test_a_bad_predicate_is_explained(self, make_table: Make, where: str, hint: str) -> None:
        with pytest.raises(deltasql.ValidationError, match=f"(?i){hint}"):
            make_table().files(where=where)


class TestManyTables:
    def test_one_point_over_all_tables(self, lake: deltasql.Lake, make_table: Make) -> None:
        """A writer keeps two tables equal; every snapshot of the lake has equal versions of them."""
        a, b = make_table("a"), make_table("b")
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                with lake.begin() as tx:
                    tx.stage(a, [add()])
                    tx.stage(b, [add()])

        thread = threading.Thread(target=write)
        thread.start()
        try:
            seen = 0
            while seen < 50 or a.version < 5:
                versions = lake.snapshot().versions
                assert versions[a.name] == versions[b.name]
                seen += 1
            point = lake.snapshot()
            assert point.files(a.name).num_rows == point.files(b.name).num_rows == point.versions[a.name]
        finally:
            stop.set()
            thread.join()
        moment = a.history()[3].timestamp
        then = lake.snapshot(timestamp=moment)
        assert then.versions[a.name] == then.versions[b.name] == a.version - 3

    def test_a_snapshot_of_a_dropped_table_fails(self, lake: deltasql.Lake, make_table: Make) -> None:
        """A new table of the same name does not replace the dropped table in the snapshot."""
        table = make_table()
        append(lake, table, add("old.parquet"))
        point = lake.snapshot()
        lake.drop_table(table.name)
        append(lake, make_table(), add("new.parquet"))
        with pytest.raises(deltasql.TableNotFound):
            point.files(table.name)

    def test_a_snapshot_at_a_past_time_does_not_change(self, lake: deltasql.Lake, make_table: Make) -> None:
        """A commit that waits for the table's lock gets the time at which it obtains the lock."""
        table = make_table()
        with psycopg.connect(lake.dsn, options="-c search_path=deltasql") as other:
            other.execute("select from dl_tables where table_id = %s for update", [table.id])
            writer = threading.Thread(target=append, args=(lake, table, add()))
            writer.start()
            time.sleep(0.3)
            moment = datetime.now(UTC)
            before = lake.snapshot(timestamp=moment).versions[table.name]
            other.rollback()
            writer.join()
        assert table.version == 1
        assert lake.snapshot(timestamp=moment).versions[table.name] == before == 0

    def test_opening_is_not_slowed_by_history(self, lake: deltasql.Lake, make_table: Make) -> None:
        """The head and the metadata are found by index, with any number of versions."""
        table, writer = make_table(), SqlTxnLogWriter(lake.store)
        for version in range(1, 101):
            writer.commit(table.id, version, [add()])
        with lake.store._database.connection() as connection:
            from deltasql.store.queries import queries

            params = {"version": None, "table_id": table.id, "namespace": None, "name": None}
            plan = connection.execute("explain (analyze, format json) " + queries()["state"], params).fetchone()
        assert plan is not None
        assert _rows_read(plan["QUERY PLAN"][0]["Plan"]) <= 5


def _rows_read(node: dict[str, object]) -> float:
    """Return the number of rows that the scans of a plan produced."""
    own = node["Actual Rows"] if "Relation Name" in node else 0
    return float(str(own)) + sum(_rows_read(child) for child in node.get("Plans", []))
