"""Who holds what, on ``pool-<pool>``: the only events that hold nodes, devices and charge."""

import msgspec

from ebbtide.contracts.ids import JobId, NodeNumber, PlacementId, PoolName, QuotaName
from ebbtide.contracts.outcomes import Charge


class Place(msgspec.Struct, frozen=True, array_like=True):
    """One worker's place: its node and, as a bit mask, the devices of that node that it uses."""

    node: NodeNumber
    devices: int = 0
    share_milli: int = 0
    """The part of its one device that it uses, in thousandths; 0 means the devices are whole."""


class GangPlaced(msgspec.Struct, frozen=True, kw_only=True, tag="pool.gang_placed"):
    """``places`` (in rank order) are held for ``job`` and charged to ``quota`` (scheduler)."""

    job: JobId
    attempt: int
    placement: PlacementId
    pool: PoolName
    quota: QuotaName
    charge: Charge
    places: tuple[Place, ...]
    total: dict[str, int]


class GangReleased(msgspec.Struct, frozen=True, kw_only=True, tag="pool.gang_released"):
    """The placement holds nothing any more (scheduler)."""

    job: JobId
    placement: PlacementId
    pool: PoolName


PoolEvent = GangPlaced | GangReleased
