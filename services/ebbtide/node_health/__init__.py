"""Node health: from signals to verdicts.

Only its word *lost* lets work be placed again elsewhere.
"""

from ebbtide.chassis.service import Card

CARD = Card(
    name="node_health",
    duty="signals to verdicts: ready, suspect, lost",
    owns=("node-",),
    reads=("node-", "token-"),
    emits=(
        "node.suspected",
        "node.lost",
        "node.returned",
        "node.fenced",
        "node.cordoned",
        "node.uncordoned",
    ),
)
