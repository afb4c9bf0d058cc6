"""Scheduler: who runs where. It alone holds nodes, devices and charge."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="scheduler",
    duty="who runs where",
    owns=("pool-",),
    reads=("quota-", "job-", "pool-", "node-", "checkpoint-"),
    emits=("pool.gang_placed", "job.placed", "pool.gang_released"),
    serves=("ask.<cell>.scheduler.why",),
)
