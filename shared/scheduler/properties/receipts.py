"""The receipts of an event's changes, by which a request that was overtaken finds that out. Pure.

A request may go on long after its client has given up, because nobody tells the service so. When it comes to its turn, a later request may
have changed the event, and that change was acknowledged. So the event's row keeps the receipts of its last changes: when the request was
received that changed a member last. A request that was received before writes nothing.

Within the error with which the processes know storage's time, nobody knows which of two requests was first, and the later write wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from ...core.clock import Millis
from ...core.errors import Problem
from ...storage.ports import Props
from ...web.arrivals import Arrival, Receipt
from ...web.problem import conflict
from ..timings import CHANGES_FOR

RECEIVED: Final = "received"
"""Property of an event row: JSON list of receipts with the members that each has changed last, the latest write last. Absent: none."""
MEMBERS: Final = frozenset(
    {"due", "payload", "content_type", "channel", "expires", "retry", "timeout", "target", "on_delivered", "on_dead"}
)
"""The members of an event that a change may set."""
MOVED: Final = frozenset({"due"})
"""The members of an event that a move sets, and `fire`."""
_ALL: Final = "*"
OVERTAKEN: Final = (
    "A request that was received later has changed the same fields. Read the event again, and repeat the change if it is still wanted."
)
EXPIRED: Final = (
    f"The call was not carried out within {CHANGES_FOR:g} s, and changes nothing any more, as a later call may be stored. Repeat the call."
)


class ReceivedChange(NamedTuple):
    """A receipt, and the members that its request has changed."""

    receipt: Receipt
    members: frozenset[str]


def receipts_of(props: Mapping[str, Any]) -> list[ReceivedChange]:
    """Return the receipts that a row keeps."""
    if not props.get(RECEIVED):
        return []
    found = orjson.loads(str(props[RECEIVED]))
    return [ReceivedChange(Receipt(*each[:4]), MEMBERS if each[4] == _ALL else frozenset(each[4].split())) for each in found]


def noted(receipt: Receipt, members: frozenset[str] = MEMBERS) -> Props:
    """Return the property of a change, or of a new event, whose request has this receipt."""
    return {RECEIVED: _text([ReceivedChange(receipt, members)])}


def with_receipts(change: Props, props: Mapping[str, Any]) -> Props:
    """Return a change as it is written to a row with these properties: its receipt is added to those that the row keeps.

    A receipt is never noted with an earlier time than that of the change which it replaces. Otherwise a third request could come after
    both that was received before the first of them.
    """
    if RECEIVED not in change:
        return change
    [(new, members)] = receipts_of(change)
    kept: list[ReceivedChange] = []
    for former, changed in receipts_of(props):
        if changed & members and former.is_known and new.low < former.low <= new.high:
            new = new._replace(low=former.low)
        if changed - members:
            kept.append(ReceivedChange(former, changed - members))
    return {**change, RECEIVED: _text([*kept, ReceivedChange(new, members)])}


def is_overtaken(receipt: Receipt, props: Mapping[str, Any], now: Millis, members: frozenset[str] = MEMBERS) -> bool:
    """Return True if a request that was certainly received later has changed one of these members.

    now: the latest time that storage's clock may show. A receipt beyond it comes from a clock that was wrong, and says nothing.
    """
    return any(
        changed & members and former.is_after(receipt) and (former.low <= now or former.process == receipt.process)
        for former, changed in receipts_of(props)
    )


class Received(NamedTuple):
    """A request that changes members of an event, and may be overtaken by a later one."""

    arrival: Arrival
    members: frozenset[str] = MEMBERS

    def noted(self) -> Props:
        """Return the property that the change of this request sets too."""
        return noted(self.arrival.receipt(), self.members)

    def overtaken_in(self, props: Mapping[str, Any]) -> bool:
        """Return True if a request that was received later has changed the same members of an event with these properties."""
        receipt, members = self.arrival.receipt(), self.members
        return is_overtaken(receipt, props, receipt.high + round(self.arrival.age * 1000), members)

    def is_in(self, props: Mapping[str, Any]) -> bool:
        """Return True if an event with these properties has this request's own change."""
        receipt = self.arrival.receipt()
        return any(former.is_same(receipt) for former, _ in receipts_of(props))

    def may_be_cancelled_by(self, props: Mapping[str, Any]) -> bool:
        """Return True for a cancelled event if nobody knows which was received first: its cancel, or this request."""
        receipt = self.arrival.receipt()
        if props["state"] != "cancelled" or not receipt.is_known:
            return False
        return any(former.is_known and not receipt.is_after(former) for former, _ in receipts_of(props))

    def check_age(self) -> None:
        """Raise 503 once the request is too old to change anything."""
        if self.arrival.age > CHANGES_FOR:
            raise Problem(503, "call-expired", EXPIRED, headers={"retry-after": "1"}, outcome="unchanged")

    def check(self, props: Mapping[str, Any]) -> None:
        """Raise 409 if a later request has changed the same members of an event, and 503 once the request is too old."""
        if self.overtaken_in(props):
            raise conflict("changed-meanwhile", OVERTAKEN)
        self.check_age()


def _text(changes: Iterable[ReceivedChange]) -> str:
    listed = [[*each.receipt, _ALL if each.members == MEMBERS else " ".join(sorted(each.members))] for each in changes]
    return orjson.dumps(listed).decode()
