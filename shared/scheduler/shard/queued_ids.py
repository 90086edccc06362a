"""The ids of events that wait in the ingest queue.

    q~{created, 10}{due, 10}{chance, 16}~{check, 16}        digits of base 32; times in milliseconds, plus `_ORIGIN`

The check is a truncated HMAC-SHA256 over tenant and id. So a look-up knows, before any row exists, that this service gave the id to this
tenant, and when. Clients cannot choose ids of this shape; the store treats them like ids that clients chose.
"""

from __future__ import annotations

import hmac
import re
from typing import Any, NamedTuple

from ...core.clock import Millis, to_text
from ...core.ids import spell
from ...web.etag import etag_of
from ..keys import digest
from ..timings import LONGEST_QUEUE_WAIT

SHAPE = re.compile(r"q~([0-9a-v]{10})([0-9a-v]{10})([0-9a-v]{16})~([0-9a-v]{16})")
_ORIGIN: Millis = 1 << 46
"""Added to times, because due times may be before 1970."""


def name_of(source: str) -> str:
    """Return a 16-letter id derived from the name that the source gave the event."""
    return spell(int.from_bytes(digest("source", source)[:10]), 16)


class Queued(NamedTuple):
    """The facts about an event that its id contains."""

    id: str
    tenant: str
    created: Millis
    due: Millis

    @property
    def shown(self) -> dict[str, Any]:
        """The representation of an event that is not stored yet."""
        return {
            "id": self.id,
            "tenant": self.tenant,
            "state": "queued",
            "due": to_text(self.due),
            "created": to_text(self.created),
            "durability": "fast",
        }

    @property
    def etag(self) -> str:
        """Its entity tag; it differs from the one after it is stored."""
        return etag_of("queued", self.tenant, self.id)

    def may_wait(self, now: Millis) -> bool:
        """Return True if the event may still be queued when no table has it."""
        return now < self.created + LONGEST_QUEUE_WAIT


class QueuedIds:
    """Makes and verifies the ids. `master`: the service's master key."""

    def __init__(self, master: str) -> None:
        self._key = hmac.digest(master.encode(), b"tocsin queued ids", "sha256")

    def make(self, tenant: str, created: Millis, due: Millis, chance: str) -> str:
        """Return the id of an event accepted at `created`. chance: 16 letters that are unique (`Ids.name`)."""
        body = spell(created + _ORIGIN, 10) + spell(due + _ORIGIN, 10) + chance
        return f"q~{body}~{self._check(tenant, body)}"

    def derive(self, tenant: str, created: Millis, due: Millis, source: str) -> str:
        """Return the id for an event of a source; every redelivery gets the same one."""
        return self.make(tenant, created, due, name_of(source))

    def read(self, tenant: str, event_id: str) -> Queued | None:
        """Parse an id; return None if it was not given to this tenant."""
        found = SHAPE.fullmatch(event_id)
        if found is None:
            return None
        created, due, chance, check = found.groups()
        if not hmac.compare_digest(check, self._check(tenant, created + due + chance)):
            return None
        return Queued(event_id, tenant, int(created, 32) - _ORIGIN, int(due, 32) - _ORIGIN)

    def _check(self, tenant: str, body: str) -> str:
        return spell(int.from_bytes(hmac.digest(self._key, f"{tenant}\0{body}".encode(), "sha256")[:10]), 16)
