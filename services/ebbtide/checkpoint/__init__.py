"""Checkpoint: the catalogue. The event it says is the only pointer to a job's newest checkpoint."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="checkpoint",
    duty="which checkpoints are whole, and which one to resume from",
    owns=("checkpoint-",),
    reads=("job-", "pool-", "node-", "checkpoint-"),
    emits=("checkpoint.committed",),
    serves=("agent.<cell>.<node>.checkpoint",),
)
