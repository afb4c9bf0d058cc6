"""One lasting connection to NATS: dialled again for ever, asking, listening, and nothing else.

Every connection is a fresh client of nats-py, dialled here, because its own reconnection gives up
for good after a refused login and sends what it had buffered to a world that has moved on. So
nothing is buffered: while the server is away every call raises ``Unavailable``. Interests
(subscriptions, watches) are kept here and opened again on each new connection.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec
from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from ebbtide.chassis.delivery import run_alone
from ebbtide.contracts.errors import Malformed, Rejected, Unavailable

DIAL_TIMEOUT_S = 5.0
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.05, 3.0
"""Waits between dials; each is drawn from its upper half, so that agents do not march in step."""
PING_EVERY_S, PINGS_UNANSWERED = 10, 2
"""A server that is silent for half a minute is gone, though its socket may still be open."""
LOOK_EVERY_S = 2.0
"""nats-py forgets to say that a connection ended when its last write failed, so we look."""
MAX_UNSENT = 8 * 2**20
"""Bytes waiting for a socket that takes nothing; beyond them the server counts as away."""
CLOSE_TIMEOUT_S = 3.0

STATUS = "Status"
NOBODY_LISTENS = "503"


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect and as whom. ``url`` may hold several addresses with commas between."""

    url: str
    name: str
    user: str = ""
    password: str = ""
    token: str = ""
    inbox_prefix: str = "_INBOX"

    def __repr__(self) -> str:
        return f"Door(name={self.name!r})"


class _Asked(NamedTuple):
    """A request that waits for its answer."""

    subject: str
    answer: asyncio.Future[Msg]


class Interest(Protocol):
    """Something that wants to be opened on every new connection."""

    async def open(self, client: Client) -> None:
        """Begin to listen on a fresh connection; the old one is gone."""
        ...

    async def drain(self) -> None:
        """Stop listening, and return once what had come is handled."""
        ...

    async def close(self) -> None:
        """Stop listening."""
        ...


class Link:
    """Keeps one connection alive from :meth:`start` to :meth:`close`."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._interests: list[Interest] = []
        self._answers: dict[str, _Asked] = {}
        self._asked = 0
        self._inbox = ""
        self._calls: list[Callable[[], Awaitable[None]]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._announce = False
        self._closing = False
        self._refusal = "no server answers"
        self._told: set[str] = set()

    async def start(self, wait_s: float) -> None:
        """Begin to dial, and wait at most ``wait_s`` for a connection; with 0 do not wait.

        Raises:
            Unavailable: there was none in time; nothing is left running.
        """
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        if wait_s <= 0:
            self._announce = True
            return
        try:
            async with asyncio.timeout(wait_s):
                await self._up.wait()
        except TimeoutError as late:
            await self.close()
            raise Unavailable(f"NATS: {self._refusal} within {wait_s:g} s") from late
        self._announce = True

    @property
    def connected(self) -> bool:
        """Say whether there is a connection just now."""
        return self._client is not None and self._client.is_connected

    async def up(self) -> None:
        """Wait until there is a connection."""
        await self._up.wait()
        while not self.connected:
            await asyncio.sleep(BACKOFF_FIRST_S)
            await self._up.wait()

    def client(self) -> Client:
        """Give the present connection.

        Raises:
            Unavailable: there is none.
        """
        client = self._client
        if client is not None and client.is_connected:
            return client
        if client is not None:
            self._lost.set()
        raise Unavailable("not connected to NATS")

    def on_return(self, call: Callable[[], Awaitable[None]]) -> None:
        """Have ``call`` awaited after every connection that is made from now on."""
        self._calls.append(call)

    async def send(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, reply: str = ""
    ) -> None:
        """Write a message to the connection; nobody confirms it.

        Raises:
            Unavailable: there is no connection, or it takes nothing more.
            Malformed: the message is larger than the server takes.
        """
        client = self.client()
        if client.pending_data_size > MAX_UNSENT:
            raise Unavailable("NATS takes nothing from this connection just now")
        try:
            await client.publish(subject, data, reply, dict(headers) if headers else None)
        except errors.MaxPayloadError as error:
            detail = f"{len(data)} bytes are more than the server takes ({client.max_payload})"
            raise Malformed(Rejected(code="bus.too_large", detail=detail)) from error
        except (errors.Error, OSError) as error:
            raise Unavailable(f"NATS: {error}") from error

    async def ask(
        self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """Send a request and give the first answer.

        Raises:
            Unavailable: nobody listens, nobody answers in time, or the connection is lost
            meanwhile.
        """
        self._asked += 1
        token = str(self._asked)
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._answers[token] = _Asked(subject, answer)
        try:
            await self.send(subject, data, headers, f"{self._inbox}.{token}")
            async with asyncio.timeout(timeout_s):
                msg = await answer
        except TimeoutError as late:
            raise Unavailable(f"no answer on {subject} within {timeout_s:g} s") from late
        finally:
            self._answers.pop(token, None)
        if not msg.data and msg.headers and msg.headers.get(STATUS) == NOBODY_LISTENS:
            raise Unavailable(f"nobody listens on {subject}")
        return msg

    async def add(self, interest: Interest) -> None:
        """Open an interest now if there is a connection, and on every later one."""
        self._interests.append(interest)
        if self.connected:
            await self._open(interest, self.client())

    def remove(self, interest: Interest) -> None:
        """Forget an interest."""
        if interest in self._interests:
            self._interests.remove(interest)

    def spawn(self, call: Callable[[], Awaitable[None]], what: str) -> None:
        """Run a call beside; it ends with the link at the latest, and its failure is told."""
        task = asyncio.get_running_loop().create_task(run_alone(call, what))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Let handlers end, send what waits, and end the connection, within a bound."""
        self._closing = True
        interests = list(self._interests)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for interest in interests:
                    await interest.drain()
        except TimeoutError:
            warn("bus.not_drained", subscriptions=len(self._interests))
        for interest in interests:
            await interest.close()
        ours = [task for task in self._running if task is not asyncio.current_task()]
        tasks = ours if self._keeper is None else [self._keeper, *ours]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client, self._client = self._client, None
        self._fail_answers()
        if client is not None:
            await _end(client, flush=client.is_connected)

    async def _keep(self) -> None:
        """Dial, serve until the connection is lost, and dial again.

        The flag is asked beside being cancelled, for nats-py swallows cancellation in some places.
        """
        delay_s = BACKOFF_FIRST_S
        while not self._closing:
            self._lost = asyncio.Event()
            client = await self._dial(self._lost)
            if client is None and not self._closing:
                self._tell_refusal()
                await asyncio.sleep(delay_s * (0.5 + random.random() / 2))  # noqa: S311 - jitter
                delay_s = min(delay_s * 2, BACKOFF_MAX_S)
            if client is None:
                continue
            delay_s = BACKOFF_FIRST_S
            self._told.clear()
            try:
                await self._serve(client)
            finally:
                self._up.clear()
                self._client = None
                self._fail_answers()
                await _end(client, flush=False)

    def _tell_refusal(self) -> None:
        """Say once in an outage why there is no connection: whoever waits for none cannot tell."""
        if self._announce and self._refusal not in self._told:
            self._told.add(self._refusal)
            warn("bus.away", error=self._refusal)

    async def _dial(self, lost: asyncio.Event) -> Client | None:
        client = Client()

        async def ended() -> None:
            lost.set()

        async def failed(error: Exception) -> None:
            self._refusal = _why(error)
            if "permissions violation" in self._refusal:
                self._refused(self._refusal)

        door = self._door
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await client.connect(
                    door.url.split(","),
                    name=door.name,
                    user=door.user or None,
                    password=door.password or None,
                    token=door.token or None,
                    inbox_prefix=door.inbox_prefix,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    pending_size=0,  # nothing is buffered while there is no connection
                    ping_interval=PING_EVERY_S,
                    max_outstanding_pings=PINGS_UNANSWERED,
                    skip_subject_validation=True,
                    closed_cb=ended,
                    error_cb=failed,
                )
            inbox = client.new_inbox()
            await client.subscribe(f"{inbox}.*", cb=self._answered)
        except (errors.Error, OSError, TimeoutError) as error:
            self._refusal = _why(error)
            await _end(client, flush=False)
            return None
        except asyncio.CancelledError:
            await _end(client, flush=False)
            raise
        self._inbox = inbox
        return client

    async def _serve(self, client: Client) -> None:
        """Open what is wanted, tell who must know, and wait for the end of the connection."""
        lost, interests = self._lost, list(self._interests)
        self._client = client
        for interest in interests:
            await self._open(interest, client)
        self._up.set()
        if self._announce:
            for call in self._calls:
                self.spawn(call, "on_return")
        while client.is_connected and not lost.is_set():
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await lost.wait()
            except TimeoutError:
                continue

    async def _open(self, interest: Interest, client: Client) -> None:
        try:
            await interest.open(client)
        except (errors.Error, OSError):
            self._lost.set()  # the next connection opens it

    async def _answered(self, msg: Msg) -> None:
        asked = self._answers.get(msg.subject.rpartition(".")[2])
        if asked is not None and not asked.answer.done():
            asked.answer.set_result(msg)

    def _refused(self, error: str) -> None:
        """Fail at once what may not be asked; nats-py tells the subject in lower case."""
        warn("bus.not_permitted", error=error)
        for asked in self._answers.values():
            if f'publish to "{asked.subject.lower()}"' in error and not asked.answer.done():
                asked.answer.set_exception(Unavailable(f"not permitted to ask {asked.subject}"))

    def _fail_answers(self) -> None:
        for asked in self._answers.values():
            if not asked.answer.done():
                lost = Unavailable("the connection was lost before an answer came")
                asked.answer.set_exception(lost)


def _why(error: Exception) -> str:
    """Say why there is no connection.

    A server that refuses a login closes at once, and what it said may be lost with the connection.
    """
    if isinstance(error, ConnectionResetError | errors.UnexpectedEOF):
        return "the server ended the connection at the login, as it does when it refuses a token"
    return str(error) or "no server answers"


async def _end(client: Client, *, flush: bool) -> None:
    """Close a client within a bound; what it still says is of no interest."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            if flush:
                await client.flush()
            await client.close()
    except (errors.Error, OSError, TimeoutError):
        return


def warn(event: str, **facts: object) -> None:
    """Tell what somebody should look at; imports late, for an agent pays for each at its start."""
    import structlog

    structlog.get_logger(__name__).warning(event, **facts)
