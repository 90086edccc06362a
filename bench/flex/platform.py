"""A model of Flex Consumption: groups of functions that go to zero, the scale controller that starts them, and the listener of a queue.

Nothing here was measured on Azure. Each parameter has its source, and a run can change each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random
from typing import Annotated, Final, Literal

from shared.storage.limits import whole_seconds

from ..cost.rules import Spell
from .timeline import Timeline

type Timers = Literal["ahead", "late", "dead", "stopped"]
_LISTENER: Final = "source of the queue listener; host.json"


@dataclass(frozen=True, slots=True)
class Platform:
    """The parameters, each with its meaning and its source. Times in seconds unless said."""

    poll: Annotated[
        float, "pause between two looks of the scale controller at a queue", "durable-extension#391: 10 s, written of other plans"
    ] = 10
    cold: Annotated[
        float, "start of an instance, until it polls its queue", "assumed; import of the app measured: 1.5 s of CPU at a quarter core"
    ] = 6
    jitter: Annotated[float, "share by which a cold start is shorter or longer", "assumed"] = 0.2
    idle: Annotated[float, "pause after which an instance without work may go", "Azure-Functions#2581: anything beyond 30 s"] = 30
    timers: Annotated[
        Timers,
        "ahead: the timer's instance is there at the tick; late: it starts then; dead: no tick ever comes; stopped: none from half-way on",
        "WebJobs SDK's TimerListener; azure-functions-host#11828, #11812",
    ] = "ahead"
    votes: Annotated[int, "looks of the controller without a visible message after which an instance goes; 0: no such rule", "assumed"] = 0
    stuck: Annotated[
        float, "share of queue messages that are lost with an instance, and come back later", "azure-functions-host#10373: 0.5 %"
    ] = 0.0
    hidden: Annotated[float, "time after which such a message comes back", "source of the queue listener: its lease"] = 600
    first_poll: Annotated[float, "pause of the queue's listener after a message", _LISTENER] = 0.1
    longest_poll: Annotated[float, "longest pause; each is twice the one before", _LISTENER] = 2.0
    per_instance: Annotated[
        int,
        "messages of a queue, hidden ones included, for which the controller wants an instance",
        "QueueTargetScaler: batchSize + newBatchThreshold",
    ] = 64
    first: Annotated[
        float, "further time of a process's first invocation", "measured: exporters and storage are opened, at a quarter core"
    ] = 0.5
    request: Annotated[float, "a request to storage", "estimated: 10 ms"] = 0.01
    look: Annotated[float, "reading the index", "estimated: 16 requests side by side at a quarter core"] = 0.1
    row: Annotated[float, "sending a shard's message", "estimated: three requests, 60 to 100 rows a second at a quarter core"] = 0.012
    claim: Annotated[
        float, "taking a shard, loading and claiming its event", "estimated: 150 ms measured with a whole core, with reserve"
    ] = 0.25
    load_each: Annotated[float, "loading and claiming each further event", "measured with a whole core: timings.WAKE_EARLY_EACH"] = 0.0032
    deliver: Annotated[
        float,
        "an instance's time for a delivery",
        "measured at a quarter core that storage shared: 412 of 5,000 at one instant a second; the app alone: 1,259, so with reserve",
    ] = 0.0024
    settle: Annotated[float, "storing the outcome and leaving the shard", "measured: bench cost, fire_shard"] = 0.25
    sweep: Annotated[float, "a sweep", "measured: bench cost, 0.2 to 0.9 s"] = 0.5
    post: Annotated[float, "a POST of an event", "measured: bench cost, events_create"] = 0.05

    def ms(self, name: str) -> int:
        """Return a time in milliseconds."""
        return round(1000 * float(getattr(self, name)))


@dataclass(eq=False, slots=True)
class Instance:
    """An instance of a group, with one process."""

    ready: int
    found: int
    """Time at which its listener last found a message."""
    busy_until: int
    always: bool = False
    fresh: bool = True
    """True until its first invocation."""
    running: int = 0
    spells: list[Spell] = field(default_factory=list)
    """Times in seconds during which it executed something."""
    began: int = 0
    gone: float = inf
    serving: int = 0
    """Shards that its owners serve."""
    delivering_until: int = 0


class Group:
    """Functions that share instances. `begin` is called when an instance has started."""

    def __init__(
        self, name: str, timeline: Timeline, platform: Platform, random: Random, begin: Callable[[Instance], None], *, always: bool = False
    ) -> None:
        """always: one instance is always ready."""
        self.name, self.platform, self.begin = name, platform, begin
        self._line, self._random = timeline, random
        self.instances: list[Instance] = []
        self.former: list[Instance] = []
        self._idle, self._poll = platform.ms("idle"), platform.ms("poll")
        self.phase = random.randrange(self._poll)
        """Time of the controller's first look."""
        self.seen = -1
        """The controller's last look that saw a visible message."""
        self.executions = 0
        if always:
            self.instances.append(Instance(0, 0, 0, always=True))

    def alive(self) -> list[Instance]:
        """Return the instances that live or start."""
        now = self._line.now
        for each in list(self.instances):
            if each.always or each.running:
                continue
            idle_since = max(each.busy_until, each.ready)
            gone = idle_since + self._idle
            if self.platform.votes:
                unseen = self.next_look(max(self.seen, each.ready)) + (self.platform.votes - 1) * self._poll
                gone = min(gone, max(unseen, self.next_look(idle_since)))
            if gone <= now:
                each.gone = gone
                self.instances.remove(each)
                self.former.append(each)
        return self.instances

    def next_look(self, after: int) -> int:
        """Return the time of the controller's first look after a time."""
        return self.phase + (max(0, after - self.phase) // self._poll + (after >= self.phase)) * self._poll

    def start(self) -> Instance:
        """Start an instance."""
        took = self.platform.cold * self._random.uniform(1 - self.platform.jitter, 1 + self.platform.jitter)
        ready = self._line.now + round(1000 * took)
        made = Instance(ready, ready, ready)
        self.instances.append(made)
        self._line.at(ready, self._started, made)
        return made

    def _started(self, made: Instance) -> None:
        self.begin(made)
        self.taken_up(made)

    def taken_up(self, made: Instance) -> None:
        """An instance has started."""

    def enter(self, instance: Instance) -> int:
        """Begin an invocation; return the milliseconds that it takes longer because it is the process's first."""
        if not instance.running:
            instance.began = self._line.now
        instance.running += 1
        self.executions += 1
        fresh, instance.fresh = instance.fresh, False
        return self.platform.ms("first") if fresh else 0

    def leave(self, instance: Instance) -> None:
        """End an invocation."""
        instance.running -= 1
        instance.busy_until = self._line.now
        if not instance.running:
            instance.spells.append((instance.began / 1000, self._line.now / 1000))

    def ever(self) -> Sequence[Instance]:
        """Return all instances that there were."""
        return [*self.former, *self.instances]


class QueueGroup(Group):
    """The group of a function with a queue: instances poll the queue, and the controller looks at its length."""

    def __init__(self, *given: object, serve: Callable[[Instance, str], None], **more: object) -> None:
        """serve: begins to serve a message, and calls `finished` at the end."""
        super().__init__(*given, **more)  # type: ignore[arg-type]
        self._serve = serve
        self._waiting: list[str] = []
        """Visible messages that no instance will take."""
        self._visible = 0
        """Visible messages that an instance will take at its next poll."""
        self.length, self.longest, self.sent = 0, 0, 0
        self._look_at = -1
        self.most = len(self.instances)
        """Most instances that the controller wanted."""
        steps, pause, at = [0], self.platform.ms("first_poll"), 0
        while pause < self.platform.ms("longest_poll"):
            at += pause
            steps.append(at)
            pause *= 2
        self._steps = (*steps, at + self.platform.ms("longest_poll"))

    def send(self, text: str, at: int) -> None:
        """Put a message into the queue, visible from `at` on: whole seconds later."""
        now = self._line.now
        self.sent += 1
        self.length += 1
        self.longest = max(self.longest, self.length)
        self._line.at(now + 1000 * whole_seconds(max(0, at - now) / 1000), self._show, text)

    def _next_poll(self, instance: Instance) -> int:
        since = max(self._line.now, instance.ready) - instance.found
        if since <= self._steps[-1]:
            return instance.found + next(each for each in self._steps if each >= since)
        pause = self.platform.ms("longest_poll")
        return instance.found + self._steps[-1] + ceil((since - self._steps[-1]) / pause) * pause

    def _show(self, text: str) -> None:
        """A message becomes visible: an instance takes it at its next poll, and the controller may see it until then."""
        now = self._line.now
        ready = self.alive()
        if not ready:
            self._waiting.append(text)
            self._see(self.next_look(now))
            return
        taker = min(ready, key=lambda each: (self._next_poll(each), each.ready))
        at = self._next_poll(taker)
        self._visible += 1
        if (look := self.next_look(now)) <= at:
            self._see(look)
        self._line.at(at, self._take, taker, text)

    def _see(self, at: int) -> None:
        if at > self._look_at:
            self._look_at = at
            self._line.at(at, self._look)

    def _look(self) -> None:
        """The controller looks at the queue."""
        living = self.alive()
        if not self._waiting and not self._visible:
            return
        self.seen = self._line.now
        # Hidden messages count as visible ones do.
        wanted = max(1, ceil(self.length / self.platform.per_instance))
        self.most = max(self.most, wanted)
        for _ in range(wanted - len(living)):
            self.start()
        if self._waiting:
            self._see(self.next_look(self._line.now))

    def taken_up(self, made: Instance) -> None:
        """See `Group`."""
        waiting, self._waiting = self._waiting, []
        self._visible += len(waiting)
        for text in waiting:
            self._take(made, text)

    def _take(self, instance: Instance, text: str) -> None:
        self._visible -= 1
        self.alive()
        if instance.gone <= self._line.now:
            self._show(text)
            return
        instance.found = instance.busy_until = self._line.now
        if self.platform.stuck and self._random.random() < self.platform.stuck:
            self._line.at(self._line.now + self.platform.ms("hidden"), self._show, text)
            return
        self._serve(instance, text)

    def finished(self, instance: Instance) -> None:
        """End the invocation of a message, and delete it."""
        self.length -= 1
        self.leave(instance)
