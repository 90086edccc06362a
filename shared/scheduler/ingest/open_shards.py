"""The shards under a writer's pen: which of them takes an event, when a new one is opened, and what waits to be written to each."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.clock import Millis
from ...core.errors import StorageError
from ...core.ids import Ids
from ...core.settings import Settings
from ..keys import MIRRORED, event_row, minute_start, placed, shard_key
from ..protocol.ingest import Entry, OpenShard
from ..rows import NewEvent
from ..rules import opens_at
from ..timings import CROWDED_SLICE, MESSAGE_TAKEN_WITHIN
from .account_rotation import Rota

OPEN_SHARDS = 512
"""Most shards kept open; older ones are forgotten, which costs nothing but a new shard."""


class Sink:
    """Waits for several entries to be settled, each by its number: with its ETag when stored, None when the shard is lost, or an error."""

    def __init__(self, count: int) -> None:
        self.results: list[str | StorageError | None] = [None] * count
        self._left = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, number: int, result: str | StorageError | None) -> None:
        self.results[number] = result
        self._left -= 1
        if self._left == 0 and not self._done.done():
            self._done.set_result(None)

    async def wait(self) -> list[str | StorageError | None]:
        await self._done
        return self.results


class Pending(NamedTuple):
    entry: Entry
    sink: Sink
    number: int


@dataclass(slots=True, eq=False)
class Filling:
    """A shard under the writer's pen."""

    opened: OpenShard
    pending: deque[Pending] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    filed: asyncio.Task[None] | None = None
    visible: Millis | None = None
    """When its message can be seen; None until it is sent."""
    closed: bool = False
    mirrored: bool = False
    copy: str | None = None
    """Of a mirrored shard: the ETag of the copy's gate, as this writer left it."""

    def over(self, now: Millis, settings: Settings) -> bool:
        """Whether nothing more goes in, whatever it is."""
        seen = self.visible is not None and now >= self.visible + MESSAGE_TAKEN_WITHIN
        return self.closed or self.opened.lost or seen or self.opened.next_number >= settings.shard_events

    def fits(self, event: NewEvent, due: Millis, now: Millis, settings: Settings) -> bool:
        """Whether the event can still go in; `due`: when it is to be delivered, or `now` if that is past."""
        return self.opened.wake <= due and self.opened.bytes + event.size <= settings.shard_bytes and not self.over(now, settings)

    def take(self, event: NewEvent) -> str:
        """Make room for the event; its row."""
        opened = self.opened
        row = event_row(opened.next_number)
        opened.next_number += 1
        opened.bytes += event.size
        return row


class Fillings:
    """All of them, by tenant, minute or part of one, and whether they are mirrored. Of one writer."""

    def __init__(self, ids: Ids, settings: Settings, rota: Rota) -> None:
        self._ids, self._settings, self._rota = ids, settings, rota
        self._open: dict[tuple[str, Millis, bool], list[Filling]] = {}
        self._crowded: set[tuple[str, Millis, bool]] = set()
        """The minutes that are filled in parts: those of which a shard was filled."""

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def place(self, tenant: str, event: NewEvent, now: Millis, *, mirrored: bool) -> tuple[Filling, str]:
        """A place in an open shard of the event's bucket, or in a new one."""
        due = max(event.due, now)
        minute = (tenant, minute_start(due), mirrored)
        key = (tenant, due - due % CROWDED_SLICE, mirrored) if minute in self._crowded else minute
        fillings = self._open.setdefault(key, [])
        fitting = [each for each in fillings if each.fits(event, due, now, self._settings)]
        # The one that wakes last: its owner, who comes for its first event, has the least time to stay for this one.
        filling = max(fitting, key=lambda each: each.opened.wake, default=None)
        if filling is None:
            if minute not in self._crowded and any(each.opened.next_number >= self._settings.shard_events for each in fillings):
                self._crowded.add(minute)
                return self.place(tenant, event, now, mirrored=mirrored)
            fillings[:] = [each for each in fillings if not each.over(now, self._settings)]
            # Never before its time: what is due earlier than the wake-up opens another shard.
            wake = opens_at(event.due, now, crowded=minute in self._crowded)
            name = placed(self._ids.name(), MIRRORED if mirrored else self._rota.next())
            filling = Filling(OpenShard(shard_key(tenant, name), self._ids.name(), wake), mirrored=mirrored)
            fillings.append(filling)
            self._open[key] = self._open.pop(key)
            self._forget(now)
        return filling, filling.take(event)

    def _forget(self, now: Millis) -> None:
        """Bound what is kept: buckets whose owners have come, then the oldest."""
        for key in [key for key in self._open if key[1] + 60_000 < now]:
            del self._open[key]
        while len(self._open) > OPEN_SHARDS:
            del self._open[next(iter(self._open))]
        self._crowded &= self._open.keys()
