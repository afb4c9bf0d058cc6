"""Who is entitled to what, on ``quota-<cell>``.

One stream, so that a placement can guard all of it.
"""

import msgspec

from ebbtide.contracts.ids import QuotaName


class QuotaChanged(msgspec.Struct, frozen=True, kw_only=True, tag="quota.changed"):
    """From now on ``quota`` may use at most ``ceiling``.

    What it does not name is unlimited (quota).
    """

    quota: QuotaName
    ceiling: dict[str, int]


QuotaEvent = QuotaChanged
