"""A job's description: every mistake names its field, and what is stored is whole."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.contracts.errors import Malformed
from ebbtide.contracts.events import (
    AttemptEnded,
    Event,
    FirstFailure,
    GangPlaced,
    JobRejected,
    Place,
)
from ebbtide.contracts.ids import NodeNumber, PoolName, QuotaName, placement_id
from ebbtide.contracts.job_spec import (
    WORKERS_MAX,
    JobSpec,
    command_of,
    parse_job_spec,
    workers_of,
    write_job_spec,
)
from ebbtide.contracts.outcomes import EndCause, Outcome
from ebbtide.contracts.units import DEVICES_MAX, NAMES_MAX, show_vector
from ebbtide.contracts.upcasts import encode_body
from ebbtide.eventlog.entries import BODY_BYTES_MAX
from ebbtide.testing.builders import job_name

MANY = [f"r{number}" for number in range(NAMES_MAX + 1)]
JOB = job_name(1)
GOOD = {"name": "digits", "command": ["python", "train.py"]}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"comand": ["x"]}, "comand"),
        ({"name": "Digits"}, "name"),
        ({"name": "a\x01b"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": 7}, "name"),
        ({"command": []}, "command"),
        ({"command": [""]}, "command"),
        ({"command": "python train.py"}, "command"),
        ({"command": ["a\x00b"]}, "command"),
        ({"priority": 0}, "priority"),
        ({"priority": 10}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"idle": "sometimes"}, "idle"),
        ({"type": "cobol"}, "type"),
        ({"env": {"A=B": "x"}}, "env"),
        ({"env": {"A": 1}}, "env[...]"),
        ({"code": "./here"}, "code"),
        ({"grace_s": -1}, "grace_s"),
        ({"restart": {"max_restarts": -1}}, "restart.max_restarts"),
        ({"restart": {"max": 1}}, "restart.max"),
        ({"restart": 3}, "restart"),
        ({"roles": []}, "roles"),
        ({"roles": {"worker": 2}}, "roles.worker"),
        ({"roles": {"Worker": {}}}, "roles"),
        ({"roles": {"worker": {"replicas": 0}}}, "roles.worker.replicas"),
        ({"roles": {"worker": {"replicas": 10**9}}}, "roles.worker.replicas"),
        ({"roles": {"worker": {"replicas": True}}}, "roles.worker.replicas"),
        ({"roles": {"worker": {"resources": {"cpu": -1}}}}, "roles.worker.resources.cpu"),
        ({"roles": {"worker": {"resources": 3}}}, "roles.worker.resources"),
        ({"roles": {"a": {"replicas": WORKERS_MAX}, "b": {}}}, "roles"),
        ({"roles": {"a": {"resources": {"gpu": 65}}}}, "roles.a.resources"),
        ({"roles": {"a": {"resources": {"gpu": 1, "gpu/h100": 1}}}}, "roles.a.resources"),
        ({"roles": {"a": {"resources": dict.fromkeys(MANY, 1)}}}, "roles.a.resources"),
        ({"roles": {n: {"resources": {n: 1}} for n in MANY}}, "roles"),
    ],
)
def test_a_mistake_names_its_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse_job_spec({**GOOD, **change})
    assert refused.value.rejected.field == field


def test_a_job_needs_a_name() -> None:
    with pytest.raises(Malformed, match="needs a name"):
        parse_job_spec({"command": ["true"]})


def test_a_job_longer_than_an_event_is_refused() -> None:
    with pytest.raises(Malformed, match="longer than"):
        parse_job_spec({**GOOD, "env": {"BIG": "x" * 60_000}})


def test_what_is_left_out_is_filled_in() -> None:
    spec = parse_job_spec(GOOD)
    assert spec.roles["worker"].resources == {"cpu": 1000, "memory": 1024}
    assert (spec.type, spec.quota, spec.idle, spec.when_cut_off) == (
        "custom",
        "default",
        "never",
        "run",
    )


def test_what_is_stored_reads_as_itself() -> None:
    spec = parse_job_spec({**GOOD, "roles": {"worker": {"replicas": 2, "resources": {"gpu": 1}}}})
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


_NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_MILLI = st.integers(1, 10**9)
_RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "cpu": _MILLI.map("{}m".format),
        "memory": st.integers(1, 1 << 40).map("{}Mi".format),
        "gpu/h100": st.integers(1, 64) | st.integers(1, 999).map("{}m".format),
        "rdma.example/port": _MILLI.map("{}m".format),
    },
)
_WORDS = st.tuples(_TEXT.filter(bool), _TEXT)
_ROLES = st.fixed_dictionaries(
    {"command": _WORDS},
    optional={"replicas": st.integers(1, 600), "resources": _RESOURCES},
)
_JOBS = st.fixed_dictionaries(
    {"name": _NAMES, "roles": st.dictionaries(_NAMES, _ROLES, min_size=1, max_size=3)},
    optional={
        "type": st.sampled_from(["custom", "pytorch", "xgboost"]),
        "quota": _NAMES,
        "idle": st.sampled_from(["never", "acceptable", "only"]),
        "priority": st.integers(1, 9),
        "command": _WORDS,
        "code": st.just(f"sha256:{'0' * 64}"),
        "env": st.dictionaries(_TEXT.filter(lambda key: key and "=" not in key), _TEXT, max_size=3),
        "restart": st.fixed_dictionaries({}, optional={"max_restarts": st.integers(0, 1000)}),
        "when_cut_off": st.sampled_from(["stop", "run"]),
        "grace_s": st.integers(0, 86_400),
    },
)


@given(_JOBS)
def test_a_job_that_is_written_reads_as_the_same_job(table: dict[str, object]) -> None:
    spec = parse_job_spec(table)
    again = parse_job_spec(msgspec.json.decode(msgspec.json.encode(write_job_spec(spec))))
    assert again == spec
    assert list(again.roles) == list(spec.roles), "ranks follow the roles as written"


def test_quantities_are_written_as_people_write_them() -> None:
    roles = {"worker": {"resources": {"cpu": 0.5, "gpu/h100": 2}}}
    role = write_job_spec(parse_job_spec({**GOOD, "roles": roles})).roles["worker"]
    assert role.resources == {"cpu": "500m", "memory": "1Gi", "gpu/h100": "2"}


def test_ranks_follow_the_roles_as_written() -> None:
    roles = {"chief": {"command": ["a"]}, "worker": {"replicas": 2}}
    spec = parse_job_spec({**GOOD, "roles": roles})
    assert workers_of(spec) == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert command_of(spec, "chief") == ("a",)
    assert command_of(spec, "worker") == ("python", "train.py")


WIDE = {f"{number:03d}{'x' * 60}": 10**9 for number in range(NAMES_MAX)}
PLACED = GangPlaced(
    job=JOB,
    attempt=1000,
    placement=placement_id(JOB, 1000),
    pool=PoolName("p" * 63),
    quota=QuotaName("q" * 63),
    charge="in_quota",
    places=(Place(NodeNumber(10_000), 2**DEVICES_MAX - 1),) * WORKERS_MAX,
    total=WIDE,
)
ENDED = AttemptEnded(
    job=JOB,
    attempt=1000,
    outcome=Outcome.FAILED,
    first=FirstFailure(worker=0, node="n" * 63, cause=EndCause.START_FAILED, detail="d" * 1024),
    following=tuple(range(WORKERS_MAX - 1)),
    log_bytes=(2**53,) * WORKERS_MAX,
)
REJECTED = JobRejected(job=JOB, code="quota.ceiling", detail=show_vector(WIDE) * 2)


@pytest.mark.parametrize("event", [PLACED, ENDED, REJECTED], ids=["placed", "ended", "rejected"])
def test_what_is_said_of_the_largest_gang_fits_one_event(event: Event) -> None:
    assert len(encode_body(event)) <= BODY_BYTES_MAX


_ANY = "ab09-_=.\x00\x1b\u2603 "
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(_ANY, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(_ANY, max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*JobSpec.__struct_fields__, "other"]), _JSON, max_size=5))
def test_anything_else_is_refused_and_never_breaks(table: dict[str, object]) -> None:
    refused = None
    try:
        parse_job_spec({**GOOD, **table})
    except Malformed as error:
        refused = error.rejected
    assert refused is None or refused.field
