"""Recovery: why did it end, and what now. It alone ends or continues a job."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="recovery",
    duty="why did it end, and what now",
    reads=("job-", "workers-", "pool-", "node-", "checkpoint-"),
    emits=(
        "attempt.stop_requested",
        "job.restarting",
        "job.succeeded",
        "job.failed",
        "job.stopped",
    ),
)
