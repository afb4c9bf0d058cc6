"""Quota: who may use how much, and which job is admitted to wait for its turn."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="quota",
    duty="the tree, membership, admission",
    owns=("quota-",),
    reads=("quota-", "job-", "pool-", "node-"),
    emits=("quota.changed", "job.queued", "job.rejected"),
)
