"""Long work on mirrored events: what a receiver was told is on both accounts."""

from __future__ import annotations

import pytest

from shared.core.errors import OutcomeUnknown, Unavailable
from shared.scheduler.mirror.pair import MirroredOperation
from shared.storage.names import EVENTS
from shared.storage.ports import Merge
from tests.faults import Perform, Request

from ..test_long_work import LATER, allow, sent, tell
from .pair import PairWorld


async def working(pair: PairWorld) -> str:
    """Return the id of a mirrored event that its receiver has accepted."""
    await allow(pair)
    event_id = str((await pair.demo.create(delay="PT1S", durability="mirrored", retry={"attempts": 2, "first": "PT1S"}))["id"])
    pair.receiver.script(event_id, LATER)
    await pair.run(10)
    assert pair.second.states() == {event_id: "retrying"}, "it waits for the end of the work"
    return event_id


async def test_completion_whose_write_got_no_answer_is_on_both_accounts(pair: PairWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    event_id = await working(pair)
    plain = pair.first.plan

    async def lost(request: Request, perform: Perform) -> object:
        answer = await plain(request, perform)
        if request.table == EVENTS and any(isinstance(op, Merge) and op.props.get("state") == "delivered" for op in request.ops):
            monkeypatch.setattr(pair.first, "plan", plain)
            raise OutcomeUnknown("no answer")
        return answer

    monkeypatch.setattr(pair.first, "plan", lost)
    assert (await tell(pair, sent(pair, event_id), "complete")).json()["state"] == "completed"
    assert pair.first.states() == pair.second.states() == {event_id: "delivered"}


async def test_repeated_completion_mends_a_copy_that_the_first_call_did_not_reach(pair: PairWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a process that ended between the two writes."""
    event_id = await working(pair)
    copy = MirroredOperation.copy

    async def ended(operation: MirroredOperation, steps_of: object) -> None:
        monkeypatch.setattr(MirroredOperation, "copy", copy)
        raise Unavailable("the process ends")

    monkeypatch.setattr(MirroredOperation, "copy", ended)
    assert (await tell(pair, sent(pair, event_id), "complete")).status == 503
    assert pair.second.states() == {event_id: "retrying"}
    assert (await tell(pair, sent(pair, event_id), "complete")).json()["state"] == "completed"
    assert pair.second.states() == {event_id: "delivered"}
