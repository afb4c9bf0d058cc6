"""Things for tests, made in one line and showing only what matters."""

import datetime as dt

import msgspec

from ebbtide.contracts.agents import DesiredAttempt, DesiredWorker, Registration
from ebbtide.contracts.envelope import Append, Recorded
from ebbtide.contracts.ids import JobId, NodeName, PoolName, Workspace
from ebbtide.contracts.job_spec import JobSpec, parse_job_spec

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
TEAM = Workspace("team")


class VirtualClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now: dt.datetime = START) -> None:
        self._now = now

    def now(self) -> dt.datetime:
        """Give the time it was set to."""
        return self._now

    def monotonic_s(self) -> float:
        """Give seconds since the tests' beginning of time."""
        return (self._now - START).total_seconds()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += dt.timedelta(seconds=seconds)


def job_name(number: int) -> JobId:
    """Make the id of the ``number``-th job of a test."""
    return JobId(f"job_main_{number:026d}")


def spec(workers: int = 1, cpu: str = "1", **fields: object) -> JobSpec:
    """Make a job of ``workers`` workers that need ``cpu`` each."""
    resources = {"cpu": cpu, "memory": "1Gi", **fields.pop("resources", {})}  # type: ignore[dict-item]
    given: dict[str, object] = {
        "name": "test",
        "command": ["true"],
        "roles": {"worker": {"replicas": workers, "resources": resources}},
        **fields,
    }
    return parse_job_spec(given)


def recorded(append: Append, position: int = 1, **fields: object) -> Recorded:
    """Record an append as a log would; ``fields`` are those of the envelope that matter."""
    event = Recorded(
        epoch=1,
        position=position,
        stream=append.stream,
        version=(append.expected or 0) + 1,
        event_id=str(position),
        at=START,
        workspace=append.workspace,
        actor=append.actor,
        cause=append.cause,
        service="test",
        read_to=position - 1,
        decided_at=START,
        rules=1,
        trace=append.trace,
        body=append.body,
    )
    return msgspec.structs.replace(event, **fields)


def registration(name: str, boot: str = "boot-1", **capacity: int) -> Registration:
    """Make the registration of a node; 4 CPUs and 16 GiB unless ``capacity`` says otherwise."""
    return Registration(
        node=NodeName(name),
        pool=PoolName("default"),
        address="127.0.0.1",
        boot=boot,
        capacity={"cpu": 4000, "memory": 16384, **capacity},
    )


def desired_attempt(
    job: JobId, command: tuple[str, ...] = ("true",), workers: int = 1, **changes: object
) -> DesiredAttempt:
    """Make what fleet wants of an agent; ``changes`` are fields of the attempt."""
    gang = tuple(
        DesiredWorker(worker=rank, role="worker", index=rank, command=command, resources={})
        for rank in range(workers)
    )
    one = DesiredAttempt(
        job=job,
        name="one",
        workspace=Workspace("default"),
        epoch=1,
        attempt=1,
        round=1,
        type="custom",
        code="",
        env={},
        when_cut_off="run",
        grace_s=5,
        world=workers,
        workers=gang,
    )
    return msgspec.structs.replace(one, **changes)
