"""The messages in the ingest queue, and how they are sent: events that arrive together share a message, so there are far fewer messages.

A *signed message* is the service's own: `tocsin1.{mac}.{JSON}` with checked events, each with its id. Only a holder of the master key can
make one. Its events are complete rows except for the payload, which is kept as sent: no later change of rules can refuse what was
acknowledged.

A *carried message* is also the service's own: `tocsin1.{mac}.{"id":...,"inserted":...,"message":TEXT}` with a message that failed several
times, as it was sent. The queue gives each message an id, from which the ids of a producer's events follow; so a copy must name the id and
the time of the first one.

A *producer message* is `{"tenant", "key", "event": {...}}` or `"events": [...]`, with an optional `traceparent`. It is checked like a
request.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import orjson
from pydantic import Field, TypeAdapter, model_validator

from ...core.clock import Clock, Millis
from ...core.errors import OutcomeUnknown, Problem, Rejected, StorageError
from ...core.packing import packs
from ...storage.names import QUEUE_INGEST
from ...storage.ports import MAX_MESSAGE_BYTES, Message, Queues
from ...web.fields.types import Strict
from ...web.parsing import elements, member, parse_json, without
from ...web.problem import unreadable
from ..properties.owed import owed_after
from ..rows import EventToStore, body_of, body_props
from ..timings import GROUP_WAIT, LONGEST_QUEUE_WAIT
from .open_shards import DeadlineExceeded, Sink

log = logging.getLogger(__name__)

MARK = "tocsin1."
_MAC = 32
"""Hexadecimal digits: 128 bits."""
MESSAGE_ROOM = MAX_MESSAGE_BYTES - 128
"""Bytes of encoded events in one signed message."""
MAX_PRODUCER_MESSAGE = 46 * 1024
"""Largest producer message in bytes: its events must also fit a signed message, with the added properties."""
_FRAGMENTS = ("retry", "labels")
"""Properties that contain JSON: written as strings, they would grow."""
_CARRIED = b'{"id":'
_WITHIN = b',"message":'
"""The beginnings of a carried message, and of the message within it."""
IN_FLIGHT = 8
"""Messages that are being sent at once."""


class QueuedEvent(NamedTuple):
    """An event in a signed message, and its tenant."""

    tenant: str
    event: EventToStore


@dataclass(slots=True, frozen=True)
class SignedMessage:
    """Events in one message of the service. admitted: they are within their tenant's limits; otherwise the limits are still to be asked.
    tries: number of times they were put back."""

    entries: list[QueuedEvent]
    admitted: bool = True
    tries: int = 0


class ProducerMessage(Strict):
    """A message that a producer sent."""

    tenant: str = Field(min_length=1, max_length=40)
    key: str = Field(min_length=1, max_length=256, repr=False)
    event: Any = None
    events: list[Any] | None = Field(None, min_length=1)
    traceparent: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if ("event" in self.model_fields_set) == ("events" in self.model_fields_set):
            raise ValueError("give exactly one of event and events")
        if "events" in self.model_fields_set and self.events is None:
            raise ValueError("events cannot be null")
        return self


_LETTER: TypeAdapter[ProducerMessage] = TypeAdapter(ProducerMessage)


def signing_key(master: str) -> bytes:
    """Return the key that signs the service's messages."""
    return hmac.digest(master.encode(), b"tocsin parcels", "sha256")


def encode_event(tenant: str, event: EventToStore) -> bytes:
    """Encode an event for a signed message. It must have an id."""
    props: dict[str, Any] = {name: value for name, value in event.props.items() if name not in ("id", "chunks") and not _is_body(name)}
    for name in _FRAGMENTS:
        if name in props:
            props[name] = orjson.Fragment(str(props[name]))
    shown: dict[str, Any] = {"tenant": tenant, "id": event.id, "due": event.due, "size": event.size, "hash": event.hash}
    if event.durability != "standard":
        shown["durability"] = event.durability
    if event.term:
        shown["term"] = event.term
    body = body_of(event.props)
    return orjson.dumps({**shown, "props": props, **({"body": orjson.Fragment(body)} if body else {})})


def _is_body(name: str) -> bool:
    return name == "body" or (name.startswith("body") and name[4:].isdigit())


def _decode(raw: bytes) -> QueuedEvent:
    found = orjson.loads(without(raw, "body"))
    # Without a payload, the event has no body.
    props: dict[str, Any] = {**found["props"], "id": found["id"], **body_props(member(raw, "body") or b"")}
    for name in _FRAGMENTS:
        if name in props:
            props[name] = orjson.dumps(props[name]).decode()
    durability, term = found.get("durability", "standard"), found.get("term", 0)
    event = EventToStore(props, found["due"], found["size"], found["id"], found["hash"], durability, term)
    return QueuedEvent(found["tenant"], event)


def group_encoded(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group encoded events into as few messages as their order allows. One larger than `MESSAGE_ROOM` is alone."""
    return packs(entries, lambda entry: len(entry) + 1, MESSAGE_ROOM)


def sign_message(key: bytes, entries: Iterable[bytes], *, admitted: bool = True, tries: int = 0) -> str:
    """Return the text of a signed message."""
    head = f'{{"admitted":{"true" if admitted else "false"},"tries":{tries},"events":['
    body = head.encode() + b",".join(entries) + b"]}"
    return f"{MARK}{_mac(key, body)}.{body.decode()}"


def parse_signed_message(key: bytes, text: str) -> SignedMessage | None:
    """Parse a signed message; return None if the text is not one. Raises 403 if the signature is wrong."""
    if not text.startswith(MARK):
        return None
    mac, dot, content = text[len(MARK) :].partition(".")
    body = content.encode(errors="surrogateescape")
    if not dot or not hmac.compare_digest(mac.encode(errors="replace"), _mac(key, body).encode()):
        raise forged()
    events = member(body, "events")
    # The service wrote the message. A release that does not know carried messages fails here, and leaves them in the queue for a later try.
    assert events is not None
    found = orjson.loads(without(body, "events"))
    return SignedMessage([_decode(raw) for raw in elements(events)], bool(found["admitted"]), int(found["tries"]))


def carry_message(key: bytes, message: Message) -> str:
    """Return the text with which a message is sent once more, as the same message.

    A text of the service names its events' ids itself, and stays as it is; so does one that would not fit into a message. Raises 422 for
    bytes that are not UTF-8, which no queue takes: their only end is a reject.
    """
    raw = _utf8(message.text)
    if message.text.startswith(MARK):
        return message.text
    body = _CARRIED + orjson.dumps(message.id) + b',"inserted":%d' % message.inserted + _WITHIN + raw + b"}"
    text = f"{MARK}{_mac(key, body)}.{body.decode()}"
    return text if len(text.encode()) <= MAX_MESSAGE_BYTES else message.text


def carried_message(key: bytes, message: Message) -> Message:
    """Return the message that `carry_message` sent once more, with the id and the time of the first one; any other message as it is.

    Raises 403 if the signature is wrong.
    """
    mac, dot, content = message.text.removeprefix(MARK).partition(".")
    if not message.text.startswith(MARK) or not dot or not content.startswith(_CARRIED.decode()):
        return message
    body = content.encode(errors="surrogateescape")
    if not hmac.compare_digest(mac.encode(errors="replace"), _mac(key, body).encode()):
        raise forged()
    # By place and not as JSON: the text within need not be JSON, and may be as deep as a message may be.
    head, _, within = body.partition(_WITHIN)
    named = orjson.loads(head + b"}")
    return replace(message, id=named["id"], inserted=named["inserted"], text=within[:-1].decode())


def forged() -> Problem:
    """Return the refusal of a message with a wrong signature."""
    return Problem(403, "forged", "the message was not signed by this service")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise unreadable("malformed-json", "the message is not UTF-8") from None


def _mac(key: bytes, body: bytes) -> str:
    return hmac.digest(key, body, "sha256").hex()[:_MAC]


def parse_producer_message(text: str) -> tuple[ProducerMessage, list[bytes]]:
    """Parse a producer message; return it and its events exactly as sent. Raises 413 and 422."""
    raw = _utf8(text)
    if len(raw) > MAX_PRODUCER_MESSAGE:
        raise Problem(413, "content-too-large", f"the message is larger than {MAX_PRODUCER_MESSAGE:,} bytes")
    letter = parse_json(_LETTER, raw, any_number=True, opaque=("event", "events"))
    if "event" in letter.model_fields_set:
        event = member(raw, "event")
        assert event is not None  # the model has it
        return letter, [event]
    events = member(raw, "events")
    assert events is not None  # the model has it
    return letter, elements(events)


def as_stored_now(event: EventToStore, now: Millis) -> EventToStore:
    """Return the event as it is stored now: lists find it by this time, its representation keeps the time at which it was accepted.

    One older than `LONGEST_QUEUE_WAIT` is stored as dead: its cancel may have been acknowledged and forgotten. A redrive brings it back.
    """
    props = event.props
    taken = int(props.get("asked", props["created"]))
    if now >= taken + LONGEST_QUEUE_WAIT:
        props.update({"state": "dead", "ended": now, "error": "it was in the ingest queue for almost seven days"})
        props.update(owed_after(props, "dead", notices=True))
    if taken != now:
        props.update({"asked": taken, "created": now})
    return event


class _Pending(NamedTuple):
    entry: bytes
    sink: Sink
    number: int
    until: float


class Outbox:
    """The sending end of the ingest queue. One per process; belongs to one event loop."""

    def __init__(self, queues: Queues, clock: Clock, key: bytes) -> None:
        self.queues, self._clock, self.key = queues, clock, key
        """key: signs the messages."""
        self._pending: deque[_Pending] = deque()
        self._bytes = 0
        self._filling: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def put(self, entries: Sequence[bytes], until: float = math.inf) -> list[StorageError | None]:
        """Send encoded events. For each, return None once it is in the queue, or the error that leaves this uncertain.

        until: time of the monotonic clock at which no further event is sent: those are `DeadlineExceeded`; see `ended_in_time`.
        """
        if not entries:
            return []
        sink = Sink(len(entries))
        for number, entry in enumerate(entries):
            self._pending.append(_Pending(entry, sink, number, until))
            self._bytes += len(entry) + 1
        if self._filling is None:
            self._filling = asyncio.create_task(self._fill())
        return [result if isinstance(result, StorageError) else None for result in await sink.wait(self._clock, until)]

    async def put_back(self, entries: Sequence[QueuedEvent], *, admitted: bool, tries: int, delay: float) -> None:
        """Send events so that they return in `delay` seconds.

        Raises `StorageError`; then the message that they came in must return itself.
        """
        for group in group_encoded(encode_event(entry.tenant, entry.event) for entry in entries):
            await self.queues.send(QUEUE_INGEST, sign_message(self.key, group, admitted=admitted, tries=tries), visible_in=delay)

    async def _fill(self) -> None:
        """Send messages until nothing is pending."""
        try:
            while self._pending:
                if self._bytes < MESSAGE_ROOM:
                    await self._clock.sleep(GROUP_WAIT)
                await self._slots.acquire()
                task = asyncio.create_task(self._send(self._group()))
                self._sending.add(task)
                task.add_done_callback(self._sent)
        finally:
            self._filling = None

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._slots.release()

    def _group(self) -> list[_Pending]:
        group: list[_Pending] = []
        size, now = 0, self._clock.monotonic()
        while self._pending and (not group or size + len(self._pending[0].entry) < MESSAGE_ROOM):
            found = self._pending.popleft()
            if found.until <= now:
                self._bytes -= len(found.entry) + 1
                found.sink.settle(found.number, DeadlineExceeded())
            else:
                group.append(found)
                size += len(found.entry) + 1
        self._bytes -= size
        return group

    async def _send(self, group: list[_Pending]) -> None:
        if not group:
            return
        failure: StorageError | None = None
        try:
            await self.queues.send(QUEUE_INGEST, sign_message(self.key, [each.entry for each in group]))
        except Rejected as error:
            failure = error
        except StorageError as error:
            # A send is repeated when its answer is lost, so even a refusal may follow a message that was stored.
            failure = OutcomeUnknown(f"the ingest queue did not confirm: {error}")
        except Exception as error:
            failure = OutcomeUnknown(f"the outbox failed: {type(error).__name__}")
            log.exception("The outbox raised an unexpected error", extra={"action": "outbox_failed"})
        for each in group:
            each.sink.settle(each.number, failure)
