"""A real server that asks our call-out, for tests of who may connect and for how long."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ebbtide.allinone.child import Child
from ebbtide.allinone.home import free_port
from ebbtide.allinone.nats import Callout as Issuer
from ebbtide.allinone.nats import Nats, make_issuer, program, render_config
from ebbtide.allinone.plan import without_credentials
from ebbtide.api.callout import Callout, Grant
from ebbtide.api.expulsion import Expulsion
from ebbtide.chassis.bus import Message
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.contracts.ids import TokenId
from ebbtide.contracts.subjects import inbox
from ebbtide.testing.servers import NatsServer, Process

DESIRED, LEASE = "desired_main", "lease_main"
TOKEN, OTHER = "ebb_agent_1_secretsecret", "ebb_agent_2_other"


class Heard(list[Message]):
    async def __call__(self, message: Message) -> None:
        self.append(message)


class Platform:
    """A server, a connection with the services' rights, and the call-out on another."""

    def __init__(self, folder: Path) -> None:
        seed, public = make_issuer()
        self.seed = seed
        self.log = folder / "nats.log"
        self.server = NatsServer(folder, Issuer(public, "system-password"))
        self.tokens = {
            TOKEN: Grant(token=TokenId("1"), kind="agent", subject="n1"),
            OTHER: Grant(token=TokenId("2"), kind="agent", subject="n2"),
            "ebb_member_3_team": Grant(token=TokenId("3"), kind="member", subject="team"),
        }
        self.revoked: list[TokenId] = []
        self.looked_up = 0
        self.opened: list[NatsBus] = []

    async def start(self) -> None:
        self.server.start()
        self.services = await self.open("services")
        await self.answer()
        for bucket in (DESIRED, LEASE):
            await self.services.ensure_bucket(bucket)

    async def answer(self) -> None:
        """Have the server's questions answered."""
        self.desk = await self.open("callout")
        self.callout = Callout(self.desk, "main", self.seed, self.look_up)
        self.callout.ready.set()
        await self.callout.start()

    def look_up(self, text: str) -> Grant | None:
        self.looked_up += 1
        return self.tokens.get(text)

    def revoke(self, text: str) -> Grant:
        """Let a token open nothing any more, as the api's picture does."""
        grant = self.tokens.pop(text)
        self.revoked.append(grant.token)
        return grant

    @asynccontextmanager
    async def expelling(self) -> AsyncIterator[None]:
        """Have the connections of revoked tokens ended, as a part of the api's process does."""
        expulsion = Expulsion(self.server.nats.system_url, lambda: self.revoked)
        await expulsion.start()
        running = asyncio.create_task(expulsion.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await expulsion.stop()

    async def open(self, name: str) -> NatsBus:
        bus = await NatsBus.connect(self.server.url, name)
        self.opened.append(bus)
        return bus

    async def join(
        self,
        node: str = "n1",
        token: str = TOKEN,
        *,
        user: str = "",
        wait_s: float = 5.0,
        url: str = "",
    ) -> NatsBus:
        """Connect as the agent of ``node`` does."""
        bus = await NatsBus.connect(
            without_credentials(url or self.server.nats.url),
            f"agent-{node}",
            user=user or node,
            password=token,
            inbox_prefix=inbox("main", node),
            narrow=True,
            wait_s=wait_s,
        )
        self.opened.append(bus)
        return bus

    async def close(self) -> None:
        for bus in self.opened:
            await bus.close()
        self.server.kill()


class Cluster:
    """Two servers that know each other, without JetStream; the call-out hangs on the first."""

    def __init__(self, folder: Path) -> None:
        self.platform = Platform(folder)
        first = self.platform.server.nats
        beside = folder / "beside"
        beside.mkdir()
        self.servers = [first, Nats(beside / "nats", free_port(), first.password, first.callout)]
        routes = [free_port(), free_port()]
        self._processes = [
            _clustered(nats, *ports)
            for nats, ports in zip(self.servers, [routes, routes[::-1]], strict=True)
        ]

    async def start(self) -> None:
        for process in self._processes:
            process.start()
        await self.platform.answer()

    async def close(self) -> None:
        await self.platform.close()
        for process in self._processes:
            process.kill()


def _clustered(nats: Nats, own: int, other: int) -> Process:
    conf = nats.folder.parent / "cluster.conf"
    alone = re.sub(r"(?s)jetstream \{.*?\n\}\n", "", render_config(nats))
    listen, route = f'listen: "127.0.0.1:{own}"', f'routes: ["nats://127.0.0.1:{other}"]'
    conf.write_text(f"{alone}cluster {{ name: pair, {listen}, {route} }}\n")
    argv = (str(program(os.environ)), "-c", str(conf))
    child = Child("nats", argv, {}, nats.folder.parent / "cluster.log")
    return Process(lambda: child, nats.wait_ready)
