"""``/v1/jobs``: submit, list, look, wait and stop."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from ebbtide.api.door import Until, is_done
from ebbtide.api.http_common import (
    PROBLEMS,
    Asking,
    NameQuery,
    PositionQuery,
    door_of,
    reached,
    trace_of,
)
from ebbtide.api.model import Alive
from ebbtide.api.problems import refuse
from ebbtide.api.render import job_detail, job_view
from ebbtide.api.views import JobQuery
from ebbtide.contracts.http import (
    JobDetail,
    JobPage,
    Phase,
    StopAnswer,
    StopJob,
    Submit,
    Submitted,
)
from ebbtide.contracts.ids import JobId, Workspace
from ebbtide.contracts.job_spec import WrittenJob, write_job_spec
from ebbtide.contracts.waits import Why

LIMIT_MAX = 500
PHASES_MAX = 16
PAGE_TIMEOUT_S = 5.0
WAIT_MAX_S = 60.0


@post("/jobs", summary="Submit a job", responses=PROBLEMS)
async def submit(
    request: Asking, data: JSONBody[Submit], dry_run: FromQuery[bool] = False
) -> Response[Submitted | WrittenJob]:
    """Record a job under the caller's id; with ``dry_run`` only answer it, whole.

    What a dry run answers has every default filled in and, submitted, is the very same job.
    """
    door = door_of(request)
    if dry_run:
        _, spec = await door.check(data, request.auth, uploaded=False)
        return Response(write_job_spec(spec), status_code=200)
    return Response(await door.submit(data, request.auth, trace_of(request)))


@get("/jobs", summary="List jobs, newest first", responses=PROBLEMS)
async def list_jobs(  # noqa: PLR0913, PLR0917 - each is a query parameter
    request: Asking,
    phase: Annotated[list[Phase] | None, QueryParameter(max_items=PHASES_MAX)] = None,
    name: NameQuery = "",
    workspace: NameQuery = "",
    mine: FromQuery[bool] = False,
    cursor: FromQuery[str] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX)] = 50,
    min_position: PositionQuery = 0,
) -> JobPage:
    """Give a page of the jobs that exist for the caller."""
    door, principal = door_of(request), request.auth
    if not principal.sees(Workspace(workspace or principal.workspace)):
        return JobPage(jobs=())
    await reached(door, min_position)
    query = JobQuery(
        workspace=Workspace(workspace) or principal.workspace,
        phases=tuple(phase or ()),
        name=name,
        actor=principal.actor if mine else "",
        before=_position(cursor),
        limit=limit + 1,
    )
    rows = await door.projector.page(query, PAGE_TIMEOUT_S)
    more = str(rows[limit - 1].submitted) if len(rows) > limit else ""
    jobs = tuple(job_view(row, door.picture) for row in rows[:limit])
    return JobPage(jobs=jobs, next=more)


def _position(cursor: str) -> int:
    if not cursor:
        return 0
    if not cursor.isdecimal() or len(cursor) > 18 or int(cursor) < 1:
        hint = "pass the `next` of the page before, unchanged"
        raise refuse(422, "http.cursor", "this is no cursor of a list of jobs", hint, "cursor")
    return int(cursor)


@get("/jobs/{job:str}", summary="Look at a job, or wait for it", responses=PROBLEMS)
async def get_job(
    request: Asking,
    job: FromPath[str],
    wait: FromQuery[Until | None] = None,
    timeout_s: Annotated[float, QueryParameter(ge=0, le=WAIT_MAX_S)] = 30.0,
    min_position: PositionQuery = 0,
) -> JobDetail:
    """Give a job; with ``wait`` once that is so, or as it is after ``timeout_s``."""
    door = door_of(request)
    await reached(door, min_position)
    alive = await _look(request, JobId(job), wait, timeout_s)
    return job_detail(alive, door.picture)


@get("/jobs/{job:str}/why", summary="Why a job waits", responses=PROBLEMS)
async def why_job(request: Asking, job: FromPath[str], min_position: PositionQuery = 0) -> Why:
    """Give the one cause that keeps a job from running."""
    door = door_of(request)
    await reached(door, min_position)
    return await door.why(JobId(job), request.auth)


async def _look(request: Asking, job: JobId, wait: Until | None, timeout_s: float) -> Alive:
    door = door_of(request)
    if wait is None:
        return await door.job(job, request.auth)
    return await door.wait(job, request.auth, is_done(wait), timeout_s)


@post("/jobs/{job:str}/stop", summary="Ask for a job to end", status_code=200, responses=PROBLEMS)
async def stop_job(
    request: Asking, job: FromPath[str], data: JSONBody[StopJob | None] = None
) -> StopAnswer:
    """Stop a job. Asking again changes nothing; a job that has ended stays as it is."""
    reason = data.reason if data is not None else ""
    return await door_of(request).stop(JobId(job), request.auth, reason)


HANDLERS = [submit, list_jobs, get_job, why_job, stop_job]
