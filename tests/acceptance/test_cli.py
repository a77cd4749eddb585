"""The command line.

Most commands run in the test's process. Separate processes check the installed program: exit codes, signals, and a lake
in an empty directory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import deltasql
from deltasql.cli.main import cli
from tests.factories import add
from tests.local_spark import JAVA_OPTIONS
from tests.ports import free_port

Make = Callable[..., deltasql.Table]


def deltasql_process(
    *arguments: str, cwd: Path | None = None, url: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the installed program."""
    environment = {**os.environ, "COLUMNS": "100", "JDK_JAVA_OPTIONS": JAVA_OPTIONS}
    if url:
        environment["DELTASQL_URL"] = url
    command = [str(Path(sys.executable).with_name("deltasql")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=600)


def deltasql_command(*arguments: str, url: str | None = None, width: int = 100) -> Result:
    """Run a command in this process."""
    result = CliRunner().invoke(cli, arguments, env={"COLUMNS": str(width), "DELTASQL_URL": url})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def run(lake: deltasql.Lake) -> Callable[..., Any]:
    def call(*arguments: str, ok: bool = True) -> str:
        done = deltasql_command(*arguments, url=lake.dsn)
        assert (done.exit_code == 0) is ok, done.stderr
        return done.stdout if ok else done.stderr

    return call


@pytest.fixture
def own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open lakes in a database schema without other tables."""
    monkeypatch.setenv("DELTASQL_POSTGRES_SCHEMA", f"s{uuid.uuid4().hex}")


def test_transactions(lake: deltasql.Lake, make_table: Make, run: Callable[..., str]) -> None:
    a, b = make_table("a"), make_table("b")
    with lake.begin(author="ada", message="both") as tx:
        for table in (a, b):
            tx.stage(table, [add(lo=1, hi=2)])
    [latest] = json.loads(run("tx", "list", "--limit", "1", "--json"))
    assert (latest["id"], latest["versions"]) == (tx.id, {a.name: 1, b.name: 1})
    text = run("tx", "show", str(tx.id))
    for part in ("both", "ada", a.name, b.name, "WRITE"):
        assert part in text
    assert "is not the id of a transaction" in run("tx", "show", "nonsense", ok=False)


def test_optimize(make_table: Make, run: Callable[..., str]) -> None:
    table = make_table(schema="id BIGINT")
    for n in range(3):
        table.append(pa.table({"id": [n]}))
    assert run("optimize", table.name).startswith(f"{table.name}: 3 files (")
    assert "no files worth rewriting" in run("optimize", table.name, "--where", "id > 0")
    assert json.loads(run("optimize", table.name, "--target-size", "1MiB", "--json"))["version"] == 4
    assert "target_size must be a size such as" in run("optimize", table.name, "--target-size", "big", ok=False)


def test_listings(lake: deltasql.Lake, make_table: Make, run: Callable[..., str]) -> None:
    table = make_table(partition_by=["day"])
    with lake.begin(author="ada", message="hello") as tx:
        tx.stage(
            table,
            [
                add("a.parquet", lo=1, hi=5, partition_values={"day": "2026-01-01"}),
                add("b.parquet", lo=6, hi=9, partition_values={"day": None}),
            ],
        )
    [info] = [row for row in json.loads(run("tables", "--json")) if row["id"] == table.id]
    assert (info["name"], info["version"], info["num_files"]) == (table.name, 1, 2)
    assert table.name in run("tables")

    shown = json.loads(run("show", table.name, "--json"))
    assert shown["columns"]["id"] == "int64"
    assert (shown["files"], shown["bytes"], shown["partition_columns"]) == (2, 200, ["day"])
    columns = run("show", table.name)
    assert "int64" in columns
    assert "\\n" not in columns

    history = json.loads(run("history", table.name, "--json"))
    assert [h["version"] for h in history] == [1, 0]
    assert (history[0]["author"], history[0]["message"], history[0]["txn_id"]) == ("ada", "hello", tx.id)
    assert "CREATE TABLE" not in run("history", table.name, "--limit", "1")

    assert [f["path"] for f in json.loads(run("files", table.name, "--where", "id = 7", "--json"))] == ["b.parquet"]
    assert json.loads(run("files", table.name, "--version", "0", "--json")) == []
    assert "a.parquet" in run("files", table.name)
    lines = run("history", table.name).strip().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].split() == ["version", "timestamp", "operation", "committer", "author", "files", "message"]
    assert len(lines) == 2 + len(history)


def test_errors_are_sentences(lake: deltasql.Lake, make_table: Make, run: Callable[..., str]) -> None:
    table = make_table("orders")
    done = deltasql_process("show", table.name.replace("orders", "order"), url=lake.dsn)
    assert done.returncode == 1
    assert f'did you mean "{table.name}"' in done.stderr
    assert "Traceback" not in done.stderr
    assert "versions 0 to 0" in run("files", table.name, "--version", "9", ok=False)
    assert "amount" in run("files", table.name, "--where", "amout = 1", ok=False)
    assert "No such command" in run("frobnicate", ok=False)


def test_init_and_migrate_on_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = deltasql_process("init", "--roles", cwd=tmp_path)
    assert "Applied" in done.stdout, done.stderr
    monkeypatch.chdir(tmp_path)
    assert "up to date" in deltasql_command("migrate").stdout
    assert deltasql_command("tables").stdout == "No tables yet.\n"


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = deltasql_process("demo", "--keep", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "VersionConflict" in done.stdout
    assert "{'demo.features': 1, 'demo.labels': 1, 'demo.metrics': 1}" in done.stdout
    assert "day=2026-01-31/part-" in done.stdout
    engines = dict(
        re.findall(r"^  (deltasql, Arrow|deltasql, Spark|delta-rs|DuckDB) +([\d,]+) rows$", done.stdout, re.M)
    )
    assert engines == dict.fromkeys(["deltasql, Arrow", "deltasql, Spark", "delta-rs", "DuckDB"], "10,000")
    monkeypatch.chdir(tmp_path)
    left = json.loads(deltasql_command("tables", "--json").stdout)
    assert [t["version"] for t in left] == [1, 1, 1]


def test_every_command_has_help() -> None:
    assert all(command.help for command in cli.commands.values())


class TestMirror:
    def test_status_and_validate(self, lake: deltasql.Lake, make_table: Make, run: Callable[..., str]) -> None:
        table = make_table()
        [status] = [row for row in json.loads(run("mirror", "status", "--json")) if row["table"] == table.name]
        assert (status["version"], status["published"], status["lag_versions"]) == (0, 0, 0)
        assert "no difference" in run("mirror", "validate", table.name)
        assert "name a table, or give --all" in run("mirror", "validate", ok=False)
        (Path(table.location) / f"_delta_log/{0:020d}.json").write_text("{}")
        done = deltasql_command("mirror", "validate", table.name, "--json", url=lake.dsn)
        assert done.exit_code == 1
        assert {row["table"] for row in json.loads(done.stdout)} == {table.name}

    @pytest.mark.usefixtures("own_schema")
    def test_validate_continues_after_a_log_that_cannot_be_read(self, embedded_lake: deltasql.Lake) -> None:
        url = embedded_lake.dsn
        with deltasql.connect(url) as lake:
            unreadable, broken = (lake.create_table(name, "id BIGINT") for name in ("a.unreadable", "b.broken"))
            log = Path(unreadable.location) / "_delta_log"
            log.rename(log.with_name("moved"))
            log.write_text("no directory")
            (Path(broken.location) / f"_delta_log/{0:020d}.json").unlink()
            done = deltasql_command("mirror", "validate", "--all", "--json", url=url)
        assert done.exit_code == 1
        assert {row["table"] for row in json.loads(done.stdout)} == {"a.unreadable", "b.broken"}

    def test_repair(self, make_table: Make, run: Callable[..., str]) -> None:
        table = make_table()
        file = Path(table.location) / f"_delta_log/{0:020d}.json"
        whole = file.read_bytes()
        file.unlink()
        [report] = json.loads(run("mirror", "repair", table.name, "--version=0", "--json"))
        assert report["versions"] == [0]
        assert file.read_bytes() == whole
        assert "no version 7" in run("mirror", "repair", table.name, "--version=7", ok=False)

    @pytest.mark.usefixtures("own_schema")
    def test_run_publishes_pending_versions(self, embedded_lake: deltasql.Lake, tmp_path: Path) -> None:
        url = embedded_lake.dsn
        with deltasql.connect(url, config={"mirror.mode": "off"}) as silent:
            silent.create_table("shop.t", "id BIGINT", location=str(tmp_path / "t"))
            status = deltasql_command("mirror", "status", url=url)
            done = deltasql_command("mirror", "run", "--json", url=url)
            again = deltasql_command("mirror", "run", "--json", url=url)
        assert "1 version, " in status.stdout
        assert [(row["table"], row["versions"], row["error"]) for row in json.loads(done.stdout)] == [
            ("shop.t", [0], None)
        ], done.stderr
        assert json.loads(again.stdout) == []
        assert (tmp_path / f"t/_delta_log/{0:020d}.json").exists()

    @pytest.mark.usefixtures("own_schema")
    def test_every_run_reports_unpublished_versions(self, embedded_lake: deltasql.Lake, tmp_path: Path) -> None:
        url = embedded_lake.dsn
        with deltasql.connect(url, config={"mirror.retry_backoff_base": "1h"}) as lake:
            table = lake.create_table("shop.orders", "id BIGINT", location=str(tmp_path / "orders"))
            foreign = tmp_path / f"orders/_delta_log/{1:020d}.json"
            foreign.write_text('{"commitInfo":{"operation":"WRITE","engineInfo":"other/1"}}\n')
            table.append(pa.table({"id": [1]}))
            off = lake.create_table("shop.private", "id BIGINT", properties={"deltasql.mirror.mode": "off"})
            runs = [deltasql_command("mirror", "run", url=url, width=80) for _ in range(2)]
            as_json = deltasql_command("mirror", "run", "--json", url=url)
            status = deltasql_command("mirror", "status", url=url, width=80)
            validated = deltasql_command("mirror", "validate", table.name, url=url)
            repaired = deltasql_command("mirror", "repair", table.name, url=url)
        for done in (*runs, as_json, validated, repaired):
            assert done.exit_code == 1
        assert "WRITE by other/1" in repaired.stderr
        assert "published." not in runs[0].stdout
        assert {row["table"] for row in json.loads(as_json.stdout) if row["error"]} == {table.name, off.name}
        assert "shop.private: version 0 is not published: mirror.mode is off" in runs[1].stdout
        for done in (*runs, status):
            assert all(len(line) <= 80 for line in done.stdout.splitlines())
            # the message is wrapped at line breaks only
            assert "Nothing was overwritten. If the commits that only the log of" in " ".join(done.stdout.split())
        [row] = [line.split() for line in status.stdout.splitlines() if line.startswith(" shop.orders ")]
        assert (row[:5], row[-1]) == (["shop.orders", "sync", "1", "0", "-1"], "FAILED")
        assert re.search(r"^shop\.orders: after \d attempts: ", status.stdout, re.M)

    def test_watching_ends_when_interrupted(self, lake: deltasql.Lake, make_table: Make) -> None:
        port = free_port()
        table = make_table()
        command = [
            str(Path(sys.executable).with_name("deltasql")),
            "mirror",
            "run",
            "--watch",
            "--metrics-port",
            str(port),
        ]
        process = subprocess.Popen(
            command, env={**os.environ, "DELTASQL_URL": lake.dsn}, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            assert "metrics" in process.stderr.readline()
            assert "Watching" in process.stderr.readline()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert f'mirror_lag_seconds{{table="{table.name}"}} 0.0' in answer.read().decode()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stderr.close()


class TestConnection:
    def test_the_url_stands_before_or_after_the_command(self, lake: deltasql.Lake) -> None:
        for arguments in (
            ["--url", lake.dsn, "tables"],
            ["tables", "--url", lake.dsn],
            ["mirror", "status", "--url", lake.dsn],
        ):
            result = CliRunner().invoke(cli, arguments, env={"DELTASQL_URL": "postgresql://127.0.0.1:1/none"})
            assert result.exit_code == 0, result.output

    def test_storage_options(self, lake: deltasql.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[dict[str, str]] = []
        original = deltasql.lake.lake.Lake.__init__

        def record(self: Any, target: Any, config: Any, storage_options: Any = None, spark: Any = None) -> None:
            seen.append(dict(storage_options or {}))
            original(self, target, config, storage_options, spark)

        monkeypatch.setattr(deltasql.lake.lake.Lake, "__init__", record)
        file = tmp_path / "options.json"
        file.write_text('{"aws_region": "file", "aws_endpoint": "file"}')
        env = {"DELTASQL_STORAGE_OPTION_AWS_REGION": "env", "DELTASQL_STORAGE_OPTION_ALLOW_HTTP": "true"}
        given = ["--url", lake.dsn, "--storage-options-file", str(file)]
        arguments = ["mirror", "status", "--storage-option", "aws_region=eu=1"]
        result = CliRunner().invoke(cli, [*given, *arguments], env=env)
        assert result.exit_code == 0, result.output
        assert seen == [{"aws_region": "eu=1", "aws_endpoint": "file", "allow_http": "true"}]

    @pytest.mark.parametrize("option", ["no-separator", "=value"])
    def test_invalid_storage_options(self, lake: deltasql.Lake, option: str) -> None:
        result = CliRunner().invoke(cli, ["--url", lake.dsn, "tables", "--storage-option", option])
        assert result.exit_code == 2
        assert "expected KEY=VALUE" in result.output


def test_names_and_messages_cannot_control_the_terminal(
    lake: deltasql.Lake, make_table: Make, run: Callable[..., Any]
) -> None:
    table = make_table(schema="id BIGINT")
    with lake.begin(author="\x1b[2Jme", message="a\u202eb") as tx:
        tx.write(table.name, pa.table({"id": [1]}))
    for output in (run("history", table.name), run("history", table.name, "--json")):
        assert "\x1b" not in output
        assert "\u202e" not in output
    assert "\\x1b[2Jme" in run("history", table.name)
    assert json.loads(run("history", table.name, "--json"))[0]["author"] == "\x1b[2Jme"
