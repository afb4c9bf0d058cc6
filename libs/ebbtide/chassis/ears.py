"""A part that begins to hear the bus when a process starts, and stops when it drains."""

from typing import Protocol


class Hearing(Protocol):
    """A service that hears the bus."""

    async def listen(self) -> None:
        """Subscribe."""
        ...

    async def hush(self) -> None:
        """Unsubscribe."""
        ...


class Ears:
    """Ties a service's subscriptions to the life of the process."""

    def __init__(self, name: str, service: Hearing) -> None:
        self.name = name
        self._service = service

    async def start(self) -> None:
        """Subscribe."""
        await self._service.listen()

    async def run(self) -> None:
        """Do nothing: the bus calls."""

    async def stop(self) -> None:
        """Unsubscribe."""
        await self._service.hush()
