"""The app on the platform of `bench flex`, for loads of many instances. Each event counts for the limits and for the bill.

Each POST stores the events of one full shard. Loading, claims and settlements cost what docs/explain/scale.md says, and an instance
delivers one event after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Final

from shared.scheduler import timings
from shared.scheduler.wakes.service import Horizons
from shared.whatif.twin.cpu import Charges

from ..flex.platform import Instance, Platform
from ..flex.service import Service, Shard
from ..flex.timeline import Task
from .meters import TOGETHER, Meters, parts
from .polled import PolledQueue

CORE: Final = 0.25
"""Cores of an instance of 512 MB."""
DELIVER: Final = 0.001
"""Seconds of such an instance for an event, claim and settlement included: `bench herd --as 512`."""
CHARGES: Final = Charges()
INGEST: Final = (CHARGES.ingest + CHARGES.row + CHARGES.request / TOGETHER) / CORE
"""Seconds of such an instance for an event of a batch."""
HTTP_AT_ONCE: Final = 16
"""Requests for which the controller wants an instance: `httpConcurrency` of 512 MB."""
TAKE, END, FILE = 4, 4, 2
"""Rows that are read or written beside the events: to take a shard, to end it, and to file it in the index."""
SLICE: Final = 10
"""Events that are delivered in one step of the model."""


class ScaledService(Service):
    """The app. Its time of a delivery is `DELIVER`, and not that of the platform."""

    def __init__(self, platform: Platform, seconds: float, seed: int, steady_from: float = 0.0) -> None:
        """steady_from: seconds from which lateness counts apart."""
        super().__init__(platform, "auto", seconds, seed)
        self._steady_from = round(1000 * steady_from)
        self.meters = Meters()
        self.fire = PolledQueue("fire", self.line, platform, self.random, self._begun, serve=self._serve, operations=self.meters.queue)
        self._computes: dict[Instance, int] = {}
        """Time until which each instance that answers requests computes."""
        self.answered = Counter[int]()
        """Milliseconds that POSTs took."""
        self.first, self.steady = Counter[int](), Counter[int]()
        """Events by their lateness in milliseconds: those that are due before the steady time, and in it."""
        self.http_most = 0

    def _post(self, tenant: int, dues: list[int]) -> None:
        now, living = self.line.now, self.http.alive()
        if not living:
            living = [self._ready_now(self.http)]
        ready = [each for each in living if each.ready <= now] or living
        least = min(ready, key=lambda each: each.running)
        if least.running >= HTTP_AT_ONCE and len(ready) == len(living):
            living = [*living, self.http.start()]
        self.http_most = max(self.http_most, len(living))
        self.line.start(self._store(least, tenant, dues))

    def _store(self, instance: Instance, tenant: int, dues: list[int]) -> Task[None]:
        began, events = self.line.now, len(dues)
        self._glance(instance)
        took = self.http.enter(instance) + self.platform.ms("post")
        until = max(self.line.now, self._computes.get(instance, 0)) + round(1000 * events * INGEST)
        self._computes[instance] = until
        yield max(took, until - self.line.now)
        shard = yield from self._open_shard(instance, tenant, dues[0])
        shard.dues, shard.written = dues, self.line.now
        self.meters.file(self.line.now, FILE, FILE)
        self.meters.rows(self.line.now, shard.number, events + parts(events))
        self.meters.transactions += parts(events)
        if self._near(shard, events):
            self._send(shard, events)
            shard.state = "sent"
        self.answered[self.line.now - began] += 1
        self.http.leave(instance)

    def _dispatch(self, far: int, horizons: Horizons) -> Task[tuple[list[int], list[int], list[Shard]]]:
        now = self.line.now
        end = (now + far + timings.MINUTE) // timings.MINUTE * timings.MINUTE
        read = sum(each.wake < end for each in self._shards.values())
        self.meters.file(now, read, read // 1000)
        return (yield from super()._dispatch(far, horizons))

    def _own(self, instance: Instance, number: int, earlier: int, ended: Callable[[], None], *, shared: bool) -> Task[None]:
        yield self.platform.ms("claim")
        shard = self._shards.get(number)
        if shard is None:
            ended()
            return
        if shard.owner is not None:
            if not (shared and shard.owner is instance):
                self.fire.send(f"s{number}", self.line.now + timings.OWNER_SILENT + 1_000)
            ended()
            return
        events, meters = len(shard.dues), self.meters
        shard.owner, shard.taken = instance, True
        meters.file(self.line.now, TAKE, TAKE - 1)
        meters.rows(self.line.now, number, events)
        # To load the events, to claim and to settle them.
        meters.transactions += 1 + 2 * parts(events)
        yield round(events * 1000 * self.platform.load_each)
        for due, alike in groupby(shard.dues):
            left = sum(1 for _ in alike)
            late = self.steady if due >= self._steady_from else self.first
            meters.rows(max(self.line.now, due - timings.CLAIM_AHEAD), number, left)
            yield max(0, due - self.line.now)
            while left:
                some = min(left, SLICE)
                left -= some
                begins = max(self.line.now, instance.delivering_until)
                instance.delivering_until = ends = begins + round(1000 * DELIVER * some)
                late[(begins + ends) // 2 - due] += some
                meters.rows(ends + round(1000 * timings.SETTLE_WITHIN / 2), number, some)
        yield max(0, instance.delivering_until - self.line.now) + self.platform.ms("settle")
        meters.file(self.line.now, END, END - 1)
        del self._shards[number]
        shard.owner = None
        ended()
