"""Virtual time, one store, a network with weather, and tasks that drive lease generators on them.

A task is what a thread is in production: it carries one generator's effects out, one after the other. Each request has a moment of sending,
one at which the store handles it, and one of answering; it can get lost before or after it was handled, and be handled long after nobody
waits for it any more. Clocks of hosts run at rates of their own.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.core.errors import StorageError, Unavailable
from shared.engine.effects import LOST, Get, Load, Receiving, Sending, Wait, Write
from shared.engine.validity import ReceivedAt, SentAt
from shared.storage.blocking import run_through
from shared.storage.memory import MemoryTables
from shared.storage.names import FLEETS
from shared.storage.ports import Applied, Delete, Op, RowQuery, WriteRefused
from tests.simulation.checks.truth import Time, Violation

DATA = "Data"
SPINS = 200
"""Waits of a task that end at once, in a row: beyond that it runs hot."""
SMOOTHED = 5.0
"""Seconds over which a storage with a capacity smooths what is asked of it."""
_AFTER = 1e-7
"""Seconds that a wait ends late, so that a clock's rounding does not end it early."""


class Store(MemoryTables):
    """The twin, which can give equal ETags to writes of a server's row that come within `tick` seconds."""

    def __init__(self, time: Time, *, page_rows: int | None = None, tick: float = 0.0) -> None:
        super().__init__(time, page_rows=page_rows)
        self._time, self._tick = time, tick
        self._counter = itertools.count(1)
        self.listeners: list[Callable[[str, str, Sequence[Op]], None]] = []
        """Called with table, partition key and operations of what is about to be applied, if its conditions hold, and then was."""

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        """See `MemoryTables.write`."""
        found = await super().write(table, pk, ops)
        if isinstance(found, Applied):
            for listener in self.listeners:
                listener(table, pk, ops)
        return found

    def copy(self, table: str, pk: str) -> dict[str, Any]:
        """All rows of a partition as they are now, for `go_back`."""
        return dict(self._tables[table][pk].rows)

    def go_back(self, table: str, pk: str, rows: dict[str, Any]) -> None:
        """Lose all writes since the copy. Its rows have the ETags that they had then; later writes get new ones."""
        partition = type(self._tables[table][pk])()
        partition.rows = dict(rows)
        self._tables[table][pk] = partition

    def _new_etag(self, at: str, rk: str) -> str:
        if self._tick and rk.startswith("s:"):
            return f"t{int(self._time.seconds / self._tick)}"
        return f'W/"{next(self._counter)}"'


@dataclass(slots=True)
class Weather:
    """The network's faults. Chances per request; times in seconds.

    delay: of each way, as a rule, and at most. slow: chance of a delay of up to `slow_up_to`. lose: of the request, or of the answer.
    fail: an answer 500, applied or not. refuse: 503, certainly not applied. capacity: rows that storage reads and writes in a second; it
    refuses what is more. 0 for no limit.
    """

    delay: tuple[float, float] = (0.001, 0.03)
    slow: float = 0.0
    slow_up_to: float = 0.0
    lose: float = 0.0
    fail: float = 0.0
    refuse: float = 0.0
    capacity: float = 0.0


class Throttle:
    """Storage that serves so many rows a second: of what is asked for, smoothed over some seconds, it refuses the share that is more."""

    def __init__(self) -> None:
        self._asked, self._at = 0.0, 0.0

    def refuses(self, rows: int, capacity: float, now: float, chance: float) -> bool:
        """Return True if this request is refused. chance: 0 to 1, drawn for it."""
        self._asked = self._asked * math.exp((self._at - now) / SMOOTHED) + max(1, rows) / SMOOTHED
        self._at = now
        return chance > capacity / self._asked


class Host:
    """One process's machine: its clocks, and whether it runs."""

    def __init__(self, world: World, name: str, rate: float = 1.0, offset: float = 0.0) -> None:
        self.world, self.name, self.rate, self.offset = world, name, rate, offset
        self.wall_offset = 0
        self.alive = True
        self.frozen_until = 0.0
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.freeze_with_next = 0.0
        """Seconds for which it stands still as soon as it sends something; while it is to be a beat, something else goes by."""
        self.freeze_with_beat = False
        self.cut_until = 0.0

    def freeze(self, until: float) -> None:
        """It stands still until then, in true seconds."""
        self.frozen_until = max(self.frozen_until, until)
        self.world.note(self.name, "stands still until", round(self.frozen_until, 4))
        if until != float("inf"):
            self.world.at(until, self.thaw)

    def frozen(self, what: Callable[..., None], *arguments: Any) -> bool:
        """Return True and do `what` later when the machine stands still."""
        if self.world.time.seconds < self.frozen_until:
            self._deferred.append((what, arguments))
            return True
        return False

    def thaw(self, *, early: bool = False) -> None:
        """It goes on, if it is time."""
        now = self.world.time.seconds
        if early:
            self.freeze_with_next, self.frozen_until = 0.0, min(self.frozen_until, now)
        if now >= self.frozen_until:
            deferred, self._deferred = self._deferred, []
            for what, arguments in deferred:
                self.world.at(now, what, *arguments)

    def steady(self) -> float:
        """Seconds of its own steady clock."""
        return self.offset + self.rate * self.world.time.seconds

    def true(self, steady: float) -> float:
        """Return the true second at which the steady clock shows `steady`."""
        return (steady - self.offset) / self.rate

    def wall(self) -> int:
        """Its wall clock, which may be stepped."""
        return self.world.time.now() + self.wall_offset


class Task:
    """One thread of a host. done: called with the generator's result, or with what it raised."""

    __slots__ = ("_bell", "_loaded", "_spins", "_steps", "_ticket", "after", "done", "host", "timeout", "waiting", "world")

    def __init__(self, host: Host, steps: Any, timeout: float, after: Callable[[], None], done: Callable[[Any], None]) -> None:
        self.host, self.world, self.timeout, self.after, self.done = host, host.world, timeout, after, done
        self._steps, self._ticket, self._bell, self._spins = steps, 0, False, 0
        self._loaded: list[Any] = []
        self.waiting = False

    def start(self, at: float) -> None:
        """Begin at this time."""
        self.world.at(at, self._resume, self._ticket, None)

    def wake(self) -> None:
        """End the wait that is under way, or else the next one."""
        if self.waiting:
            self.waiting = False
            self._ticket += 1
            self.world.at(self.world.time.seconds, self._resume, self._ticket, None)
        else:
            self._bell = True

    def _resume(self, ticket: int, answer: Any) -> None:
        if ticket != self._ticket or not self.host.alive:
            return
        if self.host.frozen(self._resume, ticket, answer):
            return
        now = self.world.time.seconds
        self._ticket += 1
        self.waiting = False
        try:
            while True:
                effect = self._steps.throw(answer) if isinstance(answer, StorageError) else self._steps.send(answer)
                kind = type(effect)
                if kind is Sending:
                    answer = SentAt(self.host.steady())
                elif kind is Receiving:
                    answer = ReceivedAt(self.host.steady())
                elif kind is Wait:
                    if not self._bell and effect.until > self.host.steady():
                        self._spins, self.waiting = 0, True
                        self.world.at(max(now, self.host.true(effect.until)) + _AFTER, self._resume, self._ticket, None)
                        break
                    self._spins += not self._bell
                    self._bell, answer = False, None
                    if self._spins > SPINS:
                        raise Violation(f"{self.host.name} runs hot: it waits for {effect.until}, which is past")
                else:
                    self._spins, self._loaded = 0, []
                    self._ask(effect, None)
                    break
        except StopIteration as stop:
            self.after()
            self.done(stop.value)
        except Violation:
            raise
        except Exception as error:
            self.after()
            self.done(error)
        else:
            self.after()

    # -- requests

    def _ask(self, effect: Get | Load | Write, cursor: str | None) -> None:
        """Send one request; a load is one for each page."""
        world, now, ticket = self.world, self.world.time.seconds, self._ticket
        world.counts["requests"] += 1
        weather, dice = world.weather, world.random
        bound = now + self.timeout / self.host.rate
        still = self.host.freeze_with_next
        if still and (type(effect) is Write or not self.host.freeze_with_beat):
            self.host.freeze_with_next = 0.0
            self.host.freeze(now + still)
            if dice.random() < 0.3 and self.host.frozen(self._ask, effect, cursor):
                # It stopped right before the request left.
                return
        if now < self.host.cut_until:
            world.at(bound, self._answered, ticket, effect, None)
            return
        low, high = weather.delay
        there, back = low + (high - low) * dice.random(), low + (high - low) * dice.random()
        if weather.slow and dice.random() < weather.slow:
            there, back = _share(weather.slow_up_to * dice.random(), dice.random())
        fate = dice.random()
        if fate < weather.refuse:
            world.counts["fault: refused"] += 1
            world.at(min(bound, now + there + back), self._answered, ticket, effect, Unavailable("503"))
            return
        fate -= weather.refuse
        handled, answers = True, True
        loses = world.loses(self.host, effect)
        if loses:
            handled, answers = loses == "answer", False
        elif fate < weather.lose:
            world.counts["fault: lost"] += 1
            handled, answers = dice.random() < 0.5, False
        elif fate < weather.lose + weather.fail:
            world.counts["fault: failed"] += 1
            handled, answers = dice.random() < 0.7, False
            bound = min(bound, now + there + back)
        elif there + back > bound - now:
            world.counts["fault: late"] += 1
            answers = False
        if handled:
            world.at(now + there, self._handle, ticket, effect, cursor, now + there + back if answers else None)
        if not answers:
            world.at(bound, self._answered, ticket, effect, None)

    def _handle(self, ticket: int, effect: Get | Load | Write, cursor: str | None, answer_at: float | None) -> None:
        store, found, weather = self.world.store, None, self.world.weather
        if weather.capacity and self._is_throttled(effect, cursor, weather.capacity):
            self.world.counts["fault: throttled"] += 1
            if answer_at is not None:
                self.world.at(answer_at, self._answered, ticket, effect, Unavailable("503"))
            return
        if type(effect) is Write:
            found = run_through(store.write(effect.table, effect.pk, effect.ops))
            self.world.note(self.host.name, effect, found)
        elif answer_at is None:
            return
        elif type(effect) is Get:
            found = (run_through(store.get(effect.table, effect.pk, effect.rk)),)
        else:
            found = run_through(store.query(RowQuery(effect.table, effect.pk, first=effect.first, end=effect.end, cursor=cursor)))
        if answer_at is not None:
            self.world.at(answer_at, self._answered, ticket, effect, found)

    def _is_throttled(self, effect: Get | Load | Write, cursor: str | None, capacity: float) -> bool:
        rows, world = 1, self.world
        if type(effect) is Write:
            rows = len(effect.ops)
        elif type(effect) is Load:
            rows = len(
                run_through(world.store.query(RowQuery(effect.table, effect.pk, first=effect.first, end=effect.end, cursor=cursor))).rows
            )
        return world.throttle.refuses(rows, capacity, world.time.seconds, world.random.random())

    def _answered(self, ticket: int, effect: Get | Load | Write, found: Any) -> None:
        """found: None when no answer came in time."""
        if ticket != self._ticket:
            return
        if self.host.frozen(self._answered, ticket, effect, found):
            return
        if found is None:
            self._resume(ticket, LOST if type(effect) is Write else Unavailable("no answer"))
        elif type(effect) is Get and type(found) is tuple:
            self._resume(ticket, found[0])
        elif type(effect) is Load and not isinstance(found, StorageError):
            self._loaded += found.rows
            if found.next is None:
                self._resume(ticket, self._loaded)
            elif self.host.alive:
                self._ask(effect, found.next)
        else:
            self._resume(ticket, found)


def _share(whole: float, part: float) -> tuple[float, float]:
    return whole * part, whole * (1 - part)


class World:
    """Everything, by one seed."""

    def __init__(self, seed: object, *, page_rows: int | None = None, tick: float = 0.0, traced: bool = True) -> None:
        self.random = random.Random(f"leases {seed}")
        self.time = Time()
        self.store = Store(self.time, page_rows=page_rows, tick=tick)
        run_through(self.store.ensure([FLEETS, DATA]))
        self.weather, self.throttle = Weather(), Throttle()
        self.loses: Callable[[Host, Any], str] = lambda host, effect: ""
        """Asked with each request, for those who want one lost: its `answer`, or the `request`."""
        self.counts: Counter[str] = Counter()
        self.traced = traced
        self.trace: list[tuple[float, str, Any, Any]] = []
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()

    def at(self, when: float, what: Callable[..., None], *arguments: Any) -> None:
        """Do it then."""
        heapq.heappush(self._due, (when, next(self._order), what, arguments))

    def note(self, who: str, what: Any, outcome: Any = None) -> None:
        """Keep an entry for the trace. Its text is made only when it is printed."""
        if self.traced:
            self.trace.append((self.time.seconds, who, what, outcome))

    def run(self, until: float, satisfied: Callable[[], bool] = lambda: False, every: float = 0.25) -> bool:
        """Run until this time, or until `satisfied`, which is called every `every` seconds. Return its last result."""
        ask = self.time.seconds
        due = self._due
        while due and due[0][0] <= until:
            when, _, what, arguments = heapq.heappop(due)
            if when >= ask:
                self.time.seconds = max(self.time.seconds, ask)
                if satisfied():
                    heapq.heappush(due, (when, next(self._order), what, arguments))
                    return True
                ask = when + every
            self.time.seconds = max(self.time.seconds, when)
            what(*arguments)
        self.time.seconds = max(self.time.seconds, until)
        return satisfied()

    def texts(self) -> list[str]:
        """The trace as text."""
        return [f"{at:9.4f}  {who:5}  {_describe(what, outcome)}" for at, who, what, outcome in self.trace]


_SHOWN = ("state", "incarnation", "beat", "take", "drop", "owner", "epoch", "verb", "partition", "server")


def _describe(what: Any, outcome: Any) -> str:
    if not isinstance(what, Write):
        return f"{what}" + (f": {outcome}" if outcome is not None else "")
    ops = []
    for op in what.ops:
        props = {} if isinstance(op, Delete) else op.props
        shown = " ".join(f"{name}={props[name]}" for name in _SHOWN if props.get(name, "") != "")
        ops.append(f"{type(op).__name__.lower()} {op.rk} {shown}".strip())
    result = f"refused at {outcome.at}: {outcome.reason}" if isinstance(outcome, WriteRefused) else "applied"
    return f"{'; '.join(ops)} -> {result}"
