"""Starts an embedded platform: ``python -m ebbtide.allinone [--nodes N] [--split] …``.

It stays as the supervisor. With ``--ready-fd`` it writes one line of JSON to that descriptor when
the platform answers or cannot be started, so that ``ebb up`` can return.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ebbtide.allinone.child import identify, write_identity
from ebbtide.allinone.home import (
    Home,
    HomeError,
    Platform,
    choose,
    default_home,
    make_private,
    require_free,
)
from ebbtide.allinone.nats import NatsUnusableError, make_issuer
from ebbtide.allinone.plan import Plan
from ebbtide.allinone.postgres import PostgresUnusableError
from ebbtide.allinone.supervisor import (
    READY_TIMEOUT_S,
    StartError,
    Supervisor,
    end_unplanned,
    health,
    prepare,
    say,
)

NODES_MAX = 64
# A killed platform's sockets are closed by then; more is a stranger on our port.
PORTS_FREE_WITHIN_S = 5.0
POLL_S = 0.02
Facts = dict[str, object]


class Teller:
    """Answers whoever started us, once."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def tell(self, **facts: object) -> None:
        """Write the answer; nobody listening is no error."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.write(descriptor, json.dumps(facts).encode() + b"\n")
            os.close(descriptor)
        except BrokenPipeError:
            say("ready.nobody_listens")


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ebbtide.allinone", description="Run a whole platform.")
    parser.add_argument("--home", type=Path, help="folder of all state (EBB_HOME)")
    parser.add_argument("--nodes", type=int, help="how many nodes this machine plays (kept)")
    parser.add_argument("--capacity", help="what each node has, e.g. cpu=4,memory=8Gi (kept)")
    parser.add_argument("--split", action="store_true", help="run each service in its own process")
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _wanted(
    kept: Platform | None, given: argparse.Namespace, environ: Mapping[str, str]
) -> Platform:
    platform = choose(kept, environ.get("EBB_CELL", "main"))
    if given.nodes is not None:
        if not 1 <= given.nodes <= NODES_MAX:
            raise HomeError(f"--nodes {given.nodes}: between 1 and {NODES_MAX}")
        platform = platform._replace(nodes=given.nodes)
    if given.capacity is not None:
        platform = platform._replace(capacity=given.capacity)
    # How the services are cut is said at each start; what the machine plays is kept.
    return platform._replace(split=given.split)


def _await_free_ports(plan: Plan) -> None:
    deadline = time.monotonic() + PORTS_FREE_WITHIN_S
    while True:
        try:
            return require_free(plan.kept_ports(), plan.home)
        except HomeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _make_secrets(home: Home) -> None:
    if not home.issuer_public.exists():

        def work() -> None:
            seed, public = make_issuer()
            make_private(home.issuer_seed, seed + "\n")
            make_private(home.issuer_public, public + "\n")

        prepare(work).finish()


def _write_to_log(home: Home) -> None:
    """Let go of whoever started us: from here on our own lines go to our own log."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    descriptor = os.open(home.logs / "supervisor.log", flags, 0o600)
    for standard in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _already(home: Home, given: argparse.Namespace) -> Facts:
    """Answer for the supervisor that runs already, once its services answer."""
    kept = None
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        kept = home.load()
        if kept is not None and health(kept.api_port):
            break
        time.sleep(POLL_S)
    if kept is None or not health(kept.api_port):
        raise HomeError(f"a platform runs on {home.folder} but does not answer; see {home.logs}")
    changed = [
        name
        for name in ("nodes", "capacity", "split")
        if getattr(given, name) not in (None, False, getattr(kept, name))
    ]
    if changed:
        raise HomeError(
            f"a platform runs on {home.folder} with other --{' --'.join(changed)}; "
            "stop it first with: ebb down"
        )
    return _facts(home, kept, already=True)


def _facts(home: Home, platform: Platform, *, already: bool) -> Facts:
    return {
        "ready": True,
        "already": already,
        "home": str(home.folder),
        "url": platform.url,
        "nodes": platform.nodes,
        "split": platform.split,
    }


def _supervise(home: Home, given: argparse.Namespace, teller: Teller) -> None:
    environ = dict(os.environ)
    platform = _wanted(home.load(), given, environ)
    home.save(platform)
    _make_secrets(home)
    plan = Plan(home, platform, environ)

    def ready() -> None:
        if not platform.started:
            home.save(platform._replace(started=True))
        teller.tell(**_facts(home, platform, already=False))

    supervisor = Supervisor(home, platform.api_port, ready)
    servers, services, nodes = plan.servers(), plan.services(), plan.nodes()
    end_unplanned(home, {part.name for part in (*servers, *services, *nodes)})
    postgres = plan.postgres
    preparation = None
    if postgres is not None:
        log = home.logs / "postgres.log"
        preparation = prepare(lambda: postgres.prepare(environ, log))
    supervisor.clear(servers + services)
    _await_free_ports(plan)
    for part in servers:
        if part.name == "postgres" and preparation is not None:
            supervisor.add_after(preparation, part)
        else:
            supervisor.add(part)
    supervisor.add(*services)
    supervisor.add_when_ready(*nodes)
    gc.collect()
    gc.freeze()
    supervisor.run()


def main(argv: list[str]) -> int:
    """Run a platform until told to stop; 0 when it was, 5 when it could not start."""
    given = _arguments(argv)
    teller = Teller(given.ready_fd)
    os.umask(0o077)
    try:
        home = Home(given.home.absolute() if given.home else default_home(os.environ))
        home.create()
        lock = home.lock()
        if lock is None:
            facts = _already(home, given)
            teller.tell(**facts)
            say("platform.already", **facts)
            return 0
        if given.ready_fd is not None:
            _write_to_log(home)
        identity = identify(os.getpid())
        if identity is not None:
            write_identity(home.pid_file("supervisor"), identity)
        try:
            _supervise(home, given, teller)
        finally:
            home.pid_file("supervisor").unlink(missing_ok=True)
    except (HomeError, StartError, NatsUnusableError, PostgresUnusableError) as error:
        say("platform.not_started", error=str(error))
        teller.tell(ready=False, error=str(error))
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
