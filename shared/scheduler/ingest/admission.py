"""Admission of events: the checks that need stored state (channels, limits, sizes), then the writer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple, Protocol

import orjson
from pydantic import TypeAdapter

from ...core import tracing
from ...core.clock import Millis, to_text
from ...core.durations import MAX_DURATION
from ...core.errors import OutcomeUnknown, Problem, Rejected, StorageError, Unavailable
from ...delivery.channels.content import CONTENT_TYPE, bytes_of, without_escapes
from ...delivery.channels.event_target import EVENT_TARGET, NO_PAYLOAD, EventTarget, faults_with
from ...delivery.channels.model import MAX_PAYLOAD, MAX_SMALL_PAYLOAD, FleetChannel, HttpChannel, QueueChannel
from ...delivery.channels.ports import Target
from ...storage.ports import Props, Row, Value
from ...tenants.model import Durability, Tenant
from ...web import problem
from ...web.arrivals import Arrival
from ...web.bodies import Pace, Reader, element_spans, parse_body, take_turn
from ...web.json_spans import Span
from ...web.parsing import LARGE, is_lenient_json, too_deep
from ...web.problem import invalid, not_found, unreadable
from ..facets.fanouts import MADE, fanned_out
from ..model import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MOST_CHANNELS, OUTLIVED, EventIn, EventPatch, SizesOut
from ..properties.overlap import KEY
from ..properties.owed import CALLBACK_OF, CALLBACKS_PATCH, OUTCOMES, NamesCallbacks
from ..rows import TIMEOUT, EventToStore, body_of, body_props, etag_of_row, new_event, retry_props, row_size
from ..rules import NEVER, durability_of, spread
from ..shard.queued_ids import Queued, QueuedIds, name_of
from ..shard_services import ShardServices
from ..timings import DAY
from .event_limits import Admission, EventLimits
from .messages import MESSAGE_ROOM, Outbox, encode_event
from .open_shards import DeadlineExceeded
from .writer import Stored, Writer

_EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)
TRACED_OF_BATCH = 20
"""Events of one batch whose deliveries are traced with the request. The spans of all its deliveries would cost more than anything else."""
STORE_FOR = 90.0
"""Seconds after its arrival in which a batch begins to store events. It is answered at most `CONFIRMED_WITHIN` later, so within the time
of such calls."""
FEW = 16
"""Events that are stored at once, so that their batch takes no longer than one of them."""
ENDED_UNDELIVERED = ("dead", "cancelled", "lapsed")
"""States in which an event stays without having been delivered."""


class Admitted(NamedTuple):
    """A stored event; `new` is False if it was stored before.

    ended: its state if it was stored before and has ended without a delivery. For a fan-out, that of one of its events.
    """

    id: str
    row: Row
    new: bool
    ended: str = ""

    @property
    def etag(self) -> str:
        """The ETag of its representation."""
        return etag_of_row(self.row)


class CheckedEvent(NamedTuple):
    """An event that passed every check except its tenant's limits."""

    event: EventToStore
    parcel: bytes = b""
    """The encoded event, for durability `fast`."""
    queued: Queued | None = None
    """The answer to the client once the event is in the ingest queue, for durability `fast`."""


class BatchTerms(NamedTuple):
    """The terms of a batch.

    noted: further properties of the rows of events that are stored. whole: the events are the elements of one array, which is refused if
    one of them is not JSON. until: see `Ingest.ends`.
    """

    noted: Mapping[str, Value] = MappingProxyType({})
    whole: bool = False
    until: float = math.inf


class EventTerms(Protocol):
    """The members of a template of events that its channels must fit."""

    ordering_key: str | None
    timeout: Millis | None
    content_type: str | None


class Origin(NamedTuple):
    """The way by which an event came.

    at: time from which its delay counts, if not now. source: permanent name of this very event at its source. traced: its delivery is
    traced with the request. collapses: the caller can replace another event by it.
    """

    at: Millis | None = None
    source: str | None = None
    traced: bool = True
    collapses: bool = False


POSTED = Origin()
"""The origin of an event of a request."""
UNTRACED = Origin(traced=False)
"""The origin of an event of a batch after the first `TRACED_OF_BATCH`."""


class _Step:
    """The time and the channels that the checks of one step of the event loop have read. Many events of a batch share one step."""

    __slots__ = ("now", "targets")

    def __init__(self) -> None:
        self.now: Millis | None = None
        self.targets: dict[str, Target] = {}

    def renew(self) -> None:
        """Forget everything, because other tasks may have run."""
        self.now = None
        self.targets.clear()


class Ingest:
    """Accepts events. One per process."""

    def __init__(
        self,
        services: ShardServices,
        writer: Writer,
        queued_ids: QueuedIds,
        outbox: Outbox,
        limits: EventLimits,
    ) -> None:
        self.limits = limits
        self._directory, self._clock, self._ids, self._settings = services.directory, services.clock, services.ids, services.settings
        self._writer, self._queued_ids, self._outbox = writer, queued_ids, outbox
        self._batch_bytes = min(MAX_BATCH_BYTES, self._settings.body_limit)
        # The largest fan-out fits into any batch.
        self._fanned_bytes = max(self._batch_bytes, MOST_CHANNELS * MAX_EVENT_BYTES)

    async def one(self, tenant: str, event: EventIn, body: bytes | None) -> Admitted | Queued:
        """Store one event, or queue it if durability `fast` is enough. body: its payload as sent.

        Raises `Problem` (409, 413, 422, 429) and `StorageError`; nothing was acknowledged then.
        """
        settings = await self.tenant(tenant)
        ready, parcel, queued = await self._ready(tenant, settings, event, body, POSTED, _Step())
        with self.limits.admitting(tenant) as let_in:
            granted, refusal = await let_in.admit(settings, 1)
            if not granted:
                raise refusal
            if queued is not None:
                [failure] = await self._outbox.put([parcel])
                if failure is not None:
                    raise failure
                return queued
            [stored] = await self._writer.store(tenant, [ready], posted=True)
            let_in.unused(unstored([stored]))
            return self.admitted(ready, stored)

    def ends(self, arrival: Arrival) -> float:
        """Return the time of the monotonic clock at which a batch that came then begins no further event."""
        return self._clock.monotonic() + STORE_FOR - arrival.age

    async def batch(self, tenant: str, raw: bytes, *, lines: bool, until: float = math.inf) -> list[Admitted | Queued | Problem]:
        """Store or queue the events of a JSON array or of JSON lines, each independently of the others. Return results in the order sent.

        until: see `ends`; events that are not stored by then have the problem `batch-unfinished`, or 503 with an unknown outcome. It does
        not bind a batch of at most `FEW` events.
        Raises `Problem` if the batch itself is wrong (not JSON, empty, too many events), and 429 if the tenant's limits let none of its
        good events in.
        """
        reader = Reader()
        spans = await element_spans(raw, MAX_BATCH_EVENTS, by_line=lines, reader=reader)
        if not spans:
            raise invalid("", "the batch contains no event")
        terms = BatchTerms(whole=not lines, until=until if len(spans) > FEW else math.inf)
        return await self._each(tenant, (_element(raw, span) for span in spans), terms, reader)

    async def each(
        self, tenant: str, documents: Sequence[bytes], noted: Props | None = None, until: float = math.inf
    ) -> list[Admitted | Queued | Problem]:
        """Store or queue events, each independently of the others. Returns results in the order given. Raises as `batch` does.

        noted: further properties of the rows of events that are stored. until: see `batch`.
        """
        terms = BatchTerms(noted or {}, until=until if len(documents) > FEW else math.inf)
        return await self._each(tenant, iter(documents), terms, Reader())

    async def _each(
        self, tenant: str, documents: Iterator[bytes | Problem], terms: BatchTerms, reader: Reader
    ) -> list[Admitted | Queued | Problem]:
        with self.limits.admitting(tenant) as let_in:
            return await self._each_let_in(tenant, documents, let_in, terms, Pace(reader=reader))

    async def _each_let_in(
        self, tenant: str, documents: Iterator[bytes | Problem], let_in: Admission, terms: BatchTerms, pace: Pace
    ) -> list[Admitted | Queued | Problem]:
        settings = await self.tenant(tenant)
        results: list[Admitted | Queued | Problem | None] = []
        ready: list[tuple[int, CheckedEvent]] = []
        fanouts: dict[int, list[EventToStore]] = {}
        events = size = 0
        step = _Step()
        for number, element in enumerate(documents):
            if pace.is_over(0 if isinstance(element, Problem) else len(element)):
                await take_turn(pace.reader)
                step.renew()
            if isinstance(element, Problem):
                results.append(element)
                continue
            try:
                event, body = await parse_body(_EVENT, element, "payload", pace.reader)
                if len(element) > LARGE:
                    # It was parsed in several steps, so other tasks may have run.
                    step.renew()
                _kept(event)
                traced = len(ready) + len(fanouts) < TRACED_OF_BATCH
                if event.channels is None:
                    new = await self._ready(tenant, settings, event, body, POSTED if traced else UNTRACED, step)
                    if terms.noted:
                        new.event.props |= terms.noted
                    ready.append((number, new))
                else:
                    events, size = events + len(event.channels), size + len(event.channels) * len(element)
                    # A batch that is refused below for its size must not fill the memory before.
                    if events <= MAX_BATCH_EVENTS and size <= self._fanned_bytes:
                        fanouts[number] = await self._fanned_out(tenant, settings, event, body, Origin(traced=traced))
                        step.renew()
                results.append(None)
            except Problem as wrong:
                if terms.whole and wrong.code == "malformed-json" and not is_lenient_json(element):
                    raise unreadable("malformed-json", f"Element {number} of the array is not JSON. {wrong.detail}") from None
                problem.release(wrong)
                results.append(await self.limits.noted(tenant, wrong))
                step.renew()
        if events:
            _bounded(events + len(ready), size, self._fanned_bytes)
        granted, refusal = await let_in.admit(settings, len(ready))
        for number, _ in ready[granted:]:
            results[number] = refusal
        turned_away = refusal if granted < len(ready) else None
        for number, members in list(fanouts.items()):
            if (refused := await let_in.admit_all(settings, len(members))) is not None:
                results[number] = refused
                del fanouts[number]
                turned_away = turned_away or refused
        if turned_away is not None and turned_away.status == 429 and not granted and not fanouts:
            raise turned_away
        storing = [(number, each.event) for number, each in ready[:granted] if each.queued is None]
        queueing = [(number, each) for number, each in ready[:granted] if each.queued is not None]
        stored, put = await asyncio.gather(
            self._writer.store(
                tenant, [*(event for _, event in storing), *chain.from_iterable(fanouts.values())], posted=True, until=terms.until
            ),
            self._outbox.put([each.parcel for _, each in queueing], terms.until),
        )
        let_in.unused(unstored(stored))
        line_problems = _LineProblems()
        for (number, checked), outcome in zip(storing, stored, strict=False):
            if pace.is_over(0):
                await take_turn(pace.reader)
            try:
                results[number] = self.admitted(checked, outcome)
            except (Problem, StorageError) as failure:
                results[number] = line_problems.of(failure)
        outcomes = iter(stored[len(storing) :])
        for number, members in fanouts.items():
            await pace.spend(0)
            try:
                made = self.all_admitted(members, list(islice(outcomes, len(members))))
                ended = next((each.ended for each in made if each.ended), "")
                results[number] = Admitted(str(members[0].fanout), made[0].row, any(each.new for each in made), ended)
            except (Problem, StorageError) as failure:
                results[number] = line_problems.of(failure)
        for (number, each), failed in zip(queueing, put, strict=True):
            results[number] = each.queued if failed is None else line_problems.of(failed)
        return [result for result in results if result is not None]

    async def fan_out(self, tenant: str, event: EventIn, body: bytes | None) -> list[Admitted]:
        """Store an event for each of its channels. Raises as `one` does; some of the events may be stored then, as after a lost answer."""
        settings = await self.tenant(tenant)
        events = await self._fanned_out(tenant, settings, event, body)
        with self.limits.admitting(tenant) as let_in:
            if (refusal := await let_in.admit_all(settings, len(events))) is not None:
                raise refusal
            stored = await self._writer.store(tenant, events, posted=True)
            let_in.unused(unstored(stored))
            return self.all_admitted(events, stored)

    async def collapsing_fan_out(self, tenant: str, event: EventIn, body: bytes | None) -> list[EventToStore]:
        """Check a fan-out with `collapse`, and its tenant's rate; return its events, in the order of the channels, ready to be stored or to
        replace others. Raises `Problem`."""
        settings = await self.tenant(tenant)
        events = await self._fanned_out(tenant, settings, event, body, Origin(collapses=True))
        refusal = self.limits.never_fits(settings, len(events)) or await self.limits.take_rate(tenant, settings, len(events))
        if refusal is not None:
            raise refusal
        return events

    async def _fanned_out(
        self, tenant: str, settings: Tenant, event: EventIn, body: bytes | None, origin: Origin = POSTED
    ) -> list[EventToStore]:
        assert event.channels is not None
        channels = sorted(event.channels)
        name = event.id or MADE + (name_of(origin.source) if origin.source is not None else self._ids.name())
        # The flexible window's place follows from the fan-out's id: its events have the same planned time.
        whole = event.model_copy(update={"id": name, "channel": channels[0]})
        made = await self._checked(tenant, settings, whole, body, origin, _Step())
        return fanned_out(made, name, channels)

    @classmethod
    def all_admitted(cls, events: Sequence[EventToStore], stored: Sequence[Stored | StorageError]) -> list[Admitted]:
        """Turn the writer's results of a fan-out into the caller's. Raises the first failure."""
        for each in stored:
            if isinstance(each, Unavailable) and any(isinstance(other, Stored) for other in stored):
                raise OutcomeUnknown("only some of the fan-out's events are stored") from each
        return [cls.admitted(event, each) for event, each in zip(events, stored, strict=True)]

    async def checked(self, tenant: str, settings: Tenant, raw: bytes, source: str, at: Millis) -> list[EventToStore]:
        """Check an event of another source by the same rules and return it ready to be stored: one event, or those of a fan-out.

        Raises `Problem` (413, 422). at: time at which its producer handed it over; its delay counts from then. An event without an id of
        its own gets one that follows from `source` and `at`; a fan-out, from `source`.
        """
        event, body = await parse_body(_EVENT, raw, "payload")
        _kept(event)
        if event.channels is not None:
            return await self._fanned_out(tenant, settings, event, body, Origin(at, source))
        ready = await self._checked(tenant, settings, event, body, Origin(at, source), _Step())
        if ready.id is None:
            ready.id = self._queued_ids.derive(tenant, at, ready.due, source)
            ready.props["id"] = ready.id
        return [ready]

    async def patch(self, tenant: str, patch: EventPatch, body: bytes | None, now: Props) -> tuple[Millis | None, Props]:
        """Return the changes that a patch makes to the event `now`: the new due time, if there is one, and properties.

        body: the new payload as sent, None if the patch has none.
        Raises `Problem` (413, 422).
        """
        settings = await self.tenant(tenant)
        given = patch.model_fields_set
        change: Props = {}
        kept = str(now.get(EVENT_TARGET) or "")
        aimed = (patch.target.stored() if patch.target is not None else "") if "target" in given else kept
        kind = (patch.content_type or "") if "content_type" in given else str(now.get(CONTENT_TYPE) or "")
        if body is not None:
            body = as_kept(body, kind)
        if body is not None or aimed != kept:
            _carries(aimed, body, now)
        if kind and body is None and not body_of(now):
            raise invalid("/content_type", "is for events with a payload; leave it out, or give a payload")
        sent = body_of(now) if body is None else body
        if body is not None or ("content_type" in given and sent):
            # The event's own channel may have been removed; its delivery reports that.
            channel = patch.channel if patch.channel is not None else str(now["channel"])
            _sized(settings, sent, await self._directory.target(tenant, channel), typed=bool(kind))
        if body is not None:
            change.update({"chunks": 1, **body_props(body)})
        if patch.channel is not None:
            target = await self._channel(tenant, patch.channel)
            if body is None:
                in_text = not kind or isinstance(target.spec, QueueChannel)
                _sized_for(sent if in_text else _bytes_of(sent), target.spec.max_payload)
            _keyed(target, str(now[KEY]) if KEY in now else None, "channel", "the event has no ordering_key; ")
            change["channel"] = patch.channel
        if aimed and (patch.channel is not None or aimed != kept):
            target = await self._patched_channel(tenant, patch, now, "target")
            _fits(EventTarget.model_validate_json(aimed), target)
        if aimed != kept:
            change[EVENT_TARGET] = aimed
        if "content_type" in given:
            change[CONTENT_TYPE] = kind
        if "retry" in given:
            change |= {"retry": "", "pauses": "", **retry_props(patch.retry)}
        if "timeout" in given:
            change[TIMEOUT] = patch.timeout or 0
        if change.get(TIMEOUT, now.get(TIMEOUT)) and (patch.channel is not None or change.get(TIMEOUT)):
            _timed(await self._patched_channel(tenant, patch, now, "timeout"))
        if body is not None or any(
            change.get(name, now.get(name, "")) != now.get(name, "") for name in (EVENT_TARGET, CONTENT_TYPE, "pauses")
        ):
            change["size"] = row_size(sent, {**now, **change})
        if "expires" in given:
            change["expires"] = NEVER if patch.expires is None else patch.expires
            if patch.expires is not None and patch.expires < int(now.get("flex", 0)):
                raise invalid("/expires", OUTLIVED)
        if callbacks := {outcome: getattr(patch, f"on_{outcome}") for outcome in OUTCOMES if f"on_{outcome}" in given}:
            if CALLBACK_OF in now:
                raise invalid(f"/on_{next(iter(callbacks))}", "the event is a callback, and a callback has no callbacks")
            await self.callback_channels(tenant, patch)
            change[CALLBACKS_PATCH] = orjson.dumps(callbacks).decode()
        if patch.due is not None:
            _check_due("due", patch.due, self._clock.now())
        due = patch.due if patch.due is not None else self._clock.now() + patch.delay if patch.delay is not None else None
        if due is not None and "flex" in now:
            # The event keeps its place in the window when the window moves; an event that was fired has none. Both properties are set,
            # because another call may take the window away, or give it back, before this change is stored.
            change.update(flex=now["flex"], shift=now["shift"])
            due += int(now["shift"])
        return due, change

    async def _patched_channel(self, tenant: str, patch: EventPatch, now: Props, field: str) -> Target:
        """Return the channel that a patched event will have. Raises 422; field: the one that the channel must fit."""
        if patch.channel is not None:
            return await self._channel(tenant, patch.channel)
        target = await self._directory.target(tenant, str(now["channel"]))
        if target is None:
            detail = f"cannot be checked, because the event's channel {now['channel']} was removed; name another channel in the same call"
            raise invalid(f"/{field}", f"{detail}, or create it again")
        return target

    async def collapsing(self, tenant: str, event: EventIn, body: bytes | None) -> EventToStore:
        """Check an event with `collapse`, and its tenant's rate, as `one` does; return it ready to be stored, or to replace another."""
        settings = await self.tenant(tenant)
        ready = await self._checked(tenant, settings, event, body, Origin(collapses=True), _Step())
        if (refusal := await self.limits.take_rate(tenant, settings, 1)) is not None:
            raise refusal
        return ready

    async def store_new(self, tenant: str, ready: EventToStore) -> Stored | StorageError:
        """Store an event that `collapsing` has checked, because there is none to replace. Raises 404, 429."""
        settings = await self.tenant(tenant)
        with self.limits.admitting(tenant) as let_in:
            if (refusal := await let_in.admit_open(settings)) is not None:
                raise refusal
            [stored] = await self._writer.store(tenant, [ready], posted=True)
            let_in.unused(unstored([stored]))
            return stored

    async def accepts(self, tenant: str, channel: str, body: bytes, field: str, terms: EventTerms) -> None:
        """Check that events with this payload and these terms can be delivered by the channel, which `field` names.

        Raises `Problem` (404, 413, 422).
        """
        target = await self._channel(tenant, channel, field)
        if terms.timeout is not None:
            _timed(target)
        _keyed(target, terms.ordering_key)
        _sized(await self.tenant(tenant), body, target, typed=terms.content_type is not None)

    async def sizes(self, tenant: str) -> SizesOut:
        """Return the sizes that are accepted. Raises 404."""
        settings = await self.tenant(tenant)
        return SizesOut.model_construct(
            batch_bytes=self._batch_bytes,
            batch_events=MAX_BATCH_EVENTS,
            event_bytes=MAX_EVENT_BYTES,
            payload_bytes=largest_payload(settings),
            expires=settings.expires,
        )

    async def tenant(self, tenant: str) -> Tenant:
        """Return the tenant's settings. Raises 404."""
        settings = await self._directory.tenant(tenant)
        if settings is None:
            raise not_found("tenant")
        return settings

    async def callback_channels(self, tenant: str, event: NamesCallbacks) -> None:
        """Check that the channels of the callbacks exist. Raises 422."""
        for field, channel in (("on_delivered", event.on_delivered), ("on_dead", event.on_dead)):
            if channel is not None:
                _keyed(await self._channel(tenant, channel, field), None, field, "a callback has no ordering_key; ")

    async def _channel(self, tenant: str, name: str, field: str = "channel") -> Target:
        target = await self._directory.target(tenant, name)
        if target is None:
            raise invalid(f"/{field}", f"the tenant has no channel {name}")
        return target

    async def _ready(self, tenant: str, settings: Tenant, event: EventIn, body: bytes | None, origin: Origin, step: _Step) -> CheckedEvent:
        ready = await self._checked(tenant, settings, event, body, origin, step)
        if ready.durability != "fast":
            return CheckedEvent(ready)
        created = int(ready.props["created"])
        ready.id = self._queued_ids.make(tenant, created, ready.due, self._ids.name())
        ready.term = self._writer.term()
        parcel = encode_event(tenant, ready)
        if len(parcel) > MESSAGE_ROOM:
            detail = f"with labels and retry, the event exceeds the {MESSAGE_ROOM:,} bytes of a queue message; use durability standard"
            raise Problem(413, "payload-too-large", detail, errors=[{"pointer": "", "detail": detail}])
        return CheckedEvent(ready, parcel, Queued(ready.id, tenant, created, ready.due))

    async def _checked(
        self, tenant: str, settings: Tenant, event: EventIn, body: bytes | None, origin: Origin, step: _Step
    ) -> EventToStore:
        # The model has checked that its requests need no payload.
        body = as_kept(body, event.content_type) if body is not None else b""
        if event.collapse is not None and not origin.collapses:
            raise invalid("/collapse", "only POST /events replaces events; send such an event alone")
        durability = self._durability(settings, event)
        if event.channels is not None:
            for number, channel in enumerate(event.channels):
                _deliverable(settings, event, body, durability, await self._channel(tenant, channel, f"channels/{number}"))
            step.renew()
        else:
            target = step.targets.get(event.channel)
            if target is None:
                target = await self._channel(tenant, event.channel)
                # Other tasks may have run while the channel was read.
                step.renew()
                step.targets[event.channel] = target
            _deliverable(settings, event, body, durability, target)
        if event.on_delivered is not None or event.on_dead is not None:
            await self.callback_channels(tenant, event)
            step.renew()
        # A server-made id is known only once the shard is chosen, and that depends on the minute. A new name takes the id's place.
        shift = spread(tenant, event.id or origin.source or self._ids.name(), event.flex) if event.flex else 0
        now = step.now
        if now is None:
            now = step.now = self._clock.now()
        new = new_event(event, body, now, durability, origin.at, shift)
        if settings.expires is not None and "expires" not in event.model_fields_set:
            # Not in the hash of its content: the same event is the same after the tenant's settings have changed.
            new.props["expires"] = settings.expires + (event.flex or 0)
        if event.due is not None:
            _check_due("due", event.due, now)
        elif origin.at is not None:
            # The time of another clock, which may be somewhat fast.
            _check_due("delay", new.due - shift - DAY, now)
        if (trace := tracing.current(recorded=origin.traced)) is not None:
            new.props["trace"] = trace
        return new

    def _durability(self, settings: Tenant, event: EventIn) -> Durability:
        durability = durability_of(settings.durability, event.durability)
        if durability == "mirrored" and not self._settings.keeps_mirrored:
            raise invalid("/durability", "mirrored needs a second storage account, and none is configured")
        if durability == "fast" and event.channels is not None:
            if event.durability is None:
                return "standard"
            raise invalid("/durability", "a fan-out is stored before its answer; leave durability out, or use standard")
        if durability == "fast" and event.id is not None:
            if event.durability is None:
                # Only the tenant's settings ask for fast; an id chosen by the client needs more.
                return "standard"
            raise invalid("/id", "events of durability fast get their ids from the service; leave it out, or use durability standard")
        return durability

    @staticmethod
    def admitted(event: EventToStore, stored: Stored | StorageError) -> Admitted:
        """Turn the writer's result into the caller's. Raises 409 `id-conflict` and the writer's own failure."""
        if isinstance(stored, StorageError):
            raise stored
        if stored.existing is None:
            row = Row(stored.address.shard, stored.address.row, event.props, stored.etag, 0, 0)
            return Admitted(stored.id, row, True)
        if not stored.same:
            raise problem.conflict("id-conflict", "an event with this id and other content exists")
        state = str(stored.existing.props["state"])
        return Admitted(stored.id, stored.existing, False, state if state in ENDED_UNDELIVERED else "")


def unstored(results: Sequence[Stored | StorageError]) -> int:
    """Return how many of the writer's results add no event: it was stored before, or certainly is not stored."""
    return sum([each.existing is not None if isinstance(each, Stored) else isinstance(each, Rejected | Unavailable) for each in results])


class _LineProblems:
    """The problems of the events of one batch. A failure that many of them share is logged once."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[Exception, Problem]] = {}

    def of(self, failure: Problem | StorageError) -> Problem:
        problem.release(failure)
        if isinstance(failure, DeadlineExceeded):
            detail = "The batch was not finished in time, and this event was not stored. Send it again."
            return Problem(503, "batch-unfinished", detail, headers={"retry-after": "1"}, outcome="unchanged")
        if id(failure) not in self._told:
            # Kept with its failure, so that no other one gets its number.
            self._told[id(failure)] = failure, problem.of(failure, where="events_batch")
        return self._told[id(failure)][1]


def largest_payload(settings: Tenant) -> int:
    """Return the largest payload in bytes that the tenant's settings let in, to the kinds of channels that take most."""
    return min(MAX_PAYLOAD, settings.limits.payload_bytes or MAX_PAYLOAD)


def _kept(event: EventIn) -> None:
    """Raise 422 if the event asks for more than to be kept."""
    if event.on_conflict != "keep":
        raise invalid("/on_conflict", "only POST /events takes it; send such an event alone")


def _bounded(events: int, size: int, most: int) -> None:
    """Raise 422 or 413 for a batch with fan-outs of too many events, or over `most` bytes. size: each fan-out once for each channel."""
    if events > MAX_BATCH_EVENTS:
        raise invalid("", f"the batch has {events:,} events, one for each channel of a fan-out; at most {MAX_BATCH_EVENTS:,} are accepted")
    if size > most:
        detail = f"The fan-outs have {size:,} bytes, counted once for each channel. At most {most:,} are accepted."
        raise Problem(413, "content-too-large", detail)


def _deliverable(settings: Tenant, event: EventIn, body: bytes, durability: Durability, target: Target) -> None:
    """Check that the channel can deliver the event. Raises `Problem` (413, 422)."""
    if event.target is not None:
        _fits(event.target, target)
    if event.timeout is not None:
        _timed(target)
    _keyed(target, event.ordering_key)
    _sized(settings, body, target, durability, typed=event.content_type is not None)


def _sized(settings: Tenant, body: bytes, target: Target | None, durability: Durability = "standard", *, typed: bool = False) -> None:
    """Raise 413 for a payload that is too large, and 422 for one that stands for no bytes. typed: it has a content type."""
    most = largest_payload(settings)
    if not typed and durability != "fast" and len(body) <= (most if target is None else min(most, target.spec.max_payload)):
        return
    sent = _bytes_of(body) if typed else body
    bounds = [(most, sent, "payload_bytes" if most == settings.limits.payload_bytes else "")]
    if target is not None:
        # In the text of a queue message, bytes are base64.
        bounds.append((target.spec.max_payload, body if isinstance(target.spec, QueueChannel) else sent, ""))
    if durability == "fast":
        bounds.append((MAX_SMALL_PAYLOAD, body, ""))
    if over := [bound for bound in bounds if len(bound[1]) > bound[0]]:
        limit, carried, name = min(over, key=lambda bound: bound[0])
        _sized_for(carried, limit, name)


def _sized_for(body: bytes, most: int, limit: str = "") -> None:
    """Raise 413 if the payload has more than `most` bytes. limit: see `Problem`."""
    if len(body) > most:
        detail = f"the payload is larger than {most:,} bytes"
        raise Problem(413, "payload-too-large", detail, errors=[{"pointer": "/payload", "detail": detail}], limit=limit)


def _fits(target: EventTarget, channel: Target) -> None:
    for fault in faults_with(target, channel.spec):
        raise invalid(f"/target{fault.pointer}", fault.detail)


def _check_due(field: str, due: Millis, now: Millis) -> None:
    """Raise 422 for a due time that no delay reaches."""
    if due > (latest := now + MAX_DURATION):
        raise invalid(f"/{field}", f"is more than 3660 days ahead; the latest time is {to_text(latest)}")


def as_kept(body: bytes, content_type: str | None) -> bytes:
    """Return a payload as it is stored: JSON as it was sent, and the base64 of bytes without escapes. Raises 422."""
    return _based(without_escapes, body) if content_type else body


def _bytes_of(body: bytes) -> bytes:
    """Return the bytes for which a payload stands. Raises 422."""
    return _based(bytes_of, body)


def _based(read: Callable[[bytes], bytes], body: bytes) -> bytes:
    try:
        return read(body)
    except ValueError:
        detail = "must be the base64 of the body's bytes, with padding, because the event has a content_type"
        raise invalid("/payload", detail) from None


def _timed(target: Target) -> None:
    """Raise 422 for an event with a timeout of its own whose channel has none."""
    if not isinstance(target.spec, HttpChannel | FleetChannel):
        raise invalid("/timeout", f"only events of http and fleet channels can have a timeout, and {target.name} is of another kind")


def _carries(aimed: str, body: bytes | None, now: Props) -> None:
    """Raise 422 if the requests of a changed event would lack a payload, or would have one that their method does not carry.

    aimed: the target as stored, '' for none. body: the new payload, None if it stays.
    """
    part = EventTarget.model_validate_json(aimed).payload if aimed else "needed"
    if part == "refused" and body is not None:
        raise invalid("/payload", NO_PAYLOAD)
    if part == "refused" and body_of(now):
        raise invalid("/target/method", "the event has a payload, which a GET request does not carry; use another method")
    if part == "needed" and body is None and not body_of(now):
        raise invalid("/payload", "is required, because the event has none and its new method needs one")


def _keyed(target: Target, key: str | None, field: str = "ordering_key", reason: str = "") -> None:
    """Raise 422 for an event without an ordering key if its channel needs one. field: the one at fault."""
    if key is None and isinstance(target.spec, FleetChannel):
        needs = f"channel {target.name} delivers to the owner of the key's partition, so its events need an ordering_key"
        raise invalid(f"/{field}", f"{reason}{needs}")


def _element(raw: bytes, span: Span) -> bytes | Problem:
    """Return the element as sent, or the problem of one that is too long or too deep; such an element is not parsed."""
    size = span.end - span.start
    if size > MAX_EVENT_BYTES:
        return Problem(413, "content-too-large", f"The event has {size:,} bytes. At most {MAX_EVENT_BYTES:,} are accepted.")
    element = raw[span.start : span.end]
    return too_deep(element) if span.deep else element
