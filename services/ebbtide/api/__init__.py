"""Api: the door through which people and programs submit, watch and stop jobs."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="api",
    duty="the door for jobs: checks, records what is asked, shows what is so",
    owns=("token-",),
    reads=("job-", "workers-", "checkpoint-", "pool-", "node-", "token-"),
    emits=(
        "job.submitted",
        "job.stop_requested",
        "node.change_requested",
        "token.created",
        "token.revoked",
    ),
    serves=("/v1", "$SYS.REQ.USER.AUTH"),
)
