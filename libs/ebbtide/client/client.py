"""The client: one method for each thing that can be asked of the platform.

A client keeps one connection and serves one thread at a time. Everything but creating a token is
safe to repeat and is repeated when the platform does not answer.
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ebbtide.client import environment, job_file
from ebbtide.client.errors import Refused
from ebbtide.client.story import LogPiece, StoryEvent, server_sent
from ebbtide.client.transport import ANSWER_TIMEOUT_S, PATIENCE_S, Answer, Transport
from ebbtide.contracts.errors import NotFound, Unavailable
from ebbtide.contracts.events.node import NodeChange
from ebbtide.contracts.http import (
    FINAL_PHASES,
    LOG_ATTEMPT,
    LOG_ENDED,
    LOG_OFFSET,
    LOG_SIZE,
    ChangeNode,
    CreateToken,
    Health,
    JobDetail,
    JobPage,
    NodeDetail,
    NodeView,
    Status,
    StopAnswer,
    StopJob,
    Submit,
    Submitted,
    TokenView,
)
from ebbtide.contracts.ids import RANDOM_BYTES, JobId, Workspace, job_id
from ebbtide.contracts.job_spec import WrittenJob, parse_job_spec
from ebbtide.contracts.waits import Why

POLL_S = 25.0
"""One long poll; the platform bounds them too."""
SILENCE_S = 60.0
"""A stream sends a sign of life every 15 s; after this long without one it is taken for dead."""
WAIT_PATIENCE_S = 60.0
"""Whoever waits for a job or follows its log also waits while the platform starts again."""
UPLOAD_TIMEOUT_S = 300.0
RECONNECT_S = 0.5
PIECE_BYTES = 512 * 1024
PAGE = 500
"""Events asked for at a time."""
LOST_TRIES = 5
"""How often the rest of a log is asked for before it is called missing; a second apart."""

T = TypeVar("T")
Pairs = list[tuple[str, str]]
Events = list[StoryEvent]
Nodes = list[NodeView]
Tokens = list[TokenView]


class Client:
    """The platform at ``url``, as the holder of ``token``."""

    def __init__(self, url: str, token: str, cell: str = "") -> None:
        self._transport = Transport(url, token)
        self._cell = cell

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Client":
        """Find the platform by ``EBB_URL`` and ``EBB_TOKEN``, else the local one's home.

        Raises:
            Unavailable: no platform is configured.
            Malformed: what is configured cannot be read.
        """
        where = environment.find(environ)
        return cls(where.url, where.token, where.cell)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection; the next call makes a new one."""
        self._transport.close()

    @property
    def cell(self) -> str:
        """Give the platform's cell, asked once."""
        if not self._cell:
            self._cell = self.health().cell
        return self._cell

    def new_job_id(self) -> JobId:
        """Make an id for a job; submit it as often as needed, it is one job."""
        return job_id(self.cell, time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES))

    def submit(
        self,
        job: Mapping[str, object] | WrittenJob | str | Path,
        *,
        id: JobId | None = None,  # noqa: A002 - what it is called everywhere else
        workspace: str = "",
    ) -> JobId:
        """Submit a job: tables, a job file, or the ``spec`` of another job.

        A ``code`` folder is packed and uploaded.

        Raises:
            Malformed: the job has a mistake; the field is named.
            Refused: the platform said no.
            Unavailable: it did not answer; submit again with the same ``id``.
        """
        tables = self.prepare(job)
        answer = self.send(
            Submit(id=id or self.new_job_id(), job=tables, workspace=Workspace(workspace))
        )
        return answer.id

    def prepare(self, job: Mapping[str, object] | WrittenJob | str | Path) -> dict[str, object]:
        """Read a job and upload its code folder; give the tables to send."""
        folder = Path()
        if isinstance(job, str | Path):
            path = Path(job)
            tables, folder = job_file.load(path), path.parent
        else:
            tables = msgspec.to_builtins(job) if isinstance(job, WrittenJob) else dict(job)
        code = tables.get("code")
        if isinstance(code, str) and code and not code.startswith("sha256:"):
            parse_job_spec({**tables, "code": ""})  # before an upload that would be for nothing
            tables["code"] = self.upload_code(folder / code)
        parse_job_spec(tables)
        return tables

    def send(self, submit: Submit) -> Submitted:
        """Send a submission as it is; sending it twice is sending it once."""
        return self._post("/v1/jobs", submit, Submitted)

    def dry_run(self, submit: Submit) -> WrittenJob:
        """Ask for a job with every default filled in, as it would be; store nothing."""
        return self._post("/v1/jobs?dry_run=true", submit, WrittenJob)

    def upload_code(self, folder: str | Path) -> str:
        """Pack a folder, upload it unless it is there already, and give its digest."""
        from ebbtide.client.packing import pack

        archive = pack(Path(folder))
        with archive.file as file:
            if not self._has_code(archive.digest):
                self._transport.call(
                    "PUT",
                    f"/v1/code/{archive.digest}",
                    file,
                    headers={"Content-Length": str(archive.size)},
                    timeout_s=UPLOAD_TIMEOUT_S,
                )
        return archive.digest

    def _has_code(self, digest: str) -> bool:
        try:
            self._transport.call("HEAD", f"/v1/code/{digest}")
        except NotFound:
            return False
        return True

    def get(self, job: JobId | str, *, min_position: int = 0) -> JobDetail:
        """Give a job as it is now, or as of ``min_position`` at least."""
        return self._get(_job(job, min_position=min_position), JobDetail)

    def list(  # noqa: PLR0913 - each chooses
        self,
        *,
        phases: tuple[str, ...] = (),
        name: str = "",
        workspace: str = "",
        mine: bool = False,
        limit: int = 50,
        cursor: str = "",
        min_position: int = 0,
    ) -> JobPage:
        """Give a page of jobs, newest first."""
        query = [("phase", phase) for phase in phases]
        query += _given(
            name=name,
            workspace=workspace,
            mine="true" if mine else "",
            limit=limit,
            cursor=cursor,
            min_position=min_position,
        )
        return self._get(f"/v1/jobs?{urlencode(query)}", JobPage)

    def stop(self, job: JobId | str, reason: str = "") -> StopAnswer:
        """Ask for a job to end; asking twice is asking once."""
        return self._post(f"{_job(job)}/stop", StopJob(reason=reason), StopAnswer)

    def why(self, job: JobId | str) -> Why:
        """Give the one cause that keeps a job from running."""
        return self._get(f"{_job(job)}/why", Why)

    def wait(self, job: JobId | str, timeout_s: float | None = None) -> JobDetail:
        """Give the job once it has ended, or as it is after ``timeout_s``."""
        return self._wait(job, "final", timeout_s)

    def wait_decided(self, job: JobId | str, timeout_s: float) -> JobDetail:
        """Give the job once it was admitted or refused, or as it is after ``timeout_s``."""
        return self._wait(job, "decided", timeout_s)

    def _wait(self, job: JobId | str, until: str, timeout_s: float | None) -> JobDetail:
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = POLL_S if ends_at is None else max(0.0, ends_at - time.monotonic())
            poll_s = round(min(left, POLL_S), 3)
            path = f"{_job(job, wait=until)}&timeout_s={poll_s}"
            detail = self._get(path, JobDetail, poll_s + ANSWER_TIMEOUT_S, WAIT_PATIENCE_S)
            done = detail.phase in FINAL_PHASES or (
                until == "decided" and detail.phase != "submitted"
            )
            if done or left <= poll_s < POLL_S:
                return detail

    def events(self, job: JobId | str, *, follow: bool = False) -> Iterator[StoryEvent]:
        """Give a job's story; with ``follow`` go on until it has ended."""
        path = f"{_job(job)}/events"
        yield from self._stream(path) if follow else self._pages(path, 0)

    def all_events(self, after: int, *, follow: bool = False) -> Iterator[StoryEvent]:
        """Give the platform's events after a position (admins only)."""
        path = "/v1/events"
        yield from self._stream(f"{path}?after={after}") if follow else self._pages(path, after)

    def _pages(self, path: str, after: int) -> Iterator[StoryEvent]:
        """Read events page by page; one that is not full is the last."""
        while True:
            page = self._get(f"{path}?after={after}&limit={PAGE}", Events)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].position

    def _stream(self, path: str) -> Iterator[StoryEvent]:
        """Follow a stream of events over breaks of the line, from the last id that was seen."""
        last = ""
        ends_at = time.monotonic() + WAIT_PATIENCE_S
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
            try:
                with self._transport.stream(path, headers, SILENCE_S) as lines:
                    for name, event_id, data in server_sent(lines):
                        if name == "end":
                            return
                        last, ends_at = event_id, time.monotonic() + WAIT_PATIENCE_S
                        yield msgspec.json.decode(data, type=StoryEvent)
            except (Unavailable, Refused) as error:
                if not error.retryable or time.monotonic() > ends_at:
                    raise
            time.sleep(RECONNECT_S)

    def logs(
        self, job: JobId | str, *, worker: int = 0, attempt: int = 0, follow: bool = False
    ) -> Iterator[LogPiece]:
        """Give a worker's log; attempt 0 is the newest.

        With ``follow`` go on until the attempt has ended, and if no attempt was named, with the
        next ones until the job has.
        """
        wanted, offset, lost = attempt, 0, 0
        while True:
            # The first answer says which attempt is the newest; from then on none is left out.
            wait_s = POLL_S if follow and wanted else 0.0
            try:
                piece, size, ended = self.log_piece(
                    job, worker=worker, attempt=wanted, offset=offset, wait_s=wait_s
                )
            except NotFound:
                if wanted > 1 and attempt == 0:
                    return  # the job ended without another attempt
                raise
            wanted = piece.attempt
            if piece.data:
                yield piece
                offset, lost = piece.offset + len(piece.data), 0
                continue
            if ended and offset < size and lost < LOST_TRIES:
                lost += 1
                time.sleep(1.0)
                continue
            if ended and offset < size:
                yield piece._replace(missing=size - offset)
            if follow and not ended:
                continue
            if not follow or attempt:
                return
            wanted, offset, lost = wanted + 1, 0, 0

    def log_piece(
        self,
        job: JobId | str,
        *,
        worker: int = 0,
        attempt: int = 0,
        offset: int = 0,
        limit: int = PIECE_BYTES,
        wait_s: float = 0.0,
    ) -> tuple[LogPiece, int, bool]:
        """Give one piece of a log, the log's size by now, and whether that is final."""
        query = urlencode(
            _given(worker=worker, attempt=attempt, offset=offset, limit=limit, wait_s=wait_s)
        )
        answer = self._transport.call(
            "GET",
            f"{_job(job)}/logs?{query}",
            timeout_s=wait_s + ANSWER_TIMEOUT_S,
            patience_s=WAIT_PATIENCE_S if wait_s else PATIENCE_S,
        )
        return _piece(answer, worker)

    def status(self) -> Status:
        """Give the platform at a glance."""
        return self._get("/v1/status", Status)

    def health(self) -> Health:
        """Ask whether the platform answers; needs no token."""
        return self._get("/v1/health", Health)

    def nodes(self) -> Nodes:
        """Give every node."""
        return self._get("/v1/nodes", Nodes)

    def node(self, name: str) -> NodeDetail:
        """Give a node, and the jobs on it that exist for the caller."""
        return self._get(f"/v1/nodes/{quote(name, safe='')}", NodeDetail)

    def change_node(self, name: str, change: NodeChange, reason: str = "") -> NodeDetail:
        """Cordon, drain, move the work off, uncordon or fence a node (admins only)."""
        asked = ChangeNode(change=change, reason=reason)
        return self._post(f"/v1/nodes/{quote(name, safe='')}/change", asked, NodeDetail)

    def tokens(self) -> Tokens:
        """Give every credential, without secrets (admins only)."""
        return self._get("/v1/tokens", Tokens)

    def create_token(self, token: CreateToken) -> TokenView:
        """Make a credential (admins only); its secret is in the answer and never shown again."""
        return self._post("/v1/tokens", token, TokenView, patience_s=0)

    def revoke_token(self, token: str) -> TokenView:
        """Let a credential open nothing any more (admins only)."""
        answer = self._transport.call("DELETE", f"/v1/tokens/{quote(token, safe='')}")
        return _decode(answer, TokenView)

    def _get(
        self,
        path: str,
        kind: type[T],
        timeout_s: float = ANSWER_TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> T:
        answer = self._transport.call("GET", path, timeout_s=timeout_s, patience_s=patience_s)
        return _decode(answer, kind)

    def _post(
        self, path: str, body: msgspec.Struct, kind: type[T], patience_s: float = PATIENCE_S
    ) -> T:
        data = msgspec.json.encode(body)
        answer = self._transport.call("POST", path, data, headers=_JSON, patience_s=patience_s)
        return _decode(answer, kind)


_JSON = {"Content-Type": "application/json"}


def _decode(answer: Answer, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the platform answered in words of another release: {error}") from error


def _given(**query: object) -> Pairs:
    """Keep what differs from nothing, so that addresses stay short."""
    return [(name, str(value)) for name, value in query.items() if value]


def _job(job: JobId | str, **query: object) -> str:
    path = f"/v1/jobs/{quote(job, safe='')}"
    given = urlencode(_given(**query))
    return f"{path}?{given}" if given else path


def _piece(answer: Answer, worker: int) -> tuple[LogPiece, int, bool]:
    attempt, offset, size = (
        int(answer.headers[name.lower()]) for name in (LOG_ATTEMPT, LOG_OFFSET, LOG_SIZE)
    )
    piece = LogPiece(attempt, worker, offset, answer.body)
    return piece, size, answer.headers[LOG_ENDED.lower()] == "true"
