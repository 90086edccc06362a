"""Broken changes: each mutant leaves out one sentence of `shared/scheduler/properties/receipts.py`, or of those that use it."""

from __future__ import annotations

from typing import Any

from shared.scheduler.changes.verbs import condition
from shared.scheduler.properties import receipts
from shared.scheduler.properties.receipts import MEMBERS, RECEIVED, Received, ReceivedChange, receipts_of
from shared.scheduler.protocol import changing, moving
from shared.scheduler.rules import is_over
from tests.model.changes import plays
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch

from .plays import PLAYS, ChangeWorld


def not_compared() -> list[Patch]:
    return [(receipts, "is_overtaken", lambda *given: False)]


def not_stored() -> list[Patch]:
    plain = changing.with_receipts

    def without(change: Any, props: Any) -> Any:
        return {name: value for name, value in plain(change, props).items() if name != RECEIVED}

    return [(changing, "with_receipts", without)]


def not_copied() -> list[Patch]:
    return [(moving, "OWN", moving.OWN | {RECEIVED})]


def never_too_old() -> list[Patch]:
    return [(Received, "check_age", lambda self: None)]


def last_receipt_alone() -> list[Patch]:
    """A row keeps the receipt of its last change, and not one for each member."""
    return [(changing, "with_receipts", lambda change, props: change)]


def earlier_time_noted() -> list[Patch]:
    """A change that may have been received earlier notes its own time."""

    def with_receipts(change: Any, props: Any) -> Any:
        [(new, members)] = receipts_of(change)
        kept = [ReceivedChange(each.receipt, each.members - members) for each in receipts_of(props) if each.members - members]
        return {**change, RECEIVED: receipts._text([*kept, ReceivedChange(new, members)])}

    return [(changing, "with_receipts", with_receipts)]


def any_change_overtakes() -> list[Patch]:
    """A later change of any member refuses an earlier one."""
    plain = receipts.is_overtaken
    return [(receipts, "is_overtaken", lambda receipt, props, now, members: plain(receipt, props, now, MEMBERS))]


def ids_taken_by_anybody() -> list[Patch]:
    plain = plays.standing
    return [(plays, "standing", lambda received, props: "over" if is_over(props) else plain(received, props))]


def cancel_taken_for_earlier() -> list[Patch]:
    """A post that may have been received before a cancel takes the cancelled event's id."""
    return [(Received, "may_be_cancelled_by", lambda self, props: False)]


def cancel_overtaken() -> list[Patch]:
    """A cancel is compared as other changes are."""

    def canceller(request: Any) -> Any:
        came, received = request.received()
        steps = changing.cancel(plays.A1, 0, request.name, condition(plays.X, {}, by=received), received.noted())
        try:
            answer = yield from plays.timed(steps, came)
        except plays.Problem:
            return (("not cancelled", request.name),)
        return (("cancelled", request.name),) if isinstance(answer, changing.Done) else ()

    return [(plays, "canceller", canceller)]


def ended_event_forgotten() -> list[Patch]:
    """An id that was taken over, and names an event that was never stored, is free for anybody."""
    plain = changing.register_id
    return [(changing, "register_id", lambda tenant, event_id, body_hash, here, standing: plain(tenant, event_id, body_hash, here))]


MUTANTS = [
    Mutant("a receipt not compared", "edits", not_compared),
    Mutant("a receipt not stored", "edits", not_stored),
    Mutant("a moved event without its receipts", "larger", not_copied),
    Mutant("no limit of age", "too old", never_too_old),
    Mutant("the last receipt alone", "parts", last_receipt_alone),
    Mutant("an earlier time noted", "blurred", earlier_time_noted),
    Mutant("a change refused for another member", "other members", any_change_overtakes),
    Mutant("the id of an ended event taken by an earlier post", "after the end", ids_taken_by_anybody),
    Mutant("the ended event before forgotten", "after the end", ended_event_forgotten),
    Mutant("the id of a cancelled event taken at about the time of the cancel", "after a cancel", cancel_taken_for_earlier),
    Mutant("a cancel that is overtaken", "cancel", cancel_overtaken),
]


def hunt(mutant: Mutant, level: int = 0) -> Report:
    """Hunt the mutant."""
    with mutant.applied():
        world = ChangeWorld(PLAYS[mutant.play](level))
        world.recover = False
        return explore(world)
