"""Event rows encoded and read by hand, as the scheduler does it, and with the row codec: why they are written by hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from shared.core.clock import Millis, to_text
from shared.engine.row_codec import RowCodec, Spread
from shared.scheduler.model import EventIn
from shared.scheduler.rows import body_of, body_props, encoded_size, new_event
from shared.storage.ports import Props

from ..report import Figure
from ..tools.stage import Run

NOW: Millis = 1_795_256_515_250
BODY = b'{"order":1000017,"customer":"c-77","lines":[{"sku":"a","n":1},{"sku":"b","n":2}],"total":17.5}'
DUE = NOW + 5
EVENT = EventIn(due=to_text(DUE), payload=None)


class _EventRow(NamedTuple):
    """The properties that an event's row can have."""

    state: str
    due: Millis
    created: Millis
    channel: str
    size: int
    body: bytes
    expires: Millis | None = None
    flex: Millis | None = None
    shift: Millis | None = None
    retry: str | None = None
    pauses: str | None = None
    labels: str | None = None
    durability: str = "standard"
    id: str | None = None
    tries: int | None = None
    failed: int | None = None
    free: int | None = None
    next: Millis | None = None
    epoch: int | None = None
    history: str | None = None
    ended: Millis | None = None
    late: Millis | None = None
    error: str | None = None
    by: str | None = None
    target: str | None = None
    target_due: Millis | None = None
    moving: str | None = None
    asked: Millis | None = None


_CODEC = RowCodec(_EventRow, formats={"body": Spread(body_props, body_of)}, sparse=("durability",))


def _written_by_hand() -> Props:
    return new_event(EVENT, BODY, NOW).props


def _written_with_the_codec() -> Props:
    return _CODEC.encode(_EventRow("scheduled", DUE, NOW, EVENT.channel, encoded_size(BODY, b""), BODY))


_ROW: Props = {**_written_by_hand(), "id": "order-1000017", "tries": 1, "epoch": 7, "by": "w"}


def _read_by_hand() -> tuple[Any, ...]:
    """Read what a delivery needs."""
    props = _ROW
    start = max(int(props["due"]), int(props.get("next", 0)))
    return str(props["state"]), start, str(props["channel"]), str(props["id"]), int(props["tries"]), body_of(props), props.get("retry")


def _read_with_the_codec() -> tuple[Any, ...]:
    event = _CODEC.decode(_ROW)
    return event.state, max(event.due, event.next or 0), event.channel, event.id, event.tries, event.body, event.retry


async def measure(run: Run) -> list[Figure]:
    """Measure all four in turns, so that a busy machine slows them alike."""
    if _written_by_hand() != _written_with_the_codec() or _read_by_hand() != _read_with_the_codec():
        raise AssertionError("the codec's rows differ from those written by hand")
    ways: list[Callable[[], object]] = [_written_by_hand, _written_with_the_codec, _read_by_hand, _read_with_the_codec]
    rounds, calls = run.pick(15, 5), run.pick(50_000, 10_000)
    rates: dict[str, list[float]] = {way.__name__: [] for way in ways}
    for done in range(rounds):
        run.report_progress("event rows", done, rounds)
        for way in ways:
            began = time.perf_counter()
            for _ in range(calls):
                way()
            rates[way.__name__].append(calls / (time.perf_counter() - began))
    figures = []
    for verb in ("written", "read"):
        hand, codec = (statistics.median(rates[f"_{verb}_{how}"]) for how in ("by_hand", "with_the_codec"))
        note = f"{hand:,.0f} a second by hand, {codec:,.0f} with the codec: {1e6 / codec - 1e6 / hand:.1f} us more an event"
        figures.append(Figure(f"event rows {verb}: by hand / codec", hand / codec, "", note=note))
    return figures
