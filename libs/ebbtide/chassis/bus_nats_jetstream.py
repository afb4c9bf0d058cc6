"""JetStream's own questions and answers, as far as the bus needs them: streams, reads, consumers.

Plain requests with JSON bodies rather than a client library's wrapper: an agent with narrow rights
may then ask exactly what it is allowed to, and every refusal becomes one of our errors here.
"""

from collections.abc import Mapping, Sequence

import msgspec
from nats.aio.msg import Msg

from ebbtide.chassis.bus import Entry, Message
from ebbtide.chassis.bus_nats_link import STATUS, Link
from ebbtide.contracts.errors import Conflict, InvariantBroken, NotFound, Unavailable
from ebbtide.contracts.subjects import kv, kv_changed

REQUEST_TIMEOUT_S = 5.0
EVENTS_MAX_BYTES = 2**30
"""What the events stream keeps, about two million events; who is further behind reads the log."""
DISCONNECTED_CONSUMER_S = 10
DUPLICATES_S = 1
"""How long the server remembers message ids; each costs it memory, and sequences guard already."""
NANOSECONDS = 1_000_000_000

NAME_TAKEN = 10058
NO_STREAM = 10059
NO_MESSAGE = 10037
WRONG_PLACE = frozenset({10070, 10071, 10164})
"""Another message, or another sequence, was last in the stream or on the subject."""

SEQUENCE = "Nats-Sequence"


class Refusal(msgspec.Struct, frozen=True):
    """Why JetStream said no."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Answer(msgspec.Struct, frozen=True):
    """The part of every answer that is read here."""

    error: Refusal | None = None
    seq: int = 0
    created: str = ""


class Stored(msgspec.Struct, frozen=True):
    """A message of a stream; ``data`` and ``hdrs`` travel as base 64."""

    subject: str
    seq: int
    data: bytes = b""
    hdrs: bytes = b""


class Got(msgspec.Struct, frozen=True):
    """The answer to a read of one message."""

    error: Refusal | None = None
    message: Stored | None = None


_answer = msgspec.json.Decoder(Answer)
_got = msgspec.json.Decoder(Got)


class JetStream:
    """Asks the JetStream of one link."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def ensure_events(self, stream: str, subjects: Sequence[str], first: int) -> None:
        """Make the events stream unless there is one of that name, whatever it holds."""
        try:
            await self.created(stream)
        except NotFound:
            config = _stream(stream, subjects) | {
                "max_bytes": EVENTS_MAX_BYTES,
                "first_seq": first,
                "duplicate_window": DUPLICATES_S * NANOSECONDS,
            }
            taken = await self._api(f"STREAM.CREATE.{stream}", config)
            if taken.error is not None and taken.error.err_code != NAME_TAKEN:
                raise _error(taken.error) from None

    async def ensure_bucket(self, bucket: str) -> None:
        """Make a bucket, or bring the one there is to this shape.

        Accepted writes are published again on ``kv.<bucket>.<key>`` with their revision: who
        listens to the key's own subject would also hear writes that were refused, and hear them too
        early.
        """
        stream, kept, told = stream_of(bucket), kv(bucket, ">"), kv_changed(bucket, ">")
        config = _stream(stream, [kept]) | {
            "max_msgs_per_subject": 1,
            "republish": {"src": kept, "dest": told},
        }
        answer = await self._api(f"STREAM.CREATE.{stream}", config)
        if answer.error is not None and answer.error.err_code == NAME_TAKEN:
            answer = await self._api(f"STREAM.UPDATE.{stream}", config)
        _check(answer.error)

    async def delete(self, stream: str) -> None:
        """Delete a stream; no error if there is none."""
        answer = await self._api(f"STREAM.DELETE.{stream}", None)
        if answer.error is not None and answer.error.err_code != NO_STREAM:
            raise _error(answer.error)

    async def created(self, stream: str) -> str:
        """Give the instant at which the stream was made: another one tells another stream.

        Raises:
            NotFound: there is no such stream.
        """
        answer = await self._api(f"STREAM.INFO.{stream}", None)
        _check(answer.error)
        return answer.created

    async def last(self, stream: str, subject: str) -> Message | None:
        """Give the newest message on ``subject`` as the stream's leader knows it.

        Raises:
            NotFound: there is no such stream.
        """
        msg = await self._link.ask(
            f"$JS.API.STREAM.MSG.GET.{stream}",
            msgspec.json.encode({"last_by_subj": subject}),
            REQUEST_TIMEOUT_S,
        )
        got = _got.decode(msg.data)
        if got.error is not None and got.error.err_code == NO_MESSAGE:
            return None
        _check(got.error)
        if got.message is None:
            return None
        stored = got.message
        return Message(stored.subject, stored.data, "", _headers(stored.hdrs), stored.seq)

    async def read_key(self, bucket: str, key: str) -> Entry | None:
        """Read a key without the right to read others; a replica may answer, a little behind."""
        stream = stream_of(bucket)
        subject = f"$JS.API.DIRECT.GET.{stream}.{kv(bucket, key)}"
        msg = await self._link.ask(subject, b"", REQUEST_TIMEOUT_S)
        headers = msg.headers or {}
        if STATUS in headers:
            if headers[STATUS] == "404":
                return None
            raise Unavailable(f"{key} in {bucket} cannot be read: status {headers[STATUS]}")
        return Entry(key, msg.data, int(headers[SEQUENCE]))

    async def store(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Publish into a stream and give the sequence that the message got.

        Raises:
            Conflict: the stream was not where ``headers`` expected it.
        """
        return self.stored(await self._link.ask(subject, data, REQUEST_TIMEOUT_S, headers))

    def stored(self, msg: Msg) -> int:
        """Read the answer to a message published into a stream."""
        answer = _answer.decode(msg.data)
        _check(answer.error)
        return answer.seq

    async def consume(self, stream: str, inbox: str, after: int, heartbeat_s: float) -> None:
        """Have the stream push everything after ``after`` to ``inbox``, without acks."""
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(heartbeat_s * NANOSECONDS),
            "inactive_threshold": DISCONNECTED_CONSUMER_S * NANOSECONDS,
            "num_replicas": 1,
            "mem_storage": True,
        }
        body = {"stream_name": stream, "config": config}
        _check((await self._api(f"CONSUMER.CREATE.{stream}", body)).error)

    async def _api(self, verb: str, body: Mapping[str, object] | None) -> Answer:
        data = b"" if body is None else msgspec.json.encode(body)
        return _answer.decode(
            (await self._link.ask(f"$JS.API.{verb}", data, REQUEST_TIMEOUT_S)).data
        )


def stream_of(bucket: str) -> str:
    """Name of the stream that keeps a bucket."""
    return f"KV_{bucket}"


def _stream(name: str, subjects: Sequence[str]) -> dict[str, object]:
    return {
        "name": name,
        "subjects": list(subjects),
        "retention": "limits",
        "discard": "old",
        "storage": "file",
        "num_replicas": 1,
        "allow_direct": True,
        "deny_delete": True,
    }


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise _error(refusal)


def _error(refusal: Refusal) -> Exception:
    text = f"JetStream: {refusal.description} ({refusal.err_code})"
    if refusal.err_code in WRONG_PLACE:
        return Conflict(text)
    if refusal.code == 404:
        return NotFound(text)
    if refusal.code >= 500:
        return Unavailable(text)
    return InvariantBroken(text)


def _headers(raw: bytes) -> dict[str, str]:
    """Read ``NATS/1.0`` headers as JetStream stores them."""
    lines = raw.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}
