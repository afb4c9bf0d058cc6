"""Answers NATS's question who may connect: a token is the password, its grant the rights.

The server asks on ``$SYS.REQ.USER.AUTH`` with a signed claim; the answer is a user claim with
rights, signed by the issuer that the server's configuration names. A connection that was let in
outlives this responder; it carries its token's name, by which :mod:`ebbtide.api.expulsion` finds it
when the token is revoked. A wrong token is refused and never logged.
"""

import asyncio
import base64
import hashlib
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import nkeys
import structlog

from ebbtide.chassis.bus import Bus, Message, Subscription
from ebbtide.chassis.clock import millis
from ebbtide.contracts import subjects
from ebbtide.contracts.errors import Unavailable
from ebbtide.contracts.events import TokenKind
from ebbtide.contracts.ids import TokenId, is_name

ASK = "$SYS.REQ.USER.AUTH"
READY_WAIT_S = 1.5
"""How long a question may wait for the tokens to be read; clients wait 2 s for the server."""
ANSWERS = 1
ANSWER_WITHIN_S = 120
"""An agent may answer each request once, within the longest poll that anybody makes."""
ACCOUNT = "$G"
PASSWORD_MAX = 200
NANOSECONDS = 1_000_000_000
NO = "wrong credentials"

_log = structlog.get_logger()


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a live token stands for; ``subject`` is the node of an agent."""

    token: TokenId
    kind: TokenKind
    subject: str


Lookup = Callable[[str], Grant | None]


def user_of(token: TokenId) -> str:
    """Give the name by which the server knows connections of a token; no client can choose it."""
    return f"token:{token}"


class Allowed(msgspec.Struct, frozen=True):
    """Subjects that may be used; all others are denied."""

    allow: tuple[str, ...]


class Answers(msgspec.Struct, frozen=True):
    """How many answers a request entitles to, and for how many nanoseconds."""

    max: int
    ttl: int


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """The ``nats`` part of a user claim."""

    pub: Allowed
    sub: Allowed
    resp: Answers
    subs: int = -1
    data: int = -1
    payload: int = -1
    type: Literal["user"] = "user"
    version: int = 2


class User(NamedTuple):
    """Who was recognised: the name that the connection gets, and what it may do."""

    name: str
    rights: Rights


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ``nats`` part of an answer: a signed user claim, or why not."""

    jwt: str = ""
    error: str = ""
    type: str = ""
    version: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as NATS signs them."""

    iss: str
    sub: str
    aud: str
    iat: int
    nats: Rights | Verdict
    name: str = ""
    jti: str = ""


class _Login(msgspec.Struct):
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""


class _Server(msgspec.Struct):
    id: str


class _Client(msgspec.Struct):
    host: str = ""


class _Question(msgspec.Struct):
    user_nkey: str
    server_id: _Server
    connect_opts: _Login
    client_info: _Client


class _Asked(msgspec.Struct):
    nats: _Question


_asked = msgspec.json.Decoder(_Asked)


class Callout:
    """The responder, as a part of the api's process. Several may run; each question goes to one."""

    name = "api.callout"

    def __init__(self, bus: Bus, cell: str, seed: str, lookup: Lookup) -> None:
        self.ready = asyncio.Event()
        """To be set when ``lookup`` knows the tokens; until then questions wait a little."""
        self._bus = bus
        self._cell = cell
        self._signer = Signer(seed)
        self._lookup = lookup
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin to hear questions."""
        self._subscription = await self._bus.subscribe(ASK, self._answer, queue="callout")

    async def run(self) -> None:
        """Do nothing: questions are answered as they come."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Hear no more questions."""
        if self._subscription is not None:
            await self._subscription.close()

    async def _answer(self, message: Message) -> None:
        await self._wait_for_tokens()
        try:
            question = _asked.decode(_payload(message.data)).nats
        except (ValueError, msgspec.DecodeError):
            _log.warning("callout.malformed")
            return
        user = self._user(question)
        if user is None:
            _log.info("callout.refused", host=question.client_info.host)
        answer = self._signer.answer(question, user, millis() // 1000)
        try:
            await self._bus.publish(message.reply, answer)
        except Unavailable:
            return  # who asked is gone with the connection, and asks again

    def _user(self, question: _Question) -> User | None:
        login = question.connect_opts
        text = login.password or login.auth_token
        grant = self._lookup(text) if 0 < len(text) <= PASSWORD_MAX else None
        if grant is None or login.user not in ("", grant.subject):
            return None
        rights = rights_of(grant, self._cell)
        return User(user_of(grant.token), rights) if rights is not None else None

    async def _wait_for_tokens(self) -> None:
        try:
            async with asyncio.timeout(READY_WAIT_S):
                await self.ready.wait()
        except TimeoutError:
            return


class Signer:
    """Signs claims with the issuer's seed, which is never shown."""

    def __init__(self, seed: str) -> None:
        self._keys = nkeys.from_seed(bytearray(seed.strip().encode()))
        self._issuer = self._keys.public_key.decode()

    def answer(self, question: "_Question", user: User | None, now_s: int) -> bytes:
        """Write the answer to a question: a claim for ``user``, or a refusal."""
        key = question.user_nkey
        if user is None:
            verdict = Verdict(error=NO, type="authorization_response", version=2)
        else:
            claim = Claim(
                iss=self._issuer,
                sub=key,
                aud=ACCOUNT,
                iat=now_s,
                nats=user.rights,
                name=user.name,
            )
            jwt = self._sign(claim)
            verdict = Verdict(jwt=jwt, type="authorization_response", version=2)
        server = question.server_id.id
        answer = Claim(iss=self._issuer, sub=key, aud=server, iat=now_s, nats=verdict)
        return self._sign(answer).encode()

    def _sign(self, claim: Claim) -> str:
        digest = hashlib.sha256(msgspec.json.encode(claim)).digest()
        claim = msgspec.structs.replace(claim, jti=base64.b32encode(digest).decode().rstrip("="))
        head = _base64(b'{"typ":"JWT","alg":"ed25519-nkey"}')
        signed = f"{head}.{_base64(msgspec.json.encode(claim))}"
        return f"{signed}.{_base64(self._keys.sign(signed.encode()))}"


def rights_of(grant: Grant, cell: str) -> Rights | None:
    """Give what a token may do on the bus; None for kinds that have no business there."""
    if grant.kind != "agent" or not is_name(grant.subject):
        return None
    node = grant.subject
    desired, lease = subjects.desired_bucket(cell), subjects.lease_bucket(cell)
    speak = (
        subjects.agent(cell, node, ">"),
        subjects.kv(lease, node),
        *(f"$JS.API.DIRECT.GET.KV_{held}.{subjects.kv(held, node)}" for held in (desired, lease)),
    )
    hear = (
        subjects.kv_changed(desired, node),
        subjects.node(cell, node, ">"),
        subjects.tell_all(cell),
        f"{subjects.inbox(cell, node)}.>",
    )
    answers = Answers(ANSWERS, ANSWER_WITHIN_S * NANOSECONDS)
    return Rights(pub=Allowed(speak), sub=Allowed(hear), resp=answers)


def _payload(token: bytes) -> bytes:
    """Give the middle part of a signed claim. Only the server may publish where this came from."""
    parts = token.split(b".")
    if len(parts) != 3:
        raise ValueError("a claim has three parts")
    return base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
