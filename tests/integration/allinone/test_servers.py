"""The embedded servers start, keep what they were told, and come back after a kill."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import asyncpg
import nats
import pytest

from ebbtide.allinone.child import Child, launch, start_time
from ebbtide.allinone.postgres import Postgres, PostgresUnusableError, account
from ebbtide.testing.servers import NatsServer, PostgresServer, wait_until_dead

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


async def _value(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_a_database_of_its_own_is_empty(database_url: str) -> None:
    assert (
        await _value(database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        == 0
    )


async def test_postgres_keeps_what_was_committed_when_it_is_killed(private_folder: Path) -> None:
    server = PostgresServer(private_folder, {"fsync": "on"})
    server.start()
    await _value(server.url, "CREATE TABLE kept AS SELECT 7 AS number")
    server.kill()
    server.start()
    assert await _value(server.url, "SELECT number FROM kept") == 7
    server.stop()


def test_postgres_starts_though_a_stranger_got_the_number_of_the_killed_one(
    private_folder: Path,
) -> None:
    server = PostgresServer(private_folder)
    server.start()
    server.kill()
    user = account(os.environ)
    with subprocess.Popen(["sleep", "60"], user=user.uid if user else None) as stranger:
        pid_file = server.postgres.data / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        server.start()
        stranger.kill()
    server.stop()


async def test_postgres_refuses_a_wrong_password(private_postgres: PostgresServer) -> None:
    wrong = private_postgres.url.replace(private_postgres.postgres.password, "wrong")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await _value(wrong, "SELECT 1")


async def test_postgres_syncs_to_disk_unless_a_test_says_otherwise(private_folder: Path) -> None:
    server = PostgresServer(private_folder, {"fsync": "on"})
    server.start()
    assert await _value(server.url, "SHOW fsync") == "on"
    assert await _value(server.url, "SHOW synchronous_commit") == "on"
    server.stop()


@as_root
def test_root_is_told_when_the_servers_user_cannot_enter_the_home(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = Postgres(closed / "postgres", 1, "secret")
    with pytest.raises(PostgresUnusableError, match="may not enter"):
        server.prepare(os.environ, tmp_path / "log")
    assert closed.stat().st_mode & 0o777 == 0o700


@as_root
def test_no_rights_of_parents_are_widened(private_folder: Path) -> None:
    before = [path.stat().st_mode for path in (private_folder, *private_folder.parents)]
    server = PostgresServer(private_folder)
    server.start()
    server.stop()
    assert [path.stat().st_mode for path in (private_folder, *private_folder.parents)] == before


def test_named_binaries_that_are_not_there_are_refused_by_name(tmp_path: Path) -> None:
    server = Postgres(tmp_path / "postgres", 1, "secret")
    with pytest.raises(PostgresUnusableError, match="EBB_POSTGRES_BIN"):
        server.prepare({"EBB_POSTGRES_BIN": str(tmp_path)}, tmp_path / "log")


def test_a_password_is_in_no_argument(private_postgres: PostgresServer) -> None:
    arguments = Path(f"/proc/{private_postgres.pid}/cmdline").read_text()
    assert private_postgres.postgres.password not in arguments


def test_nats_refuses_who_brings_no_password(private_nats: NatsServer) -> None:
    with socket.create_connection(("127.0.0.1", private_nats.nats.port), timeout=5) as connection:
        stream = connection.makefile("rb")
        assert stream.readline().startswith(b"INFO")
        connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert stream.readline().startswith(b"-ERR 'Authorization Violation'")
        stream.close()


async def test_nats_keeps_a_stream_when_it_is_killed(private_nats: NatsServer) -> None:
    client = await nats.connect(private_nats.url)
    await client.jetstream().add_stream(name="kept", subjects=["kept.>"])
    await client.jetstream().publish("kept.one", b"1")
    await client.close()
    private_nats.kill()
    private_nats.start()
    client = await nats.connect(private_nats.url)
    assert (await client.jetstream().stream_info("kept")).state.messages == 1
    await client.close()


def test_a_bound_child_dies_with_its_killed_parent(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from ebbtide.allinone.child import Child, launch\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "started = launch(Child('sleeper', ('sleep', '60'), {'PATH': os.environ['PATH']}, log))\n"
        "print(started.pid, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        sleeper = int(parent.stdout.readline())
        assert start_time(sleeper) is not None
        parent.send_signal(signal.SIGKILL)
    wait_until_dead(sleeper)


def test_an_unbound_child_outlives_its_parent(tmp_path: Path) -> None:
    child = Child("sleeper", ("sleep", "60"), dict(os.environ), tmp_path / "log", bound=False)
    started = launch(child)
    assert os.getsid(started.pid) == started.pid
    started.kill()
    started.wait()
