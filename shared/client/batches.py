"""Send any number of events in chunks that the API accepts: JSON lines of at most 10,000 events or 16 MiB.

A refused line does not stop the others. Lines refused with 429, or with 503 if the event has an id, are sent again while each round
has at least some success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from ..core.errors import TocsinError
from ..core.packing import packs
from ..core.readable import count_of
from . import calls
from .errors import BatchStopped, Refused, Unreachable, Unreadable
from .exchange import CallSteps, RetrySettings, Sleep, exchange
from .model import Batch, BatchLine, EventOptions, NewEvent

MAX_EVENTS = 10_000
MAX_BYTES = 16 * 1024 * 1024


class EncodedEvent(NamedTuple):
    """An event as a line of JSON. `at`: its position. `repeatable`: it has an id, so that it may be sent twice."""

    at: int
    text: bytes
    repeatable: bool


def encode_events(events: Iterable[NewEvent], *, make_ids: bool) -> Iterator[EncodedEvent]:
    """Yield the events as JSON lines. TypeError and ValueError for a malformed event give its position."""
    for index, event in enumerate(events):
        try:
            if not isinstance(event, Mapping) or "payload" not in event:
                raise TypeError("an event is a mapping with a payload")
            options = cast(EventOptions, {name: value for name, value in event.items() if name not in ("payload", "channels")})
            document = calls.event_document(event["payload"], options, make_id=make_ids, channels=event.get("channels"))
            yield EncodedEvent(index, calls.encode(document), "id" in document)
        except (TypeError, ValueError) as wrong:
            wrong.add_note(f"event {index} of the batch")
            raise


def split_chunks(found: Iterable[EncodedEvent]) -> Iterator[list[EncodedEvent]]:
    """Yield the lines in groups that the API accepts. A line that is too large forms its own group, and the service refuses it."""
    return packs(found, lambda line: len(line.text) + 1, MAX_BYTES, MAX_EVENTS)


def send_events(
    events: Iterable[NewEvent], *, make_ids: bool, retry_settings: RetrySettings, chance: Callable[[], float]
) -> CallSteps[Batch]:
    """Send all events, one chunk after the other. Raises `BatchStopped`."""
    return send_lines(encode_events(events, make_ids=make_ids), retry_settings=retry_settings, chance=chance)


def send_lines(found: Iterable[EncodedEvent], *, retry_settings: RetrySettings, chance: Callable[[], float]) -> CallSteps[Batch]:
    """Send events that are already encoded, one chunk after the other. Each result's index is the line's `at`. Raises `BatchStopped`."""
    done: dict[int, BatchLine] = {}
    unknown: list[int] = []
    try:
        for chunk in split_chunks(found):
            yield from _chunk(chunk, done, unknown, retry_settings, chance)
    except Exception as error:
        raise BatchStopped(f"{count_of(len(done), 'event')} answered, then: {error}", [done[at] for at in sorted(done)], unknown) from error
    return Batch(results=tuple(done[at] for at in sorted(done)))


def _chunk(
    chunk: list[EncodedEvent], done: dict[int, BatchLine], unknown: list[int], retry_settings: RetrySettings, chance: Callable[[], float]
) -> CallSteps[None]:
    pending, tries = chunk, 0
    while True:
        call = calls.batch([line.text for line in pending], repeatable=all(line.repeatable for line in pending))
        try:
            answered = yield from exchange(call, retry_settings, chance)
            if len(answered) != len(pending):
                raise Unreadable(f"{count_of(len(answered), 'result')} for {count_of(len(pending), 'event')}")
        except Refused as refused:
            if refused.status == 429 and pending is not chunk and not refused.uncertain:
                # Each of these lines already has its own 429 as a result; the service accepts no more for now.
                return
            unknown += [line.at for line in pending] if refused.uncertain else []
            raise
        except TocsinError as lost:
            unknown += [line.at for line in pending] if not isinstance(lost, Unreachable) or lost.sent else []
            raise
        refused_lines = []
        for line, result in zip(pending, answered, strict=True):
            # Constructed, not copied: a copy costs several times as much as all other work on a line.
            done[line.at] = BatchLine.model_construct(index=line.at, status=result.status, id=result.id, problem=result.problem)
            if result.status == 429 or (result.status == 503 and line.repeatable):
                refused_lines.append(line)
        tries = 1 if len(refused_lines) < len(pending) else tries + 1
        pause = retry_settings.pause(tries, None, chance()) if refused_lines else None
        if pause is None:
            return
        yield Sleep(pause)
        pending = refused_lines
