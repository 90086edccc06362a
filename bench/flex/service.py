"""The app on the platform, as far as wakes matter: what stores shards, what looks at the index, and what serves shards.

The decisions are production's: the rules of dispatch and repair, the generators that read and store the plan and ask for wakes and
sweeps, and the horizons of messages. The index and an owner's work are models, which keep what matters for the time of a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import batched, groupby
from random import Random
from typing import Any, Final

import orjson

from shared.engine import effects
from shared.engine.effects import Steps
from shared.scheduler import timings
from shared.scheduler.protocol.dispatch import MOST_TOGETHER
from shared.scheduler.rules import MessageState, dispatch_decision, may_recover, opens_at, visible_at
from shared.scheduler.sweeps.looks import LEAST_SPREAD, MOST_EVENTS, MOST_NEAR, SPREAD
from shared.scheduler.sweeps.recovery import EMPTY_LOOKS, recovers_from
from shared.scheduler.wakes.protocol import LookTimes, ask_wake, end_look, parse_wake, read_plan
from shared.scheduler.wakes.rules import GAP, GAP_CLOSE, GAP_NONE, LOOK_FAR, LOOKED_OLD, Plan, is_covered
from shared.scheduler.wakes.service import (
    ASKED_EVERY,
    PLAN_READ_EVERY,
    SWEEP_ROW,
    TICK_READ_EVERY,
    Horizons,
    ask_sweep,
    held_before,
    parse_setting,
)
from shared.storage.names import PK_TICKS, QUEUE_SHARDS, SWEEPS
from shared.storage.ports import ANY, Applied, Insert, Merge, Replace, Row, Upsert, WriteRefused

from .loads import Post
from .platform import Group, Instance, Platform, QueueGroup
from .timeline import Task, Timeline

FULL: Final = 990
"""Events of a full shard."""
SWEEP_EVERY: Final = 60_000
NOTED_AFTER: Final = round(1000 * timings.NOTE_AFTER)
LOOKS_AGAIN: Final = 20
"""Milliseconds after which a look tries again that waits for another look of its process."""
RECOVERED: Final = tuple(round(1000 * each) for each in timings.RECOVER_AT)


@dataclass(eq=False, slots=True)
class Shard:
    """A shard with its index row. dues: due times of its open events, in order."""

    number: int
    wake: int
    dues: list[int]
    minute: int = 0
    """The number of the minute of its events."""
    state: str = "pending"
    resent: int = 0
    rounds: int = 0
    owner: Instance | None = None
    taken: bool = False
    """True once an owner has taken it: its writer puts nothing more into it."""
    visible: int = 0
    """Time at which its message becomes visible, or will."""
    written: int = 0
    """Time of the last event that was stored."""

    @property
    def message(self) -> MessageState:
        """The state of its message, as the rules see it."""
        return MessageState(self.state, self.wake, self.resent, self.rounds)


@dataclass(eq=False, slots=True)
class Process:
    """The memory of a process. started: its start."""

    started: int
    plan: Plan = field(default_factory=Plan)
    plan_read: int = -(10**9)
    ticks_read: int = -(10**9)
    silent: bool = False
    events: dict[int, list[int]] = field(default_factory=dict)
    """The due times of the shards whose events it has read."""
    looks: bool = False
    """True during a look: looks of one process run one after the other."""


class Rows:
    """The rows of `TocsinSweeps` in memory."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}
        self._writes = 0

    def get(self, pk: str, rk: str) -> Row | None:
        return self._rows.get((pk, rk))

    def write(self, pk: str, op: Any) -> Applied | WriteRefused:
        """Carry out one operation."""
        found = self._rows.get((pk, op.rk))
        if isinstance(op, Insert) and found is not None:
            return WriteRefused(0, "exists")
        if isinstance(op, Merge | Replace):
            if found is None:
                return WriteRefused(0, "missing")
            if op.etag not in (ANY, found.etag):
                return WriteRefused(0, "changed")
        before = found.props if found is not None and isinstance(op, Merge) else {}
        self._writes += 1
        self._rows[pk, op.rk] = Row(pk, op.rk, {**before, **op.props}, str(self._writes), 0, 0)
        return Applied([str(self._writes)])


class Service:
    """The app with its groups of functions. wakes: the setting."""

    def __init__(self, platform: Platform, wakes: str, seconds: float, seed: int, *, always: bool = False) -> None:
        """always: the group of `fire_shard` has an instance that is always ready. seconds: length of the run."""
        self.platform, self.line = platform, Timeline()
        self.random = random = Random(seed)
        self.on, self._gap = parse_setting(wakes)
        self.horizons = Horizons(timings.SEND_ALONE, timings.SEND_AHEAD) if self.on else Horizons()
        self.until = round(1000 * seconds)
        self._rows, self._shards, self._count = Rows(), dict[int, Shard](), 0
        self._open: dict[tuple[int, int], list[Shard]] = {}
        self._dispatched = 0
        self._processes: dict[Instance, Process] = {}
        self.late: list[tuple[int, int, int]] = []
        """For each delivered event: its due time, its lateness in milliseconds, and the stage of the fallback then."""
        self.stage = 0
        """1 while wakes come closer together, 2 while messages come earlier. It counts once the messages of the stage before have come."""
        self._stage, self._stage_from = 0, 0
        self.tables, self.wakes, self.swept = 0, 0, 0
        self.longest_wake = 0
        self.used = Counter[str]()
        """Amounts that count for the bill."""
        self.http = Group("http", self.line, platform, random, self._begun)
        self.timer = Group("sweep", self.line, platform, random, self._begun)
        self.fire = QueueGroup("fire", self.line, platform, random, self._begun, serve=self._serve, always=always)
        self.soon = QueueGroup("soon", self.line, platform, random, self._begun, serve=self._serve_soon)
        if always:
            self._begun(self.fire.instances[0])

    def run(self, posts: list[Post], until: int | None = None, window: tuple[float, float] | None = None) -> None:
        """Run with some posts until a time, by default a quarter of an hour after the end. window: seconds for which `used` counts."""
        began = Counter[str]()
        if window is not None:
            self.line.at(round(1000 * window[0]), lambda: began.update(self._counted()))
            self.line.at(round(1000 * window[1]), lambda: self.used.update(self._counted() - began))
        for at, tenant, dues in posts:
            self.line.at(at, self._post, tenant, dues)
        if self.platform.timers != "dead":
            self.line.at(SWEEP_EVERY, self._tick)
        self.line.run(self.until + 900_000 if until is None else until)

    def _counted(self) -> Counter[str]:
        groups = (self.http, self.timer, self.fire, self.soon)
        counts = {"tables": self.tables, "wakes": self.wakes, "sweeps": self.swept, "delivered": len(self.late)}
        return Counter(counts | {each.name: each.executions for each in groups} | {"sent": self.fire.sent + self.soon.sent})

    # Effects of production's generators.

    def _steps[T](self, steps: Steps[T]) -> Generator[int, None, T]:
        """Carry out the effects of a protocol, each of which takes a request's time."""
        took, answer = self.platform.ms("request"), None
        try:
            while True:
                effect = steps.send(answer)
                yield took
                answer = self._carry_out(effect)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _carry_out(self, effect: Any) -> Any:
        if isinstance(effect, effects.Send):
            (self.fire if effect.queue == QUEUE_SHARDS else self.soon).send(effect.text, effect.at)
            return True
        self.tables += 1
        if isinstance(effect, effects.Get):
            return self._rows.get(effect.pk, effect.rk)
        return self._rows.write(effect.pk, effect.ops[0])

    # Processes.

    def _begun(self, instance: Instance) -> None:
        """A process has started: it looks, if nobody has for a while, and searches for lost shards while it is young."""
        self._processes[instance] = Process(self.line.now)
        self.line.start(self._catch_up(instance))
        self.line.start(self._recover(instance))

    def _catch_up(self, instance: Instance) -> Task[None]:
        if self.on:
            looked = (yield from self._steps(read_plan())).looked
            overdue = self.line.now - looked >= LOOKED_OLD
        else:
            overdue = self.line.now - self._dispatched >= timings.SILENCE
        if overdue:
            yield from self._look(instance, None)

    def _recover(self, instance: Instance) -> Task[None]:
        # Each instance is a machine of its own.
        began, empty, before, idle_until = self.line.now, 0, 0, self.line.now + timings.RECOVER_AFTER
        for at in RECOVERED:
            yield at - before
            before = at
            now = self.line.now
            for group in (self.http, self.timer, self.fire, self.soon):
                group.alive()
            if instance.gone <= now or empty == EMPTY_LOOKS:
                return
            if now < idle_until:
                continue
            self.tables += 16
            first, last = now - timings.RECOVER_WITHIN, now + RECOVERED[-1] + timings.MINUTE
            rows = [each for each in self._shards.values() if each.state == "sent" and first <= each.wake <= last]
            empty, idle_until = 0 if rows else empty + 1, recovers_from([each.wake for each in rows], began, proves=False)
            for each in rows:
                # `may_recover` tests the second condition too. Testing it here saves most of the calls.
                if each.owner is None and each.wake <= now and may_recover(each.message, now, ended=False, began=began):
                    self._send_again(each)

    def _glance(self, instance: Instance) -> None:
        """Look at the timer beside other work."""
        if self.on:
            self.line.start(self._check(instance))

    def _check(self, instance: Instance) -> Task[bool]:
        """Do what `TickWatch.check` does."""
        process = self._processes[instance]
        if self.line.now - process.ticks_read >= round(1000 * TICK_READ_EVERY):
            process.ticks_read = self.line.now
            process.silent = yield from self._steps(ask_sweep(self.line.now, process.started))
        return process.silent

    def _ask(self, instance: Instance, message: int, *, sent: bool, warm: bool = False) -> Task[None]:
        """Do what `Wakes.ask` does."""
        if not self.on:
            return
        process, now = self._processes[instance], self.line.now
        known = now - process.plan_read < round(1000 * PLAN_READ_EVERY)
        if known and is_covered(process.plan, message, now, self._gap or process.plan.gap(now), sent=sent, warm=warm):
            return
        process.plan = yield from self._steps(ask_wake(message, now, self._gap, sent=sent, warm=warm))
        process.plan_read = self.line.now

    # Writers.

    def _post(self, tenant: int, dues: list[int]) -> None:
        living = self.http.alive()
        if not living:
            # What a former process has opened is not known to a new one.
            self._open.clear()
        instance = living[0] if living else self._ready_now(self.http)
        self.line.start(self._store(instance, tenant, sorted(dues)))

    def _ready_now(self, group: Group) -> Instance:
        """Return a new instance that is ready now: its start is not part of the run's times."""
        made = Instance(self.line.now, self.line.now, self.line.now)
        group.instances.append(made)
        self._begun(made)
        return made

    def _store(self, instance: Instance, tenant: int, dues: list[int]) -> Task[None]:
        self._glance(instance)
        yield self.http.enter(instance) + self.platform.ms("post")
        filled: dict[int, Shard] = {}
        opened: list[Shard] = []
        for due in dues:
            shard = opened[-1] if opened and self._fits(opened[-1], due) else self._place(tenant, due)
            if shard is None:
                shard = yield from self._open_shard(instance, tenant, due)
                opened.append(shard)
            shard.dues.append(due)
            filled[shard.number] = shard
        for shard in filled.values():
            shard.dues.sort()
            shard.written = self.line.now
            self.tables += 1 + len(shard.dues) // 99
        for shard in opened:
            if self._near(shard, len(shard.dues)):
                self._send(shard, len(shard.dues))
                shard.state = "sent"
        self.http.leave(instance)

    def _place(self, tenant: int, due: int) -> Shard | None:
        """Return an open shard of the minute that the event fits."""
        fits = [each for each in self._open.get((tenant, due // timings.MINUTE), ()) if self._fits(each, due)]
        return max(fits, key=lambda each: each.wake, default=None)

    def _fits(self, shard: Shard, due: int) -> bool:
        """Return True if the event can still go into the shard."""
        over = shard.taken or len(shard.dues) >= FULL or self.line.now >= shard.visible + timings.MESSAGE_TAKEN_WITHIN
        return not over and shard.wake <= due and shard.minute == due // timings.MINUTE

    def _open_shard(self, instance: Instance, tenant: int, due: int) -> Generator[int, None, Shard]:
        now = self.line.now
        shards = self._open.setdefault((tenant, due // timings.MINUTE), [])
        full = any(len(each.dues) >= FULL for each in shards)
        part = timings.CROWDED_SLICE if full else timings.MINUTE
        open_now = [each for each in shards if not each.taken and len(each.dues) < FULL]
        self._count += 1
        made = Shard(self._count, opens_at(due, now, part=part, others=len(open_now)), [], due // timings.MINUTE)
        made.visible = visible_at(made.wake)
        near = made.wake <= now + self.horizons.alone
        if near:
            made.state = "sent"
        shards.append(made)
        self._shards[made.number] = made
        self.tables += 7
        yield self.platform.ms("request")
        yield from self._ask(instance, visible_at(made.wake), sent=near)
        return made

    def _near(self, shard: Shard, events: int) -> bool:
        ahead = self.horizons.full if events >= timings.MANY_EVENTS else self.horizons.alone
        return shard.wake <= self.line.now + ahead

    def _send(self, shard: Shard, events: int, earlier: int = 0) -> None:
        """Send the message of one shard, timed for its events."""
        shard.visible = max(self.line.now, visible_at(shard.wake, events) - earlier)
        self.fire.send(f"s{shard.number} {earlier}", shard.visible)

    def _send_again(self, shard: Shard) -> None:
        shard.resent, shard.rounds = self.line.now, shard.rounds + 1
        self.tables += 2
        self.fire.send(f"s{shard.number}", self.line.now)

    # Looks.

    def _look(self, instance: Instance, at: int | None) -> Task[None]:
        """Do what `Looks` does."""
        self.tables += 16
        if not self.on:
            self._dispatched = self.line.now
            yield self.platform.ms("look")
            yield from self._dispatch(timings.DISPATCH_AHEAD, self.horizons)
            return
        process = self._processes[instance]
        while process.looks:
            yield LOOKS_AGAIN
        process.looks = True
        began = self.line.now
        seen = yield from self._steps(read_plan())
        horizons = self.horizons.at(seen, self._gap or seen.gap(began), began, alive=at is not None)
        yield self.platform.ms("look")
        messages, unsent, near = yield from self._dispatch(LOOK_FAR, horizons)
        alone = yield from self._check(instance)
        yield round(max(1000 * LEAST_SPREAD, 1000 * SPREAD - (self.line.now - began)) * self.random.random())
        plan = yield from self._steps(read_plan())
        if (stage := (GAP, GAP_CLOSE, GAP_NONE).index(plan.gap(self.line.now))) != self._stage:
            self._stage, self._stage_from = stage, self.line.now + timings.SEND_EARLIER
        if self.line.now >= self._stage_from:
            self.stage = self._stage
        times = LookTimes(began, self.line.now, at, process.started)
        beside = yield from self._events_of(process, near)
        yield from self._steps(end_look(plan, messages, unsent, times, self._gap, alone=alone, beside=beside))
        process.looks = False

    def _events_of(self, process: Process, near: list[Shard]) -> Generator[int, None, list[int]]:
        """Return the message times of the events of a few shards; a process reads each shard once."""
        if len(near) > MOST_NEAR:
            return []
        if new := [each for each in near if each.number not in process.events]:
            self.tables += len(new)
            yield self.platform.ms("request")
        process.events = {each.number: process.events.get(each.number, each.dues[:MOST_EVENTS]) for each in near}
        return [visible_at(due) for dues in process.events.values() for due in dues]

    def _dispatch(self, far: int, horizons: Horizons) -> Generator[int, None, tuple[list[int], list[int], list[Shard]]]:
        """Send the messages that are due to be sent, in the order of wake-ups; return the message times as `IndexLook` does."""
        now = self.line.now
        # The index is read up to the end of a minute.
        end = (now + far + timings.MINUTE) // timings.MINUTE * timings.MINUTE
        rows = sorted((each for each in self._shards.values() if each.wake < end), key=lambda each: each.wake)
        due: list[tuple[Shard, str]] = []
        messages, unsent = list[int](), list[int]()
        near = [each for each in rows if -timings.MINUTE <= each.wake - now <= timings.DISPATCH_AHEAD]
        for each in rows:
            ahead = horizons.full if self._noted_full(each, now) else horizons.together
            todo = dispatch_decision(each.message, now, ahead=ahead)
            if todo.do != "nothing":
                due.append((each, todo.do))
            messages.append(visible_at(each.wake) - horizons.earlier)
            if each.state != "sent" and todo.do == "nothing":
                unsent.append(messages[-1])
        took = self.platform.ms("row")
        for some in _parts(due):
            yield took * len(some)
            self.tables += 3 * len(some)
            groups: dict[int, list[Shard]] = {}
            # Another look may have sent some of them meanwhile: then they are sent twice, as by production's looks.
            for each, do in some:
                if each.number not in self._shards:
                    continue
                if do == "inspect":
                    if each.owner is None:
                        self._send_again(each)
                elif horizons.shares and len(each.dues) < timings.MANY_EVENTS:
                    groups.setdefault(_period(each), []).append(each)
                else:
                    self._send(each, len(each.dues), horizons.earlier)
                    each.state = "sent"
            asked = {period: min(visible_at(each.wake, len(each.dues)) for each in group) for period, group in groups.items()}
            held = {
                period: held_before(at, self.line.now, horizons.held) if len(due) <= MOST_TOGETHER else 0 for period, at in asked.items()
            }
            waited = 0
            for period in sorted(groups, key=lambda each: held[each]):
                yield held[period] - waited
                waited, group = held[period], groups[period]
                at = max(self.line.now, asked[period] - horizons.earlier)
                self.fire.send(f"s{','.join(str(each.number) for each in group)} {horizons.earlier}", at)
                for each in group:
                    each.visible, each.state = at, "sent"
        return messages, unsent, near

    def _noted_full(self, shard: Shard, now: int) -> bool:
        """Return True if the index row shows that the shard has many events."""
        far = shard.wake > shard.written + NOTED_AFTER + timings.DISPATCH_AHEAD
        noted = far and now >= shard.written + NOTED_AFTER and shard.state != "sent" and shard.wake > now
        return noted and len(shard.dues) >= timings.MANY_EVENTS

    # The functions of queues.

    def _serve(self, instance: Instance, text: str) -> None:
        at = parse_wake(text)
        if at is not None:
            self.line.start(self._wake(instance, at))
        else:
            numbers, _, earlier = text[1:].partition(" ")
            self.line.start(self._invocation(instance, [int(each) for each in numbers.split(",")], int(earlier or 0)))

    def _wake(self, instance: Instance, at: int) -> Task[None]:
        self.wakes += 1
        began = self.line.now
        self._glance(instance)
        yield self.fire.enter(instance)
        yield from self._look(instance, at)
        self.fire.finished(instance)
        self.longest_wake = max(self.longest_wake, self.line.now - began)

    def _invocation(self, instance: Instance, numbers: list[int], earlier: int) -> Task[None]:
        self._glance(instance)
        yield self.fire.enter(instance)
        left = len(numbers)

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.fire.finished(instance)

        for number in numbers:
            self.line.start(self._own(instance, number, earlier, ended, shared=len(numbers) > 1))

    def _own(self, instance: Instance, number: int, earlier: int, ended: Callable[[], None], *, shared: bool) -> Task[None]:
        """Serve a shard as its owner does."""
        yield self.platform.ms("claim")
        shard = self._shards.get(number)
        if shard is None:
            ended()
            return
        if shard.owner is not None:
            # A second message for it: it comes back when the owner would be silent for too long.
            if not (shared and shard.owner is instance):
                self.fire.send(f"s{number}", self.line.now + timings.OWNER_SILENT + 1_000)
            ended()
            return
        shard.owner, shard.taken = instance, True
        instance.serving += 1
        self.tables += 12
        if len(shard.dues) > 1:
            yield round(len(shard.dues) * 1000 * self.platform.load_each)
        while shard.dues:
            wait = shard.dues[0] - self.line.now
            stays = timings.REST_BEYOND_BUSY if instance.serving >= timings.BUSY_OWNERS else timings.REST_BEYOND
            if wait > max(stays, earlier and timings.REST_BEYOND + timings.ANNOUNCE_TOGETHER + earlier):
                yield from self._rest(instance, shard, earlier)
                break
            if wait > 0:
                yield wait
            self._deliver(instance, shard)
        else:
            yield max(0, instance.delivering_until - self.line.now) + self.platform.ms("settle")
            self._shards.pop(number, None)
        shard.owner = None
        instance.serving -= 1
        ended()

    def _deliver(self, instance: Instance, shard: Shard) -> None:
        """Deliver the events that are due, one after the other at the speed of the instance."""
        now, each = self.line.now, self.platform.deliver * 1000
        while shard.dues and shard.dues[0] <= now:
            due = shard.dues.pop(0)
            begins = max(float(now), instance.delivering_until)
            instance.delivering_until = round(begins + each)
            self.late.append((due, round(begins + each) - due, self.stage))

    def _rest(self, instance: Instance, shard: Shard, earlier: int) -> Task[None]:
        """Leave a shard until its next event."""
        yield self.platform.ms("settle")
        now = self.line.now
        shard.wake = shard.dues[0]
        near = shard.wake <= now + self.horizons.alone
        shard.state, shard.resent, shard.rounds = "sent" if near else "pending", 0, 0
        first = sum(shard.wake <= due <= shard.wake + timings.CLAIM_AHEAD for due in shard.dues)
        yield from self._ask(instance, visible_at(shard.wake, first), sent=near, warm=True)
        if near:
            self._send(shard, first, earlier)

    # Sweeps.

    def _tick(self) -> None:
        now = self.line.now
        if now >= self.until or (self.platform.timers == "stopped" and now >= self.until // 2):
            return
        self.line.at(now + SWEEP_EVERY, self._tick)
        living = self.timer.alive()
        if living:
            self.line.start(self._sweep(living[0]))
        elif self.platform.timers == "late":
            made = self.timer.start()
            self.line.at(made.ready, lambda: self.line.start(self._sweep(made)))
        else:
            self.line.start(self._sweep(self._ready_now(self.timer)))

    def _sweep(self, instance: Instance) -> Task[None]:
        yield self.timer.enter(instance)
        yield from self._steps(_begins(self.line.now))
        yield from self._swept(instance)
        self.timer.leave(instance)

    def _swept(self, instance: Instance) -> Task[None]:
        self.swept += 1
        self.tables += 8
        began = self.line.now
        yield from self._look(instance, None)
        yield max(0, began + self.platform.ms("sweep") - self.line.now)

    def _serve_soon(self, instance: Instance, text: str) -> None:
        self.line.start(self._sweep_asked(instance, int(orjson.loads(text)["sweep"])))

    def _sweep_asked(self, instance: Instance, at: int) -> Task[None]:
        """Do what `Timers` does with a message that asks for a sweep."""
        yield self.soon.enter(instance)
        if self.line.now - at < ASKED_EVERY:
            yield from self._steps(_answers(self.line.now))
            yield from self._swept(instance)
        self.soon.finished(instance)


def _period(shard: Shard) -> int:
    """Return the number of the period in which small shards share a message."""
    return visible_at(shard.wake) // timings.ANNOUNCE_TOGETHER


def _parts(due: list[tuple[Shard, str]]) -> Iterator[list[tuple[Shard, str]]]:
    """Return shards in the parts in which a look dispatches them: those of a period stay together if they fit."""
    part: list[tuple[Shard, str]] = []
    for _, alike in groupby(due, lambda each: _period(each[0])):
        for some in batched(alike, MOST_TOGETHER):
            if len(part) + len(some) > MOST_TOGETHER:
                yield part
                part = []
            part += some
    if part:
        yield part


def _begins(now: int) -> Steps[None]:
    yield from effects.write(SWEEPS, PK_TICKS, Upsert(SWEEP_ROW, {"began": now}))


def _answers(now: int) -> Steps[None]:
    row = yield from effects.get(SWEEPS, PK_TICKS, SWEEP_ROW)
    if row is not None:
        yield from effects.write(SWEEPS, PK_TICKS, Merge(SWEEP_ROW, {"answered": now}, row.etag))
