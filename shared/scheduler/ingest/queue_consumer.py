"""Accepts events from sources other than HTTP: the ingest queue, and callers of `Intake.take`.

`InternalEvents` takes events that the service itself makes, such as alarms.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, MutableSequence, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import orjson
from pydantic import TypeAdapter

from ...core import backoff, tracing
from ...core.clock import Millis
from ...core.errors import Problem, Rejected, StorageError
from ...storage.names import QUEUE_INGEST
from ...storage.ports import Message
from ...tenants.model import Tenant
from ...web import auth
from ...web.bodies import Pace
from ...web.parsing import parse_with
from ...web.problem import not_found, release
from ..model import EventIn
from ..rows import EventToStore
from ..shard_services import ShardServices
from ..timings import CARRIED_FROM_TRY, LONGEST_INTAKE_PAUSE, NEWER_RETRY_DELAY, OPEN_EVENTS_RETRY, POISON_RETRY_DELAY
from .admission import Admitted, Ingest, unstored
from .event_limits import Admission
from .messages import (
    Outbox,
    QueuedEvent,
    SignedMessage,
    as_stored_now,
    carried_message,
    carry_message,
    encode_event,
    parse_producer_message,
    parse_signed_message,
)
from .rejects import RefusedMessage, Rejects, key_in, masked, without_keys
from .writer import Stored, Writer

log = logging.getLogger(__name__)


class EventPublisher(Protocol):
    """Accepts events that the service makes."""

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        """Store the event; a repetition changes nothing. Raises `Problem`, `StorageError`."""


_EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)


class InternalEvents:
    """Stores alarms as events of their tenant."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        """Store the event by the same rules as any other, but for its tenant's `expires`. Raises `Problem`, `StorageError`."""
        raw = orjson.dumps({"expires": None, **content})
        await self._ingest.one(tenant, *parse_with(_EVENT, raw, "payload"))


_SCOPES = frozenset({"events"})


class Item(NamedTuple):
    """One event as its producer sent it.

    raw: the event's JSON, as `POST /events` takes it.
    source: a permanent name of this very event (`kafka:orders/3/1201`, a queue message's id and position). An event without an id of its
    own gets one that follows from `source` and `at`, so that a repetition makes no second event.
    at: time at which its producer handed it over, by a clock that gives the same for each redelivery. `delay` counts from then.
    trace: the `traceparent` that came with it; a malformed one counts as none.
    """

    raw: bytes
    source: str
    at: Millis
    trace: str | None = None


class Reject(NamedTuple):
    """An event that can never be accepted. `id` names the stored reject."""

    id: str
    problem: Problem


class RetryLater(NamedTuple):
    """A good event that is not stored, because the tenant is over a limit or storage failed. Take it again after at least `after` seconds.

    events: the event, or those of a fan-out that are not stored.
    """

    events: Sequence[EventToStore]
    after: float
    reason: Problem | StorageError


type IntakeResult = Admitted | Reject | RetryLater


class Intake:
    """Accepts events. One per process (`app.scheduler.intake`); belongs to one event loop."""

    def __init__(
        self,
        services: ShardServices,
        ingest: Ingest,
        writer: Writer,
        outbox: Outbox,
        rejects: Rejects,
    ) -> None:
        self._directory, self._clock, self._ids, self._counters = services.directory, services.clock, services.ids, services.counters
        self._ingest, self._writer, self._outbox, self._rejects = ingest, writer, outbox, rejects

    async def take(self, tenant: str, items: Sequence[Item], *, origin: str, term: int | None = None, uid: str = "") -> list[IntakeResult]:
        """Check events as HTTP does, store the good ones, keep the bad ones as rejects. Return results in the order given.

        The caller is responsible for the tenant: no key is checked. origin (`queue`, `kafka`): the source that rejects name. Safe to repeat
        with the same items, as one must for `RetryLater` results. Raises `StorageError` if nothing could be decided, and 404 for an unknown
        tenant; nothing is stored then, and all items can be taken again. term: see `EventToStore`. uid: a tenant with another one is
        unknown; '' for whichever tenant has the name.
        """
        if uid and await self._directory.uid(tenant) != uid:
            raise not_found("tenant")
        with self._ingest.limits.admitting(tenant) as admission:
            return await self._take(tenant, items, admission, origin, term)

    async def _take(self, tenant: str, items: Sequence[Item], admission: Admission, origin: str, term: int | None) -> list[IntakeResult]:
        settings = await self._ingest.tenant(tenant)
        results: list[IntakeResult | None] = [None] * len(items)
        ready: list[tuple[int, list[EventToStore]]] = []
        wrong: dict[int, Problem] = {}
        pace = Pace()
        for number, item in enumerate(items):
            await pace.spend(len(item.raw))
            try:
                with tracing.taking_in(item.trace):
                    events = await self._ingest.checked(tenant, settings, item.raw, item.source, item.at)
                for event in events:
                    event.term = term
                ready.append((number, events))
            except Problem as found:
                release(found)
                wrong[number] = await self._ingest.limits.noted(tenant, found)
        await self._reject(tenant, origin, items, wrong, results)
        granted, refusal = await admission.admit(settings, sum(len(events) == 1 for _, events in ready))
        let_in, wrong = [], {}
        for number, events in ready:
            refused: Problem | None = refusal
            if len(events) > 1:
                refused = await admission.admit_all(settings, len(events))
            elif granted:
                granted, refused = granted - 1, None
            if refused is None:
                let_in.append((number, events))
            elif refused.status == 422:
                wrong[number] = refused
            else:
                results[number] = RetryLater(events, float(refused.headers.get("retry-after", OPEN_EVENTS_RETRY)), refused)
        stored = await self._writer.store(tenant, [event for _, events in let_in for event in events])
        admission.unused(unstored(stored))
        following = iter(stored)
        for number, events in let_in:
            outcomes = list(islice(following, len(events)))
            try:
                admitted = [self._ingest.admitted(event, each) for event, each in zip(events, outcomes, strict=True)]
                results[number] = admitted[0]
            except Problem as found:
                wrong[number] = found
            except StorageError as failure:
                left = [event for event, each in zip(events, outcomes, strict=True) if isinstance(each, StorageError)]
                results[number] = RetryLater(left, 1.0, failure)
        await self._reject(tenant, origin, items, wrong, results)
        return [result for result in results if result is not None]

    async def _reject(
        self, tenant: str, origin: str, items: Sequence[Item], wrong: Mapping[int, Problem], results: MutableSequence[IntakeResult | None]
    ) -> None:
        """Keep wrong items, given by number, as rejects, and put their results into `results`."""
        refused = [
            RefusedMessage(found, masked(items[number].raw.decode(errors="replace")), items[number].source, items[number].at)
            for number, found in wrong.items()
        ]
        self._counters["events_rejected"] += len(refused)
        for (number, found), reject_id in zip(wrong.items(), await self._rejects.add(tenant, origin, refused), strict=True):
            results[number] = Reject(reject_id, found)

    async def serve(self, message: Message, *, own: bool = True) -> None:
        """Process one message of the ingest queue. Raises if it could not be completed; nothing is lost, because the queue delivers it
        again.

        From try `CARRIED_FROM_TRY` on, the message is sent once more with the id of the first one: the copy that the host makes when all
        tries have failed has another id, from which other ids of events would follow.

        own: the queue is in the account that this scheduler works on, not in the other one of a mirrored pair.
        """
        try:
            message = carried_message(self._outbox.key, message)
            if message.dequeue_count >= CARRIED_FROM_TRY:
                await self.poisoned(message)
                return
            signed = parse_signed_message(self._outbox.key, message.text)
            if signed is not None:
                await self._serve_signed_message(signed)
            else:
                await self._serve_producer_message(message, self._writer.term(message.inserted) if own else 0)
        except Problem as wrong:
            await self._refuse(message, wrong)

    async def _refuse(self, message: Message, wrong: Problem) -> None:
        """Keep a message as a reject. Raises `StorageError`."""
        text = without_keys(message.text)
        self._counters["events_rejected"] += 1
        sender = await self._sender(message.text)
        await self._rejects.add(sender, "queue", [RefusedMessage(wrong, text, f"queue:{message.id}", _since(message))])

    async def _sender(self, text: str) -> str:
        """Return the tenant whose key an unacceptable message carries; '' if there is none. Raises `StorageError`."""
        key = key_in(text)
        if key is None:
            return ""
        try:
            return (await auth.authenticate(self._directory, {"authorization": f"Bearer {key}"})).tenant
        except Problem:
            # The key belongs to no tenant. The reject is listed for admins.
            return ""

    async def poisoned(self, message: Message) -> None:
        """Put back a message that failed several times. It is tried until it succeeds, and the failure is logged.

        One that no queue takes, because it is not UTF-8, becomes a reject instead.
        """
        try:
            text = carry_message(self._outbox.key, message)
        except Problem as wrong:
            await self._refuse(message, wrong)
            return
        log.error("A message of the ingest queue failed repeatedly", extra={"action": "ingest_poisoned", "id": message.id})
        self._counters["ingest_poisoned"] += 1
        await self._outbox.queues.send(QUEUE_INGEST, text, visible_in=POISON_RETRY_DELAY)

    async def put_back(self, queue: str, message: Message) -> None:
        """Put a message of a queue back as it is, for a process of a newer version. Its new copy is the same message, whatever its id.

        Raises `StorageError`, and 422 for a message of the ingest queue that is not UTF-8: the host then keeps it.
        """
        text = carry_message(self._outbox.key, message) if queue.startswith(QUEUE_INGEST) else message.text
        await self._outbox.queues.send(queue, text, visible_in=NEWER_RETRY_DELAY)

    async def _serve_producer_message(self, message: Message, term: int) -> None:
        """Process a producer's message: check its key, then each event by itself. term: see `EventToStore`."""
        # Without an id, two messages could not be distinguished.
        assert message.id, "the host gave no message id"
        producer, events = parse_producer_message(message.text)
        key = await auth.authenticate(self._directory, {"authorization": f"Bearer {producer.key}"})
        auth.authorize(key, _SCOPES)
        tenant = await auth.acting_for(self._directory, key, producer.tenant)
        at = _since(message)
        items = [Item(raw, f"queue:{message.id}/{number}", at, producer.traceparent) for number, raw in enumerate(events)]
        waiting = [taken for taken in await self.take(tenant, items, origin="queue", term=term) if isinstance(taken, RetryLater)]
        failed = [QueuedEvent(tenant, event) for each in waiting if isinstance(each.reason, StorageError) for event in each.events]
        over = [QueuedEvent(tenant, event) for each in waiting if not isinstance(each.reason, StorageError) for event in each.events]
        await self._put_back(failed, over, max((each.after for each in waiting), default=0.0), 0)

    async def _serve_signed_message(self, signed: SignedMessage) -> None:
        """Process the service's own message: its events were checked, so each one is stored or put back."""
        tenants: dict[str, list[EventToStore]] = {}
        for entry in signed.entries:
            tenants.setdefault(entry.tenant, []).append(as_stored_now(entry.event, self._clock.now()))
        failed: list[QueuedEvent] = []
        over: list[QueuedEvent] = []
        waits = [0.0]

        async def store(tenant: str, events: list[EventToStore]) -> None:
            with self._ingest.limits.admitting(tenant) as admission:
                await store_let_in(tenant, events, admission)

        async def store_let_in(tenant: str, events: list[EventToStore], admission: Admission) -> None:
            granted = len(events)
            if not signed.admitted:
                # Even if the tenant was removed, events that its key let in end in a state that can be looked up.
                settings = await self._directory.tenant(tenant) or Tenant()
                granted, refusal = await admission.admit(settings, len(events))
                over.extend(QueuedEvent(tenant, event) for event in events[granted:])
                waits.append(float(refusal.headers.get("retry-after", OPEN_EVENTS_RETRY)) if granted < len(events) else 0.0)
            events = events[:granted]
            results = await self._writer.store(tenant, events)
            admission.unused(unstored(results))
            for event, stored in zip(events, results, strict=True):
                if isinstance(stored, StorageError):
                    failed.append(QueuedEvent(tenant, event))
                    self._complain(stored)
                elif stored.existing is not None:
                    await self._known(tenant, event, stored)

        # Wait for all of them: none may continue after the invocation has failed.
        for ended in await asyncio.gather(*(store(tenant, events) for tenant, events in tenants.items()), return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended
        await self._put_back(failed, over, max(waits), signed.tries + 1)

    async def _known(self, tenant: str, event: EventToStore, stored: Stored) -> None:
        """Handle an id that exists: a repetition, an event cancelled before it was stored, or other content under a client's id."""
        try:
            self._ingest.admitted(event, stored)
        except Problem as wrong:
            if stored.existing is None or stored.existing.props["channel"] == "":
                return
            self._counters["events_rejected"] += 1
            text = masked(encode_event(tenant, event).decode())
            await self._rejects.add(tenant, "queue", [RefusedMessage(wrong, text, f"id:{event.id}/{event.hash}", self._clock.now())])

    def _complain(self, failure: StorageError) -> None:
        if isinstance(failure, Rejected):
            log.error("Storage refuses an accepted event: %s", failure, extra={"action": "ingest_refused"})

    async def _put_back(self, failed: list[QueuedEvent], over: list[QueuedEvent], after: float, tries: int) -> None:
        """Send events that were not stored back to the queue, with a longer delay each time."""
        # The random part keeps events that failed together from returning together.
        delay = min(LONGEST_INTAKE_PAUSE, max(after, backoff.exponential(1.0, tries, math.inf, 10)) * (1.0 + self._ids.chance()))
        if failed:
            log.warning("%d events could not be stored and will be tried again", len(failed), extra={"action": "ingest_put_back"})
            self._counters["events_put_back"] += len(failed)
            await self._outbox.put_back(failed, admitted=True, tries=tries, delay=delay)
        if over:
            log.debug("%d events wait for their tenant's limits", len(over), extra={"action": "ingest_over_limit"})
            self._counters["events_over_limit"] += len(over)
            await self._outbox.put_back(over, admitted=False, tries=tries, delay=delay)


def _since(message: Message) -> Millis:
    """Return the latest time at which a message can have been sent: queues give whole seconds, and nothing may be due early."""
    return message.inserted - message.inserted % -1000
