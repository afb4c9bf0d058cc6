"""The quota service's picture: the world, and the jobs that wait to be admitted."""

import msgspec

from ebbtide.contracts.envelope import Recorded
from ebbtide.contracts.ids import JobId
from ebbtide.model.job import Job
from ebbtide.model.world import World


class Picture(msgspec.Struct, kw_only=True):
    """``fresh`` are submitted jobs without an answer, in submit order.

    ``cell`` and ``ceiling`` come from the settings: the default quota is made of them, once.
    """

    cell: str = "main"
    ceiling: dict[str, int] = {}
    world: World = msgspec.field(default_factory=World)
    fresh: dict[JobId, None] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one event."""
        seen = self.world.apply(recorded)
        if isinstance(seen, Job):
            if seen.stage == "submitted":
                self.fresh[seen.id] = None
            else:
                self.fresh.pop(seen.id, None)
