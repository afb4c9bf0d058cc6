"""The answer to "why does my job wait?"."""

import datetime as dt

import msgspec

from ebbtide.contracts.ids import JobId


class AskWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Asked of the scheduler on the bus."""

    job: JobId


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The one cause that keeps a job waiting.

    ``code`` is stable: ``admission`` (quota has not looked yet), ``nodes.none`` (no node takes
    work), ``nodes.too_small`` (no node could hold one of its workers), ``nodes.too_few`` (the gang
    does not fit, even on empty nodes), ``nodes.full`` (it is first and waits for room),
    ``nodes.away`` (it has its places, but a node of them is suspect or lost), ``queue.behind``
    (somebody ahead waits for room), ``quota.ceiling``, ``backoff`` (``until``), ``places.leaving``,
    ``placing``, ``stopping``; and ``none`` for a job that does not wait.
    ``position`` counts from 1 in the order of all that wait; 0 if it has none.
    """

    code: str
    detail: str
    position: int = 0
    until: dt.datetime | None = None
