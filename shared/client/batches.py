"""Send any number of events in chunks that the API accepts: JSON lines of at most 10,000 events.

The largest chunk in bytes depends on the size of the app's instances, which it tells. Events for several channels count once for each.
A refused line does not stop the others. Lines refused with 429, or with 503 if the event has an id or is not stored for certain,
are sent again while each round has at least some success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from ..core.errors import Problem, TocsinError
from ..core.readable import count_of
from . import calls
from .errors import BatchStopped, Refused, Unreachable, Unreadable
from .exchange import CallSteps, RetrySettings, Sleep, exchange
from .model import Batch, BatchLine, EventOptions, NewEvent

MAX_EVENTS = 10_000
SURE_BYTES = 1_000_000
"""Bytes of a chunk that every app accepts. Fewer are sent without asking for its limit."""


@dataclass(slots=True)
class BatchRoom:
    """The largest chunk in bytes that the app accepts, once it has been asked. Batches that follow each other may share one."""

    size: int | None = None

    def ask(self, retry_settings: RetrySettings, chance: Callable[[], float]) -> CallSteps[int]:
        """Return the size; ask the app for it the first time."""
        if self.size is None:
            self.size = (yield from exchange(calls.sizes(), retry_settings, chance)).batch_bytes
        return self.size


class EncodedEvent(NamedTuple):
    """An event as a line of JSON. `at`: its position. `repeatable`: it has an id, so that it may be sent twice.

    `channels`: the number of its channels, for each of which the service counts it.
    """

    at: int
    text: bytes
    repeatable: bool
    channels: int = 1


def encode_events(events: Iterable[NewEvent], *, make_ids: bool) -> Iterator[EncodedEvent]:
    """Yield the events as JSON lines. TypeError and ValueError for a malformed event give its position."""
    for index, event in enumerate(events):
        try:
            if not isinstance(event, Mapping) or ("payload" not in event and not calls.may_lack_payload(event)):
                raise TypeError("an event is a mapping with a payload")
            options = cast(EventOptions, {name: value for name, value in event.items() if name not in ("payload", "channels")})
            document = calls.event_document(event.get("payload"), options, make_id=make_ids, channels=event.get("channels"))
            yield EncodedEvent(index, calls.encode(document), "id" in document, len(document.get("channels") or (1,)))
        except (TypeError, ValueError) as wrong:
            wrong.add_note(f"event {index} of the batch")
            raise


def send_events(
    events: Iterable[NewEvent], *, make_ids: bool, retry_settings: RetrySettings, chance: Callable[[], float]
) -> CallSteps[Batch]:
    """Send all events, one chunk after the other. Raises `BatchStopped`."""
    return send_lines(encode_events(events, make_ids=make_ids), retry_settings=retry_settings, chance=chance)


def send_lines(
    found: Iterable[EncodedEvent], *, retry_settings: RetrySettings, chance: Callable[[], float], room: BatchRoom | None = None
) -> CallSteps[Batch]:
    """Send events that are already encoded, one chunk after the other. Each result's index is the line's `at`. Raises `BatchStopped`.

    A line that no request can carry is refused here, and does not stop the others.
    """
    asked, most = room or BatchRoom(), SURE_BYTES
    chunk: list[EncodedEvent] = []
    size = events = 0
    done: dict[int, BatchLine] = {}
    unknown: list[int] = []
    try:
        for line in found:
            more = (len(line.text) + 1) * line.channels
            if size + more > most:
                most = yield from asked.ask(retry_settings, chance)
            if len(line.text) > most:
                refusal = Problem(413, "content-too-large", f"The event has {len(line.text):,} bytes. A batch has at most {most:,}.")
                done[line.at] = BatchLine(index=line.at, status=refusal.status, problem=refusal.body())
                continue
            if chunk and (events + line.channels > MAX_EVENTS or size + more > most):
                yield from _chunk(chunk, done, unknown, retry_settings, chance)
                chunk, size, events = [], 0, 0
            chunk.append(line)
            size, events = size + more, events + line.channels
        if chunk:
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
            done[line.at] = BatchLine(index=line.at, status=result.status, id=result.id, problem=result.problem)
            unchanged = (result.problem or {}).get("outcome") == "unchanged"
            if result.status == 429 or (result.status == 503 and (line.repeatable or unchanged)):
                refused_lines.append(line)
        tries = 1 if len(refused_lines) < len(pending) else tries + 1
        pause = retry_settings.pause(tries, None, chance()) if refused_lines else None
        if pause is None:
            return
        yield Sleep(pause)
        pending = refused_lines
