"""Ends the live connections of revoked tokens; NATS itself asks only who may connect.

The call-out names each connection after its token, so the servers know which ones a token has,
whoever let them in and whenever. Connections of other tokens are never touched. It asks through the
servers' system account, on a connection that lasts as long as there is something to end.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from ebbtide.api.callout import user_of
from ebbtide.chassis.bus_nats import NatsBus
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.ids import TokenId

LOOK_EVERY_S = 1.0
"""How often the tokens are looked through; a look costs no message unless one was revoked."""
AGAIN_FOR_S = 10.0
"""A question answered just before the revocation lets somebody in a moment after it: the server
waits 2 s for an answer, and another process may read the log later than this one."""
CONNECT_WAIT_S = 2.0
SERVERS_ANSWER_S = 0.5
"""How long the servers of a cluster are heard; one that is slower is heard the next time."""
ANSWER_S = 5.0
PING = "$SYS.REQ.SERVER.PING"

_log = structlog.get_logger()


class _Server(msgspec.Struct, frozen=True):
    id: str


class _Ping(msgspec.Struct, frozen=True):
    server: _Server


class _Connection(msgspec.Struct, frozen=True):
    cid: int


class _Connections(msgspec.Struct, frozen=True):
    connections: tuple[_Connection, ...] = ()


class _Found(msgspec.Struct, frozen=True):
    data: _Connections = _Connections()


class _Live(NamedTuple):
    """One connection of a revoked token."""

    server: str
    number: int


_ping = msgspec.json.Decoder(_Ping).decode
_found = msgspec.json.Decoder(_Found).decode


class Expulsion:
    """A part of the api's process. Several may run: what one has ended the others do not find."""

    name = "api.expulsion"

    def __init__(self, system_url: str, revoked: Callable[[], Iterable[TokenId]]) -> None:
        self._url = system_url
        self._revoked = revoked
        self._due: dict[TokenId, float] = {}
        self._done: set[TokenId] = set()
        self._waits = False

    async def start(self) -> None:
        """Do nothing yet: the tokens are read when the process runs."""

    async def run(self) -> None:
        """Look for revoked tokens, for ever; at the start for all that there are."""
        while True:
            try:
                await self._look()
                self._waits = False
            except (Unavailable, msgspec.DecodeError) as error:
                if not self._waits:
                    _log.warning("expulsion.waits", tokens=len(self._due), why=str(error))
                self._waits = True
            await asyncio.sleep(LOOK_EVERY_S)

    async def stop(self) -> None:
        """Hold nothing."""

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for token in self._revoked():
            if token not in self._done:
                self._due.setdefault(token, now)
        if not self._due:
            return
        await self._expel(tuple(self._due))
        for token, since in list(self._due.items()):
            if now - since >= AGAIN_FOR_S:
                del self._due[token]
                self._done.add(token)

    async def _expel(self, tokens: Sequence[TokenId]) -> None:
        bus = await NatsBus.connect(self._url, "api-expulsion", wait_s=CONNECT_WAIT_S)
        try:
            answers = await bus.request_all(PING, b"", SERVERS_ANSWER_S)
            if not answers:
                raise Unavailable("no server of NATS answers its system account")
            servers = [_ping(answer).server.id for answer in answers]
            for token in tokens:
                for server in servers:
                    for live in await _live(bus, server, token):
                        await _end(bus, live)
                        _log.info("token.expelled", token=token)
        finally:
            await bus.close()


async def _live(bus: NatsBus, server: str, token: TokenId) -> list[_Live]:
    wanted = msgspec.json.encode({"auth": True, "user": user_of(token)})
    found = _found(await bus.request(f"$SYS.REQ.SERVER.{server}.CONNZ", wanted, ANSWER_S))
    return [_Live(server, connection.cid) for connection in found.data.connections]


async def _end(bus: NatsBus, live: _Live) -> None:
    wanted = msgspec.json.encode({"cid": live.number})
    await bus.request(f"$SYS.REQ.SERVER.{live.server}.KICK", wanted, ANSWER_S)
