"""`validate` reports every missing, damaged or foreign file in `_delta_log`, and `repair` restores the log."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import deltasql
from deltasql.delta_log.last_checkpoint import checksum
from deltasql.mirror import validate as validation
from tests.ageing import clean
from tests.published_log import blocked_publisher, commit_file, log_of, stage, state_of
from tests.servers import wait_until

Make = Callable[..., deltasql.Table]


SCHEMA = "repaired"


@pytest.fixture(scope="module")
def lake(embedded_lake: deltasql.Lake) -> Iterator[deltasql.Lake]:
    """A lake in a separate database schema, so that no other test publishes its tables."""
    with deltasql.connect(embedded_lake.dsn, config={"postgres.schema": SCHEMA}) as own:
        yield own


@pytest.fixture
def table(lake: deltasql.Lake, make_table: Make) -> deltasql.Table:
    """A table with versions 0 to 5 and checkpoints at versions 2 and 4."""
    made = make_table(properties={"delta.checkpointInterval": "2"})
    for version in range(1, 6):
        stage(lake, made)
        if version % 2 == 0:
            wait_until(lambda: state_of(lake, made).checkpoint == version, 20)  # noqa: B023 - called before `version` changes
    return made


def checkpoint_file(table: deltasql.Table, version: int) -> Path:
    return log_of(table) / f"{version:020d}.checkpoint.parquet"


def hint_file(table: deltasql.Table) -> Path:
    return log_of(table) / "_last_checkpoint"


def hinted(table: deltasql.Table) -> int:
    return int(json.loads(hint_file(table).read_text())["version"])


def point_to(table: deltasql.Table, version: int, **fields: Any) -> None:
    content = {"version": version, "size": 9, **fields}
    hint_file(table).write_text(json.dumps(content | {"checksum": checksum(content)}))


def write_with_delta_rs(table: deltasql.Table, times: int = 1) -> None:
    for _ in range(times):
        write_deltalake(table.location, pa.table({"id": pa.array([99], pa.int64())}), mode="append")


def is_whole(lake: deltasql.Lake, table: deltasql.Table) -> None:
    """Assert that delta-rs reads the version and the files that the database has, and that `validate` finds nothing."""
    reader = DeltaTable(table.location)
    assert reader.version() == table.version
    names = sorted(uri.rpartition("/")[2] for uri in reader.file_uris())
    assert names == sorted(path.rpartition("/")[2] for path in table.files()["path"].to_pylist())
    assert lake.mirror.validate(table.name) == []


class TestLastCheckpoint:
    @pytest.mark.parametrize("version", [3, 40])
    def test_hint_without_a_checkpoint_is_reported_and_rewritten(
        self, lake: deltasql.Lake, table: deltasql.Table, version: int
    ) -> None:
        point_to(table, version)
        assert any("_last_checkpoint names version" in text for text in lake.mirror.validate(table.name))
        lake.mirror.repair(table.name)
        assert hinted(table) == 4
        is_whole(lake, table)

    def test_hint_of_another_form_is_reported_and_rewritten(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        point_to(table, 4, parts=3)
        assert any("_last_checkpoint" in text for text in lake.mirror.validate(table.name))
        lake.mirror.repair(table.name)
        is_whole(lake, table)

    def test_the_next_checkpoint_ignores_a_wrong_hint(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        point_to(table, 40)
        stage(lake, table)
        wait_until(lambda: state_of(lake, table).checkpoint == 6, 20)
        assert hinted(table) == 6
        is_whole(lake, table)

    def test_hint_without_any_checkpoint_is_deleted(self, lake: deltasql.Lake, make_table: Make) -> None:
        plain = make_table()
        stage(lake, plain)
        point_to(plain, 1)
        assert lake.mirror.validate(plain.name)
        assert lake.mirror.repair(plain.name).checkpoint is None
        assert not hint_file(plain).exists()
        is_whole(lake, plain)


class TestCheckpoints:
    def test_missing_checkpoint_is_reported_and_rewritten(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        checkpoint_file(table, 4).unlink()
        assert "whose checkpoint does not exist" in str(lake.mirror.validate(table.name))
        assert lake.mirror.repair(table.name).checkpoint == 4
        assert hinted(table) == 4
        is_whole(lake, table)

    def test_missing_checkpoint_of_a_cleaned_log(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        clean(lake, table)
        checkpoint_file(table, 4).unlink()
        assert checkpoint_file(table, 4).name in str(lake.mirror.validate(table.name))
        assert lake.mirror.repair(table.name).versions == ()
        assert not commit_file(table, 0).exists()
        is_whole(lake, table)

    def test_foreign_checkpoint_is_not_taken_for_ours(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(schema="id BIGINT", properties={"delta.checkpointInterval": "2"})
        stage(lake, table)
        write_with_delta_rs(table)
        DeltaTable(table.location).create_checkpoint()
        assert checkpoint_file(table, 2).exists()
        stage(lake, table)
        error = state_of(lake, table).error or ""
        assert "mirror recover" in error
        commit_file(table, 2).unlink()  # and keep the checkpoint
        lake.mirror.repair(table.name)
        lake.mirror.settle()
        is_whole(lake, table)

    def test_foreign_checkpoint_at_any_version(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(schema="id BIGINT", properties={"delta.checkpointInterval": "4"})
        stage(lake, table)
        write_with_delta_rs(table, 4)
        DeltaTable(table.location).create_checkpoint()
        assert checkpoint_file(table, 5).exists()
        for _ in range(5):
            stage(lake, table)
        for version in range(2, 6):
            commit_file(table, version).unlink()
        lake.mirror.repair(table.name)
        lake.mirror.settle()
        is_whole(lake, table)

    def test_broken_checkpoint_is_rewritten(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        right = pq.read_table(checkpoint_file(table, 4))
        checkpoint_file(table, 2).write_bytes(b"PAR1 and no more")
        pq.write_table(pa.table({"remove": [1]}), checkpoint_file(table, 4))
        assert lake.mirror.repair(table.name).checkpoint == 4
        assert pq.read_table(checkpoint_file(table, 4)).equals(right)
        assert pq.read_metadata(checkpoint_file(table, 2)).num_rows
        is_whole(lake, table)

    def test_checkpoint_of_a_lost_history(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        """A checkpoint with another txnId, as after a restore of the database, is reported and rewritten."""
        marks = pq.read_metadata(checkpoint_file(table, 4)).metadata
        assert marks[b"deltasql.table"].decode() == table.id
        lost = pq.read_table(checkpoint_file(table, 4)).slice(0, 4)
        other = {key: value for key, value in marks.items() if key.startswith(b"deltasql.")} | {b"deltasql.txnId": b"x"}
        pq.write_table(lost.replace_schema_metadata(other), checkpoint_file(table, 4))
        assert lake.mirror.validate(table.name)
        assert lake.mirror.repair(table.name).checkpoint == 4
        is_whole(lake, table)

    def test_own_checkpoints_are_unchanged(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        before = checkpoint_file(table, 4).stat().st_mtime_ns
        assert lake.mirror.repair(table.name).checkpoint is None
        assert checkpoint_file(table, 4).stat().st_mtime_ns == before


class TestVersions:
    def test_cleaned_up_version_is_rejected(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        clean(lake, table)
        assert lake.mirror.validate(table.name) == []
        assert lake.mirror.repair(table.name).versions == ()
        for version in (0, 2, 3):
            with pytest.raises(deltasql.ValidationError, match="starts at version 4"):
                lake.mirror.repair(table.name, version=version)
        stage(lake, table)
        assert (state_of(lake, table).status, state_of(lake, table).published) == ("SUCCESS", 6)
        assert lake.mirror.repair(table.name, version=4).versions == (4,)
        lake.mirror.settle()
        is_whole(lake, table)

    def test_republished_version_is_closed(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        ours = commit_file(table, 5).read_bytes()
        commit_file(table, 5).write_bytes(b'{"commitInfo":{}}\n')
        with pytest.raises(deltasql.MirrorConflict):
            lake.mirror.repair(table.name, version=5)
        stage(lake, table)
        assert (state_of(lake, table).status, state_of(lake, table).published) == ("SUCCESS", 6)
        commit_file(table, 5).write_bytes(ours)
        lake.mirror.settle()
        is_whole(lake, table)

    def test_all_commits_behind_the_checkpoint_are_missing(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        clean(lake, table)
        for version in (4, 5):
            commit_file(table, version).unlink()
        assert lake.mirror.repair(table.name).versions == (4, 5)
        is_whole(lake, table)
        stage(lake, table)
        lake.mirror.settle()
        is_whole(lake, table)

    def test_young_commits_are_restored_without_any_log(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        before = {path.name: path.read_bytes() for path in log_of(table).glob("*.json")}
        shutil.rmtree(log_of(table))
        assert lake.mirror.repair(table.name).versions == (0, 1, 2, 3, 4, 5)
        assert {path.name: path.read_bytes() for path in log_of(table).glob("*.json")} == before
        is_whole(lake, table)

    def test_old_commits_are_restored_from_the_needed_checkpoint(
        self, lake: deltasql.Lake, table: deltasql.Table
    ) -> None:
        clean(lake, table)
        for _ in range(3):
            stage(lake, table)
        lake.mirror.settle()
        shutil.rmtree(log_of(table))
        assert lake.mirror.repair(table.name).versions == (4, 5, 6, 7, 8)
        assert [DeltaTable(table.location, version=v).version() for v in range(4, 9)] == [4, 5, 6, 7, 8]
        is_whole(lake, table)

    def test_missing_commit_before_the_checkpoint(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        commit_file(table, 0).unlink()
        [difference] = lake.mirror.validate(table.name)
        assert difference == f"_delta_log/{commit_file(table, 0).name} is missing"
        assert lake.mirror.repair(table.name).versions == (0,)
        assert DeltaTable(table.location, version=1).version() == 1
        is_whole(lake, table)
        commit_file(table, 1).unlink()
        commit_file(table, 2).unlink()
        [difference] = lake.mirror.validate(table.name)
        assert difference.endswith("is missing, and so are the commit files up to version 2")
        assert lake.mirror.repair(table.name, version=1).versions == (1,)
        assert lake.mirror.repair(table.name).versions == (2,)
        is_whole(lake, table)

    def test_all_commits_are_restored_without_log_cleanup(self, lake: deltasql.Lake, make_table: Make) -> None:
        made = make_table(properties={"delta.checkpointInterval": "2", "delta.enableExpiredLogCleanup": "false"})
        for _ in range(2):
            stage(lake, made)
        lake.mirror.settle()
        clean(lake, made)
        commit_file(made, 0).unlink()
        assert lake.mirror.repair(made.name).versions == (0,)
        is_whole(lake, made)

    @pytest.mark.parametrize("kept", [0, 100])
    @pytest.mark.parametrize("version", [1, 5])
    def test_truncated_files_are_completed(
        self, lake: deltasql.Lake, table: deltasql.Table, version: int, kept: int
    ) -> None:
        whole = commit_file(table, version).read_bytes()
        commit_file(table, version).write_bytes(whole[:kept])
        assert f"_delta_log/{commit_file(table, version).name} is truncated" in lake.mirror.validate(table.name)
        assert lake.mirror.repair(table.name).versions == (version,)
        assert commit_file(table, version).read_bytes() == whole
        is_whole(lake, table)

    @pytest.mark.parametrize("version", [1, 5])
    def test_foreign_files_are_reported_and_the_others_repaired(
        self, lake: deltasql.Lake, table: deltasql.Table, version: int
    ) -> None:
        ours = commit_file(table, version).read_bytes()
        other = ours.replace(b'"timestamp":1', b'"timestamp":2')  # the same length as the original
        commit_file(table, version).write_bytes(other)
        commit_file(table, 3).unlink()
        assert f"{commit_file(table, version).name} holds another commit" in str(lake.mirror.validate(table.name))
        with pytest.raises(deltasql.MirrorConflict, match="Nothing was overwritten") as caught:
            lake.mirror.repair(table.name)
        assert caught.value.version == version
        assert commit_file(table, version).read_bytes() == other
        assert commit_file(table, 3).exists()
        stage(lake, table)
        assert (state_of(lake, table).status, state_of(lake, table).published) == ("SUCCESS", 6)
        commit_file(table, version).write_bytes(ours)
        lake.mirror.settle()
        is_whole(lake, table)

    def test_the_same_process_notices_missing_files(self, lake: deltasql.Lake, make_table: Make) -> None:
        plain = make_table()
        for _ in range(3):
            stage(lake, plain)
        for version in range(4):
            commit_file(plain, version).unlink()
        assert lake.mirror.repair(plain.name).versions == (0, 1, 2, 3)
        is_whole(lake, plain)


class TestValidate:
    def test_names_a_commit_that_cannot_be_read(self, lake: deltasql.Lake, make_table: Make) -> None:
        plain = make_table()
        stage(lake, plain)
        whole = commit_file(plain, 1).read_bytes()
        commit_file(plain, 1).write_bytes(whole[:30])
        [difference] = lake.mirror.validate(plain.name)
        assert commit_file(plain, 1).name in difference
        lake.mirror.repair(plain.name, version=1)
        is_whole(lake, plain)

    @pytest.mark.parametrize("content", [b"junk", b"PAR1\x15\x00\x15\x99\x00\x00\x00PAR1"], ids=["junk", "footer"])
    def test_names_a_checkpoint_that_cannot_be_read(
        self, lake: deltasql.Lake, table: deltasql.Table, content: bytes
    ) -> None:
        checkpoint_file(table, 4).write_bytes(content)
        assert checkpoint_file(table, 4).name in str(lake.mirror.validate(table.name))
        lake.mirror.repair(table.name)
        is_whole(lake, table)

    def test_names_files_that_the_mirror_never_writes(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        stray = commit_file(table, 5).with_suffix(".crc")
        stray.write_text("{}")
        [difference] = lake.mirror.validate(table.name)
        assert stray.name in difference

    def test_versions_being_published_are_no_difference(
        self, lake: deltasql.Lake, make_table: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = make_table()
        with blocked_publisher(plain, monkeypatch) as publisher:
            writer = threading.Thread(target=stage, args=(lake, plain))
            writer.start()
            assert publisher.started.wait(20)
            commit_file(plain, 1).touch()
            assert state_of(lake, plain).lag_versions == 1
            assert lake.mirror.validate(plain.name) == []
            publisher.release()
            writer.join(20)
        is_whole(lake, plain)

    def test_a_concurrent_clean_up_is_no_difference(
        self, lake: deltasql.Lake, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listed = validation.LogFiles.of

        def torn(directory: Any) -> Any:
            """List the log while a cleanup runs: the result holds one commit file that is already deleted."""
            monkeypatch.setattr(validation.LogFiles, "of", listed)
            before = listed(directory)
            clean(lake, table)
            after = listed(directory)
            return replace(after, commits={0: before.commits[0]} | dict(after.commits))

        monkeypatch.setattr(validation.LogFiles, "of", torn)
        assert lake.mirror.validate(table.name) == []

    def test_a_clean_up_after_the_log_was_listed_is_no_difference(
        self, lake: deltasql.Lake, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = validation.faults

        def late(*arguments: Any) -> Any:
            monkeypatch.setattr(validation, "faults", original)
            clean(lake, table)
            return original(*arguments)

        monkeypatch.setattr(validation, "faults", late)
        assert lake.mirror.validate(table.name) == []
        assert not commit_file(table, 0).exists()

    def test_statistics_as_a_struct_only(self, lake: deltasql.Lake, make_table: Make) -> None:
        as_struct = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"}
        table = make_table("structs", properties={"delta.checkpointInterval": "1"} | as_struct)
        table.append(pa.table({"id": [1, 2]}))
        lake.mirror.settle()
        assert state_of(lake, table).checkpoint == 1
        is_whole(lake, table)

    def test_a_concurrent_commit_is_no_difference(
        self, lake: deltasql.Lake, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listed = validation.LogFiles.of

        def late(directory: Any) -> Any:
            stage(lake, table)
            lake.mirror.settle()
            return listed(directory)

        monkeypatch.setattr(validation.LogFiles, "of", late)
        assert lake.mirror.validate(table.name) == []


class TestLogAhead:
    """The log has versions that the database does not have, as after a restore from an older backup."""

    def test_log_ahead_of_the_database_is_reported(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        commit_file(table, 9).write_bytes(b"{}\n")
        report = next(r for r in lake.mirror.run() if r.table == table.name)
        assert "version 9, which the database does not have" in (report.error or "")
        assert "version 9" in str(lake.mirror.validate(table.name))

    @pytest.mark.parametrize("version", [None, 1])
    def test_repair_does_nothing(self, lake: deltasql.Lake, table: deltasql.Table, version: int | None) -> None:
        commit_file(table, 9).write_bytes(b"{}\n")
        commit_file(table, 1).unlink()
        before = contents(table)
        with pytest.raises(deltasql.MirrorConflict, match="version 9, which the database does not have"):
            lake.mirror.repair(table.name, version)
        assert contents(table) == before

    def test_repair_names_the_version_where_histories_differ(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        commit_file(table, 9).write_bytes(b"{}\n")
        commit_file(table, 3).write_bytes(b'{"commitInfo":{"operation":"WRITE","engineInfo":"other/1"}}\n')
        with pytest.raises(deltasql.MirrorConflict, match=r"other/1.* continues to version 9") as caught:
            lake.mirror.repair(table.name)
        assert caught.value.version == 3

    def test_nothing_is_published_into_a_log_ahead(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        """A writer checks the log before it publishes a table for the first time."""
        for version in (12, 13):
            commit_file(table, version).write_bytes(b"{}\n")
        before = contents(table)
        with deltasql.connect(lake.dsn, config={"postgres.schema": SCHEMA, "mirror.retry_backoff_base": "1h"}) as other:
            assert stage(other, other.table(table.id)) == 6
            status = state_of(other, table)
        assert (status.status, status.published) == ("FAILED", 5)
        assert "version 12, which the database does not have" in (status.error or "")
        assert contents(table) == before

    def test_the_hint_stays(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        checkpoint_file(table, 9).write_bytes(checkpoint_file(table, 4).read_bytes())
        log_of(table).joinpath("_last_checkpoint").write_bytes(b'{"version":9,"size":3}')
        with pytest.raises(deltasql.MirrorConflict, match="names version 9, which the database does not have"):
            lake.mirror._checkpoints.write(lake.mirror._find(table.name), 4)
        assert log_of(table).joinpath("_last_checkpoint").read_bytes() == b'{"version":9,"size":3}'


def contents(table: deltasql.Table) -> dict[str, bytes]:
    """Read all files of the log."""
    return {path.name: path.read_bytes() for path in log_of(table).iterdir()}


def set_properties(lake: deltasql.Lake, table: deltasql.Table, properties: str) -> None:
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        connection.execute(f"update {SCHEMA}.dl_tables set properties = %s where table_id = %s", [properties, table.id])


class TestPropertiesOfAnotherRelease:
    @pytest.fixture
    def newer(self, lake: deltasql.Lake, make_table: Make) -> Iterator[deltasql.Table]:
        made = make_table("newer")
        set_properties(lake, made, '{"deltasql.mirror.later": "1"}')
        yield made
        set_properties(lake, made, "{}")

    def test_unreadable_log_stops_no_other_table(
        self, lake: deltasql.Lake, newer: deltasql.Table, table: deltasql.Table
    ) -> None:
        status = state_of(lake, newer)
        assert status.mode == "unknown"
        assert "deltasql.mirror.later" in (status.error or "")
        assert f'mirror_lag_versions{{table="{newer.name}"}} 0.0' in lake.mirror.metrics()
        commit_file(table, 9).write_bytes(b"{}\n")
        reports = {report.table: report.error or "" for report in lake.mirror.run()}
        assert "deltasql.mirror.later" in reports[newer.name]
        assert "version 9" in reports[table.name]
        assert lake.mirror.repair(newer.name).versions == ()

    def test_watching_continues_after_an_unreadable_log(
        self, lake: deltasql.Lake, newer: deltasql.Table, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A failed pass is reported, and the next pass runs."""
        passes: list[list[deltasql.MirrorReport]] = []
        stop, due = threading.Event(), lake.mirror._outbox.due

        def each(reports: list[deltasql.MirrorReport]) -> None:
            passes.append(reports)
            if len(passes) == 1:
                monkeypatch.setattr(lake.mirror._outbox, "due", lambda: 1 / 0)
            if len(passes) == 2:
                monkeypatch.setattr(lake.mirror._outbox, "due", due)
            if len(passes) == 3:
                stop.set()
            lake.mirror._outbox.notify(0)

        thread = threading.Thread(target=lake.mirror.watch, args=(stop, each))
        thread.start()
        thread.join(60)
        stop.set()
        assert len(passes) == 3
        assert newer.name in [report.table for report in passes[0]]
        assert "ZeroDivisionError" in (passes[1][0].error or "")


def test_old_checkpoints_without_marks_stay_until_repair(lake: deltasql.Lake, table: deltasql.Table) -> None:
    """Checkpoints of earlier releases have no deltasql metadata."""
    old = pq.read_table(checkpoint_file(table, 4)).replace_schema_metadata(None)
    pq.write_table(old, checkpoint_file(table, 4), store_schema=False)
    os.utime(checkpoint_file(table, 4), (1, 1))
    lake.mirror.run()
    assert checkpoint_file(table, 4).stat().st_mtime == 1
    assert lake.mirror.validate(table.name) == []
    lake.mirror.repair(table.name)
    assert checkpoint_file(table, 4).stat().st_mtime > 1
    is_whole(lake, table)
