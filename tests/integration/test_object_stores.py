"""Operations on object stores behave the same on local disk, in memory, on S3 and on Azure."""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import GenericError

import deltasql
from deltasql.delta_log.layout import commit_path
from deltasql.errors import StorageError
from deltasql.operations.location_owner import OWNER
from deltasql.storage import Directory, exists_below
from tests.factories import add
from tests.processes import run_all
from tests.s3 import S3Server

Place = tuple[str, dict[str, str]]


STORES = ["local", "memory", "s3", *(["azure"] if os.environ.get("TEST_AZURITE") else [])]


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty location and its storage options."""
    match request.param:
        case "local":
            return str(tmp_path / "objects"), {}
        case "memory":
            return f"memory:///{uuid.uuid4()}", {}
        case "azure":
            return f"az://lake/{uuid.uuid4()}", request.getfixturevalue("azure")
        case _:
            return _s3_place(request.getfixturevalue("s3"))


def _s3_place(s3: S3Server, **options: str) -> Place:
    return f"s3://lake/{uuid.uuid4()}", s3.options(**options)


def paths(directory: Directory, *args: Any, **kw: Any) -> list[str]:
    return sorted(entry.path for entry in directory.list(*args, **kw))


def put_numbers(location: str, options: dict[str, str], number: int) -> list[bool]:
    directory = Directory(location, options)
    return [directory.put_if_absent(f"{name}", b"%d" % number * 1000) for name in range(20)]


class TestConditionalPut:
    def test_the_second_writer_gets_an_error(self, place: Place) -> None:
        directory = Directory(*place)
        assert directory.put_if_absent("_delta_log/1.json", b"first")
        assert not directory.put_if_absent("_delta_log/1.json", b"second")
        assert not directory.put_if_absent("_delta_log/1.json", b"first")
        assert directory.get("_delta_log/1.json") == b"first"
        assert paths(directory) == ["_delta_log/1.json"]

    def test_threads(self, place: Place) -> None:
        directory = Directory(*place)
        start = threading.Barrier(8)

        def attempt(number: int) -> list[bool]:
            won = []
            for name in range(5):
                start.wait()
                won.append(directory.put_if_absent(f"{name}", b"%d" % number * 1000))
            return won

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(attempt, range(8)))
        for name in range(5):
            winners = [number for number in range(8) if won[number][name]]
            assert len(winners) == 1
            assert directory.get(f"{name}") == b"%d" % winners[0] * 1000

    @pytest.mark.parametrize("kind", ["local", "s3"])
    def test_processes(self, kind: str, tmp_path: Path, s3: S3Server) -> None:
        location, options = (str(tmp_path), {}) if kind == "local" else _s3_place(s3)
        won = run_all(put_numbers, [(location, options, number) for number in range(4)])
        for name in range(20):
            winners = [number for number in range(4) if won[number][name]]
            assert len(winners) == 1
            assert Directory(location, options).get(f"{name}") == b"%d" % winners[0] * 1000


class TestWithoutConditionalPut:
    """An S3 server without `If-None-Match` and without a conditional copy."""

    @pytest.fixture
    def old(self, s3: S3Server) -> Place:
        return _s3_place(s3, conditional_put="disabled")

    def test_the_store_rejects_conditional_puts(self, old: Place) -> None:
        store = Directory(*old)._store
        with pytest.raises(NotImplementedError):
            obstore.put(store, "x", b"", mode="create")

    def test_objects_are_renamed_into_place(self, old: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        directory, seen = Directory(*old), []
        original = obstore.rename

        def looking(store: Any, source: str, target: str, **kw: Any) -> None:
            seen.append((directory.size(source), directory.size(target)))
            original(store, source, target, **kw)

        monkeypatch.setattr(obstore, "rename", looking)
        assert directory.put_if_absent(commit_path(1), b"whole")
        assert seen
        assert set(seen) == {(5, None)}, "the object was there before it was whole"
        assert directory.get(commit_path(1)) == b"whole"
        assert paths(directory) == [commit_path(1)]

    def test_nothing_is_overwritten(self, old: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        directory = Directory(*old)
        directory.put(commit_path(1), b"foreign")
        assert not directory.put_if_absent(commit_path(1), b"ours")
        original = obstore.rename

        def late(store: Any, source: str, target: str, **kw: Any) -> None:
            if not kw:
                raise AssertionError("overwrote a foreign object")
            directory.put(target, b"foreign")
            original(store, source, target, **kw)

        monkeypatch.setattr(obstore, "rename", late)
        assert not directory.put_if_absent(commit_path(2), b"ours")
        assert {directory.get(commit_path(v)) for v in (1, 2)} == {b"foreign"}
        assert paths(directory) == [commit_path(1), commit_path(2)]

    def test_a_failure_leaves_nothing(self, old: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        directory = Directory(*old)

        def failing(*_: Any, **__: Any) -> None:
            raise GenericError("the store went away")

        monkeypatch.setattr(obstore, "rename", failing)
        with pytest.raises(StorageError, match="went away"):
            directory.put_if_absent(commit_path(1), b"ours")
        assert paths(directory) == []

    def test_a_lake_without_conditional_put(self, lake: deltasql.Lake, s3: S3Server, namespace: str) -> None:
        with s3_lake(lake, s3.options(conditional_put="disabled")) as old:
            table = old.create_table("t", "id BIGINT", location=f"s3://lake/{uuid.uuid4()}")
            for version in (1, 2):
                assert stage(old, table) == version
            assert old.mirror.validate("t") == []
            assert paths(Directory(table.location, s3.options())) == [*map(commit_path, range(3)), OWNER]


class TestObjects:
    def test_missing_objects(self, place: Place) -> None:
        directory = Directory(*place)
        assert directory.get("a/b") is None
        assert directory.size("a/b") is None
        assert paths(directory) == paths(directory, "a") == []
        directory.delete(["a/b", "c"])
        assert not exists_below(*place)

    def test_existing_objects(self, place: Place) -> None:
        directory = Directory(*place)
        directory.put("a/b", b"1")
        directory.put("a/b", b"22")
        directory.put("empty", b"")
        assert (directory.get("a/b"), directory.size("a/b")) == (b"22", 2)
        assert (directory.get("empty"), directory.size("empty")) == (b"", 0)
        assert exists_below(*place)
        directory.delete(["a/b"])
        assert paths(directory) == ["empty"]
        directory.delete(["empty"])
        assert paths(directory) == []

    @pytest.mark.parametrize(
        "name",
        ["a b", "a%20b", "a+b", "day=2026-01-01/x", "a:b", "a?b", "a#b", "a'b", "ä/漢", "[x]", "a&b", "~", "a*b"],
    )
    def test_special_characters(self, place: Place, name: str) -> None:
        directory = Directory(*place)
        assert directory.put_if_absent(name, name.encode())
        assert not directory.put_if_absent(name, b"other")
        assert directory.get(name) == name.encode()
        assert directory.size(name) == len(name.encode())
        assert paths(directory) == [name]
        directory.delete([name])
        assert directory.size(name) is None

    @pytest.mark.parametrize("name", ["a//b", "../b", "a/../b", "a\nb"])
    def test_invalid_paths(self, place: Place, name: str) -> None:
        with pytest.raises(StorageError, match="cannot write"):
            Directory(*place).put_if_absent(name, b"")

    def test_listing(self, place: Place) -> None:
        directory = Directory(*place)
        for version in range(12):
            directory.put(commit_path(version), b"")
        directory.put("_delta_log_not/1", b"")
        directory.put("data.parquet", b"")
        assert paths(directory, "_delta_log") == [commit_path(v) for v in range(12)]
        assert paths(directory, "_delta_log", after=commit_path(8)) == [commit_path(v) for v in (9, 10, 11)]
        assert paths(directory, "_delta_log", after=commit_path(11)) == []
        assert len(paths(directory)) == 14
        first = next(iter(directory.list("data.parquet"[:0], after="_delta_log_not/1")))
        assert (first.path, first.size, first.modified.tzinfo is not None) == ("data.parquet", 0, True)

    def test_more_than_one_page(self, s3: S3Server) -> None:
        directory = Directory(*_s3_place(s3))
        names = [f"p/{n:04d}" for n in range(s3.page + 1)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: obstore.put(directory._store, name, b""), names))
        assert paths(directory, "p") == names
        assert paths(directory, "p", after=names[0]) == names[1:]

    def test_upload_in_pieces(self, place: Place, tmp_path: Path) -> None:
        source = tmp_path / "checkpoint.parquet"
        source.write_bytes(os.urandom(12 << 20))
        directory = Directory(*place)
        directory.upload("a/large", source)
        assert directory.size("a/large") == 12 << 20
        assert directory.get("a/large") == source.read_bytes()
        source.write_bytes(b"small")
        directory.upload("a/large", source)
        assert directory.get("a/large") == b"small"

    def test_memory_outlives_its_directory(self) -> None:
        location = f"memory:///{uuid.uuid4()}"
        Directory(location, {"aws_region": "elsewhere"}).put("a", b"1")
        assert Directory(location + "/", {}).get("a") == b"1"


class TestOptions:
    @pytest.mark.parametrize(
        "key", ["aws_endpoint", "AWS_ENDPOINT_URL", "aws_endpoint_url", "endpoint", "AWS_ENDPOINT"]
    )
    @pytest.mark.parametrize(
        "http",
        [{"allow_http": "true"}, {"aws_allow_http": "TRUE"}, {"AWS_ALLOW_HTTP": "1"}, {"allow_http": True}],
        ids=str,
    )
    def test_spellings(self, s3: S3Server, key: str, http: dict[str, Any]) -> None:
        options = {k: v for k, v in s3.options().items() if k not in ("aws_endpoint", "allow_http")}
        directory = Directory(f"s3://lake/{uuid.uuid4()}", options | {key: s3.endpoint} | http)
        assert directory.put_if_absent("a", b"1")
        assert directory.get("a") == b"1"

    @pytest.mark.parametrize(
        "option",
        [
            {"timeout": "10s"},
            {"aws_read_timeout": "10s"},
            {"connect_timeout": "1s"},
            {"pool_max_idle_per_host": "1"},
            {"http2_keep_alive_timeout": "1s"},
            {"http1_only": "true"},
            {"proxy_excludes": "127.0.0.1"},
            {"user_agent": "client/1"},
        ],
        ids=str,
    )
    def test_options_of_the_client(self, s3: S3Server, option: dict[str, str]) -> None:
        assert Directory(f"s3://lake/{uuid.uuid4()}", s3.options(**option)).get("a") is None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"aws_nonsense": "x"}, "aws_nonsense"),
            ({"timeout": "soon"}, "soon"),
            ({"allow_http": "perhaps"}, "perhaps"),
            ({"root_certificate": "x"}, "root_certificate"),
            ({"aws_secret_access_key": 5}, "cannot open the location"),
        ],
        ids=str,
    )
    def test_invalid_options(self, s3: S3Server, options: dict[str, Any], message: str) -> None:
        with pytest.raises(StorageError, match="cannot open the location 's3://lake/x'") as caught:
            Directory("s3://lake/x", s3.options() | options)
        assert message in str(caught.value)
        assert s3.secret not in everything(caught.value)

    def test_unknown_scheme(self) -> None:
        with pytest.raises(StorageError, match="cannot open the location 'ftp://a/b'"):
            Directory("ftp://a/b", {})

    def test_a_secret_in_the_wrong_option_is_hidden(self) -> None:
        """A secret that obstore would repeat is in neither the message nor the traceback."""
        secret = "n0t-f0r-the-l0g"
        options = {"conditional_put": secret, "aws_secret_access_key": secret}
        with pytest.raises(StorageError) as caught:
            Directory("s3://lake/x", options)
        assert secret not in everything(caught.value)


class TestPublishingErrors:
    """The commit succeeds, and the error of the failed publishing has no secrets."""

    @pytest.fixture
    def publish_error(self, lake: deltasql.Lake, s3: S3Server, namespace: str) -> Callable[..., str]:
        def attempt(location: str = "s3://lake", **options: str | None) -> str:
            given = {k: v for k, v in (s3.options() | options).items() if v is not None}
            place = f"{location}/{uuid.uuid4()}"
            config = {"postgres.schema": f"s{uuid.uuid4().hex}"}
            silent = config | {"mirror.mode": "off"}
            with s3_lake(lake, given, **config) as other, s3_lake(lake, given, **silent) as unpublished:
                with pytest.raises(StorageError) as rejected:
                    other.create_table("t", "id BIGINT", location=place)
                assert other.tables() == []
                assert given.get("aws_secret_access_key", s3.secret) not in everything(rejected.value)
                table = unpublished.create_table("t", "id BIGINT", location=place)
                stage(other, table)
                status = other.mirror.status()[0]
                assert (status.version, status.published, status.status) == (1, -1, "PENDING")
                with pytest.raises(deltasql.DeltaSqlError) as caught:
                    other.mirror.repair(table.name)
                assert status.error is not None
                for text in (everything(caught.value), status.error):
                    assert given.get("aws_secret_access_key", s3.secret) not in text
                    assert "Authorization" not in text
                return status.error

        return attempt

    def test_wrong_credentials(self, s3: S3Server, publish_error: Callable[..., str]) -> None:
        with s3.checking_credentials():
            text = publish_error(aws_access_key_id="nobody", aws_secret_access_key="t0p-s3cret")
        assert "InvalidAccessKeyId" in text

    def test_no_such_bucket(self, publish_error: Callable[..., str]) -> None:
        assert "NoSuchBucket: The specified bucket does not exist" in publish_error("s3://no-such-bucket")

    def test_no_such_bucket_when_reading(self, s3: S3Server) -> None:
        directory = Directory("s3://no-such-bucket/t", s3.options())
        for read in (lambda: directory.get("a"), lambda: list(directory.list())):
            with pytest.raises(StorageError, match="NoSuchBucket"):
                read()

    def test_http_that_is_not_allowed(self, publish_error: Callable[..., str]) -> None:
        assert 'allow_http="true"' in publish_error(allow_http=None)

    def test_unreachable_endpoint(self, publish_error: Callable[..., str]) -> None:
        assert "connection refused" in publish_error(aws_endpoint="http://127.0.0.1:1")

    def test_silent_endpoint(self, s3: S3Server) -> None:
        """A server that accepts a connection and never answers; a write is not retried, so that a commit does not wait."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
            directory = Directory("s3://lake/t", s3.options(endpoint, read_timeout="300ms"))
            started = time.monotonic()
            with pytest.raises(StorageError, match="timed out"):
                directory.put_if_absent("a", b"1")
            assert time.monotonic() - started >= 0.3
            silent.setblocking(False)
            silent.accept()[0].close()
            with pytest.raises(BlockingIOError):
                silent.accept()

    def test_unknown_option(self, publish_error: Callable[..., str]) -> None:
        assert "aws_nonsense" in publish_error(aws_nonsense="1")


def s3_lake(lake: deltasql.Lake, options: dict[str, str], **config: Any) -> deltasql.Lake:
    """A lake in a separate database schema, so that no lake without these options publishes its tables."""
    settings = {"postgres.schema": f"s{uuid.uuid4().hex}", **config}
    return deltasql.connect(lake.dsn, config=settings, storage_options=options)


def stage(lake: deltasql.Lake, table: deltasql.Table) -> int:
    with lake.begin() as tx:
        tx.stage(table.name, [add()])
    return tx.versions[table.name]


def everything(error: BaseException) -> str:
    """Return the traceback of an error with its causes."""
    return "".join(traceback.format_exception(error))


class TestFiles:
    def test_parquet_is_written_and_read(self, place: Place) -> None:
        directory = Directory(*place)
        table = pa.table({"id": range(100_000), "text": [f"row {n}" for n in range(100_000)]})
        with directory.writing("a/b c=ü/x.parquet") as file:
            pq.write_table(table, file)
        assert paths(directory) == ["a/b c=ü/x.parquet"]
        with directory.reading("a/b c=ü/x.parquet") as file:
            assert pq.ParquetFile(file).read(columns=["id"]).equals(table.select(["id"]))

    def test_an_error_leaves_no_object(self, place: Place) -> None:
        if place[0].startswith("/"):
            pytest.skip("a partial local file stays, under a name that is not reused")
        directory = Directory(*place)
        with pytest.raises(ZeroDivisionError), directory.writing("x") as file:
            file.write(b"1" * 10_000_000)
            raise ZeroDivisionError
        assert paths(directory) == []

    def test_missing_file(self, place: Place) -> None:
        with pytest.raises(StorageError, match="cannot read nothing"), Directory(*place).reading("nothing"):
            pass


class TestCredentials:
    @pytest.fixture(autouse=True)
    def _no_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", os.devnull)

    @pytest.mark.parametrize(
        ("location", "options"),
        [
            ("s3://bucket/t", {"aws_region": "eu-west-1"}),
            ("gs://bucket/t", {}),
            ("az://box/t", {"azure_storage_account_name": "account"}),
            ("abfss://box@account.dfs.core.windows.net/t", {}),
        ],
    )
    def test_the_metadata_service_is_not_asked(self, location: str, options: dict[str, str]) -> None:
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"no credentials are given: .*instance_credentials=\"true\""):
            Directory(location, options)
        assert time.monotonic() - began < 5

    @pytest.mark.parametrize(
        ("location", "options"),
        [
            ("gs://bucket/t", {"google_skip_signature": "true"}),
            ("gs://bucket/t", {"instance_credentials": "true"}),
            ("az://box/t", {"azure_storage_account_name": "account", "azure_storage_account_key": "a2V5"}),
            ("az://box/t", {"azure_storage_account_name": "account", "azure_storage_sas_token": "sv=1&sig=x"}),
        ],
    )
    def test_given_credentials_of_other_clouds(self, location: str, options: dict[str, str]) -> None:
        Directory(location, options)

    @pytest.mark.parametrize(
        "options",
        [
            {"aws_access_key_id": "a", "aws_secret_access_key": "b"},
            {"skip_signature": "true"},
            {"instance_credentials": "true"},
        ],
    )
    def test_options_that_say_where_credentials_come_from(self, options: dict[str, str]) -> None:
        Directory("s3://bucket/t", options)

    def test_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")
        Directory("s3://bucket/t", {})
