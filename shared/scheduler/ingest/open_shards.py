"""The shards that a writer fills: which of them takes an event, when a new one is opened, and what waits to be written to each.

It also chooses the storage account in which the next shard is opened.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import OutcomeUnknown, StorageError, Unavailable
from ...core.ids import Ids
from ...core.settings import Settings
from ..facets import FACETS
from ..keys import MIRRORED, event_row, minute_start, place_of, placed, shard_key
from ..protocol.ingest import Entry, OpenShard
from ..rows import EventToStore
from ..rules import opens_at
from ..timings import (
    ACCOUNT_AVOIDED_FOR,
    CROWDED_SECOND,
    CROWDED_SHARDS,
    CROWDED_SLICE,
    DISPATCH_AHEAD,
    MANY_EVENTS,
    MESSAGE_TAKEN_WITHIN,
    MINUTE,
    NOTE_AFTER,
)


class AccountRotation:
    """The places that take new shards, in turn. Places that did not answer are skipped for a while, unless none is left."""

    def __init__(self, places: Sequence[str], clock: Clock) -> None:
        self._places, self._clock = tuple(places), clock
        self._away: dict[str, float] = {}
        self._turn = 0

    def next(self) -> str:
        """Return the place of the next shard."""
        ready = self._ready() or self._places
        self._turn += 1
        return ready[self._turn % len(ready)]

    def avoid(self, place: str) -> bool:
        """Skip the account for a while, because it did not answer. Return True if another one is left to try."""
        if place not in self._places:
            return False
        self._away[place] = self._clock.monotonic() + ACCOUNT_AVOIDED_FOR
        return bool(self._ready())

    def _ready(self) -> tuple[str, ...]:
        if not self._away:
            return self._places
        now = self._clock.monotonic()
        return tuple(place for place in self._places if self._away.get(place, now) <= now)


OPEN_SHARDS = 512
"""Most shards that are kept open. Older ones are forgotten, which costs only a new shard."""
FORGET_EVERY = 64
"""Shards that are opened between two looks for buckets to forget: a look takes about a tenth of a millisecond."""


_UNSETTLED: Final = OutcomeUnknown("storage did not confirm the event in time")
"""Placeholder for a result that has not arrived."""


class Sink:
    """Collects the results of several entries by number: an ETag if stored, None if the shard is lost, or an error.

    An entry without a result has an unknown outcome.
    """

    def __init__(self, count: int) -> None:
        self._results: list[str | StorageError | None] = [_UNSETTLED] * count
        self._left = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, number: int, result: str | StorageError | None) -> None:
        self._results[number] = result
        self._left -= 1
        if self._left == 0 and not self._done.done():
            self._done.set_result(None)

    async def wait(self, clock: Clock, until: float = math.inf) -> list[str | StorageError | None]:
        """Return the results once all are there, or some time after `until`; see `ended_in_time`."""
        await ended_in_time(self._done, clock, until)
        # A new error for each caller: a raised one keeps its traceback, and with it the caller's variables.
        return [OutcomeUnknown(*_UNSETTLED.args) if each is _UNSETTLED else each for each in self._results]


CONFIRMED_WITHIN = 20.0
"""Seconds after the end of a batch's time in which storage may still answer the writes that have begun."""


class DeadlineExceeded(Unavailable):
    """An event of a batch is not stored, because the time of its batch ended first."""


async def ended_in_time(work: asyncio.Future[None], clock: Clock, until: float) -> bool:
    """Wait for work that is to begin nothing from `until` on; return False if it goes on beyond `CONFIRMED_WITHIN` after it."""
    if until < math.inf:
        try:
            await asyncio.wait((work,), timeout=max(0.0, until + CONFIRMED_WITHIN - clock.monotonic()))
        except asyncio.CancelledError:
            work.cancel()
            raise
        if not work.done():
            return False
    await work
    return True


class PendingEntry(NamedTuple):
    """An event that waits to be written. until: time of the monotonic clock from which it is not written any more."""

    entry: Entry
    sink: Sink
    number: int
    until: float = math.inf


@dataclass(slots=True, eq=False)
class FillingShard:
    """A shard that the writer fills."""

    opened: OpenShard
    pending: deque[PendingEntry] = field(default_factory=deque)
    index: str = ""
    """ETag of the index row as this writer has left it; '' if another process has changed it, or may have."""
    noted: bool = False
    """The index row has, or may have, the counts of the shard."""
    pause: float = NOTE_AFTER
    """Seconds without a new event after which the counts are noted; doubled each time."""
    noting: asyncio.Task[None] | None = None
    task: asyncio.Task[None] | None = None
    filed: asyncio.Task[None] | None = None
    visible: Millis | None = None
    """Time at which its message becomes visible; None until it is sent."""
    announced: int = 0
    """The number of events for which its message was timed."""
    closed: bool = False
    copy: str | None = None
    """ETag of the copy's gate as this writer left it; only for a mirrored shard."""

    def over(self, now: Millis, settings: Settings) -> bool:
        """Return True if no further event goes in."""
        seen = self.visible is not None and now >= self.visible + MESSAGE_TAKEN_WITHIN
        return self.closed or self.opened.lost or seen or self.opened.next_number >= settings.shard_events

    def outgrown(self, now: Millis) -> bool:
        """Return True if the shard's message comes too late for the events that have joined since it was sent."""
        if self.visible is None or self.announced >= MANY_EVENTS or self.opened.next_number < MANY_EVENTS:
            return False
        return now < self.visible and self.opened.wake <= now + DISPATCH_AHEAD

    def fits(self, event: EventToStore, due: Millis, now: Millis, settings: Settings) -> bool:
        """Return True if the event can still go in. due: its delivery time, or `now` if that is past."""
        return self.opened.wake <= due and self.opened.bytes + event.size <= settings.shard_bytes and not self.over(now, settings)

    @property
    def mirrored(self) -> bool:
        """True for a mirrored shard."""
        return self.is_at(MIRRORED)

    def is_at(self, account: str | None) -> bool:
        """Return True if the shard is at this place, or at any for None."""
        return account is None or place_of(self.opened.shard) == account

    def take(self, event: EventToStore) -> str:
        """Reserve room for the event; return its row key."""
        opened = self.opened
        row = event_row(opened.next_number)
        opened.next_number += 1
        opened.bytes += event.size
        return row


type Bucket = tuple[str, Millis, bool]
"""Tenant, start of a minute or of a part of it, and whether its events are mirrored."""


def _tens(minute: Bucket, due: Millis) -> Bucket:
    """Return the bucket of the ten seconds around `due` in its minute."""
    tenant, _, mirrored = minute
    return tenant, due - due % CROWDED_SLICE, mirrored


class FillingShards:
    """One writer's shards, by tenant, minute or part of a minute, and mirroring."""

    def __init__(self, ids: Ids, settings: Settings, rota: AccountRotation) -> None:
        self._ids, self._settings, self._rota = ids, settings, rota
        self._open: dict[Bucket, list[FillingShard]] = {}
        self._openings = 0
        self._full: Counter[tuple[Bucket, Millis]] = Counter()
        """Full shards of each minute and of each part of ten seconds, with the length of the bucket. They decide how long parts are."""

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    @property
    def most(self) -> int:
        """The number of events of a full shard."""
        return self._settings.shard_events

    def place(
        self, tenant: str, event: EventToStore, now: Millis, *, mirrored: bool, account: str | None = None
    ) -> tuple[FillingShard, str]:
        """Return a place for the event in an open shard of its bucket, or in a new one. account: the shard must be at this place."""
        due = max(event.due, now)
        minute = (tenant, minute_start(due), mirrored)
        part = self._part(minute, due)
        key = minute if part == MINUTE else (tenant, due - due % part, mirrored)
        fillings = self._open.setdefault(key, [])
        filling: FillingShard | None = None
        for each in fillings:
            # The shard that wakes last: its owner comes for the first event and stays the shortest time until this one.
            later = filling is None or each.opened.wake > filling.opened.wake
            if later and each.is_at(account) and each.fits(event, due, now, self._settings):
                filling = each
        if filling is None:
            self._full[key, part] += sum(each.opened.next_number >= self._settings.shard_events for each in fillings)
            fillings[:] = [each for each in fillings if not each.over(now, self._settings)]
            if self._part(minute, due) != part:
                return self.place(tenant, event, now, mirrored=mirrored, account=account)
            # Never later than its first event: an event due before the wake-up opens another shard.
            wake = opens_at(event.due, now, part=part, others=len(fillings))
            name = placed(self._ids.name(), MIRRORED if mirrored else account or self._rota.next())
            filling = FillingShard(OpenShard(shard_key(tenant, name), self._ids.name(), wake, FACETS))
            fillings.append(filling)
            # A minute is as young as its parts: it is known to be crowded for as long as they are filled.
            for used in dict.fromkeys((minute, _tens(minute, due), key)):
                if used in self._open:
                    self._open[used] = self._open.pop(used)
            self._forget(now)
        return filling, filling.take(event)

    def _part(self, minute: Bucket, due: Millis) -> Millis:
        """Return the length of the part of this minute that takes an event with this due time now."""
        if not self._full.get((minute, MINUTE)):
            return MINUTE
        return CROWDED_SLICE if self._full[_tens(minute, due), CROWDED_SLICE] < CROWDED_SHARDS else CROWDED_SECOND

    def _forget(self, now: Millis) -> None:
        """Forget the oldest buckets, so that memory is bounded, and those whose owners have come, at the latest with the next look."""
        while len(self._open) > OPEN_SHARDS:
            self._drop(next(iter(self._open)))
        self._openings += 1
        if self._openings % FORGET_EVERY and next(iter(self._open))[1] + MINUTE >= now:
            return
        for key in [key for key in self._open if key[1] + MINUTE < now]:
            self._drop(key)

    def _drop(self, key: Bucket) -> None:
        del self._open[key]
        for part in (MINUTE, CROWDED_SLICE, CROWDED_SECOND):
            self._full.pop((key, part), None)
