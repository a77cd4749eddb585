"""Attacks on the embedded server: prepared directories, planted files and sockets, and secrets of the environment.

Each attack is real: the code in a prepared directory would create the file `proof`, and the planted servers record
what they receive.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import deltasql
from deltasql.addresses import without_secrets
from deltasql.cli.main import cli
from deltasql.embedded import EmbeddedServer, account, cluster_record, launch, postmaster, state_directory
from deltasql.embedded.binaries import find_binaries
from deltasql.errors import UsageError
from tests.fake_server import fake_server
from tests.servers import processes_in

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other accounts")
with_login_triggers = pytest.mark.skipif(find_binaries().major() < 17, reason="PostgreSQL 17 has login triggers")

SECRETS = {
    "PGPASSWORD": "secret-of-another-server",
    "PGHOSTADDR": "127.0.0.1",
    "PGOPTIONS": "-c no_such_setting=1",
    "PGSSLMODE": "verify-full",
    "PGSSLROOTCERT": "/nowhere/root.crt",
    "PGSSLCERT": "/nowhere/client.crt",
    "PGSSLKEY": "/nowhere/client.key",
    "PGGSSENCMODE": "require",
    "PGCHANNELBINDING": "require",
    "PGREQUIREAUTH": "scram-sha-256",
    "PGREQUIREPEER": "somebody-else",
    "PGTARGETSESSIONATTRS": "standby",
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account can reach."""
    with tempfile.TemporaryDirectory(prefix="deltasql-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()
        left = processes_in(Path(name).resolve())
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []


@pytest.fixture
def root(place: Path) -> Path:
    """A cluster of this account, whose server is stopped."""
    EmbeddedServer.start(place / "own").close()
    return place / "own"


@pytest.fixture
def somewhere_else(tmp_path: Path, monkeypatch: Patch) -> Iterator[Patch]:
    """What happens until `undo` happens on another machine: the record of this account is not there."""
    with pytest.MonkeyPatch.context() as there:
        (tmp_path / "other machine").mkdir(mode=0o700)
        there.setenv(state_directory.VARIABLE, str(tmp_path / "other machine"))
        yield there


@pytest.fixture
def prepare(place: Path, somewhere_else: Patch) -> Callable[..., Path]:
    """Return a function that prepares a directory somewhere else, and brings it here."""

    def prepared(*statements: str, lines: str = "") -> Path:
        directory = place / "project" / ".deltasql"
        with EmbeddedServer.start(directory) as server:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement)
        for name in ("postgresql.conf", "postgresql.auto.conf"):
            with (directory / "postgres" / name).open("a") as file:
                file.write(lines)
        somewhere_else.undo()
        return directory

    return prepared


def ask(dsn: str, query: str = "select 1") -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
    assert row
    return row[0]


def content(directory: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in directory.rglob("*")}


def owner_of(root: Path) -> pwd.struct_passwd:
    return pwd.getpwuid((root / "postgres").stat().st_uid)


def other_account() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def open_proof(place: Path) -> Path:
    """Return a path at which every account can create a file."""
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    return place / "open" / "proof"


def login_trigger(proof: Path) -> tuple[str, ...]:
    return (
        f"create function run() returns event_trigger language plpgsql as "
        f"$$ begin copy (select 1) to program 'cat > {proof}'; end $$",
        "create event trigger run on login execute function run()",
        "alter event trigger run enable always",
    )


# Prepared directories


@with_login_triggers
def test_a_login_trigger_of_a_prepared_directory_does_not_run(place: Path, prepare: Callable[..., Path]) -> None:
    proof = open_proof(place)
    directory = prepare(*login_trigger(proof))
    before = content(directory)
    for connect in (EmbeddedServer.start, lambda path: deltasql.connect(f"deltasql://embedded/{path}")):
        with pytest.raises(UsageError, match=f"in {directory} was not created .* run `deltasql trust {directory}`"):
            connect(directory)
    failed = CliRunner().invoke(cli, ["--url", f"deltasql://embedded/{directory}", "tables"])
    assert (failed.exit_code, "deltasql trust" in failed.output) == (1, True)
    assert content(directory) == before, "nothing was created or changed"
    assert not proof.exists()

    done = CliRunner().invoke(cli, ["trust", str(directory)])
    assert (done.exit_code, done.output.count("\n")) == (0, 1), done.output
    assert done.output.startswith(f"Trusted {directory}: ")
    with EmbeddedServer.start(directory) as server:
        ask(server.dsn)
    assert proof.exists(), "the attack is real"


@pytest.mark.parametrize(
    "lines",
    [
        "archive_mode = on\narchive_command = 'touch {proof}'\n",
        "shared_preload_libraries = '{proof}'\n",
        "session_preload_libraries = '{proof}'\n",
        "local_preload_libraries = '{proof}'\n",
        "include = '{proof}'\n",
        "ssl = on\nssl_passphrase_command = 'touch {proof}'\n",
    ],
    ids=lambda lines: lines.split()[0],
)
def test_settings_of_a_prepared_directory_have_no_effect(place: Path, prepare: Callable[..., Path], lines: str) -> None:
    proof = open_proof(place)
    directory = prepare("select 1", lines=lines.format(proof=proof))
    with pytest.raises(UsageError, match="deltasql trust"):
        EmbeddedServer.start(directory)
    EmbeddedServer.trust(directory)
    with EmbeddedServer.start(directory) as server:
        assert ask(server.dsn, "select count(*) from pg_settings where setting like '%proof%'") == 0
        ask(server.dsn, "select pg_switch_wal()::text")
    assert not proof.exists()


def test_settings_of_a_prepared_database_are_not_loaded(place: Path, prepare: Callable[..., Path]) -> None:
    """Settings of a role are in the catalog, so only the record keeps the server from loading the library."""
    proof = open_proof(place)
    directory = prepare(f"alter role postgres set session_preload_libraries = '{proof}'")
    with pytest.raises(UsageError, match="deltasql trust"):
        EmbeddedServer.start(directory)
    assert processes_in(directory) == []


def test_the_identifier_of_a_known_cluster_does_not_help(root: Path, prepare: Callable[..., Path]) -> None:
    directory = prepare()
    data, known = directory / "postgres", root / "postgres"
    shutil.copyfile(known / "global" / "pg_control", data / "global" / "pg_control")
    assert cluster_record.system_identifier(data) == cluster_record.system_identifier(known)
    token = next(data.glob("deltasql.token.*"))
    for plant in (
        token.unlink,
        lambda: token.symlink_to(known / token.name),
        lambda: (token.unlink(), token.write_text("0" * 64)),
        lambda: token.write_text(""),
        lambda: token.write_bytes(b"\xff" * 64),
        lambda: (token.unlink(), os.mkfifo(token)),
    ):
        plant()
        with pytest.raises(UsageError, match="deltasql trust"):
            EmbeddedServer.start(directory)


def test_a_directory_that_was_trusted_once_does_not_vouch_for_the_next_one(
    place: Path, prepare: Callable[..., Path]
) -> None:
    """Whoever prepared the first directory knows its token."""
    directory = prepare()
    subprocess.run(["cp", "-a", directory, place / "next"], check=True)
    EmbeddedServer.trust(directory)
    EmbeddedServer.start(directory).close()
    with pytest.raises(UsageError, match="deltasql trust"):
        EmbeddedServer.start(place / "next")


def test_a_directory_that_its_owner_moved_or_copied_starts(root: Path, place: Path) -> None:
    moved = root.rename(place / "moved")
    EmbeddedServer.start(moved).close()
    subprocess.run(["cp", "-a", moved, place / "copied"], check=True)
    EmbeddedServer.start(place / "copied").close()


def test_a_directory_without_a_cluster_cannot_be_trusted(place: Path) -> None:
    failed = CliRunner().invoke(cli, ["trust", str(place)])
    assert (failed.exit_code, "has no PostgreSQL cluster" in failed.output) == (1, True)


# Directories of other accounts


def test_a_data_directory_that_is_a_link_is_rejected(root: Path, place: Path) -> None:
    (place / "linked").mkdir()
    (place / "linked" / "postgres").symlink_to(root / "postgres")
    for call in (EmbeddedServer.start, EmbeddedServer.trust):
        with pytest.raises(UsageError, match="is a symbolic link"):
            call(place / "linked")


@pytest.mark.parametrize("mode", [0o702, 0o720, 0o755])
def test_a_data_directory_that_is_open_to_other_accounts_is_rejected(root: Path, mode: int) -> None:
    (root / "postgres").chmod(mode)
    for call in (EmbeddedServer.start, EmbeddedServer.trust):
        with pytest.raises(UsageError, match=f"run `chmod 700 {root / 'postgres'}`"):
            call(root)
    (root / "postgres").chmod(0o700)
    EmbeddedServer.start(root).close()


@as_root
@pytest.mark.parametrize("name", ["nobody", "daemon"])
def test_no_capability_for_a_directory_of_another_account(place: Path, monkeypatch: Patch, name: str) -> None:
    theirs = place / "closed" / "theirs"
    theirs.mkdir(parents=True)
    shutil.chown(theirs, name)
    monkeypatch.setattr(subprocess, "Popen", None)
    (place / "closed").chmod(0o700)
    for directory in (theirs, theirs / "new"):
        with pytest.raises(UsageError, match="does not get the capability"):
            EmbeddedServer.start(directory)
    assert not (theirs / "postgres").exists()


@as_root
@pytest.mark.parametrize("problem", ["cluster of an ordinary account", "open parent"])
def test_no_capability_if_another_account_can_replace_the_cluster(place: Path, problem: str) -> None:
    root = place / "closed" / "own"
    EmbeddedServer.start(root).close()
    (place / "closed").chmod(0o700)
    EmbeddedServer.start(root).close()
    if problem == "open parent":
        root.chmod(0o777)
    else:
        subprocess.run(["chown", "-R", "daemon", root / "postgres"], check=True)
        EmbeddedServer.trust(root)
    with pytest.raises(UsageError, match="does not get the capability"):
        EmbeddedServer.start(root)


@as_root
def test_an_ordinary_account_rejects_a_directory_of_another_one(place: Path) -> None:
    theirs = place / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    shutil.chown(theirs, "daemon")
    child = os.fork()
    if child == 0:
        os.setgid(other_account().pw_gid)
        os.setuid(other_account().pw_uid)
        try:
            account.account_for(theirs)
        except UsageError as error:
            os._exit(0 if "belongs to 'daemon'" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(theirs.iterdir()) == []


@as_root
@pytest.mark.parametrize("name", ["postgres.log", "postgres.lock", "postgres.lease"])
def test_files_that_another_account_planted_are_not_written(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    (root / name).touch()
    shutil.chown(root / name, other_account().pw_name)
    with pytest.raises(UsageError, match=f"not a regular file of this account .*{name}"):
        EmbeddedServer.start(root)
    assert (root / name).read_bytes() == b""


# Planted processes and sockets


def plant(root: Path, pid: int, socket_dir: Path) -> None:
    """Write a postmaster.pid as a server of the cluster would."""
    path = root / "postgres" / "postmaster.pid"
    lines = [str(pid), str(root / "postgres"), "1700000000", "5432", str(socket_dir), "", "  0  0", "ready   "]
    path.write_text("\n".join([*lines, ""]))
    os.chown(path, owner_of(root).pw_uid, owner_of(root).pw_gid)


def test_a_planted_pid_file_does_not_lead_to_another_server(root: Path, place: Path) -> None:
    """The other server runs as the same account, so the check of the account cannot tell the two apart."""
    with EmbeddedServer.start(place / "second") as second:
        pid = int((place / "second" / "postgres" / "postmaster.pid").read_text().split()[0])
        plant(root, pid, Path(conninfo_to_dict(second.dsn)["host"]))
        with EmbeddedServer.start(root) as server:
            assert server.dsn != second.dsn
            assert ask(server.dsn, "show data_directory") == str(root / "postgres")
        assert ask(second.dsn) == 1, "the other server got no signal"
        plant(root, pid, Path(conninfo_to_dict(second.dsn)["host"]))
        launch.stop(root / "postgres")
        launch.stop_unreachable(root / "postgres")
        assert ask(second.dsn) == 1


def test_a_process_in_the_directory_that_is_no_postmaster_gets_no_signal(root: Path, place: Path) -> None:
    user = owner_of(root).pw_uid if os.geteuid() == 0 else None
    sleeper = subprocess.Popen(["sleep", "60"], user=user, cwd=root / "postgres")
    try:
        plant(root, sleeper.pid, place / "no socket")
        server = postmaster.read(root / "postgres")
        assert server
        assert not server.runs()
        server.send(signal.SIGINT)
        launch.stop_unreachable(root / "postgres")
        with EmbeddedServer.start(root) as started:
            assert ask(started.dsn) == 1
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


@as_root
def test_a_postmaster_of_another_account_gets_no_signal(root: Path, place: Path) -> None:
    """The process has the title and the directory of the server, and belongs to another account."""
    script = f"""
import os, time
os.chdir({str(root / "postgres")!r})
os.setuid({other_account().pw_uid})
print("ready", flush=True)
time.sleep(60)
"""
    impostor = subprocess.Popen(
        ["postgres", "-c", script, "-D"], executable=sys.executable, stdout=subprocess.PIPE, text=True
    )
    try:
        assert impostor.stdout
        assert impostor.stdout.readline() == "ready\n"
        plant(root, impostor.pid, place / "no socket")
        launch.stop_unreachable(root / "postgres")
        with EmbeddedServer.start(root) as started:
            assert ask(started.dsn) == 1
        assert impostor.poll() is None
    finally:
        impostor.kill()
        impostor.communicate()


@as_root
@pytest.mark.parametrize("directory_of", ["them", "the owner"])
def test_a_planted_socket_of_another_account_receives_nothing(root: Path, place: Path, directory_of: str) -> None:
    sockets, record = place / "sockets", place / "received"
    sockets.mkdir(mode=0o777)
    sockets.chmod(0o777)
    uid = other_account().pw_uid
    with fake_server(sockets, record, uid) as pid:
        os.chown(sockets, uid if directory_of == "them" else owner_of(root).pw_uid, -1)
        sockets.chmod(0o700)
        plant(root, pid, sockets)
        with EmbeddedServer.start(root) as server:
            assert ask(server.dsn, "show data_directory") == str(root / "postgres")
            with pytest.raises(psycopg.OperationalError, match="requirepeer"):
                psycopg.connect(make_conninfo(server.private_dsn, host=str(sockets)))
        assert record.read_bytes() == b""


def test_a_socket_directory_that_is_a_link_is_not_used(root: Path, place: Path) -> None:
    with EmbeddedServer.start(place / "second") as second:
        (place / "link").symlink_to(conninfo_to_dict(second.dsn)["host"])
        plant(root, int((place / "second" / "postgres" / "postmaster.pid").read_text().split()[0]), place / "link")
        with EmbeddedServer.start(root) as server:
            assert ask(server.dsn, "show data_directory") == str(root / "postgres")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pid_file_that_is_no_file_is_an_error(root: Path, place: Path, kind: str) -> None:
    path = root / "postgres" / "postmaster.pid"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(place / "elsewhere")
    with pytest.raises(UsageError, match=r"postmaster\.pid"):
        EmbeddedServer.start(root)


# Secrets of the environment


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: Patch) -> None:
    """Variables for libpq, a file of passwords and a service file, none of which fits the embedded server."""
    passwords, services = tmp_path / "passwords", tmp_path / "services"
    passwords.write_text("*:*:*:*:secret-in-a-file\n")
    passwords.chmod(0o600)
    services.write_text("[other]\nhostaddr=127.0.0.1\npassword=secret-of-a-service\nrequirepeer=x\nsslmode=require\n")
    files = {"PGPASSFILE": str(passwords), "PGSERVICE": "other", "PGSERVICEFILE": str(services)}
    for name, value in (SECRETS | files).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("secrets")
def test_the_environment_does_not_change_the_connection(root: Path) -> None:
    with deltasql.connect(f"deltasql://embedded/{root}") as lake:
        table = lake.create_table("t", "id BIGINT")
        table.append(pa.table({"id": [1]}))
        assert table.arrow().num_rows == 1
        assert table.files().num_rows == 1, "read through ADBC"
        environment = Path(f"/proc/{(root / 'postgres' / 'postmaster.pid').read_text().split()[0]}/environ")
        assert not [name for name in environment.read_bytes().split(b"\0") if name.startswith(b"PG")]
        command = [sys.executable, "-m", "deltasql.cli", "--url", f"deltasql://embedded/{root}", "tables", "--json"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        assert [row["name"] for row in json.loads(listed.stdout)] == ["public.t"]
        lake.drop_table("t", purge=True)


@pytest.mark.usefixtures("secrets")
def test_no_password_is_sent_to_a_server_that_asks_for_one(root: Path, place: Path, monkeypatch: Patch) -> None:
    """The planted server runs as the owner of the cluster, so the check of its account does not stop the connection."""
    monkeypatch.delenv("PGREQUIREAUTH")  # with it, libpq sends no password in clear text
    sockets, record = place / "sockets", place / "received"
    with EmbeddedServer.start(root) as server:
        dsns = [server.dsn, server.private_dsn, without_secrets(server.dsn)]
    sockets.mkdir()
    os.chown(sockets, owner_of(root).pw_uid, -1)
    with fake_server(sockets, record, owner_of(root).pw_uid) as pid:
        for dsn in dsns:
            with pytest.raises(psycopg.OperationalError, match=r"no password supplied|requested a cleartext password"):
                psycopg.connect(make_conninfo(dsn, host=str(sockets)))
        received = record.read_bytes()
        assert received.count(b"user\0postgres") == len(dsns), "each connection was made"
        assert b"secret" not in received
        assert b"no_such_setting" not in received
        plant(root, pid, sockets)
        sockets.chmod(0o700)
        with EmbeddedServer.start(root) as again:
            assert ask(again.private_dsn) == 1
        assert b"secret" not in record.read_bytes()
        naive = {"host": str(sockets), "user": "postgres", "dbname": "postgres", "hostaddr": "", "requirepeer": ""}
        naive |= {"channel_binding": "disable", "gssencmode": "disable"}
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(make_conninfo(**naive))
        assert b"secret-of-a" in record.read_bytes(), "the attack is real"


SPARK = """
import sys, deltasql
with deltasql.connect(f"deltasql://embedded/{sys.argv[1]}") as lake:
    lake.create_table("s", "id BIGINT")
    deltasql.register(lake.spark, lake.dsn)
    lake.spark.range(3).write.format("deltasql").mode("append").save("s")
    print(lake.spark.read.format("deltasql").load("s").count())
    lake.drop_table("s", purge=True)
"""


@pytest.mark.long
@pytest.mark.usefixtures("secrets")
def test_the_environment_does_not_change_the_connections_of_spark(root: Path, monkeypatch: Patch) -> None:
    """Spark plans reads and writes of the format in processes that inherit the environment."""
    local_spark = pytest.importorskip("tests.local_spark")
    if obstacle := local_spark.java_obstacle():
        pytest.skip(obstacle)
    monkeypatch.delenv("PGREQUIREAUTH")  # a connection string for every release of libpq cannot override it
    command = [sys.executable, "-c", SPARK, str(root)]
    environment = local_spark.process_environment()
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


# The state directory


def test_the_state_is_private_and_in_the_home(tmp_path: Path, place: Path, monkeypatch: Patch) -> None:
    monkeypatch.delenv(state_directory.VARIABLE)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    EmbeddedServer.start(place / "own").close()
    state = tmp_path / ".local" / "state" / "deltasql"
    assert {path.stat().st_mode & 0o777 for path in (state, state / "clusters")} == {0o700}
    [record] = (state / "clusters").iterdir()
    assert record.read_text() == f"{place / 'own'}\n"
    token = next((place / "own" / "postgres").glob("deltasql.token.*"))
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text() not in record.name + record.read_text(), "the record has only its hash"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    with pytest.raises(UsageError, match="deltasql trust"):
        EmbeddedServer.start(place / "own")
    EmbeddedServer.trust(place / "own")
    assert len(list((tmp_path / "xdg" / "deltasql" / "clusters").iterdir())) == 1


def test_an_account_without_a_writable_home_has_its_state_in_a_shared_directory(
    tmp_path: Path, place: Path, monkeypatch: Patch
) -> None:
    monkeypatch.delenv(state_directory.VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setattr(state_directory, "SHARED", tmp_path)
    EmbeddedServer.start(place / "own").close()
    EmbeddedServer.start(place / "own").close()
    state = tmp_path / f"deltasql-state-{os.geteuid()}"
    assert state.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(state)
    state.symlink_to(place)
    with pytest.raises(UsageError, match=f"set {state_directory.VARIABLE} to a private directory"):
        EmbeddedServer.trust(place / "own")


def test_a_state_directory_that_others_can_write_is_rejected(root: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv(state_directory.VARIABLE, str(tmp_path / "state"))
    EmbeddedServer.trust(root)
    (tmp_path / "state").chmod(0o777)
    for call in (EmbeddedServer.start, EmbeddedServer.trust):
        with pytest.raises(UsageError, match="other accounts can write to"):
            call(root)


@as_root
def test_a_state_directory_of_another_account_proves_nothing(root: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv(state_directory.VARIABLE, str(tmp_path / "state"))
    EmbeddedServer.trust(root)
    shutil.chown(tmp_path / "state", other_account().pw_name)
    with pytest.raises(UsageError, match="deltasql trust"):
        EmbeddedServer.start(root)
    with pytest.raises(UsageError, match="not a directory of this account"):
        EmbeddedServer.trust(root)


def test_a_relative_state_directory_is_rejected(root: Path, monkeypatch: Patch) -> None:
    """It would be in the prepared directory."""
    monkeypatch.setenv(state_directory.VARIABLE, "state")
    with pytest.raises(UsageError, match="must be an absolute path"):
        EmbeddedServer.start(root)
