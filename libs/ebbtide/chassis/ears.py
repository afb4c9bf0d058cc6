"""A part that begins to hear the bus when a process starts, and stops when it drains."""

from collections.abc import Awaitable, Callable

from ebbtide.chassis.bus import Subscription


class Ears:
    """Ties the subscriptions that ``listen`` makes to the life of the process."""

    def __init__(self, name: str, listen: Callable[[], Awaitable[list[Subscription]]]) -> None:
        self.name = name
        self._listen = listen
        self._listening: list[Subscription] = []

    async def start(self) -> None:
        """Subscribe."""
        self._listening = await self._listen()

    async def run(self) -> None:
        """Do nothing: the bus calls."""

    async def stop(self) -> None:
        """Unsubscribe."""
        for subscription in self._listening:
            await subscription.close()
