"""Makes the tokens known that the platform was set up with: files ``<name>.token`` in a folder.

Only their hashes go to the log. Doing it again changes nothing.
"""

import asyncio
from pathlib import Path

import structlog

from ebbtide.api import policy, tokens
from ebbtide.api.door import Door
from ebbtide.contracts.events import TokenCreated

ACTOR = "service:api"
FILES_MAX = 20_000
BATCH = 256
NAMED = 16
_log = structlog.get_logger("ebbtide.api")


async def bootstrap(door: Door, folder: str) -> int:
    """Append each token of ``folder`` that the log does not know; give the last position, or 0."""
    if not folder:
        return 0
    found = await asyncio.to_thread(_read, Path(folder))
    fresh = [created for created in found if created.token not in door.picture.tokens]
    reached = 0
    for start in range(0, len(fresh), BATCH):
        batch = fresh[start : start + BATCH]
        units = [policy.create_token(created, ACTOR) for created in batch]
        # All at once, so that the log gathers them into one commit.
        positions = await asyncio.gather(*(door.append(unit) for unit in units))
        reached = max([reached, *(last for _, last in filter(None, positions))])
    if fresh:
        _log.info("tokens.adopted", tokens=[created.token for created in fresh][:NAMED])
    return reached


def _read(folder: Path) -> list[TokenCreated]:
    found: list[TokenCreated] = []
    for path in sorted(folder.glob("*.token"))[:FILES_MAX]:
        text = path.read_text(encoding="utf-8").strip()
        try:
            found.append(tokens.adopt(path.name, text))
        except ValueError as error:
            _log.warning("token.unreadable", file=path.name, why=str(error))
    return found
