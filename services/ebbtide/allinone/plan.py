"""What an embedded platform consists of: every process, its environment, the order of ends.

Pure but for reading and making secrets in the home. A plan says what to run; it starts nothing. The
agents get their own token and an address without credentials, and never the services' passwords.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ebbtide.allinone.child import Child, python
from ebbtide.allinone.home import LOOPBACK, Home, Platform
from ebbtide.allinone.nats import Callout, Nats
from ebbtide.allinone.postgres import Postgres

SERVICES = (
    "relay",
    "api",
    "quota",
    "scheduler",
    "fleet",
    "node_health",
    "recovery",
    "checkpoint",
)
# Agents end first, so that what happens to the rest is not reported as news; servers end last.
AGENT, KEEPER, SERVICE, SERVER = range(4)
STAGES = (AGENT, KEEPER, SERVICE, SERVER)
RELAY_PAUSE_S = "0.005"
"""In one process services hear each other from memory; only programs outside wait this long."""
# Known to the services alone: a program that a worker starts must not find them in its agent.
SERVICES_ONLY = (
    "EBB_DATABASE_URL",
    "EBB_NATS_URL",
    "EBB_API_BOOTSTRAP_TOKENS",
    "EBB_API_CALLOUT_SEED",
    "EBB_API_CALLOUT_SYSTEM_URL",
    "EBB_TOKEN",
)


class Part(NamedTuple):
    """A process to keep running. ``child`` is asked anew for every start."""

    name: str
    stage: int
    child: Callable[[], Child]

    @property
    def outlives(self) -> bool:
        """Say whether the process goes on when its supervisor dies, to be adopted by the next."""
        return self.stage in (AGENT, KEEPER)


def without_credentials(url: str) -> str:
    """Give an address without its user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class Plan:
    """The processes of one home; servers named in the environment replace the embedded ones."""

    def __init__(self, home: Home, platform: Platform, environ: Mapping[str, str]) -> None:
        self.home = home
        self.platform = platform
        self.environ = environ
        self.database_url = environ.get("EBB_DATABASE_URL", "")
        self.nats_url = environ.get("EBB_NATS_URL", "")
        self.postgres: Postgres | None = None
        self.nats: Nats | None = None
        if not self.database_url:
            self.postgres = Postgres(
                home.postgres, platform.postgres_port, home.secret("postgres.password")
            )
            self.database_url = self.postgres.url
        if not self.nats_url:
            issuer = home.issuer_public.read_text().strip()
            callout = Callout(issuer, home.secret("nats-system.password"))
            self.nats = Nats(home.nats, platform.nats_port, home.secret("nats.password"), callout)
            self.nats_url = self.nats.url

    def kept_ports(self) -> dict[str, int]:
        """Ports on which something of ours is about to listen, by what listens there."""
        ports = {"api": self.platform.api_port}
        if self.postgres is not None:
            ports["postgres"] = self.platform.postgres_port
        if self.nats is not None:
            ports["nats"] = self.platform.nats_port
        return ports

    def servers(self) -> tuple[Part, ...]:
        """The embedded servers. Postgres must have been prepared before it is started."""
        parts: list[Part] = []
        if self.nats is not None:
            nats = self.nats
            parts.append(Part("nats", SERVER, lambda: nats.child(self.environ, self._log("nats"))))
        if self.postgres is not None:
            server = self.postgres
            parts.append(
                Part(
                    "postgres",
                    SERVER,
                    lambda: server.child(self.environ, self._log("postgres")),
                )
            )
        return tuple(parts)

    def services(self) -> tuple[Part, ...]:
        """All services in one process, or each in its own."""
        if self.platform.split:
            return tuple(self._service(name, f"ebbtide.{name}") for name in SERVICES)
        return (self._service("control", "ebbtide.allinone.control"),)

    def nodes(self) -> tuple[Part, ...]:
        """A keeper and an agent per node."""
        parts: list[Part] = []
        for node in self.platform.node_names:
            parts.append(self._node_part("keeper", node, KEEPER, "ebbtide.agent.keeper"))
            parts.append(self._node_part("agent", node, AGENT, "ebbtide.agent"))
        return tuple(parts)

    def _log(self, name: str) -> Path:
        return self.home.logs / f"{name}.log"

    def _service(self, name: str, module: str) -> Part:
        for node in self.platform.node_names:
            self.home.node_token(node)
        self.home.token("admin", "admin")
        env = {
            **self.environ,
            "EBB_HOME": str(self.home.folder),
            "EBB_CELL": self.platform.cell,
            "EBB_STORE": str(self.home.store),
            "EBB_DATABASE_URL": self.database_url,
            "EBB_NATS_URL": self.nats_url,
            "EBB_API_HOST": LOOPBACK,
            "EBB_API_PORT": str(self.platform.api_port),
            "EBB_API_BOOTSTRAP_TOKENS": str(self.home.secrets),
        }
        if not self.platform.split:
            env["EBB_RELAY_PAUSE_S"] = RELAY_PAUSE_S
        if self.nats is not None:
            env["EBB_API_CALLOUT_SEED"] = str(self.home.issuer_seed)
            env["EBB_API_CALLOUT_SYSTEM_URL"] = self.nats.system_url
        child = Child(name, python(module), env, self._log(name))
        return Part(name, SERVICE, lambda: child)

    def _node_part(self, kind: str, node: str, stage: int, module: str) -> Part:
        name = f"{kind}-{node}"
        env = {key: text for key, text in self.environ.items() if key not in SERVICES_ONLY}
        state = self.home.nodes / node
        state.mkdir(mode=0o700, exist_ok=True)
        env |= {
            "EBB_CELL": self.platform.cell,
            "EBB_STORE": str(self.home.store),
            "EBB_AGENT_NODE": node,
            "EBB_AGENT_ADDRESS": LOOPBACK,
            "EBB_AGENT_STATE": str(state),
        }
        if stage == AGENT:
            env["EBB_NATS_URL"] = without_credentials(self.nats_url)
            env["EBB_AGENT_TOKEN"] = self.home.node_token(node)
            if self.platform.capacity:
                env["EBB_AGENT_CAPACITY"] = self.platform.capacity
        child = Child(name, python(module), env, self._log(name), bound=False)
        return Part(name, stage, lambda: child)
