"""The node agent: starts and ends workers as fleet desires, and says what became of them."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="agent",
    duty="reconcile one node's workers with its desired state; report, hold the lease, keep logs",
    serves=("agent.<cell>.<node>.>", "node.<cell>.<node>.logs", "node.<cell>.<node>.tell"),
)
