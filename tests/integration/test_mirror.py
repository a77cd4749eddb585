"""The publisher writes each committed version to `_delta_log` once and in order, and overwrites no foreign file."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import deltasql
from deltasql.delta_log.last_checkpoint import checksum
from deltasql.delta_log.log_files import LogFiles
from deltasql.delta_log.replay import replay
from deltasql.storage import Directory
from tests.ageing import age
from tests.factories import add, remove
from tests.published_log import blocked_publisher, commit_file, log_of, stage, state_of
from tests.servers import wait_until

Make = Callable[..., deltasql.Table]


def actions(table: deltasql.Table, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit_file(table, version).read_text().splitlines()]


@pytest.fixture
def other_lake(lake: deltasql.Lake) -> Iterator[Callable[..., deltasql.Lake]]:
    """Open the same database with a different configuration."""
    opened: list[deltasql.Lake] = []

    def connect(**config: Any) -> deltasql.Lake:
        opened.append(deltasql.connect(lake.dsn, config={k.replace("__", "."): v for k, v in config.items()}))
        return opened[-1]

    yield connect
    for other in opened:
        other.close()


class TestCommitFiles:
    def test_every_version_is_published_before_the_commit_returns(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        assert commit_file(table, 0).exists()
        version = stage(lake, table)
        assert commit_file(table, version).exists()
        assert state_of(lake, table).published == version

    def test_order_and_form(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(partition_by=["day"], properties={"delta.feature.domainMetadata": "supported"})
        stage(lake, table, add("old.parquet", partition_values={"day": None}))
        stage(
            lake,
            table,
            remove("old.parquet"),
            add("b.parquet", partition_values={"day": "2026-01-01"}, stats='{"numRecords":1}'),
            deltasql.Txn("app", 7, 123),
            deltasql.DomainMetadata("d", "{}"),
            deltasql.CommitInfo("MERGE", {"predicate": "x"}),
        )
        kinds = [next(iter(action)) for action in actions(table, 2)]
        assert kinds == ["commitInfo", "txn", "domainMetadata", "add", "remove"]
        text = commit_file(table, 2).read_text()
        assert text.endswith("}\n")
        for line in text.splitlines():
            body = next(iter(json.loads(line).values()))
            assert list(body) == sorted(body)
            assert None not in body.values()
        assert actions(table, 1)[1]["add"]["partitionValues"] == {"day": None}
        info = actions(table, 2)[0]["commitInfo"]
        moment = table.history()[0].timestamp
        assert info["timestamp"] == int(moment.timestamp() * 1000)
        assert (info["operation"], info["readVersion"], info["isBlindAppend"]) == ("MERGE", 1, False)

    def test_empty_maps_are_kept(self, make_table: Make) -> None:
        first = {kind: body for action in actions(make_table(), 0) for kind, body in action.items()}
        assert first["metaData"]["configuration"] == {}
        assert first["metaData"]["format"] == {"options": {}, "provider": "parquet"}
        assert first["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}

    def test_all_tables_of_a_transaction(self, lake: deltasql.Lake, make_table: Make) -> None:
        tables = [make_table(f"t{n}") for n in range(7)]
        with lake.begin() as tx:
            for table in tables:
                tx.stage(table, [add()])
        assert all(commit_file(table, 1).exists() for table in tables)
        assert len({actions(table, 1)[0]["commitInfo"]["txnId"] for table in tables}) == 1

    def test_the_strict_writer_publishes(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        deltasql.SqlTxnLogWriter(lake.store).commit(table.id, 1, [add()])
        assert commit_file(table, 1).exists()

    def test_superseded_files_are_not_removed_in_the_log(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        stage(lake, table, add("a.parquet", size=1))
        stage(lake, table, add("a.parquet", size=2))
        assert [next(iter(a)) for a in actions(table, 2)] == ["commitInfo", "add"]
        assert lake.mirror.validate(table.name) == []

    def test_unknown_fields_survive(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        stage(lake, table, add("a.parquet", extra={"zebra": [1], "alpha": {"b": None}}))
        body = actions(table, 1)[1]["add"]
        assert (body["zebra"], body["alpha"]) == ([1], {"b": None})
        assert list(body) == sorted(body)


class TestModes:
    def test_off_publishes_nothing_until_it_is_on(self, tmp_path: Path) -> None:
        url = f"deltasql://embedded/{tmp_path}/own"
        with deltasql.connect(url, config={"mirror.mode": "off"}) as off:
            table = off.create_table("shop.t", "id BIGINT")
            stage(off, table)
            assert not log_of(table).exists()
            assert state_of(off, table).lag_versions == 2
            [report] = off.mirror.run()
            assert report.error == "versions 0 to 1 are not published: mirror.mode is off"
            assert off.mirror.validate(table.name) == [report.error]
            with deltasql.connect(url) as on:
                assert [(r.table, r.versions, r.error) for r in on.mirror.run()] == [("shop.t", (0, 1), None)]
            assert commit_file(table, 0).exists()
            assert commit_file(table, 1).exists()

    def test_async_publishes_in_the_background(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(properties={"deltasql.mirror.mode": "async"})
        for _ in range(5):
            stage(lake, table)
        lake.mirror.settle()
        assert commit_file(table, 5).exists()

    def test_a_table_may_differ_from_its_lake(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(properties={"deltasql.mirror.mode": "off"})
        stage(lake, table)
        assert not log_of(table).exists()
        assert state_of(lake, table).mode == "off"


class TestCollisions:
    def test_the_same_bytes_are_success(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        stage(lake, table)
        before = commit_file(table, 1).read_bytes(), commit_file(table, 1).stat().st_mtime_ns
        report = lake.mirror.repair(table.name, version=1)
        assert report.versions == (1,)
        assert (commit_file(table, 1).read_bytes(), commit_file(table, 1).stat().st_mtime_ns) == before

    def test_other_bytes_stop_the_table(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake], caplog: pytest.LogCaptureFixture
    ) -> None:
        lake = other_lake(mirror__retry_backoff_base="1h")  # no background retry during the test
        table = make_table()
        foreign = b'{"commitInfo":{"operation":"WRITE","engineInfo":"other/1"}}\n'
        commit_file(table, 1).write_bytes(foreign)
        commit_file(table, 2).write_bytes(foreign)
        with caplog.at_level(logging.ERROR, "deltasql"):
            assert stage(lake, table) == 1
        assert "continues to version 2" in caplog.text
        assert "other/1" in caplog.text
        assert commit_file(table, 1).read_bytes() == foreign
        status = state_of(lake, table)
        assert (status.status, status.published, status.lag_versions) == ("FAILED", 0, 1)
        assert "Nothing was overwritten" in (status.error or "")
        with pytest.raises(deltasql.MirrorConflict, match="mirror recover") as caught:
            lake.mirror.repair(table.name)
        assert (caught.value.table, caught.value.version) == (table.name, 1)
        stage(lake, table)
        assert commit_file(table, 2).read_bytes() == foreign
        for version in (1, 2):
            commit_file(table, version).unlink()
        assert lake.mirror.repair(table.name).versions == (1, 2)
        assert lake.mirror.validate(table.name) == []

    @pytest.mark.parametrize("kept", [0, 1, 40])
    def test_a_truncated_own_file_is_completed(self, lake: deltasql.Lake, make_table: Make, kept: int) -> None:
        table = make_table()
        stage(lake, table)
        whole = commit_file(table, 1).read_bytes()
        commit_file(table, 1).write_bytes(whole[:kept])
        lake.mirror.repair(table.name, version=1)
        assert commit_file(table, 1).read_bytes() == whole

    def test_a_foreign_commit_at_our_version_sends_an_alert(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake]
    ) -> None:
        lake = other_lake(mirror__retry_backoff_base="1h")  # no background retry during the test
        table = lake.table(make_table(schema="id BIGINT").id)
        table.append(pa.table({"id": [1]}))
        write_deltalake(table.location, pa.table({"id": [2]}), mode="append")
        assert table.append(pa.table({"id": [3]})).version == 2
        differences = lake.mirror.validate(table.name)
        assert any(
            f"{commit_file(table, 2).name} holds another commit (WRITE by delta-rs" in text for text in differences
        )
        assert any(text.startswith("version 2 is not published: ") for text in differences)
        for path in (commit_file(table, 2), *log_of(table).glob("*.crc")):
            path.unlink()
        lake.mirror.repair(table.name)
        assert lake.mirror.validate(table.name) == []

    def test_a_log_ahead_of_the_database(
        self, lake: deltasql.Lake, make_table: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = make_table()
        commit_file(table, 1).write_bytes(b"{}\n")
        report = next(r for r in lake.mirror.run() if r.table == table.name)
        assert "version 1, which the database does not have" in (report.error or "")
        assert lake.mirror.validate(table.name) == ["_delta_log holds version 1, which the database does not have"]
        assert commit_file(table, 1).read_bytes() == b"{}\n"


class TestFailures:
    def test_a_store_that_is_down_does_not_undo_the_commit(
        self, lake: deltasql.Lake, make_table: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = make_table()
        away = log_of(table).rename(log_of(table).with_name("away"))
        log_of(table).write_text("a file where the directory was")
        assert stage(lake, table) == 1
        assert table.version == 1
        status = state_of(lake, table)
        assert (status.status, status.published) == ("PENDING", 0)
        assert status.attempts >= 1
        assert status.error
        log_of(table).unlink()
        away.rename(log_of(table))
        deadline = time.monotonic() + 30
        while state_of(lake, table).lag_versions and time.monotonic() < deadline:
            time.sleep(0.1)
        assert commit_file(table, 1).exists()
        assert "committed but not yet published" in caplog.text

    def test_attempts_end_in_failed_and_an_alert(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake], caplog: pytest.LogCaptureFixture
    ) -> None:
        events: list[dict[str, Any]] = []
        with webhook(events) as url:
            quick = other_lake(
                mirror__max_retry_attempts=2, mirror__retry_backoff_base="1ms", mirror__alert_webhook=url
            )
            table = quick.table(make_table().id)
            log_of(table).rename(log_of(table).with_name("away"))
            log_of(table).write_text("in the way")
            with caplog.at_level(logging.ERROR, "deltasql"):
                stage(quick, table)
                deadline = time.monotonic() + 20
                while state_of(quick, table).status != "FAILED" and time.monotonic() < deadline:
                    time.sleep(0.05)
                while not events and time.monotonic() < deadline:
                    time.sleep(0.05)
            assert state_of(quick, table).status == "FAILED"
            assert [(e["event"], e["table"], e["version"]) for e in events] == [("mirror_failed", table.name, 1)]
            # Another lake may log a warning for the same version, but only one alert (level ERROR) is sent.
            alerts = [r for r in caplog.records if r.levelno >= logging.ERROR and "not yet published" in r.message]
            assert len(alerts) == 1
            assert f'mirror_failed{{table="{table.name}"}} 1.0' in quick.mirror.metrics()
            log_of(table).unlink()
            log_of(table).with_name("away").rename(log_of(table))
            assert quick.mirror.repair(table.name).versions in ((1,), ())

    def test_five_attempts_and_pauses_that_double(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quick = other_lake(mirror__retry_backoff_base="40ms")
        table = quick.table(make_table().id)
        original, times = Directory.put_if_absent, []

        def failing(directory: Directory, path: str, data: bytes) -> bool:
            if directory.location != table.location:
                return original(directory, path, data)
            times.append(time.monotonic())
            raise deltasql.StorageError("down")

        monkeypatch.setattr(Directory, "put_if_absent", failing)
        stage(quick, table)
        seen = [state_of(quick, table)]
        deadline = time.monotonic() + 60
        while seen[-1].status != "FAILED" and time.monotonic() < deadline:
            time.sleep(0.02)
            seen.append(state_of(quick, table))
        assert {(status.attempts >= 5, status.status) for status in seen} == {(False, "PENDING"), (True, "FAILED")}
        pauses = [later - earlier for earlier, later in pairwise(times)]
        for pause, least in zip(pauses[:4], (0.04, 0.08, 0.16, 0.32), strict=True):
            assert pause > 0.9 * least
        monkeypatch.undo()
        quick.mirror.repair(table.name)

    def test_no_commit_waits_for_the_webhook(
        self, lake: deltasql.Lake, make_table: Make, other_lake: Callable[..., deltasql.Lake]
    ) -> None:
        events: list[dict[str, Any]] = []
        committed = threading.Event()
        with webhook(events, until=committed) as url:
            alerting = other_lake(mirror__alert_webhook=url)
            table = alerting.table(make_table().id)
            commit_file(table, 1).write_bytes(b"{}\n")
            stage(alerting, table)
            assert events == []
            committed.set()
            assert state_of(alerting, table).status == "FAILED"
            alerting.close()
            assert [event["event"] for event in events] == ["mirror_conflict"]
        lake.drop_table(table.name)

    def test_a_missing_version_blocks_its_table_and_says_so(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(properties={"deltasql.mirror.mode": "off"})
        for _ in range(3):
            stage(lake, table)
        key = table.state().table_key
        with psycopg.connect(lake.dsn, autocommit=True) as connection:
            connection.execute("delete from deltasql.dl_mirror_status where table_key = %s and version = 2", [key])
        with pytest.raises(deltasql.MirrorFailure, match="gap"):
            lake.mirror.repair(table.name)
        assert not commit_file(table, 3).exists()
        assert lake.mirror.repair(table.name, version=2).versions == (2, 3)

    def test_a_lost_file_blocks_its_table_until_repair(
        self, lake: deltasql.Lake, make_table: Make, other_lake: Callable[..., deltasql.Lake]
    ) -> None:
        table = make_table()
        for _ in range(3):
            stage(lake, table)
        commit_file(table, 2).unlink()
        commit_file(table, 3).unlink()
        stage(other_lake(), table)
        assert "mirror repair" in (state_of(lake, table).error or "")
        assert not commit_file(table, 4).exists()
        assert lake.mirror.validate(table.name)
        assert lake.mirror.repair(table.name).versions == (2, 3, 4)
        assert lake.mirror.validate(table.name) == []

    def test_a_log_that_vanishes_under_its_publisher(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        stage(lake, table)
        shutil.rmtree(log_of(table))
        stage(lake, table)
        assert not commit_file(table, 2).exists()
        assert "mirror repair" in (state_of(lake, table).error or "")
        assert lake.mirror.repair(table.name).versions == (0, 1, 2)
        assert DeltaTable(table.location).version() == 2

    def test_versions_never_attempted_are_due(self, make_table: Make, other_lake: Callable[..., deltasql.Lake]) -> None:
        """The row in dl_mirror_status is the one that a publisher leaves when it dies before it records its result."""
        lake = other_lake(mirror__retry_backoff_base="1h")
        table = lake.table(make_table().id)
        stage(lake, table)
        with psycopg.connect(lake.dsn, autocommit=True) as connection:
            connection.execute(
                "update deltasql.dl_mirror_status set status = 'PENDING', json_written = false where table_key = %s "
                "and version = 1 and last_attempt_at is not null",
                [table.state().table_key],
            )
        assert state_of(lake, table).lag_versions == 1
        stage(lake, table)
        assert state_of(lake, table).published == 2


class TestRunning:
    def test_run_publishes_versions_that_are_not_due(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake]
    ) -> None:
        lake = other_lake(mirror__retry_backoff_base="1h")
        table = lake.table(make_table().id)
        foreign = b'{"commitInfo":{"operation":"WRITE","engineInfo":"other/1"}}\n'
        commit_file(table, 1).write_bytes(foreign)
        stage(lake, table)
        for attempts in (2, 3):
            [report] = [r for r in lake.mirror.run() if r.table == table.name]
            assert "WRITE by other/1" in (report.error or "")
            assert state_of(lake, table).attempts == attempts
        lake.mirror._reconciler.run_pass(check_log=True)  # the pass that `watch` runs
        assert state_of(lake, table).attempts == 3
        commit_file(table, 1).unlink()
        assert [r.versions for r in lake.mirror.run() if r.table == table.name] == [(1,)]

    def test_waits_for_another_publisher(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A wait longer than the lock timeout is reported; a wait that the other publisher ends in time is not."""
        lake = other_lake(transaction__lock_timeout="1s")
        table = lake.table(make_table().id)
        with blocked_publisher(table, monkeypatch) as publisher:
            writer = threading.Thread(target=stage, args=(lake, table))
            writer.start()
            wait_until(lambda: publisher.started.is_set(), 20)
            [report] = [r for r in lake.mirror.run() if r.table == table.name]
            assert "holds the table's lock" in (report.error or "")
            assert lake.mirror.validate(table.name) == []
            with pytest.raises(deltasql.CommitTimeout):
                lake.mirror.repair(table.name)
            threading.Timer(0.3, publisher.release).start()
            assert [r for r in lake.mirror.run() if r.table == table.name] == []
            writer.join(20)
        assert state_of(lake, table).published == 1


class TestCheckpoints:
    def test_every_interval(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(properties={"delta.checkpointInterval": "3"})
        for _ in range(7):
            stage(lake, table)
        lake.mirror.settle()
        assert sorted(p.name[:20] for p in log_of(table).glob("*.checkpoint.parquet"))[-1] == f"{6:020d}"
        hint = json.loads((log_of(table) / "_last_checkpoint").read_text())
        assert hint["version"] == 6
        assert hint["checksum"] == checksum(hint)
        rows = pq.read_table(log_of(table) / f"{6:020d}.checkpoint.parquet")
        assert (hint["size"], hint["numOfAddFiles"]) == (rows.num_rows, 6)
        assert state_of(lake, table).checkpoint == 6

    def test_ten_by_default(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        for _ in range(11):
            stage(lake, table)
        lake.mirror.settle()
        assert [p.name[:20] for p in log_of(table).glob("*.checkpoint.parquet")] == [f"{10:020d}"]

    def test_a_checkpoint_holds_the_whole_state(self, lake: deltasql.Lake, make_table: Make) -> None:
        now = time.time_ns() // 1_000_000
        table = make_table(
            partition_by=["day"],
            properties={"delta.checkpointInterval": "1000", "delta.feature.domainMetadata": "supported"},
        )
        values = {"day": "2026-01-01"}
        stage(
            lake,
            table,
            add("gone", partition_values=values),
            add("long gone", partition_values=values),
            add("back", partition_values=values),
            add("stays", partition_values={"day": None}, tags={"a": "b", "c": None}, stats='{"numRecords":3}'),
            deltasql.Txn("app", 1),
            deltasql.DomainMetadata("kept", "1"),
            deltasql.DomainMetadata("dropped", "1"),
        )
        stage(
            lake,
            table,
            remove("gone", deletion_timestamp=now),
            remove("long gone", deletion_timestamp=now - 8 * 86_400_000),
            remove("back", deletion_timestamp=now),
            deltasql.Txn("app", 2, now),
            deltasql.DomainMetadata("dropped", "", removed=True),
        )
        stage(lake, table, add("back", partition_values=values))
        lake.mirror._checkpoints.write(lake.mirror._find(table.name), 3)
        found: dict[str, list[Any]] = {}
        for row in pq.read_table(log_of(table) / f"{3:020d}.checkpoint.parquet").to_pylist():
            for kind, body in row.items():
                if body is not None:
                    found.setdefault(kind, []).append(body)
        assert sorted(a["path"] for a in found["add"]) == ["back", "stays"]
        assert [r["path"] for r in found["remove"]] == ["gone"]
        assert [(t["appId"], t["version"]) for t in found["txn"]] == [("app", 2)]
        assert [d["domain"] for d in found["domainMetadata"]] == ["kept"]
        assert len(found["protocol"]) == len(found["metaData"]) == 1
        stays = next(a for a in found["add"] if a["path"] == "stays")
        assert stays["partitionValues"] == [("day", None)]
        assert stays["tags"] == [("a", "b"), ("c", None)]
        for version in range(4):
            commit_file(table, version).unlink()
        directory = Directory(table.location, {})
        assert replay(directory, LogFiles.of(directory), 3).files.keys() == {("back", None), ("stays", None)}
        [difference] = lake.mirror.validate(table.name)  # the contents are the same
        assert "commit files up to version 3" in difference

    def test_last_checkpoint_never_moves_back(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        for _ in range(4):
            stage(lake, table)
        mirrored = lake.mirror._find(table.name)
        lake.mirror._checkpoints.write(mirrored, 4)
        lake.mirror._checkpoints.write(mirrored, 2)
        assert json.loads((log_of(table) / "_last_checkpoint").read_text())["version"] == 4

    def test_old_log_files_are_deleted_only_behind_a_checkpoint(self, lake: deltasql.Lake, make_table: Make) -> None:
        """The log is cleaned up after every checkpoint."""
        table = make_table(properties={"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 1 day"})
        for first in (4, 10):
            for _ in range(2):
                stage(lake, table)
                stage(lake, table)
                lake.mirror.settle()
            age(table)
            stage(lake, table)
            stage(lake, table)
            lake.mirror.settle()
            names = sorted(p.name for p in log_of(table).glob("0*"))
            assert names[:2] == [f"{first:020d}.checkpoint.parquet", f"{first:020d}.json"]
            assert lake.mirror.validate(table.name) == []

    def test_status_shows_why_a_checkpoint_is_missing(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake]
    ) -> None:
        lake = other_lake(mirror__retry_backoff_base="1h")  # no background retry during the test
        table = make_table(properties={"delta.checkpointInterval": "2"})
        stage(lake, table)
        obstacle = log_of(table) / f"{2:020d}.checkpoint.parquet"
        obstacle.mkdir()
        (obstacle / "in the way").touch()
        stage(lake, table)
        lake.mirror.settle()
        status = state_of(lake, table)
        assert (status.published, status.checkpoint, status.lag_versions) == (2, -1, 0)
        assert status.error is not None
        assert status.error.startswith("checkpoint: ")
        (obstacle / "in the way").unlink()
        obstacle.rmdir()
        assert lake.mirror.repair(table.name).checkpoint == 2
        assert state_of(lake, table).error is None


class TestForeignLogs:
    def test_a_table_is_not_created_over_a_log(self, lake: deltasql.Lake, make_table: Make, tmp_path: Path) -> None:
        place = tmp_path / "taken"
        write_deltalake(place, pa.table({"id": [1]}))
        with pytest.raises(
            deltasql.TableExists, match=r"already holds a Delta log, .*: choose another location for the new table$"
        ):
            make_table(location=str(place))
        table = make_table(location=str(tmp_path / "own"))
        lake.drop_table(table.name)
        with pytest.raises(deltasql.TableExists, match="of a dropped table"):
            make_table(location=str(tmp_path / "own"))


class TestDropping:
    def test_open_versions_are_published_before_a_drop(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(properties={"deltasql.mirror.mode": "async"})
        stage(lake, table)
        stage(lake, table)
        place, version = table.location, table.version
        lake.drop_table(table.name)
        assert DeltaTable(place).version() == version

    def test_unpublished_versions_are_reported_at_a_drop(
        self, lake: deltasql.Lake, make_table: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = make_table()
        commit_file(table, 1).write_bytes(b"{}\n")
        stage(lake, table)
        caplog.clear()
        lake.drop_table(table.name)
        assert "holds another commit" in caplog.text


class TestPurging:
    """A drop with purge deletes all files, also while another process publishes the same table."""

    def test_drop_waits_for_a_running_publisher(
        self,
        lake: deltasql.Lake,
        make_table: Make,
        other_lake: Callable[..., deltasql.Lake],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        table, other = make_table(), other_lake()
        place = Path(table.location)
        publishing, release = threading.Event(), threading.Event()
        original = Directory.put_if_absent

        def slow(directory: Directory, path: str, data: bytes) -> bool:
            if directory.location == str(place):
                publishing.set()
                assert release.wait(20)
            return original(directory, path, data)

        monkeypatch.setattr(Directory, "put_if_absent", slow)
        writer = threading.Thread(target=stage, args=(other, other.table(table.id)))
        purger = threading.Thread(target=lake.drop_table, args=(table.name,), kwargs={"purge": True})
        writer.start()
        assert publishing.wait(20)
        purger.start()
        purger.join(0.5)
        assert purger.is_alive()
        release.set()
        writer.join(20)
        purger.join(20)
        assert [path for path in place.rglob("*") if path.is_file()] == []

    def test_a_dropped_table_is_not_published(
        self, lake: deltasql.Lake, make_table: Make, other_lake: Callable[..., deltasql.Lake]
    ) -> None:
        table, other = make_table(properties={"deltasql.mirror.mode": "off"}), other_lake()
        stage(lake, table)
        known, place = other.mirror._find(table.name), Path(table.location)
        lake.drop_table(table.name, purge=True)
        assert other.mirror._publisher.publish(known, wait=True).versions == []
        assert other.mirror._checkpoints.write_due(known, wait=True) is None
        assert [path for path in place.rglob("*") if path.is_file()] == []


class TestOptIns:
    def test_in_commit_timestamps(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(properties={"delta.enableInCommitTimestamps": "true"})
        for _ in range(5):
            stage(lake, table)
        stamps = [actions(table, v)[0]["commitInfo"]["inCommitTimestamp"] for v in range(6)]
        assert stamps == sorted(set(stamps))
        assert [actions(table, v)[0]["commitInfo"]["timestamp"] for v in range(6)] == stamps
        other = make_table("plain")
        assert "inCommitTimestamp" not in actions(other, 0)[0]["commitInfo"]
        metadata = other.state().metadata
        assert metadata is not None
        on = deltasql.Metadata(
            metadata.id, metadata.schema_string, configuration={"delta.enableInCommitTimestamps": "true"}
        )
        protocol = deltasql.Protocol(1, 7, None, ("appendOnly", "inCommitTimestamp", "invariants"))
        with pytest.raises(deltasql.ValidationError, match="when a table is created"):
            stage(lake, other, on, protocol)

    def test_the_fence_names_a_feature_that_nobody_else_has(self, make_table: Make) -> None:
        table = make_table(properties={"delta.deltasql.fence": "true"})
        protocol = next(a["protocol"] for a in actions(table, 0) if "protocol" in a)
        assert protocol == {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["deltasqlFence"]}


class TestWatching:
    def test_a_commit_wakes_the_reconciler(
        self, lake: deltasql.Lake, make_table: Make, other_lake: Callable[..., deltasql.Lake]
    ) -> None:
        watcher = other_lake(mirror__reconcile_interval="60s")
        table = make_table(properties={"deltasql.mirror.mode": "async"})
        lake.mirror.settle()
        stop, seen = threading.Event(), threading.Event()
        thread = threading.Thread(target=watcher.mirror.watch, args=(stop, lambda _: seen.set()))
        thread.start()
        try:
            assert seen.wait(120)
            seen.clear()
            stage(lake, table)
            assert seen.wait(50), "the notification did not arrive"
        finally:
            stop.set()
            thread.join(60)
        assert not thread.is_alive()

    def test_retries_run_when_due(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A failed version is retried when its backoff ends, before the next reconcile interval."""
        watcher = other_lake(mirror__reconcile_interval="1h", mirror__retry_backoff_base="20ms")
        silent = other_lake(mirror__mode="off")
        table = silent.table(make_table().id)
        stage(silent, table)
        original = Directory.put_if_absent

        def failing(directory: Directory, path: str, data: bytes) -> bool:
            if directory.location != table.location:
                return original(directory, path, data)
            raise deltasql.StorageError("down")

        monkeypatch.setattr(Directory, "put_if_absent", failing)
        stop = threading.Event()
        thread = threading.Thread(target=watcher.mirror.watch, args=(stop,))
        thread.start()
        try:
            wait_until(lambda: state_of(silent, table).status == "FAILED", 60)
            monkeypatch.undo()
            wait_until(lambda: state_of(silent, table).published == 1, 60)
        finally:
            stop.set()
            thread.join(60)

    def test_a_failed_publish_notifies_the_reconciler(
        self, make_table: Make, other_lake: Callable[..., deltasql.Lake], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The notification lets a running reconciler retry if the writer exits first."""
        writer = other_lake(mirror__retry_backoff_base="1h")
        table = writer.table(make_table().id)
        monkeypatch.setattr(Directory, "put_if_absent", raising(deltasql.StorageError("down")))
        with writer.store.outbox.listening() as notified:
            stage(writer, table)
            assert notified(20)
        monkeypatch.undo()
        writer.mirror.repair(table.name)

    def test_metrics(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        text = lake.mirror.metrics()
        for name in ("mirror_publish_seconds_count", "mirror_failures_total", "mirror_checkpoint_seconds_count"):
            assert name in text
        assert f'mirror_lag_seconds{{table="{table.name}"}} 0.0' in text


class TestParallelPublishing:
    """Each test uses a separate database schema, so that no other publisher is active."""

    def test_a_commit_to_many_tables(
        self, other_lake: Callable[..., deltasql.Lake], namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake = other_lake(postgres__schema="crowded")
        tables = [lake.create_table(f"{namespace}.t{number}", "id BIGINT") for number in range(7)]
        with concurrent_puts(5, monkeypatch) as puts, lake.begin() as tx:
            for table in tables:
                tx.stage(table, [add()])
        assert puts.most == 5
        assert [state_of(lake, table).published for table in tables] == [1] * 7

    def test_the_reconciler(
        self, other_lake: Callable[..., deltasql.Lake], namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        silent = other_lake(postgres__schema="crowded", mirror__mode="off")
        lake = other_lake(postgres__schema="crowded")
        tables = [silent.create_table(f"{namespace}.t{number}", "id BIGINT") for number in range(12)]
        with concurrent_puts(10, monkeypatch) as puts:
            lake.mirror.run()
        assert puts.most == 10
        assert [state_of(lake, table).published for table in tables] == [0] * 12


class concurrent_puts:
    """Block `put_if_absent` until `count` calls run at the same time; `most` is the highest number seen."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self._inside = 0
        self._count, self._changed = count, threading.Condition()
        original = Directory.put_if_absent

        def put(directory: Directory, path: str, data: bytes) -> bool:
            with self._changed:
                self._inside += 1
                self.most = max(self.most, self._inside)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self.most >= self._count, 30)
            try:
                return original(directory, path, data)
            finally:
                with self._changed:
                    self._inside -= 1

        monkeypatch.setattr(Directory, "put_if_absent", put)
        self._undo = monkeypatch.undo

    def __enter__(self) -> concurrent_puts:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo()


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


class webhook:
    """An HTTP server that appends each received event to `events`."""

    def __init__(self, events: list[dict[str, Any]], until: threading.Event | None = None) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if until is not None:
                    until.wait(60)
                events.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
