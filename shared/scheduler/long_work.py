"""Long work: a receiver accepts an event, and completes or fails it minutes or hours later.

`LongWorkCalls` carries out the receivers' calls (complete, fail, heartbeat), whose wire models are here too. `routes.long_work` has their
routes, which need the attempt's token and no key. `facets.long_work` has the token and the URL of an attempt, and what becomes of the
event. `properties.work_rows` has the stored property, and `protocol.completing` the steps.

`CallRates` bounds the calls in one process from memory, before anything is read or parsed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from ..core.clock import Clock, Millis, to_text
from ..core.errors import Problem, StorageError
from ..engine.effects import Steps
from ..storage.ports import Props
from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.types import Duration, Maybe, Stamp, Strict
from ..web.problem import conflict, too_many
from .facets import FACETS, facets_for
from .facets.long_work import HeldToken, completed, failed, heard, refusal
from .firing.dispatch import Firing
from .keys import Address, index_key, parse_server_id, shard_tenant
from .properties.work_rows import noted_work, work_of
from .protocol.completing import WorkSettled, extend_work, settle_work
from .protocol.dispatch import ShardMessage, send
from .queries.end_notes import EndNotes
from .rows import shown_state
from .rules import RowOutcome, is_over, visible_at
from .shard_services import ShardServices

log = logging.getLogger(__name__)

TENANT_CALLS = 200
"""Calls a second of one tenant's receivers that a process serves."""
WORK_CALLS = 5
"""The same for one attempt."""
MOST_CALLERS = 20_000
"""Tenants and attempts that are remembered, those that called last."""
MAX_CALL_BYTES = 4 * 1024
"""Largest body of a call, in bytes."""
MAX_WORK_ERROR = 400
"""Characters of the error that a receiver reports."""
UNSETTLED_RETRY = 1
"""Seconds after which a receiver repeats a call about an attempt whose answer is not stored yet: it is stored within a second."""
FINISH_AFTER: Millis = 30_000
"""Time after the end of a work at which an owner counts it and finishes the shard if it was the last: others of the shard share it."""
MOST_ANNOUNCED = 10_000
"""Shards for which it is remembered that an owner was asked for, the latest ones."""
_COPIED: Final = frozenset({"working", "completed", "failed"})
"""States of a work that a call may acknowledge."""
_CHALLENGE = 'Bearer realm="tocsin work"'
_NUMBER = re.compile(r"[0-9]{1,9}")
_REFUSED = "The token is not that of this attempt. Send that of the delivery's header tocsin-completion-token as Authorization: Bearer."
_GONE = "The event is no longer stored."

WorkPlace = Annotated[str, StringConstraints(pattern=r"^[0-9a-v]{16}\.[0-9]{3}$"), Shaped("a place from a completion URL")]
WorkError = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_WORK_ERROR, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Shaped(TEXT.format(MAX_WORK_ERROR)),
]
AttemptNumber = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}$"), Shaped("the number of an attempt")]


class CallRates:
    """Leaky buckets, each of which holds the calls of one second. One per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_until: dict[tuple[str, ...], float] = {}
        """By caller: the monotonic time at which its bucket will be empty."""

    def wait(self, tenant: str, work: str) -> float:
        """Count a call about an attempt's work; return 0, or the seconds after which to repeat a call that is not served."""
        return self._wait((tenant, work), WORK_CALLS) or self._wait((tenant,), TENANT_CALLS)

    def _wait(self, caller: tuple[str, ...], rate: int) -> float:
        now = self._clock.monotonic()
        # Taken out and put in again: those that called last are at the end.
        empty = max(now, self._full_until.pop(caller, now))
        # The small constant keeps rounding from refusing the last call of a second.
        served = empty + 1 / rate <= now + 1.0 + 1e-6
        self._full_until[caller] = empty + 1 / rate if served else empty
        while len(self._full_until) > MOST_CALLERS:
            del self._full_until[next(iter(self._full_until))]
        return 0.0 if served else max(0.001, empty + 1 / rate - now - 1.0)


class FailIn(Strict):
    """The end of work that has failed."""

    error: WorkError = Field("the receiver reported that its work failed", description="Shown with the attempt.")
    retry: bool = Field(True, description="False: the event is dead at once.")
    retry_after: Annotated[Duration, Field(ge=0, le=7 * 86_400_000)] | None = Field(
        None, description="Shortest time until the next attempt, within the retry policy."
    )


class WorkStateOut(Strict):
    """The state of an attempt's work after the call."""

    state: Literal["working", "completed", "failed"]
    event: Literal["working", "delivered", "retrying", "dead", "lapsed", "ended"] = Field(
        description="State of the event; `ended` if the event went on since a former call ended the work."
    )
    deadline: Maybe[Stamp] = Field(None, description="While working: silence until then is a failed attempt.")
    latest: Maybe[Stamp] = Field(None, description="While working: heartbeats extend the deadline up to this time.")
    next_attempt: Maybe[Stamp] = None


class LongWorkCalls:
    """The calls about long work. One per process."""

    def __init__(self, services: ShardServices, firing: Firing, notes: EndNotes) -> None:
        self._wakes, self._lines, self._mirror = services.wakes, services.lines, services.mirror
        self._runner, self._clock, self._counters = services.runner, services.clock, services.counters
        self._firing, self._notes = firing, notes
        self._rates = CallRates(services.clock)
        self._announced: dict[str, Millis] = {}
        """Times for which this process has asked for owners of shards, by shard."""

    def held(self, tenant: str, place: str, attempt: str, headers: Mapping[str, str]) -> tuple[Address, HeldToken]:
        """Return the place of the work and the facts of the call's token. Reads nothing. Raises 401, and 429 for too many calls."""
        found = self.known(tenant, place, attempt, headers)
        if wait := self._rates.wait(tenant, f"{place}/{attempt}"):
            detail = "This attempt, or its tenant, calls too often. Repeat the call after the time in Retry-After."
            raise too_many(wait, detail, "work_calls")
        return found

    def known(self, tenant: str, place: str, attempt: str, headers: Mapping[str, str]) -> tuple[Address, HeldToken]:
        """Return the same without counting the call. The parts of the path may be any text. Raises 401."""
        address = parse_server_id(tenant, place)
        scheme, _, text = headers.get("authorization", "").partition(" ")
        known = address is not None and scheme.lower() == "bearer" and _NUMBER.fullmatch(attempt) is not None
        token = self._firing.tokens.read(address, int(attempt), text.strip()) if address is not None and known else None
        if address is None or token is None:
            self._counters["work_calls_refused"] += 1
            raise Problem(401, "unauthenticated", _REFUSED, headers={"www-authenticate": _CHALLENGE})
        return address, token

    async def complete(self, tenant: str, address: Address, token: HeldToken) -> dict[str, Any]:
        """Complete the event. Raises 404, 409, 503."""
        now = self._clock.now()

        def decide(props: Props) -> RowOutcome:
            return completed(props, _going(props), now)

        return await self._settle(tenant, address, settle_work(address, token, now, decide, FACETS), "completed")

    async def fail(self, tenant: str, address: Address, token: HeldToken, said: FailIn) -> dict[str, Any]:
        """End the attempt as failed: the event is retried as its policy says. Raises 404, 409, 503."""
        policy = await self._firing.policies(tenant)
        after = said.retry_after / 1000 if said.retry_after is not None else None
        now = self._clock.now()

        def decide(props: Props) -> RowOutcome:
            return failed(props, _going(props), policy(props), now=now, error=said.error, final=not said.retry, retry_after=after)

        facets = facets_for(notices=await self._firing.notices_of_dead(tenant))
        return await self._settle(tenant, address, settle_work(address, token, now, decide, facets), "failed")

    async def heartbeat(self, tenant: str, address: Address, token: HeldToken) -> dict[str, Any]:
        """Extend the time of the work. Raises 404, 409, 503."""

        def change_of(props: Props) -> Props:
            return heard(props, _going(props), self._clock.now())

        return _shown(await self._carried(address, extend_work(address, token, change_of)), "working")

    async def _settle(
        self, tenant: str, address: Address, steps: Steps[WorkSettled | None], wanted: Literal["completed", "failed"]
    ) -> dict[str, Any]:
        settled = await self._carried(address, steps)
        shown = _shown(settled, wanted)
        if settled is not None and settled.changed:
            self._counters[f"work_{wanted}"] += 1
            props = settled.row.props
            extra = {"action": "work_ended", "tenant": tenant, "event": props["id"], "state": props["state"]}
            log.debug("A receiver has ended the work on event %s", props["id"], extra=extra)
            # What is owed after the end of an event does not wait for the deadline that it had.
            now = self._clock.now()
            wake = int(props["next"]) if props["state"] == "retrying" else now if FACETS.owes(props) else None
            await self._announce(address.shard, wake, now)
            if is_over(props):
                self._notes.ended(settled.row)
                await self._lines.left(settled.row)
        return shown

    async def _carried(self, address: Address, steps: Steps[WorkSettled | None]) -> WorkSettled | None:
        """Run the steps; None for an event that is not stored any more."""
        if not await self._firing.knows(shard_tenant(address.shard)):
            # The rows of a tenant that has ended are removed over hours.
            return None
        # A call that found its change stored repeats one whose answer was lost, perhaps before the copy was changed.
        return await self._mirror.carry(address, steps, lambda settled: settled is not None and settled.state in _COPIED)

    async def _announce(self, shard: str, needed: Millis | None, now: Millis) -> None:
        """Ask for an owner. needed: time at which there is something to do; None if the owner has only to count an event that has ended.

        Only a hint: the index asks for an owner at that time too, and at the deadline that the work had.
        """
        if needed is not None and needed > now + self._wakes.horizons.alone:
            await self._wakes.ask(visible_at(needed), sent=False)
            return
        wake = now + FINISH_AFTER if needed is None else needed
        if needed is None and now < self._announced.get(shard, 0):
            return
        try:
            await self._runner.run(send(ShardMessage(shard, index_key(shard, wake)), visible_at(wake), retries_only=True))
        except StorageError as error:
            log.info("Shard %s waits for its wake-up: %s", shard, error, extra={"action": "announce_unsent"})
            return
        if needed is None:
            self._announced[shard] = wake
            while len(self._announced) > MOST_ANNOUNCED:
                del self._announced[next(iter(self._announced))]


def _going(props: Props) -> Any:
    work = work_of(props)
    assert work is not None  # the protocol asks only for such rows
    return work


def _shown(settled: WorkSettled | None, wanted: Literal["working", "completed", "failed"]) -> dict[str, Any]:
    """Return the answer to a call after which the work is in the state `wanted`. Raises 404, 409, 503."""
    if settled is None:
        raise Problem(404, "not-found", _GONE)
    props, state = settled.row.props, settled.state
    if state == "unsettled":
        detail = "The service has not stored the answer to this attempt yet; nothing was changed. Repeat the call after Retry-After."
        raise Problem(503, "attempt-unsettled", detail, headers={"retry-after": str(UNSETTLED_RETRY)}, outcome="unchanged")
    if state != wanted:
        raise conflict("work-over", refusal(props, state))
    event = shown_state(props)
    work = noted_work(props)
    shown: dict[str, Any] = {"state": state, "event": event if event in ("working", "delivered", "retrying", "dead", "lapsed") else "ended"}
    if state == "working" and work is not None:
        shown |= {"deadline": to_text(int(props["next"])), "latest": to_text(work.latest)}
    if event == "retrying":
        shown["next_attempt"] = to_text(int(props["next"]))
    return shown
