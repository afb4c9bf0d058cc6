"""What agents say is bounded where it is read: no word of theirs may break a service."""

import msgspec
import pytest

from ebbtide.contracts.agents import CheckpointReport, Lease, Registration, WorkerReport

CHECKPOINT = {
    "job": "j", "epoch": 1, "attempt": 1, "round": 1, "worker": 0,
    "step": 10, "folder": "step-10.epoch-1", "digest": "d", "bytes": 1,
}  # fmt: skip
WORKER = {"job": "j", "epoch": 1, "attempt": 1, "round": 1, "worker": 0, "state": "running"}
NODE = {"node": "n1", "pool": "default", "address": "a", "boot": "b", "capacity": {"cpu": 1000}}
LEASE = {"node": "n1", "boot": "b", "holder": "h", "count": 1, "lease_ms": 180_000}


@pytest.mark.parametrize(
    ("kind", "said", "change"),
    [
        (CheckpointReport, CHECKPOINT, {"step": 2**80}),
        (CheckpointReport, CHECKPOINT, {"step": -1}),
        (CheckpointReport, CHECKPOINT, {"bytes": 2**80}),
        (CheckpointReport, CHECKPOINT, {"folder": "../other"}),
        (CheckpointReport, CHECKPOINT, {"folder": ""}),
        (CheckpointReport, CHECKPOINT, {"folder": "a\x00b"}),
        (CheckpointReport, CHECKPOINT, {"digest": "x" * 70_000}),
        (WorkerReport, WORKER, {"detail": "x" * 70_000}),
        (WorkerReport, WORKER, {"log_bytes": 2**80}),
        (Registration, NODE, {"pool": "a\x00b"}),
        (Registration, NODE, {"address": "x" * 70_000}),
        (Registration, NODE, {"capacity": {"cpu": -1}}),
        (Registration, NODE, {"capacity": {f"r{number}": 1 for number in range(1000)}}),
        (Lease, LEASE, {"lease_ms": 10**400}),
        (Lease, LEASE, {"lease_ms": -1}),
        (Lease, LEASE, {"count": 10**400}),
    ],
)
def test_what_no_event_could_hold_is_not_read(
    kind: type[msgspec.Struct], said: dict[str, object], change: dict[str, object]
) -> None:
    msgspec.json.decode(msgspec.json.encode(said), type=kind)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({**said, **change}), type=kind)
