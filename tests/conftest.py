"""Fixtures for every test: real servers shared by a process, and names that no other test has."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ebbtide.testing.servers import (
    NatsServer,
    PostgresServer,
    fresh_database,
    nats_for_tests,
    postgres_for_tests,
    server_folder,
)

# How long an example takes says how busy the machine is, not what the code is worth.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Address of this process's Postgres, as a user who may make databases."""
    with postgres_for_tests(os.environ) as url:
        yield url


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    """Address of an empty database that only this test has."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """Address of this process's NATS server, with credentials that may do everything."""
    with nats_for_tests(os.environ) as url:
        yield url


@pytest.fixture
def cell() -> str:
    """Name that no other test uses in subjects and streams of the shared server."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def private_folder() -> Iterator[Path]:
    """A folder for servers of this test's own, passable also when root runs the tests."""
    with server_folder() as folder:
        yield folder


@pytest.fixture
def private_postgres(private_folder: Path) -> Iterator[PostgresServer]:
    """A Postgres that this test may kill; started, on local binaries."""
    server = PostgresServer(private_folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def private_nats(private_folder: Path) -> Iterator[NatsServer]:
    """A NATS server that this test may kill; started, on the local binary."""
    server = NatsServer(private_folder)
    server.start()
    yield server
    server.kill()
