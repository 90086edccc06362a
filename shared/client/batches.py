"""Any number of events, in chunks the API takes: at most 10,000 events or 16 MiB each, as JSON lines.

A line that is refused does not stop the others. Lines refused with 429, and with 503 where the event has an id, are sent again as long
as some get through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from ..core.errors import TocsinError
from ..core.packing import packs
from . import calls
from .errors import BatchStopped, Refused, Unreachable, Unreadable
from .exchange import Patience, Sleep, Steps, exchange
from .model import Batch, BatchLine, NewEvent, Options

MAX_EVENTS = 10_000
MAX_BYTES = 16 * 1024 * 1024


class Line(NamedTuple):
    """One event, encoded. `repeatable`: it has an id, so it may be sent twice."""

    at: int
    text: bytes
    repeatable: bool


def lines(events: Iterable[NewEvent], *, make_ids: bool) -> Iterator[Line]:
    """The events as JSON lines. TypeError and ValueError name the position of what is none."""
    for index, event in enumerate(events):
        try:
            if not isinstance(event, Mapping) or "payload" not in event:
                raise TypeError("an event is a mapping with a payload")
            options = cast(Options, {name: value for name, value in event.items() if name != "payload"})
            document = calls.event_document(event["payload"], options, make_id=make_ids)
            yield Line(index, calls.encode(document), "id" in document)
        except (TypeError, ValueError) as wrong:
            wrong.add_note(f"event {index} of the batch")
            raise


def chunks(found: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines in groups of the size the API takes; one that is too large alone goes alone, and the service says so."""
    return packs(found, lambda line: len(line.text) + 1, MAX_BYTES, MAX_EVENTS)


def send(events: Iterable[NewEvent], *, make_ids: bool, patience: Patience, chance: Callable[[], float]) -> Steps[Batch]:
    """Send them all, one chunk after the other. Raises `BatchStopped`."""
    return send_lines(lines(events, make_ids=make_ids), patience=patience, chance=chance)


def send_lines(found: Iterable[Line], *, patience: Patience, chance: Callable[[], float]) -> Steps[Batch]:
    """The same for events that are encoded already; each result's index is its line's `at`."""
    done: dict[int, BatchLine] = {}
    unknown: list[int] = []
    try:
        for chunk in chunks(found):
            yield from _chunk(chunk, done, unknown, patience, chance)
    except Exception as error:
        raise BatchStopped(f"{len(done)} events answered, then: {error}", [done[at] for at in sorted(done)], unknown) from error
    return Batch(results=tuple(done[at] for at in sorted(done)))


def _chunk(
    chunk: list[Line], done: dict[int, BatchLine], unknown: list[int], patience: Patience, chance: Callable[[], float]
) -> Steps[None]:
    pending, tries = chunk, 0
    while True:
        call = calls.batch([line.text for line in pending], repeatable=all(line.repeatable for line in pending))
        try:
            answered = yield from exchange(call, patience, chance)
            if len(answered) != len(pending):
                raise Unreadable(f"{len(answered)} results for {len(pending)} events")
        except Refused as refused:
            if refused.status == 429 and pending is not chunk and not refused.uncertain:
                # Told already, line by line: the service lets no more in for now.
                return
            unknown += [line.at for line in pending] if refused.uncertain else []
            raise
        except TocsinError as lost:
            unknown += [line.at for line in pending] if not isinstance(lost, Unreachable) or lost.sent else []
            raise
        again = []
        for line, result in zip(pending, answered, strict=True):
            # Made, not copied: a copy costs several times what all else does that is done with a line.
            done[line.at] = BatchLine.model_construct(index=line.at, status=result.status, id=result.id, problem=result.problem)
            if result.status == 429 or (result.status == 503 and line.repeatable):
                again.append(line)
        tries = 1 if len(again) < len(pending) else tries + 1
        pause = patience.pause(tries, None, chance()) if again else None
        if pause is None:
            return
        yield Sleep(pause)
        pending = again
