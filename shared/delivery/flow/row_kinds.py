"""The kinds of rows of flow control (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ...engine.row_kinds import StoredKind
from ...storage.names import LIMITS
from .shared_limits import RateLimiter, SharedSlots

KINDS: Final = (
    StoredKind(
        "rate",
        LIMITS,
        "{tenant}",
        "rate:events or rate:deliveries or rate:deliveries:{channel}",
        "A rate that all instances share: events accepted for a tenant, deliveries of a tenant or of a channel.",
        RateLimiter,
        {"tat": "theoretical arrival time of the next one (ITU-T I.371), in microseconds of wall time"},
        "Nobody. It may be deleted by hand: at worst, a second's worth more goes at once.",
    ),
    StoredKind(
        "slots",
        LIMITS,
        "{tenant}",
        "slots or slots:{channel}",
        "A limit of deliveries at once that all instances share: how many each instance holds.",
        SharedSlots,
        {"parts": "JSON: by instance, the number of slots, the number that it wants, and until when"},
        "Nobody. It may be deleted by hand: at worst, the limit is exceeded for 15 seconds.",
    ),
)
