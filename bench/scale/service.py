"""The app on the platform of `bench flex`, for loads of many instances. Each event counts for the limits and for the bill.

Each POST stores the events of one full shard. Processes share the full shards of one time by production's `Bursts`. Loading, claims and
settlements cost what docs/explain/scale.md says, and an instance delivers one event after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final

from shared.engine.effects import Steps
from shared.scheduler import timings
from shared.scheduler.firing.invocations import Bursts
from shared.scheduler.protocol.dispatch import ShardMessage, parse_message
from shared.scheduler.wakes.protocol import parse_wake
from shared.scheduler.wakes.service import Horizons
from shared.whatif.twin.cpu import Charges

from ..flex.platform import Instance, Platform
from ..flex.service import Service, Shard
from ..flex.timeline import Task, Timeline
from .meters import TOGETHER, Meters, parts
from .polled import PolledQueue

CHARGES: Final = Charges()


@dataclass(frozen=True, slots=True)
class Size:
    """A size of an instance. deliver: its seconds for an event, claim and settlement included. http: requests for which the controller
    wants an instance."""

    memory_mb: int
    cores: float
    deliver: float
    http: int

    @property
    def ingest(self) -> float:
        """Seconds for an event of a batch."""
        return (CHARGES.ingest + CHARGES.row + CHARGES.request / TOGETHER) / self.cores

    @property
    def step(self) -> int:
        """Events of one step of the model, which are due together."""
        return round(STEP / self.deliver)

    @property
    def speed(self) -> float:
        """Speed relative to the smallest size, for which the platform's times hold."""
        return self.cores / SMALL.cores


SMALL: Final = Size(512, 0.25, 0.001, 16)
"""deliver: `bench herd --as 512`; http: what `infra/` sets."""
LARGE: Final = Size(2048, 1.0, 0.0001, 64)
"""deliver: `Charges`, rounded up."""
COMPUTED: Final = ("first", "look", "row", "sweep", "post")
"""Times of the platform that are computing, and shorter on a larger instance."""
TAKE, END, FILE = 4, 4, 2
"""Rows that are read or written beside the events: to take a shard, to end it, and to file it in the index."""
STEP: Final = 0.01
"""Seconds of delivering that are one step of the model."""


class _Pause:
    """Lets a coroutine of production wait in the model: it yields milliseconds."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def __await__(self) -> Generator[int]:
        yield self._milliseconds


class _LineClock:
    """The clock of production's coroutines in the model."""

    def __init__(self, line: Timeline) -> None:
        self._line = line

    def now(self) -> int:
        return self._line.now

    def monotonic(self) -> float:
        return self._line.now / 1000

    async def sleep(self, seconds: float) -> None:
        await _Pause(round(1000 * seconds))


def driven[T](work: Coroutine[int, None, T]) -> Task[T]:
    """Return a task of the model that does the work of a coroutine which waits by `_LineClock` alone."""
    try:
        while True:
            yield work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class ScaledService(Service):
    """The app, on instances of a size."""

    fire: PolledQueue

    def __init__(self, size: Size, seconds: float, seed: int, steady_from: float = 0.0) -> None:
        """steady_from: seconds from which lateness counts apart."""
        given = Platform()
        platform = replace(given, **{name: getattr(given, name) / size.speed for name in COMPUTED})
        super().__init__(platform, "auto", seconds, seed)
        self._size = size
        self._steady_from = round(1000 * steady_from)
        self.meters = Meters()
        self.fire = PolledQueue("fire", self.line, platform, self.random, self._begun, serve=self._serve, operations=self.meters.queue)
        self._computes: dict[Instance, int] = {}
        """Time until which each instance that answers requests computes."""
        self.answered = Counter[int]()
        """Milliseconds that POSTs took."""
        self.delivered = Counter[Instance]()
        self.first, self.steady = Counter[int](), Counter[int]()
        """Events by their lateness in milliseconds: those that are due before the steady time, and in it."""
        self.http_most = 0
        self._bursts: dict[Instance, Bursts] = {}
        self._services: Any = SimpleNamespace(
            runner=SimpleNamespace(run=self.run_steps), clock=_LineClock(self.line), ids=self, counters=Counter[str]()
        )

    # What `Bursts` needs of a process.

    async def run_steps[T](self, steps: Steps[T]) -> T:
        """Carry out the steps at once."""
        answer = None
        try:
            while True:
                answer = self._carry_out(steps.send(answer))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def name(self) -> str:
        """Return a name of a process."""
        return f"{self.random.random():.16f}"

    def chance(self) -> float:
        """Return a number from 0 to 1."""
        return self.random.random()

    def _post(self, tenant: int, dues: list[int]) -> None:
        living = self.http.alive()
        ready = [each for each in living if each in self._processes] or [self._ready_now(self.http)]
        least = min(ready, key=lambda each: each.running)
        if least.running >= self._size.http and len(ready) == len(living):
            self.http.start()
        self.http_most = max(self.http_most, len(self.http.instances))
        self.line.start(self._store(least, tenant, dues))

    def _store(self, instance: Instance, tenant: int, dues: list[int]) -> Task[None]:
        began, events = self.line.now, len(dues)
        self._glance(instance)
        took = self.http.enter(instance) + self.platform.ms("post")
        until = max(self.line.now, self._computes.get(instance, 0)) + round(1000 * events * self._size.ingest)
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

    def _serve(self, instance: Instance, text: str) -> None:
        if text.startswith("{") and parse_wake(text) is None:
            self.line.start(self._again(instance, parse_message(text)))
        else:
            super()._serve(instance, text)

    def _again(self, instance: Instance, message: ShardMessage) -> Task[None]:
        """Serve a message that another process has passed on."""
        yield self.fire.enter(instance)
        yield from self._taken(instance, message, lambda: self.fire.finished(instance))

    def _own(self, instance: Instance, number: int, earlier: int, ended: Callable[[], None], *, shared: bool) -> Task[None]:
        shard = self._shards.get(number)
        full = shard is not None and len(shard.dues) >= timings.MANY_EVENTS
        wake = shard.wake if shard is not None and full else 0
        yield from self._taken(instance, ShardMessage(str(number), "", wake=wake, earlier=earlier), ended)

    def _taken(self, instance: Instance, message: ShardMessage, ended: Callable[[], None]) -> Task[None]:
        """Serve a shard, or pass its message on as production does."""
        bursts = self._bursts.setdefault(instance, Bursts(self._services))
        if message.wake and (yield from driven(bursts.leave(message))):
            ended()
            return
        with bursts.serving(message) if message.wake else nullcontext():
            yield from self._served(instance, int(message.shard), ended)

    def _served(self, instance: Instance, number: int, ended: Callable[[], None]) -> Task[None]:
        yield self.platform.ms("claim")
        shard = self._shards.get(number)
        if shard is None:
            ended()
            return
        if shard.owner is not None:
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
            left = len(list(alike))
            late = self.steady if due >= self._steady_from else self.first
            meters.rows(max(self.line.now, due - timings.CLAIM_AHEAD), number, left)
            yield max(0, due - self.line.now)
            while left:
                some = min(left, self._size.step)
                left -= some
                begins = max(self.line.now, instance.delivering_until)
                instance.delivering_until = ends = begins + max(1, round(1000 * self._size.deliver * some))
                late[ends - due] += some
                self.delivered[instance] += some
                meters.rows(ends + round(1000 * timings.SETTLE_WITHIN / 2), number, some)
        yield max(0, instance.delivering_until - self.line.now) + self.platform.ms("settle")
        meters.file(self.line.now, END, END - 1)
        del self._shards[number]
        shard.owner = None
        ended()
