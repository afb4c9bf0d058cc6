"""A job's description: every mistake names its field, and what is stored is whole."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.contracts.errors import Malformed
from ebbtide.contracts.job_spec import JobSpec, command_of, parse_job_spec, workers_of

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
        ({"roles": {"a": {"replicas": 4096}, "b": {}}}, "roles"),
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


def test_ranks_follow_the_roles_as_written() -> None:
    roles = {"chief": {"command": ["a"]}, "worker": {"replicas": 2}}
    spec = parse_job_spec({**GOOD, "roles": roles})
    assert workers_of(spec) == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert command_of(spec, "chief") == ("a",)
    assert command_of(spec, "worker") == ("python", "train.py")


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
