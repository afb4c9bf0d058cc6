"""Fleet: desired state out to the agents, their reports in."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="fleet",
    duty="desired state out to agents, their reports in",
    owns=("workers-",),
    reads=("job-", "workers-", "pool-", "node-", "token-"),
    emits=(
        "node.joined",
        "worker.started",
        "worker.ended",
        "attempt.running",
        "attempt.ended",
    ),
    serves=("agent.<cell>.<node>.register", "agent.<cell>.<node>.report"),
)
